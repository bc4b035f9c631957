//! Variances of ranks whose mean is taken for the variance of all. In: a function. Out: a sum over ranks of each rank's own variance, beside
//! that of its mean, under a root that scales the data. Never: where anything is added to it, as what the means differ by is. Source: Chan,
//! Golub, LeVeque 1983, pairwise variance; PhysicsNeMo, pull request 1421. Next: `statistic.rs`, other moments.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::statistic::takes_root;
use super::view::{CollectiveCall, View};
use crate::ir::{BinOp, LocalId, Operand, Rvalue, Stmt};
use crate::rules::Form;

/// `m, v = all_reduce(torch.stack([x.mean(), x.var()])) / n`, `(x - m) * torch.rsqrt(v + eps)`
pub fn scales(view: &View<'_>, out: &mut Found) {
    let collectives = view.collectives();
    let input = |at: usize, call: &CollectiveCall<'_>, wanted: &str| {
        call.rule.op == "all_reduce" && call.input.is_some_and(|o| moment(view, o, at, wanted))
    };
    let means: Vec<(usize, LocalId)> = collectives
        .iter()
        .filter(|(at, call)| input(*at, call, "mean"))
        .filter_map(|(at, call)| Some((*at, result(view, *at, call)?)))
        .collect();
    if near::is_unrecorded(view) || collectives.iter().any(|(_, call)| call.rule.op == "all_gather") {
        return;
    }
    for (at, call) in collectives.iter().filter(|(at, call)| input(*at, call, "var")) {
        let Some(reduced) = result(view, *at, call) else { continue };
        let of = |o: &Operand| near::comes_from(view, o, reduced, *at);
        let Some(root) = (*at + 1..view.steps.len()).find(|s| takes_root(view, *s, &of)) else { continue };
        let more = |one: &Operand, other: &Operand| of(one) && !is_small(view, other);
        let corrected = (*at + 1..root).any(|s| match view.value(s) {
            Some(Rvalue::Binary { op: BinOp::Add, left, right } | Rvalue::InPlace { op: BinOp::Add, left, right }) => {
                more(left, right) || more(right, left)
            }
            Some(Rvalue::Binary { op: BinOp::Sub, left, right } | Rvalue::InPlace { op: BinOp::Sub, left, right }) => {
                more(left, right)
            }
            _ => false,
        });
        // The mean of all is taken off from the data; what is done to the variance is done here.
        let centred = (*at + 1..view.steps.len()).any(|s| match view.value(s) {
            Some(Rvalue::Binary { op: BinOp::Sub, right, .. }) => {
                means.iter().any(|(mean, local)| near::comes_from(view, right, *local, *mean))
            }
            _ => false,
        });
        let handed = (*at + 1..root).any(|s| match view.value(s) {
            Some(value @ Rvalue::Call { args, .. }) => {
                let outside = view.callee(value).is_none_or(|path| !path.starts_with("torch."));
                outside && args.iter().any(|a| of(&a.value))
            }
            _ => false,
        });
        if corrected || !centred || handed || is_centred_before(view, *at) {
            continue;
        }
        let mistake = Membership::MeanOfVariances { root: view.place(view.steps[root].id) };
        out.push((view.place(view.steps[*at].id), Practice::Membership(mistake)));
    }
}

/// Whether each rank takes the mean of its own data off before: the means do not differ then.
pub(super) fn is_centred_before(view: &View<'_>, at: usize) -> bool {
    (0..at).any(|step| match view.value(step) {
        Some(Rvalue::Binary { op: BinOp::Sub, left, right }) => match view.through(right) {
            Expr::Call { callee, .. } => {
                matches!(&*callee, Expr::Attr(of, name) if name == "mean" && **of == view.through(left))
            }
            _ => false,
        },
        _ => false,
    })
}

/// Whether an operand is a moment of some data where it is reduced, or has one among its parts.
fn moment(view: &View<'_>, operand: &Operand, at: usize, name: &str) -> bool {
    let is = |e: &Expr| e.call_of(name).is_some();
    let held = |local: LocalId| view.defs(local).iter().rfind(|d| **d < at).map(|d| view.bound(*d, local));
    match near::local(operand).and_then(held).unwrap_or_else(|| view.through(operand)) {
        Expr::Call { callee, args, .. } if matches!(callee.last_name(), Some("stack" | "cat")) => {
            args.iter().any(|(_, of)| match near::deep(view, of) {
                Expr::Build(items) => items.iter().any(|item| is(&near::deep(view, item))),
                _ => false,
            })
        }
        other => is(&other),
    }
}

/// What holds the reduced moments.
pub(super) fn result(view: &View<'_>, at: usize, call: &CollectiveCall<'_>) -> Option<LocalId> {
    match (&call.rule.form, view.steps[at].stmt) {
        (Form::InPlace, _) => call.input.and_then(near::local),
        (Form::Result, Stmt::Assign { dst, .. }) => Some(*dst),
        _ => None,
    }
}

/// Whether an operand is a number that keeps a root from being zero.
pub(super) fn is_small(view: &View<'_>, operand: &Operand) -> bool {
    let named = |name: &str| name.to_lowercase().contains("eps");
    match view.through(operand) {
        Expr::Const(_) => true,
        Expr::Local(local) => named(view.local_name(local)),
        other => other.last_name().is_some_and(named),
    }
}
