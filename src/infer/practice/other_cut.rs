//! One sequence that is cut in two ways. In: a function that takes one run of something along the sequence by the own rank. Out: that run, where the file gives each rank of
//! the same group two chunks of tokens, one from either end: the positions of the run are others than those of the tokens. Never: a file that
//! chooses between ways of cutting, anything but positions and what is computed of them, a group of unknown name, or what is gathered or put into another order.
//! Source: Megatron-LM pull request 1612. Next: `mirrored.rs`.

use super::Found;
use super::called::callers;
use super::expr::Expr;
use super::found::Practice;
use super::mirrored::{OwnCut, given, joined, of_call, run, two_chunks};
use super::near;
use super::own_part::helper;
use super::unshared::Unshared;
use super::view::View;
use crate::ir::{ArgKind, Const, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};
use std::rc::Rc;

/// Parts of names of what goes along the positions of a sequence, whatever dim that is. Other tensors have rows, heads or features that are cut too.
const ALONG: &[&str] =
    &["emb", "embs", "rotary", "rope", "freqs", "freq", "cos", "sin", "pos", "position", "positions"];
/// How a file shows that it knows ranks that share a sequence.
pub const RANKS: &[&str] =
    &["cp_rank", "cp_size", "cp_group", "sp_rank", "sp_group", "seq_rank", "ring_rank", "context_parallel"];
/// What stands in a function that takes the part of a rank.
pub const CUTS: &[&str] = &["rank", "chunk(", "cp_", "sp_"];
/// Parts of names of groups whose ranks share a sequence.
const SHARING: &[&str] = &["cp", "sp", "seq", "sequence", "ring", "context"];
/// Parts of names of what has another axis, or another sequence.
const OTHER: &[&str] = &[
    "head", "heads", "weight", "vocab", "expert", "experts", "feature", "features", "param", "grad", "qkv", "vision",
    "image", "visual", "patch", "pixel", "video", "audio", "encoder", "cross", "slopes", "bias", "kv", "table",
];
/// Words of tests that choose how a sequence is cut.
const CHOICES: &[&str] = &[
    "zigzag",
    "zig_zag",
    "balanc",
    "_mode",
    " mode",
    "layout",
    "contiguous_",
    "ulysses",
    "thd",
    "packed",
    "qkv_format",
    "strateg",
    "striped",
    "a2a",
    "scheme",
    "cp_type",
    "comm_type",
];
/// Words of tests that ask how many ranks there are.
const SIZES: &[&str] = &["size", "world", "group", "rank", "initialized", "> 1", "== 1", "training", "none"];
/// Parts of a group's name that say that it is one.
const PLAIN: &[&str] = &[
    "group", "rank", "ranks", "pg", "get", "world", "size", "self", "local", "process", "mesh", "parallel", "my",
    "own", "in",
];

/// `emb.chunk(cp_size, dim=0)[cp_rank]`, and `cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]])`
pub fn runs(view: &View<'_>, out: &mut Found) {
    let cuts = || near::has_any(view.code(), CUTS);
    if !near::has_any(view.file(), &["2 * ", "2*", " * 2"])
        || !cuts()
        || near::has_any(view.code(), &["gather", "all_to_all"])
    {
        return;
    }
    for at in 0..view.steps.len() {
        let Some((of, axis)) = own_run(view, at) else { continue };
        let Some(value) = name_of(view, of).filter(|name| goes_along(view, name)) else { continue };
        if is_chosen(view) || two_chunks(view, of, at).is_some() || is_reordered(view, of, at) {
            return;
        }
        // A rank that goes by any other name may be that of any group.
        if !SHARING.iter().any(|part| near::has_part(&axis, part)) {
            continue;
        }
        let Some(two) = chunks_of(view, &axis) else { continue };
        out.push((view.place(view.steps[at].id), Practice::Unshared(Unshared::OtherCut { value, two })));
        return;
    }
}

/// A run that a step takes by the own rank, itself or by a helper: of what, and the group.
fn own_run<'a>(view: &View<'a>, step: usize) -> Option<(&'a Operand, String)> {
    if !view.steps[step].guards.iter().all(|guard| asks_size(&view.text(view.part(guard.at, 0)).to_lowercase())) {
        return None;
    }
    if let Some(run) = run(view, step) {
        let Stmt::Assign { dst, .. } = view.steps[step].stmt else { return None };
        // Slices that are put together are chunks.
        let put = |at: &usize| match view.value(*at) {
            Some(Rvalue::Build { .. }) => {
                view.binds(*at).iter().any(|l| view.readers(*l).iter().any(|at| joins(view, *at)))
            }
            Some(Rvalue::CallMethod { name, .. }) => name == "append",
            _ => false,
        };
        let alone = run.cut.size.is_some() || !view.readers(*dst).iter().any(put);
        let along = run.dim.is_none_or(|dim| dim >= 0 || name_of(view, run.of).is_some_and(|name| is_flat(&name)));
        return (alone && along).then(|| Some((run.of, axis(view, &run.cut)?)))?;
    }
    let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
        return None;
    };
    let (inner, dim) = of_call(view, step)?;
    if is_chosen(&inner) || dim < 0 || near::has_any(inner.code(), &["gather", "all_to_all"]) {
        return None;
    }
    let (_, bound) = helper(view, value)?;
    let run = (0..inner.steps.len()).find_map(|step| run(&inner, step))?;
    let of = given(&inner, root_param(&inner, run.of)?, args, bound)?;
    Some((of, axis_of_call(view, &inner, &run.cut, args, bound)?))
}

/// Whether a step puts the entries of a list together.
fn joins(view: &View<'_>, step: usize) -> bool {
    let name = view.value(step).and_then(|value| near::written_name(view, value));
    name.is_some_and(|name| matches!(super::lost::last(&name).as_str(), "cat" | "concat" | "hstack" | "stack"))
}

/// The parameter that an operand is, or a view of.
fn root_param(view: &View<'_>, of: &Operand) -> Option<crate::ir::LocalId> {
    near::reached(view, of, |_| true).into_iter().find(|l| view.is_param(*l) && view.local_name(*l) != "self")
}

/// Whether a name is of something with no dim behind the sequence.
fn is_flat(name: &str) -> bool {
    ["ids", "mask", "pos", "position", "positions", "tokens", "labels"].iter().any(|part| near::has_part(name, part))
}

fn name_of(view: &View<'_>, of: &Operand) -> Option<Name> {
    match view.expr(of) {
        Expr::Local(l) => Some(view.local_name(l).clone()),
        Expr::Attr(_, name) => Some(name),
        Expr::Item(_, key) => key.string().cloned(),
        _ => None,
    }
}

/// Whether a name, in its function, is that of something along the sequence.
fn goes_along(view: &View<'_>, name: &str) -> bool {
    let has = |parts: &[&str]| parts.iter().any(|part| near::has_part(name, part));
    let around = view.project.qualname(view.at).to_lowercase();
    (has(ALONG) || near::has_any(&around, &["rotary", "rope", "position"])) && !has(OTHER)
}

/// Whether a test asks how many ranks there are and nothing else.
fn asks_size(test: &str) -> bool {
    near::has_any(test, SIZES) && !near::has_any(test, CHOICES)
}

/// Whether the file tests how a sequence is to be cut, or a caller asks anything else before it calls this.
fn is_chosen(view: &View<'_>) -> bool {
    let text = near::bare(view.file());
    let chooses = |line: &str| {
        let line = line.trim_start();
        let test = line.strip_prefix("if ").or_else(|| line.strip_prefix("elif "));
        let test = test.or_else(|| line.split_once(" if ").map(|(_, test)| test));
        // A string in a format is no test.
        test.is_some_and(|test| near::has_any(test, CHOICES) && !test.contains("training"))
    };
    let guarded = |(caller, step): &(Rc<View<'_>>, usize)| {
        let guards = &caller.steps[*step].guards;
        !guards.iter().all(|guard| asks_size(&caller.text(caller.part(guard.at, 0)).to_lowercase()))
    };
    text.lines().any(chooses) || callers(view).iter().any(guarded)
}

/// Whether a value has been gathered, or put into another order, before it is cut.
fn is_reordered(view: &View<'_>, of: &Operand, before: usize) -> bool {
    let defs = near::reached(view, of, |def| def < before);
    let orders = |def: &usize| {
        view.value(*def).and_then(|value| near::written_name(view, value)).is_some_and(|name| {
            near::has_any(
                &name.to_lowercase(),
                &["gather", "order", "zigzag", "balanc", "permut", "shuffle", "all_to_all"],
            )
        })
    };
    defs.iter().flat_map(|l| view.defs(*l)).any(|def| *def < before && orders(def))
}

/// Where the file puts the two chunks of a rank of a group together, of tokens or a batch.
fn chunks_of(view: &View<'_>, axis: &str) -> Option<Place> {
    near::functions(view, view.at.module).into_iter().find_map(|at| {
        let function = near::shared(view, at);
        let tokens = near::has_any(function.code(), &["token", "label", "ids", "batch", "mask"]);
        if let Some((_, cut)) = joined(&function) {
            let sites = callers(&function);
            let used = sites.iter().any(|(site, _)| near::has_any(site.code(), &["token", "label", "ids", "batch"]));
            if (tokens || used || !sites.is_empty()) && is_same(&function, &cut, axis, &sites) {
                return Some(function.place(function.steps[cut.step].id));
            }
        }
        // Another file may have the helper.
        (0..function.steps.len()).filter(|_| tokens).find_map(|step| {
            let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = function.value(step)
            else {
                return None;
            };
            let (inner, bound) = helper(&function, value).filter(|(inner, _)| inner.module != view.at.module)?;
            let inner = near::shared(view, inner);
            let (_, cut) = joined(&inner)?;
            let same = axis_of_call(&function, &inner, &cut, args, bound).is_some_and(|other| other == axis);
            same.then(|| function.place(function.steps[step].id))
        })
    })
}

/// Whether a chunk from the end is by the rank of a group, as the function says or those who call it.
fn is_same(function: &View<'_>, cut: &OwnCut, wanted: &str, sites: &[(Rc<View<'_>>, usize)]) -> bool {
    if axis(function, cut).is_some_and(|axis| axis == wanted && !axis.is_empty()) {
        return true;
    }
    sites.iter().any(|(site, step)| {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = site.value(*step) else {
            return false;
        };
        let bound = helper(site, value).map_or(0, |(_, bound)| bound);
        axis_of_call(site, function, cut, args, bound).is_some_and(|axis| axis == wanted)
    })
}

/// The group of a rank in a function that is called: as that says, or as its call gives the rank or the group.
fn axis_of_call(
    view: &View<'_>,
    inner: &View<'_>,
    cut: &OwnCut,
    args: &[crate::ir::Arg],
    bound: usize,
) -> Option<String> {
    let own = axis(inner, cut)?;
    if !own.is_empty() {
        return Some(own);
    }
    let rank = near::deep(inner, &cut.rank);
    let mut from = None;
    rank.any(&mut |e| {
        if let Expr::Local(l) = e
            && inner.is_param(*l)
        {
            from = from.or(Some(*l));
        }
        false
    });
    let operand = given(inner, from?, args, bound)?;
    named_axis(view, &near::deep(view, &view.expr(operand)), &view.expr(operand))
}

/// The name of the group whose rank cuts, without what says that it is a group; empty where nothing else is said.
fn axis(view: &View<'_>, cut: &OwnCut) -> Option<String> {
    named_axis(view, &near::deep(view, &cut.rank), &cut.rank)
}

fn named_axis(view: &View<'_>, deep: &Expr, written: &Expr) -> Option<String> {
    let of_written = view.name_or_callee(written).map(plain).filter(|name| !name.is_empty());
    let of_deep = match deep {
        Expr::Call { callee, args, .. } => {
            let name = callee.last_name()?;
            let group = args.iter().find(|(kind, _)| match kind {
                ArgKind::Positional => true,
                ArgKind::Keyword(name) => name.contains("group") || name.contains("dim"),
                _ => false,
            });
            match (group, &**callee) {
                (Some((_, Expr::Const(Const::Str(dim)))), _) => plain(dim),
                (Some((_, group)), _) => plain(view.name_or_callee(group)?),
                (None, Expr::Attr(base, _)) if name == "rank" => plain(view.name_or_callee(base)?),
                (None, Expr::Path(_)) if name == "get_rank" => "world".to_string(),
                // Of some object, whose ranks nobody knows.
                (None, _) if name == "get_rank" => return None,
                (None, _) => plain(name),
            }
        }
        other => plain(view.name_of(other)?),
    };
    Some(if of_deep.is_empty() { of_written.unwrap_or_default() } else { of_deep })
}

fn plain(name: &str) -> String {
    let lower = name.to_lowercase();
    let parts: Vec<&str> = lower.split('_').filter(|part| !part.is_empty() && !PLAIN.contains(part)).collect();
    parts.iter().map(|part| if *part == "context" { "cp" } else { part }).collect::<Vec<_>>().join("_")
}
