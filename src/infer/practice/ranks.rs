//! Collectives that only some ranks reach. In: a function. Out: a collective over all ranks under `rank == 0`, or behind an early exit by
//! rank, with no counterpart. Never: groups, point-to-point, and branches that call something which may hold the counterpart.
//! Next: `raw.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::raw::{Sort, raw};
use super::view::{Guard, View};
use crate::ir::{CmpOp, Const, Operand, Rvalue, Stmt, UnOp};
use crate::project::FuncRef;
use crate::source::Name;

/// Calls that communicate with nobody.
const ALONE: &[&str] = &[
    "print", "info", "warning", "debug", "error", "makedirs", "mkdir", "exists", "len", "str", "int", "format", "join",
];

/// Words of tests that hold where there is one rank alone.
pub(super) const ALONE_WORDS: &[&str] = &["world", "size", "initialized", "available", "distributed"];

pub fn some_ranks(view: &View<'_>, out: &mut Found) {
    let everyone: Vec<(usize, Name)> = (0..view.steps.len())
        .filter_map(|i| {
            let call = raw(view, view.value(i)?)?;
            (call.sort == Sort::Everyone).then_some((i, call.name))
        })
        .collect();
    for (i, name) in &everyone {
        let Some(call) = view.value(*i).and_then(|v| raw(view, v)) else { continue };
        if !without_group(call.group) {
            continue;
        }
        let guards = &view.steps[*i].guards;
        let Some(guard) = guards.iter().find(|g| by_rank(view, g)) else { continue };
        let alone = guards.iter().any(|g| mentions(view, g, ALONE_WORDS));
        let matched = everyone.iter().any(|(j, other)| {
            j != i
                && other == name
                && view.steps[*j]
                    .guards
                    .iter()
                    .any(|g| !same(g, guard) && mentions(view, g, &["rank", "main", "master"]))
        });
        let exit = is_exit(view, guard);
        if alone
            || matched
            || name.contains("barrier") && !exit
            || other_branch_calls(view, guard)
            || view.func.is_generator
        {
            continue;
        }
        let id = view.steps[*i].id;
        let practice = Practice::SomeRanks { collective: name.clone(), condition: view.part(guard.at, 0), exit };
        out.push((view.place(id), practice));
    }
}

/// Whether a call is given no group, which stands for all ranks.
pub(super) fn without_group(group: Option<&Operand>) -> bool {
    group.is_none_or(|g| matches!(g, Operand::Const(Const::None)))
}

pub(super) fn same(a: &Guard<'_>, b: &Guard<'_>) -> bool {
    a.at == b.at && a.holds == b.holds
}

/// Whether a condition compares the rank among all with a number.
pub(super) fn by_rank(view: &View<'_>, guard: &Guard<'_>) -> bool {
    match view.expr(guard.test) {
        Expr::Call { callee, args, .. } => {
            args.is_empty() && super::wrapped::function(view, &callee).is_some_and(|at| is_first(view, at))
        }
        Expr::Compare(CmpOp::Eq | CmpOp::Ne, a, b) => is_this_rank(view, &a, &b),
        Expr::Unary(UnOp::Not, a) => is_rank(view, &a),
        _ => false,
    }
}

/// Whether a function tells whether this is the first of all ranks: `return dist.get_rank() == 0`.
fn is_first(view: &View<'_>, at: FuncRef) -> bool {
    let inner = view.other(at);
    let mut returned = inner.steps.iter().filter_map(|s| match s.stmt {
        Stmt::Return { value } => Some(value),
        _ => None,
    });
    let (Some(value), None) = (returned.next(), returned.next()) else { return false };
    match inner.through(value) {
        Expr::Compare(CmpOp::Eq, a, b) => is_this_rank(&inner, &a, &b),
        _ => false,
    }
}

/// Whether the rank among all meets a number of one; -1 stands for a program that is not distributed.
fn is_this_rank(view: &View<'_>, rank: &Expr, number: &Expr) -> bool {
    is_rank(view, rank) && matches!(number, Expr::Const(Const::Int(0..)))
}

fn is_rank(view: &View<'_>, e: &Expr) -> bool {
    match e {
        Expr::Call { callee, args, .. } => {
            args.is_empty()
                && callee.path().is_some_and(|p| p.starts_with("torch.distributed") && p.ends_with(".get_rank"))
        }
        Expr::Local(l) if view.is_param(*l) => matches!(view.local_name(*l).as_str(), "rank" | "global_rank"),
        Expr::Local(l) => {
            !matches!(view.through(&Operand::Local(*l)), Expr::Local(_))
                && is_rank(view, &view.through(&Operand::Local(*l)))
        }
        _ => false,
    }
}

pub(super) fn mentions(view: &View<'_>, guard: &Guard<'_>, words: &[&str]) -> bool {
    view.expr(guard.test).any(&mut |e| {
        let name = match e {
            Expr::Local(l) => Some(view.local_name(*l).as_str()),
            other => other.last_name(),
        };
        name.is_some_and(|n| words.iter().any(|w| n.to_lowercase().contains(w)))
    })
}

/// Whether the condition holds because the other ranks have left.
pub(super) fn is_exit(view: &View<'_>, guard: &Guard<'_>) -> bool {
    view.steps.iter().any(|s| {
        matches!(s.stmt, Stmt::Return { .. })
            && s.guards.last().is_some_and(|g| g.at == guard.at && g.holds != guard.holds)
    })
}

/// Whether the ranks of the other branch call something that may communicate.
pub(super) fn other_branch_calls(view: &View<'_>, guard: &Guard<'_>) -> bool {
    (0..view.steps.len()).any(|i| {
        let there = view.steps[i].guards.iter().any(|g| g.at == guard.at && g.holds != guard.holds);
        there
            && match view.value(i) {
                Some(Rvalue::Call { callee, .. }) => !view.expr(callee).last_name().is_some_and(|n| ALONE.contains(&n)),
                Some(Rvalue::CallMethod { name, .. }) => !ALONE.contains(&name.as_str()),
                Some(Rvalue::Yield(_) | Rvalue::Await(_)) => true,
                _ => matches!(view.steps[i].stmt, Stmt::Raise),
            }
    })
}
