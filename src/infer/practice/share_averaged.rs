//! Shares of a mean over all ranks that a wrapper averages once more. In: a function that takes a backward pass. Out: a loss that is weighed by a
//! number of this rank and divided by the sum of these numbers over all ranks, which nothing multiplies by their number: what a wrapper of
//! data parallelism averages is the share of each rank. Never: a file without such a wrapper, one that sums gradients itself, or a function
//! that speaks of the number of ranks. Source: FunASR, pull request 1157; espnet, issue 4136. Next: `all_processes.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::mixed_mean::averages;
use super::near;
use super::slips::Slip;
use super::view::View;
use crate::ir::{BinOp, LocalId, Operand, Rvalue, Stmt};
use crate::source::Place;

/// What averages the gradients of all ranks.
const WRAPPERS: &[&str] = &["distributeddataparallel(", "ddp("];
/// What a file has that gives gradients, or takes them, otherwise.
const OTHERWISE: &[&str] = &[".grad", "comm_hook", "gradient_divide", "process_group=", "world_size *", "* world"];
/// Words of the number of ranks in a function.
const SIZES: &[&str] = &["world", "num_process", "n_rank", "ngpu", "num_gpu", "get_size"];

/// `loss = (loss * n).sum()`, `all_reduce(n)` and `loss / n`
pub fn divided(view: &View<'_>, out: &mut Found) {
    if !view.code().contains(".backward(") || near::has_any(&view.code().to_lowercase(), SIZES) {
        return;
    }
    for step in 0..view.steps.len() {
        let Some((left, right)) = quotient(view, step) else { continue };
        let (Some(loss), Some(weight)) = (near::local(left), near::local(right)) else { continue };
        let Some(reduced) = summed(view, weight, step) else { continue };
        if !weighed(view, loss, weight, step) || !backward(view, loss, step) || view.without_gradient(step) {
            continue;
        }
        let file = near::bare(view.file());
        if !near::has_any(&file, WRAPPERS) || near::has_any(&file, OTHERWISE) {
            return;
        }
        let found = Slip::ShareAveraged {
            loss: view.local_name(loss).clone(),
            weight: view.local_name(weight).clone(),
            reduced,
        };
        out.push((view.place(view.steps[step].id), Practice::Slips(found)));
        return;
    }
}

fn quotient<'a>(view: &View<'a>, step: usize) -> Option<(&'a Operand, &'a Operand)> {
    match view.value(step)? {
        Rvalue::Binary { op: BinOp::Div, left, right } | Rvalue::InPlace { op: BinOp::Div, left, right } => {
            Some((left, right))
        }
        _ => None,
    }
}

/// Where a number is summed over all ranks before a step: here, or by a function of the project that is given it and gives it back.
fn summed(view: &View<'_>, weight: LocalId, before: usize) -> Option<Place> {
    if let Some(place) = summed_here(view, weight, before) {
        return Some(place);
    }
    let def = view.last_def(weight, before)?;
    let Stmt::Unpack { value, before: items, .. } = view.steps[def].stmt else { return None };
    let at = items.iter().position(|l| *l == weight)?;
    let (_, Rvalue::Call { callee, .. }) = view.source(value)? else { return None };
    let helper = near::shared(view, near::function(view, callee)?);
    helper.steps.iter().enumerate().find_map(|(end, step)| {
        let Stmt::Return { value } = step.stmt else { return None };
        let (_, built) = helper.source(value)?;
        let local = near::local(near::items(built)?.get(at)?)?;
        summed_here(&helper, local, end)
    })
}

fn summed_here(view: &View<'_>, number: LocalId, before: usize) -> Option<Place> {
    let all = || view.collectives().iter().filter(|(at, _)| *at < before);
    let mut sums = all().filter(|(_, call)| {
        let of_number = call.input.and_then(near::local) == Some(number);
        call.rule.op == "all_reduce" && call.group.is_none() && of_number && averages(view, call) == Some(false)
    });
    sums.next().map(|(at, _)| view.place(view.steps[*at].id))
}

/// Whether a loss was multiplied by a number, as it was on this rank.
fn weighed(view: &View<'_>, loss: LocalId, weight: LocalId, before: usize) -> bool {
    view.defs(loss).iter().filter(|def| **def < before).any(|def| {
        view.bound(*def, loss).any(&mut |e| match e {
            Expr::Binary(BinOp::Mul, a, b) => {
                let has = |e: &Expr, local: LocalId| e.any(&mut |e| *e == Expr::Local(local));
                has(a, loss) && has(b, weight) || has(b, loss) && has(a, weight)
            }
            _ => false,
        })
    })
}

/// Whether a backward pass is taken of a loss behind a step.
fn backward(view: &View<'_>, loss: LocalId, from: usize) -> bool {
    (from..view.steps.len()).any(|at| match view.value(at) {
        Some(Rvalue::CallMethod { base, name, .. }) => name == "backward" && near::local(base) == Some(loss),
        _ => false,
    })
}
