//! Steps of an optimizer that sum gradients again. In: a function. Out: `optimizer.synchronize()`, and a step of it outside of `skip_synchronize()`, which
//! reduces all gradients once more: as a sum they grow by the number of ranks. Never: an optimizer whose reduction is not surely a sum, for a mean of
//! equal gradients changes none; a way on which only one of both runs, or gradients that something may have changed in between. Source:
//! horovod.torch, `DistributedOptimizer`. Next: `no_sync.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::training::Training;
use super::view::View;
use crate::ir::{ArgKind, Operand, Rvalue};
use crate::source::{Name, Place};

/// What stands between both where it is another gradient that is stepped with, or one that is divided by hand.
const CHANGED: &[&str] = &["backward", "zero_grad", "size", "div_(", "skip_synchronize", "_should_synchronize"];

/// What a file says that sets the state of the optimizer by hand.
const BY_HAND: &[&str] = &["_should_synchronize", "_synchronized"];

/// `optimizer.synchronize()`, `clip(...)`, `optimizer.step()`
pub fn stepped(view: &View<'_>, out: &mut Found) {
    let waits = |step: usize| match view.value(step) {
        Some(Rvalue::CallMethod { base, name, args }) if name == "synchronize" && args.is_empty() => Some(base),
        _ => None,
    };
    for (first, optimizer) in (0..view.steps.len()).filter_map(|step| Some((step, waits(step)?))) {
        let optimizer = view.expr(optimizer);
        let Some(name) = view.name_of(&optimizer).filter(|name| is_optimizer(name)) else { continue };
        let after = (first + 1..view.steps.len()).find(|step| steps(view, *step, &optimizer));
        let Some(step) = after.filter(|step| meets(view, first, *step)) else { continue };
        if near::has_any(&near::bare(view.file()), BY_HAND) {
            return;
        }
        let Some(made) = summing(view) else { return };
        let mistake =
            Training::SynchronizedAgain { optimizer: Name::from(name), first: view.place(view.steps[first].id), made };
        out.push((view.place(view.steps[step].id), Practice::Training(mistake)));
    }
}

fn is_optimizer(name: &str) -> bool {
    let name = name.to_lowercase();
    name.contains("optim") || near::has_part(&name, "opt")
}

/// `optimizer.step()`, `scaler.step(optimizer)`
fn steps(view: &View<'_>, step: usize, optimizer: &Expr) -> bool {
    match view.value(step) {
        Some(Rvalue::CallMethod { base, name, args }) if name == "step" => {
            let given = |o: &Operand| view.expr(o) == *optimizer;
            given(base) && args.is_empty() || args.first().is_some_and(|a| given(&a.value))
        }
        _ => false,
    }
}

/// Whether a step always follows another one, with the same gradients, and synchronizes by itself.
fn meets(view: &View<'_>, first: usize, step: usize) -> bool {
    let (a, b) = (&view.steps[first], &view.steps[step]);
    // With a test of its own each, they may exclude each other.
    let within = |a: usize, b: usize| {
        let others = &view.steps[b].guards;
        view.steps[a].guards.iter().all(|g| others.iter().any(|h| (h.at, h.holds) == (g.at, g.holds)))
    };
    let both = within(first, step) || within(step, first) && !view.code().contains("skip_synchronize");
    let (from, to) = (view.place(a.id).span.end as usize, view.place(b.id).span.start as usize);
    let between = view.file().get(from..to).map(near::bare);
    a.loops == b.loops
        && a.handlers.is_empty()
        && b.handlers.is_empty()
        && both
        && view.in_plain_contexts(step)
        && between.is_some_and(|text| !near::has_any(&text, CHANGED))
}

/// Where the optimizers of a file are made, if each of them sums.
fn summing(view: &View<'_>) -> Option<Place> {
    let mut made = None;
    for at in near::functions(view, view.at.module) {
        let inner = near::shared(view, at);
        for step in 0..inner.steps.len() {
            let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = inner.value(step) else {
                continue;
            };
            let Some(path) = inner.callee(value).filter(|path| super::lost::last(path) == "DistributedOptimizer")
            else {
                continue;
            };
            let operator = args.iter().find(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == "op"))?;
            let sums = match near::deep(&inner, &inner.expr(&operator.value)) {
                Expr::Path(op) => op.starts_with("horovod.") && super::lost::last(&op) == "Sum",
                _ => false,
            };
            if !sums || !path.starts_with("horovod.") {
                return None;
            }
            made.get_or_insert(inner.place(inner.steps[step].id));
        }
    }
    made
}
