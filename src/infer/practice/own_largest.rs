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
use super::unfold::unfold;
use super::view::View;
use crate::ir::{BinOp, Operand};

/// Methods that take the largest.
const LARGEST: &[&str] = &["max", "amax"];

/// Methods that change neither what is largest nor whose it is.
const SAME: &[&str] =
    &["unsqueeze", "squeeze", "float", "view", "reshape", "detach", "clone", "contiguous", "to", "type_as"];

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
        let Some(taken) = own_largest(&unfold(view, &view.bound(*made, *summed), *made)) else { continue };
        let told = view.collectives().iter().any(|(at, c)| {
            let given = c.input.or(c.output).filter(|o| near::local(o) != Some(*summed));
            given.is_some_and(|o| holds(&unfold(view, &view.expr(o), *at), taken))
        });
        if !told {
            let reduced = view.place(view.steps[*step].id);
            out.push((view.place(view.steps[taken].id), Practice::Membership(Membership::OwnLargest { reduced })));
        }
    }
}

/// Whether what a call gives is part of a value, other than what it was subtracted from.
fn holds(value: &Expr, call: usize) -> bool {
    match value {
        Expr::Binary(BinOp::Sub, ..) => false,
        Expr::Call { step, .. } if *step == call => true,
        _ => value.inner().into_iter().any(|e| holds(e, call)),
    }
}

/// The call that takes the largest, of `(x - x.max(-1)).exp().sum()`.
fn own_largest(expr: &Expr) -> Option<usize> {
    match subject(subject(expr, "sum")?, "exp")? {
        Expr::Binary(BinOp::Sub, x, m) => match same(m) {
            largest @ Expr::Call { step, .. } => {
                let of = LARGEST.iter().find_map(|method| subject(largest, method))?;
                (same(of) == same(x)).then_some(*step)
            }
            _ => None,
        },
        _ => None,
    }
}

/// What a method is called on, or a function of this name gets first.
fn subject<'e>(expr: &'e Expr, method: &str) -> Option<&'e Expr> {
    match expr {
        Expr::Call { callee, args, .. } if callee.last_name() == Some(method) => match (&**callee, args.first()) {
            (Expr::Attr(base, _), _) => Some(base),
            (Expr::Path(_), Some((_, arg))) => Some(arg),
            _ => None,
        },
        _ => None,
    }
}

/// The tensor that an expression is a view of, or one of the results that it is.
fn same(expr: &Expr) -> &Expr {
    match expr {
        Expr::Item(base, _) => same(base),
        Expr::Attr(base, name) if name == "values" => same(base),
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(base, name) if SAME.contains(&name.as_str()) => same(base),
            _ => expr,
        },
        _ => expr,
    }
}
