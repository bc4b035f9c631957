//! The rank among all ranks where another group is counted. In: a function. Out: `get_rank()` without a group that picks a part of what a
//! collective over another group made, or of what the size of another group cuts, or that is handed on beside that size. Never: a rank that
//! is computed with, as in `get_rank() % size`. Source: torch.distributed, `get_rank`: the rank in the group, of all ranks by
//! default. Next: `own_group.rs`.

use super::Found;
use super::all_ranks::{may_be_all, size_in};
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::named_axes::of_size;
use super::near;
use super::own_group::asks_world_rank;
use super::view::View;
use super::wrapped::{function, given};
use crate::infer::scale::groups::words;
use crate::ir::{Arg, ArgKind, BinOp, Const, LocalId, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};
use rustc_hash::FxHashSet;

/// Methods and functions that cut a value into as many parts as they are told.
const CUTS: &[&str] = &["chunk", "tensor_split"];

/// How far a product is followed to a size.
const MOST_DEPTH: usize = 6;

pub fn of_other_group(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, value } = step.stmt else { continue };
        if !asks_world_rank(view, value) && !asks_mesh(view, value) {
            continue;
        }
        let place = view.place(step.id);
        let told = out.iter().any(|(at, _)| *at == place);
        let named = || beside(view, *dst).map(|(name, group)| (group, Some(name)));
        let found = picked(view, *dst, i).map(|group| (group, None)).or_else(named);
        if let Some((group, named)) = found.filter(|_| !told && !may_be_all(view)) {
            out.push((place, Practice::Scales(Scales::WorldRank { group, named })));
        }
    }
}

/// `mesh.get_rank()`, which is the rank among all ranks whatever dims the mesh has.
pub(super) fn asks_mesh<'a>(view: &View<'a>, value: &'a Rvalue) -> bool {
    let Rvalue::CallMethod { base, name, args } = value else { return false };
    let named = |text: &str| text == "mesh" || text.ends_with("_mesh");
    let mesh = match view.expr(base) {
        Expr::Local(local) => named(view.local_name(local)),
        other => other.last_name().is_some_and(named),
    };
    name == "get_rank" && args.is_empty() && mesh
}

/// Where the size of an axis is asked for, if the rank among all ranks is given a name as the rank of that axis: `cp_rank = get_rank()`
/// beside `cp_size = get_context_parallel_world_size()`.
fn beside(view: &View<'_>, rank: LocalId) -> Option<(Name, Place)> {
    let kept = |name: &Name, value: &Operand| near::local(value).filter(|l| *l == rank).map(|_| name.clone());
    let name = match view.is_temp(rank) {
        false => Some(view.local_name(rank).clone()),
        true => view.steps.iter().find_map(|step| match step.stmt {
            Stmt::SetAttr { name, value, .. } => kept(name, value),
            Stmt::Assign { dst, value: Rvalue::Use(value) } => kept(view.local_name(*dst), value),
            _ => None,
        }),
    }?;
    let axes = words(name.trim_start_matches('_').strip_suffix("_rank")?)?;
    let model = axes.iter().all(|a| !matches!(a.name(), "dp" | "fsdp" | "dp_shard" | "world" | "shard" | "data"));
    if !model {
        return None;
    }
    let size = (0..view.steps.len()).find_map(|i| {
        let value = view.value(i)?;
        let Stmt::Assign { dst, .. } = view.steps[i].stmt else { return None };
        let sized = view.callee(value).is_some_and(|p| p.ends_with("world_size") || p == ".size");
        let size = of_size(view, &view.through(&Operand::Local(*dst))).filter(|_| sized)?;
        let same = size.len() == axes.len() && axes.iter().all(|a| size.iter().any(|s| s == a.name()));
        same.then(|| view.place(view.steps[i].id))
    });
    size.map(|place| (name, place))
}

/// Where the other group is named, if the rank picks a part of what belongs to that.
fn picked(view: &View<'_>, rank: LocalId, from: usize) -> Option<Place> {
    let mut held: FxHashSet<LocalId> = [rank].into_iter().collect();
    let mut scaled = None;
    for later in from + 1..view.steps.len() {
        let uses = |o: &Operand| near::local(o).is_some_and(|l| held.contains(&l));
        match view.steps[later].stmt {
            Stmt::SetItem { base, index, .. } if uses(index) => {
                if let Some(place) = group_of(view, base, later) {
                    return Some(place);
                }
            }
            Stmt::Assign { dst, value } => match value {
                Rvalue::Item { base, index } if uses(index) => return group_of(view, base, later).or(scaled),
                Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => {
                    let narrows =
                        view.callee(value).is_some_and(|path| matches!(path.as_str(), ".narrow" | "torch.narrow"));
                    if narrows && args.iter().any(|a| uses(&a.value)) && scaled.is_some() {
                        return scaled;
                    }
                    if let Some(place) = handed_on(view, value, args, &uses) {
                        return Some(place);
                    }
                }
                // A rank from which another is taken is that in another group.
                Rvalue::Binary { op: BinOp::Sub, .. } if scaled.is_none() => {
                    held.remove(dst);
                }
                // Parts that begin at a multiple of the rank.
                Rvalue::Use(_)
                | Rvalue::Build { .. }
                | Rvalue::Binary { op: BinOp::Mul | BinOp::Add | BinOp::Sub, .. }
                    if value.operands().into_iter().any(uses) =>
                {
                    if let Rvalue::Binary { op: BinOp::Mul, left, right } = value {
                        scaled = scaled.or_else(|| [left, right].into_iter().find_map(|o| share_of_group(view, o)));
                    }
                    held.insert(*dst);
                }
                _ => {}
            },
            _ => {}
        }
    }
    None
}

/// Where the size of a group that is not that of all ranks divides something, of which this is the share of each rank.
fn share_of_group(view: &View<'_>, share: &Operand) -> Option<Place> {
    let Expr::Binary(BinOp::FloorDiv, _, by) = view.through(share) else { return None };
    let size = match *by {
        Expr::Local(local) => view.through(&Operand::Local(local)),
        other => other,
    };
    size_in(view, &size, 0).map(|(_, place)| place)
}

/// A group that the caller has to give; one that may be left out is all ranks by default.
pub(super) fn explicit(view: &View<'_>, group: &Operand) -> bool {
    let may_be_left_out = |at: &View<'_>, name: &str| at.func.params.iter().any(|p| p.name == name && p.has_default);
    match near::deep(view, &view.expr(group)) {
        Expr::Local(local) => {
            view.is_as_given(local)
                && !may_be_left_out(view, view.local_name(local))
                && !given(view, local).iter().any(|(caller, _, value)| may_be_all_ranks(caller, value))
        }
        Expr::Attr(_, name) => {
            let methods = near::class_of(view).map_or_else(Vec::new, |class| near::methods(view, class));
            let set = near::class_of(view).map_or_else(Default::default, |class| near::assigned(view, class, &name));
            name != "WORLD"
                && !methods.iter().any(|method| may_be_left_out(method, &name))
                && !set.iter().any(|(method, _, value)| is_all_ranks(method, &method.expr(value)))
        }
        // What a library keeps under the name of the parts of a sequence.
        Expr::Path(path) => is_of_sequence(path.rsplit('.').next().unwrap_or_default()),
        _ => false,
    }
}

/// Parts of names of groups over which a sequence is split.
const OF_SEQUENCE: &[&str] = &["cp", "sp", "seq", "sequence", "context", "ring", "ulysses", "usp"];

/// Whether a name is that of a group over which a sequence is split.
pub(super) fn is_of_sequence(name: &str) -> bool {
    let ends = ["group", "pg"].iter().any(|word| name.to_lowercase().ends_with(word));
    ends && OF_SEQUENCE.iter().any(|word| near::has_part(name, word))
}

/// Whether a value is the group of all ranks.
pub(super) fn is_all_ranks(view: &View<'_>, group: &Expr) -> bool {
    match near::deep(view, group) {
        // A backend of its own, and the same ranks.
        Expr::Call { callee, args, .. } => {
            let ranks = |(kind, _): &(ArgKind, Expr)| match kind {
                ArgKind::Keyword(name) => name == "ranks",
                ArgKind::Positional | ArgKind::Star | ArgKind::DoubleStar => true,
            };
            near::path(view, &callee).is_some_and(|path| path == "torch.distributed.new_group")
                && !args.iter().any(ranks)
        }
        Expr::Attr(_, name) => name == "WORLD",
        Expr::Path(path) => path.ends_with(".WORLD"),
        other => other.is_none(),
    }
}

/// The same, also of an attribute that is set so.
fn may_be_all_ranks(view: &View<'_>, group: &Expr) -> bool {
    let own = near::own_attribute(view, group).zip(near::class_of(view));
    let set = own.map_or_else(Default::default, |(name, class)| near::assigned(view, class, name));
    is_all_ranks(view, group) || set.iter().any(|(method, _, value)| is_all_ranks(method, &method.expr(value)))
}

/// The group that a value belongs to: a collective over it filled the value, or its size says into how many parts the value was cut.
fn group_of<'a>(view: &View<'a>, base: &'a Operand, before: usize) -> Option<Place> {
    let root = near::local(base)?;
    let same = |o: Option<&Operand>| o.and_then(near::local) == Some(root);
    for (at, call) in view.collectives() {
        if !call.group.is_some_and(|g| explicit(view, g)) {
            continue;
        }
        let in_place = call.rule.form == crate::rules::Form::InPlace && same(call.input);
        // A list that is filled in place of this rank's own part is read and written around the collective.
        if (in_place && *at < before) || same(call.output) {
            return Some(view.place(view.steps[*at].id));
        }
    }
    let (_, made) = view.source(base)?;
    let (name, args) = match made {
        Rvalue::Call { callee, args } => (view.through(callee).last_name().map(str::to_owned)?, args),
        Rvalue::CallMethod { name, args, .. } => (name.to_string(), args),
        _ => return None,
    };
    CUTS.contains(&name.as_str()).then(|| args.iter().find_map(|a| size_of(view, &a.value, 0))).flatten()
}

/// Where a value is made as the size of a group that is given, or of a dim of a mesh.
fn size_of<'a>(view: &View<'a>, value: &'a Operand, depth: usize) -> Option<Place> {
    if depth > MOST_DEPTH {
        return None;
    }
    let (step, made) = view.source(value)?;
    if let Expr::Call { callee, args, .. } = view.through(value)
        && let (Expr::Attr(mesh, name), []) = (&*callee, args.as_slice())
        && name == "size"
        && let Expr::Item(_, dim) = near::deep(view, mesh)
        && matches!(*dim, Expr::Const(Const::Str(_)))
    {
        return Some(view.place(view.steps[step].id));
    }
    let args: &'a [Arg] = match made {
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => args,
        Rvalue::Binary { op: BinOp::Mul, left, right } => {
            return [left, right].into_iter().find_map(|o| size_of(view, o, depth + 1));
        }
        _ => return None,
    };
    let Expr::Call { callee, .. } = view.through(value) else { return None };
    let of_group = near::path(view, &callee)? == "torch.distributed.get_world_size";
    let group = view.argument(args, 0, "group")?;
    (of_group && explicit(view, group)).then(|| view.place(view.steps[step].id))
}

/// A call that is given both the rank and the size of a group as such.
fn handed_on<'a>(
    view: &View<'a>,
    value: &'a Rvalue,
    args: &'a [Arg],
    uses: &dyn Fn(&Operand) -> bool,
) -> Option<Place> {
    let Rvalue::Call { callee, .. } = value else { return None };
    let params = &view.project.func(function(view, &view.through(callee))?).params;
    let name = |i: usize, a: &Arg| match &a.kind {
        ArgKind::Keyword(name) => Some(name.clone()),
        ArgKind::Positional => params.get(i).map(|p| p.name.clone()),
        ArgKind::Star | ArgKind::DoubleStar => None,
    };
    let named =
        |i: usize, a: &Arg, words: &[&str]| name(i, a).is_some_and(|n| words.iter().any(|word| n.ends_with(word)));
    let each = || args.iter().enumerate();
    let rank = each().any(|(i, a)| uses(&a.value) && named(i, a, &["rank"]));
    let size = each().filter(|(i, a)| named(*i, a, &["size"])).find_map(|(_, a)| size_of(view, &a.value, 0));
    size.filter(|_| rank)
}
