//! Shifts along a dim of which each rank has a part. In: a function. Out: tokens that are rolled by one after the rank has cut its part out
//! of the sequence: at the end of a part stands the first token of the same part, and not that of the next one. Never: shifts along
//! another dim or the first, what is written into afterwards, or functions that send or receive. Next: `own_part.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::gradient::root;
use super::membership::Membership;
use super::near;
use super::own_part;
use super::view::{Step, View};
use crate::ir::{Arg, BuildKind, Const, Item, Operand, Rvalue, Stmt, UnOp};

const MOST_DEPTH: usize = 6;
/// Methods whose result has what its tensor has, at the same places.
const SAME: &[&str] = &["contiguous", "clone", "detach", "to", "cuda", "long"];
/// Parts of names of tokens.
const TOKENS: &[&str] = &["label", "labels", "token", "tokens", "target", "targets"];
/// Names of tokens by their numbers. Other numbers that end in `ids` are of positions, segments, rows.
const IDS: &[&str] = &["ids", "input_ids", "token_ids"];
/// What stands before a name of tokens where they are this rank's.
const OWN: &[&str] = &["local", "own", "my", "part", "shard", "sharded", "cp", "sp", "rank"];
/// Parts of names of what is no token.
const OTHERS: &[&str] = &["type", "position", "segment", "mask", "len", "count", "num"];

/// `labels = torch.roll(ids, shifts=-1, dims=1)` after `ids = ids.chunk(n, dim=1)[rank]`.
pub fn rolls(view: &View<'_>, out: &mut Found) {
    let file = view.file();
    if ["send", "recv", "permute("].iter().any(|w| view.code().contains(w)) || file.contains("= -100") {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        let Some((of, shift, dim)) = roll(view, i) else { continue };
        let named = |o: &Operand| match view.expr(o) {
            Expr::Local(l) => {
                let name = view.local_name(l).as_str();
                let words = || name.split('_');
                let ids = name.split_once('_').filter(|(first, _)| OWN.contains(first)).map_or(name, |(_, rest)| rest);
                (IDS.contains(&ids) || words().any(|w| TOKENS.contains(&w))) && !words().any(|w| OTHERS.contains(&w))
            }
            _ => false,
        };
        // Dim 0 may be that of the samples, which are mixed so; and the last place may be written afterwards.
        if shift != -1 || dim == 0 || !named(of) || is_written(view, i) {
            continue;
        }
        if leaves_out_last(view, i) {
            continue;
        }
        let Some((_, cut)) = own_part::part(view, of, i, 0) else { continue };
        if cut_dim(view, of, i, 0).is_some_and(|d| d == dim || d + dim == 0 && d.abs() == 1) {
            out.push((view.place(step.id), Practice::Membership(Membership::ShiftedPart { cut })));
        }
    }
}

/// How code writes into the last place of something, or leaves it out.
const LAST: &[&str] = &[
    "-1] =",
    "-1]=",
    ":-1]",
    ": -1]",
    "index_fill",
    "index_copy",
    "index_put",
    "select_scatter(",
    "slice_scatter(",
    ".select(",
    "narrow(",
];

/// How code makes something that is as long but for the last place.
const SHORTER: &[&str] = &["arange(", "ones(", "split(", "< "];

/// Whether the code behind a step, a caller, or a function that one of these calls does something about the last place.
pub(super) fn leaves_out_last(view: &View<'_>, step: usize) -> bool {
    let file = view.file();
    let (from, to) = (view.place(view.steps[step].id).span.start as usize, view.func.span.end as usize);
    let behind = file.get(from..to).unwrap_or_default();
    let does = |text: &str| {
        text.lines().any(|line| {
            let shorter = near::has_any(line, &["- 1)", "- 1,"]) || line.trim_end().ends_with("- 1");
            near::has_any(line, LAST) || shorter && near::has_any(line, SHORTER)
        })
    };
    let others: Vec<(&str, &str)> = near::functions(view, view.at.module)
        .into_iter()
        .filter(|at| *at != view.at)
        .map(|at| view.project.func(at))
        .filter(|f| !f.name.starts_with('<'))
        .map(|f| (f.name.as_str(), view.text(view.spot(f.span))))
        .collect();
    let calls = |text: &str, name: &str| text.contains(&format!("{name}("));
    let callers: Vec<&str> = others.iter().filter(|(_, text)| calls(text, &view.func.name)).map(|(_, t)| *t).collect();
    let called = |name: &str| calls(behind, name) || callers.iter().any(|text| calls(text, name));
    does(behind)
        || callers.iter().any(|text| does(text))
        || others.iter().any(|(name, text)| called(name) && does(text))
}

/// Whether anything is written into what a step gives, or takes the place of some of it, or only a part of it is read.
pub(super) fn is_written(view: &View<'_>, step: usize) -> bool {
    let Stmt::Assign { dst, .. } = view.steps[step].stmt else { return false };
    let replaces = |s: &usize| match view.value(*s) {
        Some(Rvalue::Item { .. }) => true,
        Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) => {
            view.callee(value).is_some_and(|p| p.ends_with("where") || p.ends_with("masked_fill"))
        }
        _ => false,
    };
    if view.readers(*dst).iter().any(replaces) {
        return true;
    }
    let is_mask = |base: &Operand| root(view, base).is_some_and(|l| view.local_name(l).contains("mask"));
    // A mask of its own may leave out the last place; one of the whole sequence that is cut afterwards does not.
    let masked_before = |(at, s): (usize, &Step<'_>)| match s.stmt {
        Stmt::SetItem { base, .. } => is_mask(base) && own_part::part(view, base, at, 0).is_some(),
        _ => false,
    };
    if view.steps[..step].iter().enumerate().any(masked_before) {
        return true;
    }
    view.steps[step + 1..].iter().any(|s| match s.stmt {
        Stmt::SetItem { base, .. } => is_mask(base) || root(view, base) == Some(*dst),
        Stmt::Assign { value: Rvalue::CallMethod { base, name, .. }, .. } => {
            name.ends_with('_') && root(view, base) == Some(*dst)
        }
        _ => false,
    })
}

/// The subject, the shift and the dim of a roll.
pub(super) fn roll<'a>(view: &View<'a>, step: usize) -> Option<(&'a Operand, i64, i64)> {
    let value = view.value(step)?;
    let path = view.callee(value)?;
    let (of, at, args) = match value {
        Rvalue::CallMethod { base, args, .. } if path == ".roll" => (base, 0, args),
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } if path == "torch.roll" => {
            (&args.first()?.value, 1, args)
        }
        _ => return None,
    };
    Some((of, number(view, view.argument(args, at, "shifts")?)?, number(view, view.argument(args, at + 1, "dims")?)?))
}

pub(super) fn number(view: &View<'_>, operand: &Operand) -> Option<i64> {
    match view.expr(operand) {
        Expr::Const(Const::Int(n)) => Some(n),
        Expr::Unary(UnOp::Neg, n) => match *n {
            Expr::Const(Const::Int(n)) => Some(-n),
            _ => None,
        },
        _ => None,
    }
}

/// The dim along which a value was cut.
pub fn cut_dim(view: &View<'_>, operand: &Operand, before: usize, depth: usize) -> Option<i64> {
    let local = near::local(operand).filter(|_| depth < MOST_DEPTH)?;
    let at = view.defs(local).iter().copied().rfind(|d| *d < before)?;
    let value = view.value(at)?;
    let dim = |args: &[Arg], n: usize| {
        let named = args.iter().find(|a| matches!(&a.kind, crate::ir::ArgKind::Keyword(k) if k == "dim"));
        match named.or_else(|| args.get(n)) {
            Some(arg) => number(view, &arg.value),
            None => Some(0),
        }
    };
    match value {
        Rvalue::Use(inner) => cut_dim(view, inner, at, depth + 1),
        Rvalue::CallMethod { base, name, .. } if SAME.contains(&name.as_str()) => cut_dim(view, base, at, depth + 1),
        Rvalue::CallMethod { name, args, .. } if name == "narrow" => dim(args, 0),
        Rvalue::CallMethod { base, name, args } if name == "unsqueeze" => {
            let (put, cut) = (number(view, view.argument(args, 0, "dim")?)?, cut_dim(view, base, at, depth + 1)?);
            (put >= 0 && cut >= 0).then(|| cut + i64::from(put <= cut))
        }
        Rvalue::Item { base, index } => match view.source(base).map(|(_, made)| made) {
            Some(Rvalue::CallMethod { base: of, name, args })
                if matches!(name.as_str(), "chunk" | "split" | "tensor_split") =>
            {
                dim(args, if matches!(view.through(of), Expr::Path(_)) { 2 } else { 1 })
            }
            _ => sliced(view, index),
        },
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => {
            if view.callee(value).is_some_and(|path| path == "torch.cat") {
                let along = view.argument(args, 1, "dim").map_or(Some(0), |o| number(view, o));
                let parts = &args.first()?.value;
                if let Some(slices) = own_part::appended(view, parts) {
                    return slices
                        .iter()
                        .find_map(|(_, _, index)| sliced(view, index))
                        .filter(|dim| along == Some(*dim));
                }
                let Some((_, Rvalue::Build { items, .. })) = view.source(parts) else { return None };
                let Some(Item::One(first)) = items.first() else { return None };
                return cut_dim(view, first, at, depth + 1).filter(|dim| along == Some(*dim));
            }
            let (func, bound) = own_part::helper(view, value)?;
            let helper = near::other(view, func);
            let (step, given) = own_part::returned(&helper)?;
            cut_dim(&helper, given, step, depth + 1).or_else(|| given_dim(view, &helper, args, bound))
        }
        _ => None,
    }
}

/// The dim that a helper is given, by argument or default.
fn given_dim(view: &View<'_>, helper: &View<'_>, args: &[Arg], bound: usize) -> Option<i64> {
    let at = helper.func.params.iter().position(|p| p.name == "dim")?.checked_sub(bound)?;
    let named = args.iter().find(|a| matches!(&a.kind, crate::ir::ArgKind::Keyword(k) if k == "dim"));
    if let Some(arg) = named.or_else(|| args.get(at)) {
        return number(view, &arg.value);
    }
    match near::default_of(helper, at + bound)? {
        Const::Int(n) => Some(n),
        _ => None,
    }
}

/// The dim of the first slice between bounds in an index.
fn sliced(view: &View<'_>, index: &Operand) -> Option<i64> {
    let bounded = |o: &Operand| match view.source(o) {
        Some((_, Rvalue::Build { kind: BuildKind::Slice, items })) => {
            matches!(&items[..], [Item::One(_), Item::One(stop), ..] if !view.expr(stop).is_none())
        }
        _ => false,
    };
    match view.source(index) {
        Some((_, Rvalue::Build { kind: BuildKind::Tuple, items })) => {
            let plain = items
                .iter()
                .all(|i| matches!(i, Item::One(o) if view.source(o).is_some() || number(view, o).is_none()));
            let at = items.iter().position(|i| matches!(i, Item::One(o) if bounded(o)))?;
            plain.then_some(at as i64)
        }
        _ => bounded(index).then_some(0),
    }
}
