//! Exponentials that each rank has made small by a number of its own. In: a function that communicates. Out: sums of `exp(x - m)` that are
//! added up over ranks, where `m` is the largest of this rank's part alone. Never: an `m` that anything communicates, or sums that are
//! scaled to one number before. Source: `vocab_parallel_cross_entropy` of Megatron-LM, which takes the largest over all ranks first.
//! Next: `this_rank.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::mixed_mean::averages;
use super::near;
use super::view::View;
use crate::ir::{BinOp, LocalId, Operand};

/// Methods that take the largest.
const LARGEST: &[&str] = &["max", "amax"];

/// `m = x.amax(-1)`, `s = (x - m).exp().sum(-1)`, `all_reduce(s)`
pub fn sums(view: &View<'_>, out: &mut Found) {
    for (step, call) in view.collectives() {
        if call.rule.op != "all_reduce" || averages(view, call) != Some(false) {
            continue;
        }
        let Some(Operand::Local(summed)) = call.input else { continue };
        let [made] = view.defs(*summed) else { continue };
        if made > step {
            continue;
        }
        let Some((of, largest)) = shifted(&view.bound(*made, *summed)) else { continue };
        let Some((taken, of_same)) = is_largest(view, largest, of) else { continue };
        let told = view.collectives().iter().any(|(_, c)| {
            c.input
                .or(c.output)
                .is_some_and(|o| near::roots(view, o).contains(&largest) && near::local(o) != Some(*summed))
        });
        if of_same && !told && view.defs(largest).len() == 1 {
            let reduced = view.place(view.steps[*step].id);
            out.push((view.place(view.steps[taken].id), Practice::Membership(Membership::OwnLargest { reduced })));
        }
    }
}

/// `x` and `m` of `(x - m).exp().sum()`.
fn shifted(expr: &Expr) -> Option<(LocalId, LocalId)> {
    let of = |e: &Expr, method: &str| match e {
        Expr::Call { callee, args, .. } if callee.last_name() == Some(method) => match (&**callee, args.first()) {
            (Expr::Attr(base, _), _) => Some((**base).clone()),
            (Expr::Path(_), Some((_, arg))) => Some(arg.clone()),
            _ => None,
        },
        _ => None,
    };
    match of(&of(expr, "sum")?, "exp")? {
        Expr::Binary(BinOp::Sub, x, m) => Some((variable(&x)?, variable(&m)?)),
        _ => None,
    }
}

/// The variable that an expression is a view of.
fn variable(expr: &Expr) -> Option<LocalId> {
    match expr {
        Expr::Local(local) => Some(*local),
        Expr::Item(base, _) => variable(base),
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(base, name) if ["unsqueeze", "float", "view", "detach"].contains(&name.as_str()) => {
                variable(base)
            }
            _ => None,
        },
        _ => None,
    }
}

/// The step that takes the largest, and whether it is that of the same tensor.
fn is_largest(view: &View<'_>, largest: LocalId, of: LocalId) -> Option<(usize, bool)> {
    let step = *view.defs(largest).first()?;
    let made = view.bound(step, largest);
    let is = |e: &Expr| match e {
        Expr::Call { callee, .. } => callee.last_name().is_some_and(|n| LARGEST.contains(&n)),
        _ => false,
    };
    made.any(&mut |e| is(e)).then(|| (step, made.mentions(of)))
}
