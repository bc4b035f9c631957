//! Losses that are weighed by a ratio of two counts of this rank. In: a function that communicates nothing. Out: a ratio of two sums over masks that a loss
//! is multiplied by, in a file that divides gradients by a count of all ranks: the counts of all ranks have another ratio. Never: where the
//! file does not show that division. Source: Megatron-LM, issue 7452, the loss of multi-token prediction. Next: `half_ratio.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::reducers::is_gradient;
use super::view::View;
use crate::ir::{BinOp, LocalId, Operand, Rvalue, Stmt};
use crate::source::Place;

/// Parts of names of masks.
const MASKS: &[&str] = &["mask", "valid", "weights"];
/// Functions that keep a number from being none.
const BOUNDS: &[&str] = &["clamp", "clamp_min", "max", "maximum"];

/// Words of functions that communicate, only look at the loss, or make the masks themselves.
const OTHERWISE: &[&str] = &["all_reduce", "world_size", "gather", "detach", ".item(", "no_grad", "ones"];

/// `loss * (mask.sum() / rolled.sum())`, and `p.grad.div_(total)` of a count that is summed over the ranks
pub fn weights(view: &View<'_>, out: &mut Found) {
    if !view.collectives().is_empty() || near::is_unrecorded(view) || near::has_any(view.code(), OTHERWISE) {
        return;
    }
    for at in 0..view.steps.len() {
        let Some(Rvalue::Binary { op: BinOp::Div, left, right }) = view.value(at) else { continue };
        let (Some(over), Some(under)) = (count(view, left), count(view, right)) else { continue };
        // A factor that is counted like one of the two may take it back.
        let counted = |step: usize| match view.value(step) {
            Some(Rvalue::Binary { op: BinOp::Mul, left, right }) => {
                [left, right].into_iter().any(|o| count(view, o).is_some())
            }
            _ => false,
        };
        if over == under || view.without_gradient(at) || !weighs_loss(view, at) || (0..view.steps.len()).any(counted) {
            continue;
        }
        let Some((summed, divided)) = divides(view) else { return };
        let ratio = Membership::RatioOfCounts { over, under, summed, divided };
        out.push((view.place(view.steps[at].id), Practice::Membership(ratio)));
        return;
    }
}

/// Where a number is counted as the sum of a mask that the function is given, or makes of one.
fn count(view: &View<'_>, number: &Operand) -> Option<Place> {
    let mut e = view.through(number);
    let mut depth = 0;
    loop {
        depth += 1;
        let Expr::Call { callee, args, step } = e else { return None };
        let last = callee.last_name()?;
        if BOUNDS.contains(&last) && depth < 4 {
            e = match (*callee, args.first()) {
                (Expr::Attr(of, _), _) if !matches!(*of, Expr::Path(_)) => *of,
                (_, Some((_, first))) => first.clone(),
                _ => return None,
            };
            if let Expr::Local(local) = e {
                e = match view.defs(local) {
                    [one] => view.bound(*one, local),
                    _ => return None,
                };
            }
            continue;
        }
        let of = match &*callee {
            Expr::Attr(of, name) if name == "sum" && args.is_empty() => view.name_of(of).map(str::to_lowercase),
            Expr::Path(_) if last == "sum" && args.len() == 1 => view.name_of(&args[0].1).map(str::to_lowercase),
            _ => None,
        };
        return of.filter(|name| near::has_any(name, MASKS)).map(|_| view.place(view.steps[step].id));
    }
}

/// Whether a ratio, or a variable for it, is a factor of what is called a loss.
fn weighs_loss(view: &View<'_>, ratio: usize) -> bool {
    let Stmt::Assign { dst, .. } = view.steps[ratio].stmt else { return false };
    let called = |local: &LocalId| view.local_name(*local).contains("loss");
    (ratio..view.steps.len()).any(|at| {
        let Some(Rvalue::Binary { op: BinOp::Mul, left, right }) = view.value(at) else { return false };
        let has = |o: &Operand| near::reached(view, o, |step| step >= ratio).contains(dst);
        let of_loss = |o: &Operand| near::roots(view, o).iter().any(called);
        has(left) && of_loss(right) || has(right) && of_loss(left)
    })
}

/// Where a function of the file sums a count over ranks, and where it divides gradients by that.
fn divides(view: &View<'_>) -> Option<(Place, Place)> {
    near::functions(view, view.at.module).into_iter().find_map(|at| {
        let other = near::shared(view, at);
        other.collectives().iter().find_map(|(step, call)| {
            let counted = call.input.and_then(near::local).filter(|_| call.rule.op == "all_reduce")?;
            let divided = (step + 1..other.steps.len()).find(|later| {
                let (of, by) = match other.value(*later) {
                    Some(Rvalue::CallMethod { base, name, args }) if name == "div_" && args.len() == 1 => {
                        (base, &args[0].value)
                    }
                    Some(Rvalue::InPlace { op: BinOp::Div, left, right }) => (left, right),
                    _ => return false,
                };
                is_gradient(&other.through(of)) && near::roots(&other, by).contains(&counted)
            })?;
            Some((other.place(other.steps[*step].id), other.place(other.steps[divided].id)))
        })
    })
}
