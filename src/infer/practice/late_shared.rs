//! A shared weight whose gradient is summed over its copies after the ranks have scattered what they reduce. In: a function that finishes
//! gradients. Out: a sum over the group of an embedding after gradients were reduce-scattered in one buffer. Never: a project that gives the
//! shared weight a bucket of its own. Source: Megatron-LM, issue 844, and `param_and_grad_buffer.py`, which splits buckets at
//! `shared_embedding` since. Next: `order.rs`.

use super::Found;
use super::found::Practice;
use super::only_some::callee;
use super::training::Training;
use super::view::{CollectiveCall, View};
use super::{lost, near};
use crate::ir::Rvalue;
use crate::project::{ClassRef, FuncRef};
use crate::source::{Name, Place};

/// How many calls lie between a function and what it communicates.
const MOST_CALLS: usize = 2;

/// `model.finish_grad_sync()` and `allreduce_embedding_grads(model)` behind it
pub fn summed(view: &View<'_>, out: &mut Found) {
    for step in 0..view.steps.len() {
        let Some(summed) = sums_embedding(view, step) else { continue };
        let Some((at, scattered)) = (0..step).find_map(|at| Some((at, scatters(view, at, MOST_CALLS)?))) else {
            continue;
        };
        let exclusive = view.steps[at]
            .guards
            .iter()
            .any(|g| view.steps[step].guards.iter().any(|other| other.at == g.at && other.holds != g.holds));
        if exclusive || has_own_bucket(view) {
            continue;
        }
        let mistake = Training::AfterScatter { before: view.place(view.steps[at].id), scattered, summed };
        out.push((view.place(view.steps[step].id), Practice::Training(mistake)));
        return;
    }
}

/// The function of the project that a step calls, also one of the only method of that name.
fn called(view: &View<'_>, step: usize) -> Option<FuncRef> {
    let value = view.value(step)?;
    if let Some(at) = callee(view, value) {
        return Some(at);
    }
    let Rvalue::CallMethod { name, .. } = value else { return None };
    let [(class, func)] = view.project.methods_named(name) else { return None };
    Some(FuncRef { module: class.module, func: *func })
}

/// Whether the text of a value speaks of something.
fn speaks(view: &View<'_>, step: usize, of: &str) -> bool {
    view.text(view.place(view.steps[step].id)).to_lowercase().contains(of)
}

/// Where a step sums the gradient of an embedding over a group of its own.
fn sums_embedding(view: &View<'_>, step: usize) -> Option<Place> {
    let sums = |other: &View<'_>, given: bool| {
        let of_embedding = |(at, call): &&(usize, CollectiveCall<'_>)| {
            let group = call.group.map(|g| other.expr(g));
            let named = group.is_some_and(|g| {
                g.any(&mut |e| match e {
                    super::expr::Expr::Local(local) => other.local_name(*local).contains("embed"),
                    e => e.last_name().is_some_and(|name| name.contains("embed")),
                })
            });
            call.rule.op == "all_reduce" && (named || given && call.group.is_some()) && {
                let input = call.input.map(|o| other.expr(o));
                input.is_some_and(|e| e.any(&mut |e| e.last_name().is_some_and(|n| n.contains("grad"))))
                    || speaks(other, *at, "grad")
            }
        };
        other.collectives().iter().find(of_embedding).map(|(at, _)| other.place(other.steps[*at].id))
    };
    let at = called(view, step)?;
    let (own, grads) = (speaks(view, step, "embed"), speaks(view, step, "grad"));
    (own && grads).then(|| sums(&near::shared(view, at), speaks(view, step, "embedding_group")))?
}

/// Where a step leads to gradients that are reduce-scattered.
fn scatters(view: &View<'_>, step: usize, calls: usize) -> Option<Place> {
    let value = view.value(step)?;
    if let Some(call) = view.collective(value) {
        return (call.rule.op == "reduce_scatter" && of_gradients(view, step)).then(|| view.place(view.steps[step].id));
    }
    let calls = calls.checked_sub(1)?;
    let at = called(view, step)?;
    let name: &Name = &view.project.func(at).name;
    let named = ["grad", "sync", "reduce"].iter().any(|word| lost::last(name).to_lowercase().contains(word));
    let other = named.then(|| near::shared(view, at))?;
    (0..other.steps.len()).find_map(|step| scatters(&other, step, calls))
}

/// Whether what a step reduces are gradients, by its own text or by that of the class around it.
fn of_gradients(view: &View<'_>, step: usize) -> bool {
    let of_class = || {
        let class = near::class_of(view).map(|class| ClassRef { module: view.at.module, class });
        class.is_some_and(|class| view.text(view.spot(view.project.class(class).span)).contains("grad"))
    };
    ["grad", "bucket", "buffer"].iter().any(|word| speaks(view, step, word)) || of_class()
}

/// Whether the project tells the shared weight apart where it makes buckets.
fn has_own_bucket(view: &View<'_>) -> bool {
    view.project.modules.ids().any(|module| {
        let text = view.files[view.project.file(module)].whole();
        near::ending(text, "shared_embedding").any(|at| text[..at].ends_with(['.', '"', '\'']))
    })
}
