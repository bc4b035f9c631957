//! Optimizers that a module steps inside of its own forward. In: a method of a module. Out: a step on the module's own parameters right behind a backward
//! of its own, in a forward or what it calls, where the file sums other statistics over ranks and nothing sums these gradients: a wrapper
//! around the module sums what its own backward gives, and not these. Never: a file that reduces gradients in any way.
//! Source: vector-quantize-pytorch issue 222. Next: `unreduced_step.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::omissions::Omission;
use super::view::View;
use crate::ir::{Rvalue, Stmt};

/// Words of code that sums gradients, or leaves them to each rank on purpose.
const SUMS: &[&str] = &[".grad", "gradient", "grads", "no_sync", "accelerat", "inner_loop", "maml"];
/// What wraps a module, and sums what its own backward gives.
const WRAPPERS: &[&str] = &["distributeddataparallel", "ddp("];
/// A part of the name of the method by which a wrapper is told to leave parameters out.
const IGNORES: &str = "params_and_buffers_to_ignore";

/// `loss.backward(); self.codebook_optimizer.step()` in what `forward` calls.
pub fn stepped(view: &View<'_>, out: &mut Found) {
    if near::class_of(view).is_none() || near::has_any(view.code(), &["reduce", "gather", "broadcast"]) {
        return;
    }
    let called = |at: usize, wanted: &str| match view.value(at) {
        Some(Rvalue::CallMethod { base, name, .. }) if name == wanted => Some(base),
        _ => None,
    };
    let Some(backward) = (0..view.steps.len()).find(|at| called(*at, "backward").is_some()) else { return };
    let own_optimizer = |at: &usize| {
        called(*at, "step")
            .is_some_and(|base| near::own_attribute(view, &view.expr(base)).is_some_and(|name| name.contains("optim")))
    };
    let Some(step) = (backward..view.steps.len()).find(own_optimizer) else { return };
    let calls_it = |forward| near::shared(view, forward).code().contains(&format!("self.{}(", view.func.name));
    let in_forward = view.func.name == "forward" || near::own_method(view, "forward").is_some_and(calls_it);
    let text = near::bare(view.file());
    // A wrapper that is told to leave parameters out sums nothing of them.
    let left_out = text.contains(IGNORES);
    if !in_forward || near::has_any(&text, SUMS) || !left_out && near::has_any(&text, WRAPPERS) {
        return;
    }
    let elsewhere = near::functions(view, view.at.module).into_iter().find_map(|at| {
        let other = near::shared(view, at);
        if left_out {
            let ignores = |step: &usize| near::name_of_call(&other, *step).is_some_and(|n| n.contains(IGNORES));
            return (0..other.steps.len()).find(ignores).map(|step| other.place(other.steps[step].id));
        }
        let first = other.collectives().iter().find(|(_, call)| call.rule.op == "all_reduce").map(|(step, _)| *step);
        first.or_else(|| kept(&other)).map(|step| other.place(other.steps[step].id))
    });
    if let Some(summed) = elsewhere {
        let backward = view.place(view.steps[backward].id);
        let mistake = Omission::InnerStep { backward, summed, ignored: left_out };
        out.push((view.place(view.steps[step].id), Practice::Omission(mistake)));
    }
}

/// Where an object keeps what sums over ranks, to call it: `self.all_reduce_fn = distributed.all_reduce if use_ddp else noop`.
fn kept(view: &View<'_>) -> Option<usize> {
    let sums = |e: &Expr| e.path().is_some_and(|path| path == "torch.distributed.all_reduce");
    let keeps = |step: &usize| match view.steps[*step].stmt {
        Stmt::SetAttr { value, .. } => near::deep(view, &view.expr(value)).any(&mut |e| sums(e)),
        _ => false,
    };
    (0..view.steps.len()).find(keeps)
}
