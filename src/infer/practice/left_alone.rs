//! Loops that some ranks leave alone. In: a function. Out: a break or a return by the rank, out of a loop in whose rounds all ranks communicate: the
//! others wait in the next round. Never: a loop that is left in another way too, for that may be how the others leave, a test that ends
//! the job, or a loop in which nothing is known to communicate. Source: torch.distributed, collectives: every rank of the group calls
//! them. Next: `ranks.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::rank_tests::test;
use super::ranks::{decided, without_group};
use super::raw::{Sort, raw};
use super::view::View;
use super::wrapped::{function, wrappers};
use crate::ir::{Const, Operand, Rvalue, Stmt};
use crate::source::Name;

/// Words of calls that end the job on every rank.
const ENDS: &[&str] =
    &["exit", "kill", "abort", "destroy", "terminate", "shutdown", "stop", "broadcast", "send", "fill_"];

pub fn loops(view: &View<'_>, out: &mut Found) {
    if view.func.is_generator {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        if !matches!(step.stmt, Stmt::Break | Stmt::Return { .. }) {
            continue;
        }
        let Some(inner) = step.loops.last().copied().filter(|at| goes_on(view, *at)) else { continue };
        let Some((guard, told)) = decided(view, i) else { continue };
        let inside = |id| view.steps.iter().any(|s| s.id == id && s.loops.contains(&inner));
        if is_last_round(view, i, inner) || is_joined(view, i) {
            continue;
        }
        if !told.of_all || !inside(guard.at) || is_left_otherwise(view, inner, i) || ends_all(view, i) {
            continue;
        }
        let Some((at, name)) = (0..view.steps.len()).find_map(|k| Some((k, together(view, k, inner)?))) else {
            continue;
        };
        let (place, condition) = (view.place(view.steps[at].id), view.part(guard.at, 0));
        let exit = Some(view.place(step.id));
        out.push((place, Practice::SomeRanks { collective: name, condition, exit }));
        return;
    }
}

/// Whether the other ranks go on with the next round.
fn goes_on(view: &View<'_>, at: usize) -> bool {
    match view.steps[at].stmt {
        Stmt::For { .. } => true,
        Stmt::While { test, .. } => view.expr(test) == Expr::Const(Const::Bool(true)),
        _ => false,
    }
}

/// Whether a step runs where ranks that have left are stood in for: `with Join([model])`.
fn is_joined(view: &View<'_>, step: usize) -> bool {
    view.steps[step].contexts.iter().any(|c| match view.expr(c) {
        Expr::Call { callee, .. } => callee.last_name().is_some_and(|name| name.to_lowercase() == "join"),
        _ => false,
    })
}

/// Words of tests that pick the last round, or a job of one rank.
const LAST: &[&str] = &["last", "final", "one_", "single", "debug"];

/// Whether a step is reached in a round that the loop's own variable picks, which may be the last one.
fn is_last_round(view: &View<'_>, step: usize, inner: usize) -> bool {
    let round = view.binds(inner);
    // A number of the round, and not what is computed in it.
    let counts = |e: &Expr| {
        let called = |e: &Expr| matches!(e, Expr::Call { callee, .. } if callee.last_name() != Some("len"));
        round.iter().any(|r| e.mentions(*r)) && !e.any(&mut |e| called(e))
    };
    let compares = |e: &Expr| matches!(e, Expr::Compare(_, a, b) if counts(a) || counts(b));
    let picks = |e: &Expr| match e {
        Expr::Local(local) => {
            let computed = || view.defs(*local).iter().any(|d| view.bound(*d, *local).any(&mut |e| compares(e)));
            near::has_any(view.local_name(*local), LAST) || computed()
        }
        Expr::Compare(..) => compares(e),
        other => other.last_name().is_some_and(|name| near::has_any(name, LAST)),
    };
    view.steps[step].guards.iter().any(|g| view.expr(g.test).any(&mut |e| picks(e)))
}

/// Whether anything else leaves a loop.
fn is_left_otherwise(view: &View<'_>, inner: usize, known: usize) -> bool {
    view.steps.iter().enumerate().any(|(i, s)| {
        let leaves = match s.stmt {
            Stmt::Break => s.loops.last() == Some(&inner),
            Stmt::Return { .. } => s.loops.contains(&inner),
            _ => false,
        };
        i != known && leaves
    })
}

/// Whether the branch that leaves ends the job, or tells the others.
fn ends_all(view: &View<'_>, exit: usize) -> bool {
    let guards = &view.steps[exit].guards;
    let last = guards.last();
    (0..exit).any(|i| {
        let here = view.steps[i].guards.last().zip(last).is_some_and(|(g, h)| g.at == h.at && g.holds == h.holds);
        let name = match view.value(i) {
            Some(Rvalue::CallMethod { name, .. }) => Some(name.to_string()),
            Some(Rvalue::Call { callee, .. }) => view.expr(callee).last_name().map(str::to_string),
            _ => None,
        };
        here && name.is_some_and(|n| ENDS.iter().any(|w| n.to_lowercase().contains(w)))
    })
}

/// The name of what a step of a loop does together with all ranks, in every round.
fn together(view: &View<'_>, step: usize, inner: usize) -> Option<Name> {
    let at = &view.steps[step];
    if !at.loops.contains(&inner) || at.guards.iter().any(|g| test(view, g).is_some()) {
        return None;
    }
    let value = view.value(step)?;
    if let Some(call) = raw(view, value) {
        return (call.sort == Sort::Everyone && without_group(call.group)).then_some(call.name);
    }
    match value {
        Rvalue::CallMethod { name, .. } if name == "backward" => {
            super::own_decision::wrapper_of_pass(view, step).map(|_| name.clone())
        }
        Rvalue::Call { callee, args } => {
            let called = function(view, &view.through(callee))?;
            let inner = near::other(view, called);
            let trains = inner.code().contains(".backward(");
            let wrapped = |o: &Operand| {
                let e = view.expr(o);
                matches!(e, Expr::Local(_)) && !wrappers(view, &e, step).is_empty()
            };
            let passes = trains && args.iter().any(|a| wrapped(&a.value));
            passes.then(|| view.project.func(called).name.clone())
        }
        _ => None,
    }
}
