//! Gradients of what came from a neighbour that stay where they are. In: an autograd function. Out: a backward that hands its gradient on as it
//! is, where the forward gives what another rank has sent: the gradient is that rank's. Never: a forward that gives what it was given, as at the
//! end of a pipeline, or a backward that communicates or computes anything. Source: torch.distributed, `batch_isend_irecv`: what is received is a
//! function of what was sent; state-spaces/mamba, issue 597. Next: `weight_left.rs`; `../autograd`, for collectives.

use super::backwards::{Backwards, both_ways};
use super::expr::Expr;
use super::found::Practice;
use super::ranks::LONE_JOB;
use super::raw::{Sort, raw};
use super::view::View;
use super::{Class, Found, Lint, near};
use crate::ir::{Item, LocalId, Operand, Rvalue, Stmt};
use crate::source::Place;

/// How files name what goes from one rank to another.
const SENDS: &[&str] = &["P2POp", "isend", "irecv", ".send(", ".recv("];
/// Words of files in which something else takes the gradient back, or nothing is sent.
const OTHERWISE: &[&str] = &["mark_non_differentiable", "register_hook", LONE_JOB];
/// How far an exchange may lie in functions that are called.
const DEPTH: usize = 2;

/// `return exchange(tail, group)`, and `return grad, None`
pub fn kept<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let text = lint.files[lint.project.file(class.at.module)].whole();
    if !SENDS.iter().any(|word| text.contains(word)) || OTHERWISE.iter().any(|word| text.contains(word)) {
        return;
    }
    // The gradient may go back another way.
    let sends_gradient = |line: &str| line.contains("send") && line.contains("grad");
    if text.lines().any(sends_gradient) {
        return;
    }
    let Some((forward, backward)) = both_ways(lint, class.at).filter(|_| lint.is_autograd(class.at)) else { return };
    let (forward, backward) = (lint.view(forward), lint.view(backward));
    let mut all = (0..forward.steps.len()).filter(|step| exchanges(&forward, *step, DEPTH));
    // What goes there and back is this rank's own.
    let (Some(exchange), further) = (all.next(), all.filter(|step| is_helper(&forward, *step)).count()) else { return };
    if further > 0 || !gives_received(&forward) || calls(&backward) {
        return;
    }
    let Some((gradient, returned)) = handed_on(&backward) else { return };
    let mistake = Backwards::NeighbourKept {
        class: lint.project.class(class.at).name.clone(),
        gradient: backward.local_name(gradient).clone(),
        received: forward.place(forward.steps[exchange].id),
    };
    out.push((returned, Practice::Backwards(mistake)));
}

/// Whether a step sends something to one rank and receives from one, itself or in a function of the project.
fn exchanges(view: &View<'_>, step: usize, depth: usize) -> bool {
    let Some(value) = view.value(step) else { return false };
    if let Some(call) = raw(view, value) {
        return matches!(call.sort, Sort::Send | Sort::Receive);
    }
    if view.callee(value).is_some_and(|path| path.ends_with("batch_isend_irecv")) {
        return true;
    }
    let Rvalue::Call { callee, .. } = value else { return false };
    let inner = depth.checked_sub(1).and_then(|depth| Some((near::shared(view, near::function(view, callee)?), depth)));
    inner.is_some_and(|(inner, depth)| (0..inner.steps.len()).any(|step| exchanges(&inner, step, depth)))
}

/// Whether a step calls a function of the project that exchanges.
fn is_helper(view: &View<'_>, step: usize) -> bool {
    let known = |value: &Rvalue| matches!(value, Rvalue::Call { callee, .. } if near::function(view, callee).is_some());
    exchanges(view, step, DEPTH) && view.value(step).is_some_and(known)
}

/// Whether a function that a step calls receives anything.
fn receives(view: &View<'_>, step: usize, depth: usize) -> bool {
    let Some(Rvalue::Call { callee, .. }) = view.value(step) else { return false };
    let Some(inner) = depth.checked_sub(1).and_then(|_| near::function(view, callee)) else { return false };
    let inner = near::shared(view, inner);
    let comes = |s: usize| !received(&inner, s).is_empty() || receives(&inner, s, depth - 1);
    inner.code().contains("recv") && (0..inner.steps.len()).any(comes)
}

/// Whether every way out of a forward gives what came: the result of a function that exchanges, or a buffer that is received into.
fn gives_received(forward: &View<'_>) -> bool {
    let came: Vec<LocalId> = (0..forward.steps.len()).flat_map(|step| received(forward, step)).collect();
    let mut returned = forward.steps.iter().filter_map(|step| match step.stmt {
        Stmt::Return { value } => Some(value),
        _ => None,
    });
    let is_it = |o: &Operand| {
        let own = near::local(o).is_some_and(|l| forward.is_param(l));
        let sum = matches!(forward.through(o), Expr::Binary(..));
        !own && !sum && near::reached(forward, o, |_| true).iter().any(|l| came.contains(l))
    };
    let first = returned.next().is_some_and(is_it);
    first && returned.all(is_it)
}

/// What a step gives or fills with what another rank has sent.
fn received(view: &View<'_>, step: usize) -> Vec<LocalId> {
    let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
        return Vec::new();
    };
    if let Some(call) = raw(view, value) {
        return match call.sort {
            Sort::Receive => call.buffer.and_then(near::local).into_iter().collect(),
            Sort::Send | Sort::Everyone => Vec::new(),
        };
    }
    let path = view.callee(value).unwrap_or_default();
    if path.ends_with("P2POp") {
        let receives =
            args.first().is_some_and(|a| view.expr(&a.value).last_name().is_some_and(|n| n.ends_with("recv")));
        return args.get(1).filter(|_| receives).and_then(|a| near::local(&a.value)).into_iter().collect();
    }
    let is_inside = is_helper(view, step) && receives(view, step, DEPTH);
    if is_inside { view.binds(step).to_vec() } else { Vec::new() }
}

/// Whether a function calls anything.
fn calls(view: &View<'_>) -> bool {
    (0..view.steps.len()).any(|s| matches!(view.value(s), Some(Rvalue::Call { .. } | Rvalue::CallMethod { .. })))
}

/// The gradient that every way out of a backward hands on as it is, first, and where.
fn handed_on(backward: &View<'_>) -> Option<(LocalId, Place)> {
    let gradient = backward.func.params.get(1)?.local;
    let mut found = None;
    for step in &backward.steps {
        let Stmt::Return { value } = step.stmt else { continue };
        let first = match backward.source(value) {
            Some((_, Rvalue::Build { items, .. })) => match items.first()? {
                Item::One(given) => given,
                Item::Star(_) => return None,
            },
            _ => value,
        };
        if near::local(first) != Some(gradient) {
            return None;
        }
        found = Some((gradient, backward.place(step.id)));
    }
    found
}
