//! Results that are put into a variable of a loop. In: a function that communicates. Out: a loop over gradients beside what was reduced for them,
//! in which the one is bound to the other: the gradients stay as they are. Never: a variable that is read afterwards. Next: `lost.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::view::View;
use crate::ir::{LocalId, Operand, Rvalue, Stmt};

/// `for grad, synced in zip(grads, unflatten(flat, grads)): grad = synced`
pub fn variables(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, value: Rvalue::Use(Operand::Local(given)) } = step.stmt else { continue };
        let Some(around) = step.loops.last() else { continue };
        let Stmt::For { iter, .. } = view.steps[*around].stmt else { continue };
        let of_loop = |local: LocalId| {
            view.defs(local).iter().any(|d| {
                *d != i
                    && view.steps[*d].loops.last() == Some(around)
                    && (matches!(view.steps[*d].stmt, Stmt::Unpack { .. }) || is_gradient(view, *d))
            })
        };
        let unflattens = |e: &Expr| {
            matches!(e, Expr::Call { callee, .. }
                if callee.last_name().is_some_and(|n| n.contains("unflatten") || n == "split"))
        };
        let unflattens = view.through(iter).any(&mut |e| match e {
            Expr::Local(_) => unflattens(&near::deep(view, e)),
            other => unflattens(other),
        });
        if view.is_temp(*dst) || !unflattens || !of_loop(*dst) || !of_loop(*given) || !view.readers(*dst).is_empty() {
            continue;
        }
        let (variable, value) = (view.local_name(*dst).clone(), view.local_name(*given).clone());
        out.push((view.place(step.id), Practice::Membership(Membership::Rebound { variable, value })));
    }
}

/// `grad = parameter.grad`
fn is_gradient(view: &View<'_>, step: usize) -> bool {
    matches!(view.value(step), Some(Rvalue::Attr { name, .. }) if name == "grad" || name == "main_grad")
}
