//! Norms of gradients of which a rank has only shards. In: a function. Out: a norm that is taken of what one rank keeps of a sharded
//! model, by a function that does not know. Never: a model that is not followed to its wrapper, or code that tells ways of wrapping apart.
//! Next: `wrapped.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::training::Training;
use super::view::View;
use super::wrapped::{Wrapped, parameters_of, says, wrappers};
use crate::ir::{Arg, Rvalue};
use crate::rules::Keeps;
use crate::source::Name;

/// Words of conditions that tell ways of wrapping apart.
const TELLS: &[&str] =
    &["fsdp", "shard", "strategy", "isinstance", "ddp", "parallel", "distributed", "dist_", "hasattr", "world"];

/// `clip_grad_norm_(model.parameters(), ...)`, where the model keeps shards in plain tensors.
pub fn clipped(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some((function, args)) = norm(view, i) else { continue };
        let Some(given) = view.argument(args, 0, "parameters") else { continue };
        let Some(model) = parameters_of(view, given) else { continue };
        if only_measures(view, args) || is_whole_here(view, i) {
            continue;
        }
        let found = wrappers(view, &model, i);
        let Some(wrapped) = found.iter().find(|w| w.rule.keeps == Keeps::Shards && shards(w)) else { continue };
        let Some(method) = &wrapped.rule.clip else { continue };
        if step.guards.iter().any(|g| says(view, &view.through(g.test), TELLS)) || has_own(view) {
            continue;
        }
        let shown = Name::from(view.text(view.part(step.id, 1)).split(".parameters").next().unwrap_or("model"));
        let mistake = Training::ShardNorm { function, model: shown, method: method.clone(), wrapped: wrapped.place() };
        out.push((view.place(step.id), Practice::Training(mistake)));
    }
}

/// Whether nothing is clipped: the norm of this rank's part is asked for, to be summed.
pub(super) fn only_measures<'a>(view: &View<'a>, args: &'a [Arg]) -> bool {
    view.argument(args, 1, "max_norm").is_some_and(|most| near::is_without_bound(view, &view.expr(most)))
}

/// Whether a step stands where parameters and gradients are whole for a while.
pub(super) fn is_whole_here(view: &View<'_>, step: usize) -> bool {
    view.steps[step].contexts.iter().any(|c| match view.expr(c) {
        Expr::Call { callee, .. } => callee.last_name() == Some("summon_full_params"),
        _ => false,
    })
}

/// A call of a function that takes the norm of gradients, with its name.
pub fn norm<'a>(view: &View<'a>, step: usize) -> Option<(Name, &'a [Arg])> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let path = view.callee(value)?;
    view.rules.wrappers().is_norm(&path).then(|| (super::lost::last(&path), &args[..]))
}

/// Whether a wrapper shards parameters: nothing where it is called speaks of keeping them whole.
fn shards(wrapped: &Wrapped<'_>) -> bool {
    let view = &wrapped.view;
    let text = view.file();
    !wrapped.rule.whole_where.as_ref().is_some_and(|word| text.contains(word.as_str()))
}

/// Whether the file calls the method of the wrapper somewhere: then it tells them apart.
fn has_own(view: &View<'_>) -> bool {
    near::functions(view, view.at.module).into_iter().any(|at| {
        let other = near::other(view, at);
        (0..other.steps.len()).any(|i| match other.value(i) {
            Some(Rvalue::CallMethod { name, .. }) => {
                view.rules.wrappers().is_own_clip(name) && norm(&other, i).is_none()
            }
            _ => false,
        })
    })
}
