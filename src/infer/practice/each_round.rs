//! Gradients that are scaled in every round and reduced in the last. In: a function. Out: a factor of the accumulated gradients that runs
//! in each round of accumulation, beside a reduction of them that runs in some. Never: a factor under the same condition.
//! And gradients that are reduced in another round than the one in which the optimizer steps.
//! Next: `reducers.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::reducers::{is_gradient, parameter_loop};
use super::view::{CollectiveCall, Guard, View};
use crate::ir::{BinOp, CmpOp, Const, Operand, Rvalue, Stmt};

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

/// `if step % n == 0: all_reduce(p.grad)` and `if (step + 1) % n == 0: optimizer.step()`
pub fn apart(view: &View<'_>, out: &mut Found) {
    let itself = |o: &Operand| matches!(view.through(o), Expr::Attr(_, name) if name == "grad" || name == "main_grad");
    let sums = |i: usize, call: &CollectiveCall<'_>| {
        call.rule.op == "all_reduce" && call.input.is_some_and(itself) && parameter_loop(view, i).is_some()
    };
    // Any other collective may be a reduction of gradients as well.
    let all: Option<Vec<(usize, &Guard<'_>, Phase)>> = view
        .collectives()
        .iter()
        .map(|(i, call)| phase(view, *i).filter(|_| sums(*i, call)).map(|(guard, phase)| (*i, guard, phase)))
        .collect();
    let all = all.unwrap_or_default();
    let Some((at, guard, reduced)) = all.first() else { return };
    // Another optimizer may step in the other round, and a hook of this one may reduce.
    let steps = (0..view.steps.len())
        .filter(|i| matches!(view.value(*i), Some(Rvalue::CallMethod { name, .. }) if name == "step"));
    let hooked = view.file().contains("hook");
    let Some(head) = parameter_loop(view, *at).filter(|_| steps.count() == 1 && !hooked) else { return };
    for (i, step) in view.steps.iter().enumerate().skip(*at) {
        let Some(Rvalue::CallMethod { base, name, .. }) = view.value(i) else { continue };
        let named = match view.expr(base) {
            Expr::Local(l) => view.local_name(l).contains("optim") || view.local_name(l) == "opt",
            other => other.last_name().is_some_and(|n| n.contains("optim")),
        };
        let Some((when, used)) = phase(view, i).filter(|_| name == "step" && named) else { continue };
        let Some(backward) = backward(view, &step.loops) else { continue };
        // What is tested besides, the backward pass is under as well.
        let alone = |step: usize, own: &Guard<'_>| {
            let others = view.steps[step].guards.iter().take_while(|g| g.at != own.at);
            others.into_iter().all(|g| view.steps[backward].guards.iter().any(|b| b.at == g.at))
        };
        let other = when.at != guard.at && reduced.differs(&used) && counts_rounds(view, &used.of, &step.loops);
        let here = backward < *at && view.steps[head].loops == step.loops && alone(*at, guard) && alone(i, when);
        let known = (backward + 1..view.steps.len()).all(|s| is_known(view, s, &step.loops));
        if other && here && known && all.iter().all(|(_, g, _)| g.at == guard.at) {
            let found = Membership::OtherRound {
                round: view.part(guard.at, 0),
                step: view.place(step.id),
                stepped: view.part(when.at, 0),
            };
            out.push((view.place(view.steps[*at].id), Practice::Membership(found)));
            return;
        }
    }
}

/// The last backward pass of a loop.
fn backward(view: &View<'_>, loops: &[usize]) -> Option<usize> {
    let is = |i: &usize| matches!(view.value(*i), Some(Rvalue::CallMethod { name, .. }) if name == "backward");
    (0..view.steps.len()).rev().find(is).filter(|i| view.steps[*i].loops.as_slice() == loops)
}

/// Whether a variable is what a loop counts, and nothing else: bound by the innermost of these loops alone.
fn counts_rounds(view: &View<'_>, counter: &Expr, loops: &[usize]) -> bool {
    let Expr::Local(counter) = counter else { return false };
    let ([bound], Some(innermost)) = (view.defs(*counter), loops.last()) else { return false };
    let there = bound == innermost || view.steps[*bound].loops.as_slice() == loops;
    let counts = |e: &Expr| e.call_of("enumerate").is_some() || e.call_of("range").is_some();
    there
        && match view.bound(*bound, *counter) {
            Expr::Element(iter) => counts(&iter) && iter.call_of("enumerate").is_none(),
            Expr::Item(pair, at) => {
                let first = matches!(*at, Expr::Const(Const::Int(0)));
                first && matches!(*pair, Expr::Element(iter) if iter.any(&mut |e| e.call_of("enumerate").is_some()))
            }
            _ => false,
        }
}

/// Methods that leave gradients what they are, or scale them.
const KNOWN: &[&str] = &[
    "step",
    "zero_grad",
    "parameters",
    "named_parameters",
    "item",
    "update",
    "unscale_",
    "div_",
    "mul_",
    "size",
    "detach",
    "append",
];

/// Whether a step of a loop surely neither reduces gradients nor keeps them for later.
fn is_known(view: &View<'_>, step: usize, loops: &[usize]) -> bool {
    if !view.steps[step].loops.starts_with(loops) {
        return true;
    }
    let of_torch = |value| {
        let path = view.callee(value);
        path.is_some_and(|p| p.starts_with("torch.") || matches!(p.as_str(), "float" | "int" | "len"))
    };
    match view.steps[step].stmt {
        _ if near::only_tells(view, step) => true,
        Stmt::SetAttr { name, .. } => name == "grad",
        Stmt::SetGlobal { .. } | Stmt::SetItem { .. } | Stmt::Append { .. } => false,
        Stmt::Assign { value: value @ Rvalue::CallMethod { name, .. }, .. } => {
            KNOWN.contains(&name.as_str()) || of_torch(value)
        }
        Stmt::Assign { value: value @ Rvalue::Call { .. }, .. } => of_torch(value),
        _ => true,
    }
}

/// A round of accumulation: of which counter, of how many, and which one.
#[derive(PartialEq)]
struct Phase {
    of: Expr,
    rounds: Expr,
    /// The round, less what is added to the counter.
    rest: i64,
}

impl Phase {
    /// Whether two rounds of one counter are surely not the same.
    fn differs(&self, other: &Phase) -> bool {
        let apart = (self.rest - other.rest).abs();
        self.of == other.of
            && self.rounds == other.rounds
            && match self.rounds {
                Expr::Const(Const::Int(n)) => n > 1 && apart % n != 0,
                // Of however many rounds, if not of one.
                _ => apart == 1,
            }
    }
}

/// `(step + 1) % n == 0` around a step.
fn phase<'v>(view: &'v View<'_>, step: usize) -> Option<(&'v Guard<'v>, Phase)> {
    view.steps[step].guards.iter().rev().find_map(|guard| {
        let Expr::Compare(CmpOp::Eq, left, right) = view.expr(guard.test) else { return None };
        let Expr::Binary(BinOp::Mod, counter, rounds) = *left else { return None };
        let (of, added) = plus(&counter);
        let whole = (*rounds).clone();
        let (base, wanted) = plus(&right);
        // The last round is `n - 1`.
        if base.is_some_and(|base| base != whole) {
            return None;
        }
        guard.holds.then_some((guard, Phase { of: of?, rounds: whole, rest: wanted - added }))
    })
}

/// What a number is added to.
fn plus(expr: &Expr) -> (Option<Expr>, i64) {
    match expr {
        Expr::Const(Const::Int(n)) => (None, *n),
        Expr::Binary(op @ (BinOp::Add | BinOp::Sub), a, b) => match **b {
            Expr::Const(Const::Int(n)) => (Some((**a).clone()), if *op == BinOp::Add { n } else { -n }),
            _ => (Some(expr.clone()), 0),
        },
        other => (Some(other.clone()), 0),
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
