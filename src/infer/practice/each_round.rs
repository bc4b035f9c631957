//! Gradients that are scaled in every round and reduced in the last. In: a function. Out: a factor of the accumulated gradients that runs
//! in each round of accumulation, beside a reduction of them that runs in some. Never: a factor under the same condition.
//! Next: `reducers.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::reducers::{is_gradient, parameter_loop};
use super::view::View;
use crate::ir::{BinOp, Operand, Rvalue};

/// Words of conditions that hold in some rounds only.
const ROUNDS: &[&str] =
    &["accumul", "micro", "is_last", "last_step", "require_sync", "sync_grad", "should_sync", "no_sync"];

/// `p.grad.div_(world_size)` in every round, `all_reduce(p.grad)` in the last.
pub fn scaled(view: &View<'_>, out: &mut Found) {
    for (i, call) in view.collectives() {
        let Some(input) = call.input.filter(|o| call.rule.op == "all_reduce" && is_gradient(&view.through(o))) else {
            continue;
        };
        let Some(head) = parameter_loop(view, *i) else { continue };
        let guards = &view.steps[*i].guards;
        let Some(last) = guards.last().filter(|g| rounds(view, &view.through(g.test))) else { continue };
        // The loop itself runs in every round.
        if view.steps[head].guards.iter().any(|g| g.at == last.at) {
            continue;
        }
        let target = view.through(input);
        for (j, step) in view.steps.iter().enumerate() {
            let outside = step.guards.iter().all(|g| g.at != last.at);
            if parameter_loop(view, j) != Some(head) || !outside || step.guards.len() >= guards.len() {
                continue;
            }
            if scales(view, j, &target) {
                let found = Membership::ScaledEachRound {
                    round: view.part(last.at, 0),
                    reduced: view.place(view.steps[*i].id),
                };
                out.push((view.place(step.id), Practice::Membership(found)));
                return;
            }
        }
    }
}

/// Whether a condition says that it holds in some rounds only.
fn rounds(view: &View<'_>, test: &Expr) -> bool {
    let mut found = false;
    test.any(&mut |e| {
        let name = match e {
            Expr::Local(l) => Some(view.local_name(*l).as_str()),
            other => other.last_name(),
        };
        found |= name.is_some_and(|n| ROUNDS.iter().any(|w| n.to_lowercase().contains(w)));
        false
    });
    found
}

/// Whether a step multiplies a gradient in place with something that speaks of the number of ranks.
fn scales(view: &View<'_>, step: usize, target: &Expr) -> bool {
    let (on, by): (&Operand, &Operand) = match view.value(step) {
        Some(Rvalue::InPlace { op: BinOp::Mul | BinOp::Div, left, right }) => (left, right),
        Some(Rvalue::CallMethod { base, name, args }) if matches!(name.as_str(), "mul_" | "div_") => match args.first()
        {
            Some(arg) => (base, &arg.value),
            None => return false,
        },
        _ => return false,
    };
    let same = view.through(on) == *target;
    let size = near::deep(view, &view.through(by)).any(&mut |e| {
        let name = match e {
            Expr::Local(l) => Some(view.local_name(*l).as_str()),
            other => other.last_name(),
        };
        name.is_some_and(|n| ["world_size", "dp_size", "group_size", "num_replicas"].iter().any(|w| n.contains(w)))
    });
    same && size
}
