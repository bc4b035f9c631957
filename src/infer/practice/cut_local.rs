//! Parameters that a forward takes apart past autograd. In: a function. Out: the local part of a distributed parameter that goes through
//! `.data`, `.detach()` or the tensor inside, and meets activations, beside another one that does not. Never: projects that say what
//! has a gradient, a forward that may run without, and code about storage.
//! Source: torch.distributed.tensor, `DTensor.to_local`, which alone is differentiable. Next: `local_gradient.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Placements, Practice};
use super::local_gradient::{is_apart, meeting};
use super::near;
use super::view::View;
use crate::ir::{Operand, Rvalue};
use crate::source::{Name, Place};

pub const WORDS: &[&str] = &[".data.to_local(", ".detach().to_local(", "._local_tensor"];

pub fn cut_off(view: &View<'_>, out: &mut Found) {
    if view.func.name != "forward" || may_be_meant(view) {
        return;
    }
    for step in 0..view.steps.len() {
        let Some((receiver, how)) = past_autograd(view, step) else { continue };
        let Some(made) = trained(view, &receiver).filter(|_| !is_apart(view, step)) else { continue };
        let Some((meets, _)) = meeting(view, step).filter(|_| others_are_trained(view, &receiver)) else { continue };
        let Some(weight) = receiver.last_name().map(Name::from) else { continue };
        let practice = Practice::Placements(Placements::CutLocal { weight, how, made, meets });
        out.push((view.place(view.steps[step].id), practice));
    }
}

/// What a step takes the local part of, and how it leaves autograd behind.
fn past_autograd(view: &View<'_>, step: usize) -> Option<(Expr, Name)> {
    match view.value(step)? {
        Rvalue::Attr { base, name } if name == "_local_tensor" => Some((view.expr(base), name.clone())),
        Rvalue::CallMethod { base, name, .. } if name == "to_local" => match view.expr(base) {
            Expr::Attr(inner, name) if name == "data" => Some((*inner, name)),
            Expr::Call { callee, args, .. } if args.is_empty() => match *callee {
                Expr::Attr(inner, name) if name == "detach" => Some((*inner, Name::from("detach()"))),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// Words of a forward that may run without gradients, or whose result may have none.
const WITHOUT_GRADIENT: &[&str] = &[
    "training",
    "grad_enabled",
    "no_grad",
    "inference",
    "argm",
    "topk",
    "sort",
    ".max(",
    ".min(",
    ".apply(",
    "round(",
    "multinomial",
    "bincount",
    "checkpoint",
    "normalize(",
    "_norm",
];

/// Comparisons, of which a choice may be made.
const COMPARES: &[&str] = &[" > ", " < ", " >= ", " <= ", " == "];
/// How lines begin whose comparisons only say what runs.
const CONTROLS: &[&str] = &["if ", "elif ", "assert ", "while "];

/// Words of files with parameters that are not trained, or whose gradients are made by hand.
const FROZEN: &[&str] = &[
    "lora",
    "adapter",
    "frozen",
    "freez",
    "quant",
    "main_grad",
    "inference",
    "no_grad",
    "autograd.function",
    ".eval()",
];

/// Whether the local part may be taken past autograd on purpose: the project says of anything whether it has a gradient, or the forward runs
/// without.
fn may_be_meant(view: &View<'_>) -> bool {
    let file = view.file().to_lowercase();
    view.files.any_says("requires_grad")
        || WITHOUT_GRADIENT.iter().any(|w| view.code().contains(w))
        || view.code().lines().any(compares)
        || FROZEN.iter().any(|w| file.contains(w))
}

/// Whether a line compares values that it goes on with.
fn compares(line: &str) -> bool {
    !CONTROLS.iter().any(|w| line.trim_start().starts_with(w)) && COMPARES.iter().any(|w| line.contains(w))
}

/// Whether the same forward takes the local part of another parameter as autograd can follow it, and this one nowhere else.
fn others_are_trained(view: &View<'_>, receiver: &Expr) -> bool {
    let takes = |i: usize| match view.value(i)? {
        Rvalue::CallMethod { base, name, .. } if name == "to_local" => match view.expr(base) {
            Expr::Attr(inner, name) if name != "data" && *inner == own(receiver)? => Some(name),
            _ => None,
        },
        _ => None,
    };
    let read = (0..view.steps.len()).filter(|i| match view.value(*i) {
        Some(Rvalue::Attr { base, name }) => Expr::Attr(Box::new(view.expr(base)), name.clone()) == *receiver,
        _ => false,
    });
    let other = |name: Name| {
        let it = own(receiver).map(|own| Expr::Attr(Box::new(own), name));
        it.is_some_and(|it| it != *receiver && trained(view, &it).is_some())
    };
    read.count() == 1 && is_used_once(view, receiver) && (0..view.steps.len()).filter_map(takes).any(other)
}

/// Whether the class names an attribute where it makes it and at one other place: elsewhere it may be trained.
fn is_used_once(view: &View<'_>, receiver: &Expr) -> bool {
    let (Some(name), Some(class)) = (near::own_attribute(view, receiver), near::class_of(view)) else { return false };
    let text = view.text(view.spot(view.project.modules[view.at.module].ir.classes[class].span));
    let own = format!("self.{name}");
    near::ending(text, &own).count() == 2
}

/// What an attribute belongs to.
fn own(receiver: &Expr) -> Option<Expr> {
    match receiver {
        Expr::Attr(base, _) => Some((**base).clone()),
        _ => None,
    }
}

/// Where the class makes an attribute of its own a parameter.
fn trained(view: &View<'_>, receiver: &Expr) -> Option<Place> {
    let (name, class) = (near::own_attribute(view, receiver)?, near::class_of(view)?);
    let made = |method: &View<'_>, value: &Operand| method.through(value).call_of("Parameter").is_some();
    let set = near::assigned(view, class, name);
    let (method, step, _) = set.iter().find(|(method, _, value)| made(method, value))?;
    Some(method.place(method.steps[*step].id))
}
