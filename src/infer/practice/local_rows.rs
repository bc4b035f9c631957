//! Keys of all ranks that get no gradient. In: a function that compares this rank's rows of two kinds of features with all rows of the other one. Out: the raw
//! gather that gives all of them: each rank takes the loss of its own rows alone, so what the losses of other ranks ask of
//! its features as keys is lost. Never: a gather that puts this rank's own features back, one under a flag, or a file in which something has no
//! gradient by intention. Source: open_clip, `gather_with_grad` with `local_loss`. Next: `own_labels.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::own_labels::{MOST_STEPS, SAME, TURNS, entropy, gathered, product};
use super::unshared::Unshared;
use super::view::View;
use crate::ir::{ClassId, FuncKind, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef};
use crate::source::{Name, Place, Span};
use std::rc::Rc;

/// What shows that keys are to have no gradient, or that rows of all ranks are scored.
const INTENDED: &[&str] = &[
    "momentum",
    "queue",
    "teacher",
    "target_encoder",
    "frozen",
    "freeze",
    "requires_grad",
    "memory",
    "local_loss",
    "ema",
    "stop_grad",
];

/// The same, of the class or function that scores, and of the function that gathers; elsewhere in the file another function may have them.
const NEAR: &[&str] = &["no_grad", "with_grad", "inference_mode", "set_grad_enabled"];

/// What may sum in a backward.
const SUMS: &[&str] = &["reduce", "psum", "all_to_all", ".apply(", "all_gather"];

/// What a function without gradients may have that is no evaluation of what others have computed.
const TRAINS: &[&str] = &["loss", "model", "encode", "forward", "self.", "backbone", "criterion", "entropy"];

/// `image @ all_text.t()` and `text @ all_image.t()`, where `all_text` and `all_image` come from `dist.all_gather`
pub fn keys(view: &View<'_>, out: &mut Found) {
    let mut scored: Vec<(Place, Place, Option<Place>)> = Vec::new();
    for (step, scores) in scores(view) {
        let Some(((rows, at), (columns, from))) = product(view, &view.expr(scores), step, MOST_STEPS) else { continue };
        if gathered(view, &rows, at, MOST_STEPS).is_some() {
            continue;
        }
        if let Some(place) = gathered(view, &columns, from, MOST_STEPS) {
            let called = called(view, &columns, from, MOST_STEPS).map(|call| view.place(view.steps[call].id));
            scored.push((place, view.place(view.steps[from].id), called.filter(|called| *called != place)));
        }
    }
    for (place, rows, called) in &scored {
        let off = || near::has_any(&near::bare(view.file()), &["set_grad_enabled", "requires_grad", "slow", "bank"]);
        if let Some((backward, class)) = keeps_own_part(view, *place).filter(|_| labels_of_rank(view) && !off()) {
            let mistake = Unshared::OwnPartOfKeys { class, rows: *rows, called: *called };
            out.push((backward, Practice::Unshared(mistake)));
            return;
        }
    }
    // The gather that stands first in the source is shown.
    scored.sort_by_key(|(gather, ..)| gather.span.start);
    let [(first, rows, called), .., (last, ..)] = scored.as_slice() else { return };
    if near::has_any(&near::bare(view.file()), INTENDED) || !is_raw(view, *first) || !is_raw(view, *last) {
        return;
    }
    if is_meant(view, *first) || is_meant(view, *last) {
        return;
    }
    if stops(view, *first) || stops(view, *last) {
        return;
    }
    out.push((*first, Practice::Unshared(Unshared::KeysWithoutGradient { rows: *rows, called: *called })));
}

/// Where the backward of the autograd function that a gather stands in returns this rank's part of the gradient and sums nothing.
fn keeps_own_part(view: &View<'_>, gather: Place) -> Option<(Place, Name)> {
    let forward = near::shared(view, function_at(view, gather)?);
    let class = near::autograd_class(&forward).filter(|_| forward.func.name == "forward")?;
    let backward = near::shared(view, view.project.own_method(class, "backward")?);
    let returned = (0..backward.steps.len()).filter(|step| matches!(backward.steps[*step].stmt, Stmt::Return { .. }));
    let mut returned = returned.collect::<Vec<usize>>().into_iter();
    let (Some(at), None) = (returned.next(), returned.next()) else { return None };
    let cuts =
        near::has_any(backward.code(), &["narrow(", "chunk(", "split(", "[rank", ".rank", "get_rank", "ordinal"]);
    let helped = (0..backward.steps.len()).any(|step| match backward.value(step) {
        Some(Rvalue::Call { callee, .. }) => near::function(&backward, callee).is_some(),
        _ => false,
    });
    let silent = backward.collectives().is_empty() && !near::has_any(backward.code(), SUMS) && !helped;
    (cuts && silent).then(|| (backward.place(backward.steps[at].id), view.project.class(class).name.clone()))
}

/// Whether some labels of a function count from this rank's rows on.
fn labels_of_rank(view: &View<'_>) -> bool {
    let of_rank = |step| entropy(view, step).is_some_and(|(_, labels)| near::names_rank(view, &view.expr(labels)));
    let ordinal = || near::has_any(view.code(), &["get_ordinal(", "global_ordinal("]);
    (0..view.steps.len()).any(|step| of_rank(step) || entropy(view, step).is_some() && ordinal())
}

/// What a function takes the cross entropy of, or gives to a method of its class that does.
fn scores<'a>(view: &View<'a>) -> Vec<(usize, &'a Operand)> {
    let taken = |step| entropy(view, step).map(|(scores, _)| (step, scores));
    let own: Vec<(usize, &Operand)> = (0..view.steps.len()).filter_map(taken).collect();
    if !own.is_empty() || !near::class_of(view).is_some_and(|class| takes_entropy_of(view, class)) {
        return own;
    }
    let returned = |step: usize| match view.steps[step].stmt {
        Stmt::Return { value } => {
            let (_, made) = view.source(value)?;
            Some(near::items(made)?.into_iter().map(|item| (step, item)).collect::<Vec<_>>())
        }
        _ => None,
    };
    (0..view.steps.len()).filter_map(returned).flatten().collect()
}

/// Whether a method of a class takes the cross entropy of what this one gives it.
fn takes_entropy_of(view: &View<'_>, class: ClassId) -> bool {
    let called = format!("self.{}(", view.func.name.to_lowercase());
    let mut methods = near::methods(view, class).into_iter().filter(|method| method.at != view.at);
    methods.any(|method| {
        method.code().contains(&called) && (0..method.steps.len()).any(|step| entropy(&method, step).is_some())
    })
}

/// The call that gives the columns.
fn called(view: &View<'_>, columns: &Expr, step: usize, depth: usize) -> Option<usize> {
    let depth = depth.checked_sub(1)?;
    let inner = |e: &Expr| called(view, e, step, depth);
    match columns {
        Expr::Local(local) => {
            let def = view.last_def(*local, step)?;
            called(view, &view.bound(def, *local), def, depth)
        }
        Expr::Attr(base, _) | Expr::Item(base, _) => inner(base),
        Expr::Binary(_, a, b) => inner(a).or_else(|| inner(b)),
        Expr::Call { callee, args, step } => match &**callee {
            Expr::Attr(base, name) if SAME.contains(&name.as_str()) || TURNS.contains(&name.as_str()) => inner(base),
            Expr::Path(path) if path.rsplit('.').next().is_some_and(|name| SAME.contains(&name)) => {
                inner(&args.first()?.1)
            }
            _ => Some(*step),
        },
        _ => None,
    }
}

/// Whether the code around the scores, or that of a gather, shows that there is to be no gradient, or something else in the file that computes losses or features.
fn is_meant(view: &View<'_>, gather: Place) -> bool {
    let around = |span: Span| near::bare(view.text(view.spot(span)));
    let own = match near::class_of(view) {
        Some(class) => view.project.class(ClassRef { module: view.at.module, class }).span,
        None => view.func.span,
    };
    let raw = function_at(view, gather).map(|at| view.project.func(at).span);
    if near::has_any(&around(own), NEAR) || raw.is_none_or(|span| near::has_any(&around(span), NEAR)) {
        return true;
    }
    // Each that stands without gradients is to take what others have computed, and nothing else.
    let file = near::bare(view.file());
    let said = file.matches("no_grad").count() + file.matches("inference_mode").count();
    let harmless = near::functions(view, view.at.module).into_iter().filter(|at| {
        let inner = near::shared(view, *at);
        let marks = inner.func.kind == FuncKind::Function && near::is_unrecorded(&inner);
        let own = raw.is_some_and(|span| span == inner.func.span);
        marks && !own && inner.func.class.is_none() && !near::has_any(inner.code(), TRAINS)
    });
    said > harmless.count()
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
