//! Keys of all ranks that get no gradient. In: a function that compares this rank's rows of two kinds of features with all rows of the other one. Out: the raw
//! gather that gives all of them: each rank takes the loss of its own rows alone, so what the losses of other ranks ask of
//! its features as keys is lost. Never: a gather that puts this rank's own features back, one under a flag, or a file in which something has no
//! gradient by intention. Source: open_clip, `gather_with_grad` with `local_loss`. Next: `own_labels.rs`.

use super::Found;
use super::found::Practice;
use super::near;
use super::own_labels::{MOST_STEPS, entropy, gathered, product};
use super::unshared::Unshared;
use super::view::View;
use crate::ir::Stmt;
use crate::project::FuncRef;
use crate::source::Place;
use std::rc::Rc;

/// What shows that keys are to have no gradient, or that rows of all ranks are scored.
const INTENDED: &[&str] = &[
    "no_grad",
    "momentum",
    "queue",
    "teacher",
    "target_encoder",
    "frozen",
    "freeze",
    "requires_grad",
    "memory",
    "with_grad",
    "local_loss",
    "ema",
    "stop_grad",
];

/// `image @ all_text.t()` and `text @ all_image.t()`, where `all_text` and `all_image` come from `dist.all_gather`
pub fn keys(view: &View<'_>, out: &mut Found) {
    let mut scored: Vec<(Place, Place)> = Vec::new();
    for step in 0..view.steps.len() {
        let Some((scores, _)) = entropy(view, step) else { continue };
        let Some(((rows, at), (columns, from))) = product(view, &view.expr(scores), step, MOST_STEPS) else { continue };
        if gathered(view, &rows, at, MOST_STEPS).is_some() {
            continue;
        }
        if let Some(place) = gathered(view, &columns, from, MOST_STEPS) {
            scored.push((place, view.place(view.steps[from].id)));
        }
    }
    let [(first, rows), .., (last, _)] = scored.as_slice() else { return };
    if near::has_any(&near::bare(view.file()), INTENDED) || !is_raw(view, *first) || !is_raw(view, *last) {
        return;
    }
    if stops(view, *first) || stops(view, *last) {
        return;
    }
    out.push((*first, Practice::Unshared(Unshared::KeysWithoutGradient { rows: *rows })));
}

/// Whether the function in which a gather stands is given something without a gradient.
fn stops(view: &View<'_>, place: Place) -> bool {
    let Some(at) = function_at(view, place) else { return false };
    let called = format!("{}(", view.project.func(at).name);
    view.file().lines().any(|line| line.contains("detach") && line.contains(&called))
}

/// The function of the file in which a place stands, the innermost one.
fn function_at(view: &View<'_>, place: Place) -> Option<FuncRef> {
    let inside = |at: &FuncRef| {
        let span = view.project.func(*at).span;
        place.file == view.project.file(at.module) && span.contains(place.span.start)
    };
    near::functions(view, view.at.module).into_iter().rfind(inside)
}

/// Whether a gather that stands in a function of the file leaves autograd behind, and nothing puts the own features back.
fn is_raw(view: &View<'_>, place: Place) -> bool {
    let Some(at) = function_at(view, place) else { return false };
    let function: Rc<View<'_>> = near::shared(view, at);
    let context = function.func.params.first().is_some_and(|p| p.name == "ctx");
    let puts = function.steps.iter().any(|step| matches!(step.stmt, Stmt::SetItem { .. }));
    let found = function.collectives().iter().find(|(step, _)| function.place(function.steps[*step].id) == place);
    let always = |step: usize| function.steps[step].guards.is_empty();
    !context && !puts && found.is_some_and(|(step, call)| !call.rule.differentiable && always(*step))
}
