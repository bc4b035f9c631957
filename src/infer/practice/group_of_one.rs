//! Groups of one rank in the place of a group that was not given. In: a function. Out: `new_group` of the own rank alone where a parameter
//! is None. Never: a group that is made in a loop over all ranks, or with local synchronisation. Source: torch.distributed, `new_group`;
//! slapo `Schedule`. Next: `new_groups.rs`, which judges the ranks of other groups.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::slips::Slip;
use super::view::View;
use crate::ir::{ArgKind, BuildKind, FuncKind, Item, LocalId, Operand, Rvalue, Stmt};
use crate::source::Place;

/// `if group is None: group = dist.new_group([dist.get_rank()])`
pub fn made(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, value: value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) } =
            step.stmt
        else {
            continue;
        };
        let makes = view.callee(value).is_some_and(|path| path == "torch.distributed.new_group");
        let own_way = args.iter().any(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == "use_local_synchronization"));
        if !makes || own_way || !step.loops.is_empty() {
            continue;
        }
        let Some(ranks) = view.argument(args, 0, "ranks") else { continue };
        let place = view.place(step.id);
        if let Some((alone, parameter)) = own_rank_alone(view, ranks).zip(replaces(view, *dst, i)) {
            out.push((place, Practice::Slips(Slip::GroupOfOne { parameter, made: alone })));
        }
    }
}

/// Where the own rank is asked for, if it is all that a list holds.
fn own_rank_alone(view: &View<'_>, ranks: &Operand) -> Option<Place> {
    let (_, Rvalue::Build { kind: BuildKind::List | BuildKind::Tuple, items }) = view.source(ranks)? else {
        return None;
    };
    let [Item::One(one)] = &items[..] else { return None };
    asks(view, one)
}

/// Where an operand is the rank among all ranks.
fn asks(view: &View<'_>, operand: &Operand) -> Option<Place> {
    let Expr::Call { callee, args, step } = view.through(operand) else { return None };
    let world = args.is_empty() && near::path(view, &callee).is_some_and(|p| p == "torch.distributed.get_rank");
    world.then(|| view.place(view.steps[step].id))
}

/// The parameter that a value takes the place of where nothing was given.
fn replaces(view: &View<'_>, made: LocalId, step: usize) -> Option<crate::source::Name> {
    if view.func.kind != FuncKind::Function {
        return None;
    }
    let guard = view.steps[step].guards.last().filter(|g| g.holds)?;
    let Expr::Compare(crate::ir::CmpOp::Is | crate::ir::CmpOp::Eq, asked, none) = view.expr(guard.test) else {
        return None;
    };
    let (Expr::Local(asked), true) = (*asked, none.is_none()) else { return None };
    // Without a group of the model's own, nothing is split over one.
    let whole = |name: &str| ["group", "process_group", "pg", "dp_group", "data_parallel_group"].contains(&name);
    let param = view.func.params.iter().find(|p| p.local == asked && whole(&p.name))?;
    let kept = |s: &&super::view::Step<'_>| match s.stmt {
        Stmt::Assign { dst, value: Rvalue::Use(value) } => *dst == asked && near::local(value) == Some(made),
        _ => false,
    };
    (made == asked || view.steps.iter().any(|s| kept(&s))).then(|| param.name.clone())
}
