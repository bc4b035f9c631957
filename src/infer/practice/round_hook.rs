//! Hooks that sum what one backward pass adds, in some rounds of accumulation alone. In: a function that registers a method as a hook on
//! gradients of parameters. Out: a collective in it on the gradient that the hook gets, under a flag of the object that other code sets: what the
//! rounds without the flag have added is never summed. Never: a hook that reads the parameter's own gradient, or a flag that is not set by the number of the round.
//! Source: torch.Tensor.register_hook: the hook gets the gradient of this backward pass, before it is accumulated. Next: `late_hook.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::raw::{Sort, raw};
use super::training::Training;
use super::view::{Step, View};
use crate::ir::{CmpOp, Rvalue, Stmt};
use crate::project::ClassRef;
use crate::source::{Name, Place};

/// Parts of names of flags that say whether a round sums.
const FLAGS: &[&str] = &["sync", "reduce", "accum", "last"];

/// `p.register_hook(self._reduce)`, and `if self.require_sync: all_reduce(grad)` there
pub fn registered(view: &View<'_>, out: &mut Found) {
    if !view.code().contains("parameters()") {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        let Some(Rvalue::CallMethod { name, args, .. }) = view.value(i) else { continue };
        let [hook] = &args[..] else { continue };
        let (true, Some(class)) = (name == "register_hook", near::class_of(view)) else { continue };
        let hook = view.expr(&hook.value);
        let Some(method) = near::own_attribute(view, &hook) else { continue };
        let class = ClassRef { module: view.at.module, class };
        let Some(at) = view.project.own_method(class, method) else { continue };
        let Some((flag, summed)) = summed_under_flag(&near::other(view, at)) else { continue };
        if is_set_by_round(view, &flag) {
            out.push((view.place(step.id), Practice::Training(Training::RoundHook { flag, summed })));
        }
    }
}

/// The flag of the object under which a hook sums the gradient that it gets, and where.
fn summed_under_flag(hook: &View<'_>) -> Option<(Name, Place)> {
    // What has been accumulated, or is kept until the flag holds, is not lost.
    if near::has_any(hook.code(), &[".grad", "main_grad", "buffer", "append(", "+="]) {
        return None;
    }
    // Another one may sum where the flag does not hold.
    if (0..hook.steps.len()).filter(|i| hook.value(*i).is_some_and(|value| raw(hook, value).is_some())).count() != 1 {
        return None;
    }
    let grad = hook.func.params.last().filter(|_| hook.func.params.len() == 2)?.local;
    (0..hook.steps.len()).find_map(|i| {
        let call = raw(hook, hook.value(i)?).filter(|call| call.sort == Sort::Everyone)?;
        let of_grad = call.buffer.is_some_and(|b| near::local(b) == Some(grad)) && call.name.contains("reduce");
        let flag = hook.steps[i].guards.iter().filter(|g| g.holds).find_map(|g| flag_of(hook, &hook.expr(g.test)))?;
        of_grad.then(|| (flag, hook.place(hook.steps[i].id)))
    })
}

fn flag_of(view: &View<'_>, test: &Expr) -> Option<Name> {
    let name = near::own_attribute(view, test)?;
    near::has_any(&name.to_lowercase(), FLAGS).then(|| name.clone())
}

/// Whether a function of the file sets the flag in one of the rounds of a loop in which it passes backward: `model.sync = i == last`.
fn is_set_by_round(view: &View<'_>, flag: &Name) -> bool {
    near::functions(view, view.at.module).into_iter().any(|at| {
        let other = near::shared(view, at);
        let set = |s: &Step<'_>| match s.stmt {
            Stmt::SetAttr { name, value, .. } if name == flag => {
                let picks = matches!(near::deep(&other, &other.through(value)), Expr::Compare(CmpOp::Eq, ..));
                s.loops.last().copied().filter(|_| picks)
            }
            _ => None,
        };
        let passes = |round: usize| {
            let backward =
                |i: usize| matches!(other.value(i), Some(Rvalue::CallMethod { name, .. }) if name == "backward");
            (0..other.steps.len()).any(|i| other.steps[i].loops.contains(&round) && backward(i))
        };
        other.steps.iter().filter_map(set).any(passes)
    })
}
