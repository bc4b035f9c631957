//! Ranks among all ranks as indices into what a group has. In: a function. Out: an index that `get_global_rank` gave, into a list that is as long as
//! a group is large. Never: a list of another length, or an index that may come from elsewhere. Next: `world_rank.rs`, for the own rank.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::near;
use super::view::View;
use crate::ir::{ArgKind, BinOp, BuildKind, Item, LocalId, Operand, Rvalue, Stmt};
use crate::source::Place;

pub fn indices(view: &View<'_>, out: &mut Found) {
    for step in 0..view.steps.len() {
        let (base, index) = match (view.steps[step].stmt, view.value(step)) {
            (Stmt::SetItem { base, index, .. }, _) => (base, &**index),
            (_, Some(Rvalue::Item { base, index })) => (base, index),
            _ => continue,
        };
        if !near::local(index).is_some_and(|local| is_global(view, local)) {
            continue;
        }
        if let Some(group) = near::local(base).and_then(|list| of_group(view, list)) {
            let mistake = Scales::WorldRank { group, named: None };
            out.push((view.place(view.steps[step].id), Practice::Scales(mistake)));
        }
    }
}

/// Whether a variable holds ranks among all ranks alone: it is given some, and otherwise changes places with another one.
fn is_global(view: &View<'_>, local: LocalId) -> bool {
    let asked = |local: LocalId| view.defs(local).iter().any(|def| asks(view, *def));
    let moved = |def: usize| match view.steps[def].stmt {
        Stmt::Unpack { value, .. } => match view.source(value) {
            Some((_, Rvalue::Build { kind: BuildKind::Tuple, items })) => {
                items.iter().all(|item| matches!(item, Item::One(Operand::Local(other)) if asked(*other)))
            }
            _ => false,
        },
        Stmt::Assign { value: Rvalue::Use(Operand::Local(other)), .. } => asked(*other),
        _ => false,
    };
    !view.is_param(local) && asked(local) && view.defs(local).iter().all(|def| asks(view, *def) || moved(*def))
}

fn asks(view: &View<'_>, step: usize) -> bool {
    let value = view.value(step).filter(|v| matches!(v, Rvalue::Call { .. } | Rvalue::CallMethod { .. }));
    let path = value.and_then(|value| view.callee(value));
    path.is_some_and(|path| path.starts_with("torch.distributed.") && path.ends_with(".get_global_rank"))
}

/// Where a list is made with an element for each rank of a group.
fn of_group(view: &View<'_>, list: LocalId) -> Option<Place> {
    let (step, made) = view.source(&Operand::Local(list))?;
    let length = match made {
        Rvalue::Use(Operand::Local(built)) => rounds(view, *built)?,
        Rvalue::Build { kind: BuildKind::List, items } if items.is_empty() => rounds(view, list)?,
        Rvalue::Binary { op: BinOp::Mul, left, right } => match view.expr(left) {
            Expr::Build(_) => view.expr(right),
            _ => return None,
        },
        _ => return None,
    };
    let Expr::Call { callee, args, .. } = near::deep(view, &length) else { return None };
    let first = |kind: &ArgKind| match kind {
        ArgKind::Positional => true,
        ArgKind::Keyword(name) => name == "group",
        ArgKind::Star | ArgKind::DoubleStar => false,
    };
    let counted = match (&*callee, args.as_slice()) {
        (Expr::Path(path), [(kind, group)]) => {
            path == "torch.distributed.get_world_size" && first(kind) && !group.is_none()
        }
        _ => false,
    };
    counted.then(|| view.place(view.steps[step].id))
}

/// How many elements a comprehension over numbers makes.
fn rounds(view: &View<'_>, built: LocalId) -> Option<Expr> {
    let added =
        view.steps.iter().find(|s| matches!(s.stmt, Stmt::Append { collection, .. } if *collection == built))?;
    let Stmt::For { iter, .. } = view.steps[*added.loops.last()?].stmt else { return None };
    match view.expr(iter).call_of("range")? {
        [(ArgKind::Positional, length)] => Some(length.clone()),
        _ => None,
    }
}
