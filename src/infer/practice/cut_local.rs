//! Parameters that a forward takes apart past autograd. In: a function. Out: the local part of a distributed parameter that goes through
//! `.data`, `.detach()` or the tensor inside, and meets activations. Never: parameters without a gradient, and code about storage.
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
    if view.func.name != "forward" {
        return;
    }
    for step in 0..view.steps.len() {
        let Some((receiver, how)) = past_autograd(view, step) else { continue };
        let Some(made) = trained(view, &receiver).filter(|_| !is_apart(view, step)) else { continue };
        let Some((meets, _)) = meeting(view, step) else { continue };
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

/// Where the class makes an attribute of its own a parameter with a gradient.
fn trained(view: &View<'_>, receiver: &Expr) -> Option<Place> {
    let (name, class) = (near::own_attribute(view, receiver)?, near::class_of(view)?);
    let text = view.text(view.spot(view.project.modules[view.at.module].ir.classes[class].span));
    if text.contains("requires_grad") {
        return None;
    }
    let made = |method: &View<'_>, value: &Operand| method.through(value).call_of("Parameter").is_some();
    let set = near::assigned(view, class, name);
    let (method, step, _) = set.iter().find(|(method, _, value)| made(method, value))?;
    Some(method.place(method.steps[*step].id))
}
