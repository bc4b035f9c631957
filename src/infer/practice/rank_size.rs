//! Ranks that are called sizes, and sizes that are called ranks. In: a function. Out: both exchanged in one function, in the arguments of a
//! call or in what a call returns; a name of the one that is bound to what torch gives for the other. Never: one that is computed from the
//! other, or names that say neither. Source: torch.distributed, `get_rank` and `get_world_size`; DeepSpeed `Backend`. Next: `world_rank.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::slips::Slip;
use super::view::View;
use crate::ir::{Arg, ArgKind, BuildKind, Item, LocalId, Operand, Rvalue, Stmt};
use crate::project::Resolved;
use crate::source::{Name, Place};

/// Whether a name says that it is the number of one rank, or how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Rank,
    Size,
}

/// The samplers of torch that take the number of ranks before the rank, and the place of that argument.
const SAMPLERS: &[(&str, usize)] = &[("DistributedSampler", 1)];

pub const RANKS: &[&str] = &["rank"];
pub const SIZES: &[&str] = &["size", "replicas", "ranks"];

fn says(name: &str) -> Option<Is> {
    let name = name.trim_matches('_');
    match name {
        "rank" | "world_rank" | "local_rank" | "global_rank" | "my_rank" => Some(Is::Rank),
        "size" | "world_size" | "num_ranks" | "nranks" | "num_replicas" | "n_ranks" => Some(Is::Size),
        _ if name.ends_with("_world_size") => Some(Is::Size),
        _ => None,
    }
}

/// What an operand is by its name, and that name.
fn named<'a>(view: &'a View<'_>, operand: &Operand) -> Option<(Is, &'a Name)> {
    let local = near::local(operand).filter(|l| !view.is_temp(*l))?;
    let name = view.local_name(local);
    says(name).map(|is| (is, name))
}

/// `self.world_size = rank`, `self.world_rank = size`
pub fn exchanged(view: &View<'_>, out: &mut Found) {
    let all: Vec<Bound<'_>> = (0..view.steps.len()).filter_map(|i| bound(view, i)).collect();
    for this in &all {
        let other = all.iter().find(|o| o.is != this.is && o.target != this.target && o.owner == this.owner);
        let Some(other) = other else { continue };
        out.push((this.place, slip(this.name, this.given, this.gives, Some(other.place))));
    }
    for i in 0..view.steps.len() {
        asked(view, i, out);
        passed(view, i, out);
        returned(view, i, out);
    }
}

fn slip(name: &Name, given: &str, gives: Is, other: Option<Place>) -> Practice {
    let (name, given) = (name.clone(), Name::from(given));
    Practice::Slips(Slip::RankForSize { name, given, rank_given: gives == Is::Rank, other })
}

/// A name of one kind that is bound to one of the other kind.
struct Bound<'a> {
    name: &'a Name,
    is: Is,
    given: &'a Name,
    gives: Is,
    /// What is bound: an attribute of an object, or a variable.
    target: (Option<LocalId>, &'a Name),
    owner: Option<LocalId>,
    place: Place,
}

fn bound<'a>(view: &'a View<'_>, step: usize) -> Option<Bound<'a>> {
    let (name, owner, value) = match view.steps[step].stmt {
        Stmt::SetAttr { base, name, value } => (name, Some(near::local(base)?), value),
        Stmt::Assign { dst, value: Rvalue::Use(value) } if !view.is_temp(*dst) => (view.local_name(*dst), None, value),
        _ => return None,
    };
    let (is, (gives, given)) = (says(name)?, named(view, value)?);
    let place = view.place(view.steps[step].id);
    (is != gives).then_some(Bound { name, is, given, gives, target: (owner, name), owner, place })
}

/// `rank = dist.get_world_size()`
fn asked(view: &View<'_>, step: usize, out: &mut Found) {
    let Stmt::Assign { dst, value } = view.steps[step].stmt else { return };
    if !matches!(value, Rvalue::Call { .. } | Rvalue::CallMethod { .. }) {
        return;
    }
    let gives = match view.callee(value).as_deref() {
        Some("torch.distributed.get_rank") => Is::Rank,
        Some("torch.distributed.get_world_size") => Is::Size,
        _ => return,
    };
    let name = match view.is_temp(*dst) {
        false => Some(view.local_name(*dst)),
        true => view.readers(*dst).iter().find_map(|s| match view.steps[*s].stmt {
            Stmt::SetAttr { name, value, .. } if near::local(value) == Some(*dst) => Some(name),
            Stmt::Assign { dst: to, value: Rvalue::Use(_) } if !view.is_temp(*to) => Some(view.local_name(*to)),
            _ => None,
        }),
    };
    let Some(name) = name.filter(|n| says(n).is_some_and(|is| is != gives)) else { return };
    let given = if gives == Is::Rank { "get_rank" } else { "get_world_size" };
    out.push((view.place(view.steps[step].id), slip(name, given, gives, None)));
}

/// `build(rank, world_size)` of `def build(world_size, rank)`
fn passed(view: &View<'_>, step: usize, out: &mut Found) {
    let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else { return };
    let given: Vec<(usize, Is, &Name)> =
        args.iter().enumerate().filter_map(|(i, a)| named(view, &a.value).map(|(is, name)| (i, is, name))).collect();
    if !given.iter().any(|(_, is, _)| *is == Is::Rank) || !given.iter().any(|(_, is, _)| *is == Is::Size) {
        return;
    }
    let Some(wants) = parameters(view, value, args) else { return };
    let wrong: Vec<(usize, Is, &Name, &Name)> = given
        .iter()
        .filter_map(|(i, is, name)| {
            let param = wants.get(*i)?.as_ref()?;
            says(param).filter(|want| want != is).map(|_| (*i, *is, *name, param))
        })
        .collect();
    // `rank` and `size` are those of a matrix where nothing speaks of processes.
    let text = view.file();
    let of_processes = near::has_any(text, &["distributed", "get_rank", "world_size", "dist."]);
    if let [(_, is, name, param), (_, other, ..)] = wrong.as_slice()
        && is != other
        && of_processes
    {
        out.push((view.place(view.steps[step].id), slip(param, name, *is, None)));
    }
}

/// The names of the parameters that the arguments of a call are for.
fn parameters(view: &View<'_>, value: &Rvalue, args: &[Arg]) -> Option<Vec<Option<Name>>> {
    if args.iter().any(|a| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar)) {
        return None;
    }
    let path = match value {
        Rvalue::Call { callee, .. } => near::path(view, &view.through(callee))?,
        Rvalue::CallMethod { base, name, .. } => {
            Name::from(format!("{}.{name}", near::path(view, &view.through(base))?))
        }
        _ => return None,
    };
    let names: Vec<Name> = match view.project.path(&path) {
        Resolved::Func(at) => view.project.func(at).params.iter().map(|p| p.name.clone()).collect(),
        Resolved::Class(at) => {
            let init = view.project.func(view.project.own_method(at, "__init__")?);
            init.params.iter().skip(1).map(|p| p.name.clone()).collect()
        }
        _ => {
            let (_, at) = SAMPLERS.iter().find(|(name, _)| path.starts_with("torch.") && path.ends_with(name))?;
            let mut names = vec![Name::from("dataset"); *at];
            names.extend(["num_replicas", "rank"].map(Name::from));
            names
        }
    };
    let wanted = |(i, a): (usize, &Arg)| match &a.kind {
        ArgKind::Keyword(name) => Some(name.clone()),
        ArgKind::Positional => names.get(i).cloned(),
        ArgKind::Star | ArgKind::DoubleStar => None,
    };
    Some(args.iter().enumerate().map(wanted).collect())
}

/// `world_size, rank = dist_info()`, which returns `rank, world_size`
fn returned(view: &View<'_>, step: usize, out: &mut Found) {
    let Stmt::Unpack { value, before, star: None, .. } = view.steps[step].stmt else { return };
    let kinds = |names: &[Option<Is>]| {
        names.iter().flatten().any(|i| *i == Is::Rank) && names.iter().flatten().any(|i| *i == Is::Size)
    };
    let targets: Vec<Option<Is>> = before.iter().map(|l| says(view.local_name(*l))).collect();
    if !kinds(&targets) {
        return;
    }
    let Some((_, call @ Rvalue::Call { .. })) = view.source(value) else { return };
    let Some(Resolved::Func(at)) = view.callee(call).map(|path| view.project.path(&path)) else { return };
    let other = near::other(view, at);
    let mut returns = other.steps.iter().filter_map(|s| match s.stmt {
        Stmt::Return { value } => Some(items(&other, value)),
        _ => None,
    });
    let (Some(Some(given)), true) = (returns.next(), returns.all(|r| r.is_some())) else { return };
    let wrong: Vec<(usize, Is)> = targets
        .iter()
        .enumerate()
        .filter_map(|(i, want)| Some((i, given.get(i)?.as_ref().filter(|(is, _)| want.is_some_and(|w| w != *is))?.0)))
        .collect();
    let [(i, gives), (_, second)] = wrong.as_slice() else { return };
    if gives != second && given.len() == before.len() {
        let name = view.local_name(before[*i]);
        let shown = given[*i].as_ref().map_or(name, |(_, shown)| shown);
        out.push((view.place(view.steps[step].id), slip(name, shown, *gives, None)));
    }
}

/// What the items of a tuple are by their names.
fn items(view: &View<'_>, value: &Operand) -> Option<Vec<Option<(Is, Name)>>> {
    let (_, Rvalue::Build { kind: BuildKind::Tuple | BuildKind::List, items }) = view.source(value)? else {
        return None;
    };
    let one = |item: &Item| match item {
        Item::One(o) => match (named(view, o), view.expr(o)) {
            (Some((is, name)), _) => Some((is, name.clone())),
            (None, Expr::Call { callee, .. }) => match callee.last_name() {
                Some("get_rank") => Some((Is::Rank, Name::from("get_rank"))),
                Some("get_world_size") => Some((Is::Size, Name::from("get_world_size"))),
                _ => None,
            },
            _ => None,
        },
        Item::Star(_) => None,
    };
    Some(items.iter().map(one).collect())
}
