//! What a variable holds where it is read, though it is bound again elsewhere. In: an expression, and the step that reads it. Out: the
//! expression with variables replaced by what they were bound to last. Never: a variable that something may have written to
//! since, or that another way to the step binds otherwise. Next: `near.rs`, whose `deep` is for variables that are bound once.

use super::expr::Expr;
use super::view::{Step, View};
use super::wrapped::is_always;
use crate::ir::{LocalId, Operand, Rvalue, Stmt};

/// How many variables are followed, one behind the other.
const MOST_STEPS: usize = 8;

/// The value of an expression at a step.
pub fn unfold(view: &View<'_>, expr: &Expr, step: usize) -> Expr {
    unfolded(view, expr, step, MOST_STEPS)
}

fn unfolded(view: &View<'_>, expr: &Expr, step: usize, depth: usize) -> Expr {
    let inner = |e: &Expr| unfolded(view, e, step, depth);
    let boxed = |e: &Expr| Box::new(inner(e));
    match expr {
        Expr::Local(local) => variable(view, *local, step, depth),
        Expr::Const(_) | Expr::Path(_) | Expr::Unknown => expr.clone(),
        Expr::Attr(base, name) => Expr::Attr(boxed(base), name.clone()),
        Expr::Item(base, at) => Expr::Item(boxed(base), boxed(at)),
        Expr::Element(of) => Expr::Element(boxed(of)),
        Expr::Call { callee, args, step } => Expr::Call {
            callee: boxed(callee),
            args: args.iter().map(|(kind, arg)| (kind.clone(), inner(arg))).collect(),
            step: *step,
        },
        Expr::Unary(op, a) => Expr::Unary(*op, boxed(a)),
        Expr::Binary(op, a, b) => Expr::Binary(*op, boxed(a), boxed(b)),
        Expr::Compare(op, a, b) => Expr::Compare(*op, boxed(a), boxed(b)),
        Expr::Bool { and, of } => Expr::Bool { and: *and, of: of.iter().map(inner).collect() },
        Expr::Choice(test, a, b) => Expr::Choice(boxed(test), boxed(a), boxed(b)),
        Expr::Build(of) => Expr::Build(of.iter().map(inner).collect()),
    }
}

fn variable(view: &View<'_>, local: LocalId, step: usize, depth: usize) -> Expr {
    let defs = view.defs(local);
    let stays = Expr::Local(local);
    let Some(last) = view.last_def(local, step) else { return stays };
    // Of a variable with several values, one that is not known is none of the others.
    let unknown = if view.is_param(local) || defs.len() > 1 { Expr::Unknown } else { stays };
    let (Some(depth), Some(reader)) = (depth.checked_sub(1), view.steps.get(step)) else { return unknown };
    if !is_around(&view.steps[last], reader) || is_written(view, local, last, step) {
        return unknown;
    }
    match view.bound(last, local) {
        Expr::Unknown => unknown,
        value => unfolded(view, &value, last, depth),
    }
}

/// Whether something may write to a variable between two steps: an assignment to a part of it, a method in place, and a call that gets it
/// and of which nobody reads a result.
fn is_written(view: &View<'_>, local: LocalId, from: usize, to: usize) -> bool {
    let is = |operand: &Operand| matches!(operand, Operand::Local(l) if *l == local);
    view.readers(local).iter().filter(|at| (from..to).contains(*at)).any(|at| match view.steps[*at].stmt {
        Stmt::SetItem { base, .. } | Stmt::SetAttr { base, .. } => is(base),
        Stmt::Assign { dst, value } => match value {
            Rvalue::CallMethod { base, name, .. } if is(base) => name.ends_with('_'),
            Rvalue::Call { .. } | Rvalue::CallMethod { .. } => !view.is_read(*dst),
            _ => false,
        },
        _ => false,
    })
}

/// Whether a step is executed before a later one, in the same round, whenever that is.
pub fn is_around(before: &Step<'_>, later: &Step<'_>) -> bool {
    is_always(before, Some(later)) && before.loops.iter().all(|l| later.loops.contains(l))
}
