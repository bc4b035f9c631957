//! Sums of gradients that stay in a copy. In: a function. Out: a collective on a clone of a gradient, or on gradients joined into one
//! tensor, of which nothing is written back or read. Never: conversions, which may give the gradient itself, warm-ups and measurements.
//! Next: `lost.rs`.

use super::Found;
use super::counted_rounds::unguarded;
use super::expr::Expr;
use super::found::Practice;
use super::lost::{last, written};
use super::order::gradients;
use super::view::View;
use crate::ir::{Arg, ArgKind, Item, LocalId, LocalKind, Operand, Rvalue, Stmt};

/// Words in the names of functions that communicate for its own sake.
const FOR_ITSELF: &[&str] = &["warm", "bench", "time", "timing", "profile", "test", "check", "debug"];

/// Words of functions that measure, throw gradients away, or get new parameters from another rank.
const APART: &[&str] = &[
    "time(",
    "perf_counter",
    "synchronize(",
    "event(",
    "zero_grad",
    "zero_(",
    "broadcast",
    "scatter",
    "store",
    "grad = none",
];

/// Words of functions that measure.
const MEASURED: &[&str] = &["time(", "perf_counter", "event("];

pub fn kept_apart(view: &View<'_>, out: &mut Found) {
    let name = view.func.name.to_lowercase();
    if FOR_ITSELF.iter().any(|w| name.contains(w)) {
        return;
    }
    for (step, call) in view.collectives() {
        let Some(Operand::Local(copy)) = written(call) else { continue };
        if view.func.locals()[*copy].kind != LocalKind::Plain || view.is_param(*copy) {
            continue;
        }
        let Some(made) = copied(view, *copy) else { continue };
        // What an optimizer takes afterwards is neither measured nor thrown away.
        let trained = |i: usize| matches!(view.value(i), Some(Rvalue::CallMethod { name, .. }) if name == "step");
        let apart = if (*step..view.steps.len()).any(trained) { MEASURED } else { APART };
        if apart.iter().any(|w| view.code().contains(w)) {
            return;
        }
        // A loop around the collective alone measures how long it takes.
        let once =
            view.steps[made].loops == view.steps[*step].loops && unguarded(view, *step) && is_unread(view, *step);
        if once && view.readers(*copy).iter().all(|at| at == step || changes(view, *at, *copy)) {
            let (collective, copy) = (last(&call.rule.name), view.local_name(*copy).clone());
            let made = view.place(view.steps[made].id);
            let practice = Practice::LostGradients { collective, copy, made };
            out.push((view.place(view.steps[*step].id), practice));
        }
    }
}

/// Whether nothing asks the handle of a collective for its result.
fn is_unread(view: &View<'_>, step: usize) -> bool {
    match view.steps[step].stmt {
        Stmt::Assign { dst, .. } => view.is_temp(*dst) && view.readers(*dst).is_empty(),
        _ => true,
    }
}

/// The step that copies gradients into a variable, if all others that bind it change what it holds.
fn copied(view: &View<'_>, copy: LocalId) -> Option<usize> {
    let (changed, made): (Vec<usize>, Vec<usize>) =
        view.defs(copy).iter().copied().partition(|def| changes(view, *def, copy));
    let [made] = made.as_slice() else { return None };
    let later = changed.iter().all(|def| def > made);
    let joined = |value: &Rvalue| match value {
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => {
            // What is written elsewhere as well may be read there.
            let named = |kind: &ArgKind| matches!(kind, ArgKind::Keyword(name) if name == "out");
            let apart = !args.iter().any(|arg| named(&arg.kind));
            // Of one tensor joining makes no copy.
            let one = |arg: &Arg| match view.source(&arg.value) {
                Some((_, Rvalue::Build { items, .. })) => matches!(items.as_ref(), [Item::One(_)]),
                _ => false,
            };
            apart
                && !args.first().is_some_and(one)
                && args.first().is_some_and(|arg| gradients(view, &arg.value, 0).is_some())
        }
        _ => false,
    };
    let value = view.value(*made)?;
    let copies = match view.callee(value)?.as_str() {
        ".clone" => matches!(value, Rvalue::CallMethod { base, .. } if is_of_each(view, base, *made)),
        path => {
            let name = path.rsplit('.').next().unwrap_or(path);
            matches!(name, "cat" | "concat" | "_flatten_dense_tensors" | "flatten_dense_tensors") && joined(value)
        }
    };
    (later && copies).then_some(*made)
}

/// Whether a value is the gradient, or a part of it, of each parameter that a loop goes through.
fn is_of_each(view: &View<'_>, base: &Operand, made: usize) -> bool {
    let round = |local: LocalId| {
        view.defs(local).iter().any(|def| matches!(view.steps[*def].stmt, Stmt::For { .. }) && *def < made)
    };
    view.expr(base).any(&mut |e| match e {
        Expr::Attr(of, name) if matches!(name.as_str(), "grad" | "main_grad") => {
            matches!(**of, Expr::Local(parameter) if round(parameter))
        }
        _ => false,
    })
}

/// Whether a step reads a variable only to change what it holds.
fn changes(view: &View<'_>, step: usize, copy: LocalId) -> bool {
    let is_copy = |operand: &Operand| *operand == Operand::Local(copy);
    let kept = matches!(view.steps[step].stmt, Stmt::Assign { dst, .. } if *dst == copy);
    match (view.steps[step].stmt, view.value(step)) {
        (_, Some(Rvalue::InPlace { left, .. })) => is_copy(left),
        (_, Some(Rvalue::Binary { left, .. })) => kept && is_copy(left),
        (Stmt::Assign { dst, .. }, Some(Rvalue::CallMethod { base, name, .. })) => {
            let unread = view.is_temp(*dst) && view.readers(*dst).is_empty();
            is_copy(base) && (kept || unread && name.ends_with('_'))
        }
        _ => false,
    }
}
