//! Which parameters hooks of a constructor are for: those of a layer that it names. In: a constructor, or a function that one gives a
//! layer. Out: [`Test`]s on the names of parameters. Never: layers that are given, or made of classes of the project, which may hold any.
//! Source: DESIGN.md section 7. Next: `reducers.rs`, which asks.

use super::averaged::REGISTER;
use super::expr::Expr;
use super::near;
use super::reducers::Test;
use super::view::View;
use crate::ir::{FuncKind, LocalId, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::{Name, Place};

/// `self.norm.weight.register_hook(..)` in a constructor: the way to the parameter.
pub fn of_parameter(view: &View<'_>, step: usize) -> Option<Test> {
    let Some(Rvalue::CallMethod { base, name, .. }) = view.value(step) else { return None };
    if !REGISTER.contains(&name.as_str()) || view.func.name != "__init__" {
        return None;
    }
    let Expr::Attr(layer, parameter) = view.through(base) else { return None };
    let attr = near::own_attribute(view, &layer)?;
    is_plain(view, attr).then(|| Test::NameEnds(Name::from(format!("{attr}.{parameter}"))))
}

/// The function that a step at a place registers as a hook, if nothing else uses it.
pub fn hook_at(view: &View<'_>, place: Place) -> Option<FuncRef> {
    let step = view.steps.iter().position(|s| view.place(s.id) == place)?;
    let Some(Rvalue::CallMethod { name, args, .. }) = view.value(step) else { return None };
    let at = near::function(view, &args.first().filter(|_| REGISTER.contains(&name.as_str()))?.value)?;
    let func = view.project.func(at);
    let once = func.kind == FuncKind::Lambda || near::times_said(view.files, &func.name) == 2;
    once.then_some(at)
}

/// Alternatives for a loop over the parameters of one layer; nothing where the loop may go through those of a whole model.
pub fn of_loop(view: &View<'_>, head: usize) -> Option<Vec<Vec<Test>>> {
    let Stmt::For { iter, .. } = view.steps[head].stmt else { return None };
    let Expr::Call { callee, .. } = view.through(iter) else { return None };
    let Expr::Attr(layer, method) = *callee else { return None };
    if method != "parameters" && method != "named_parameters" {
        return None;
    }
    let layers = match (near::own_attribute(view, &layer), &*layer) {
        (Some(attr), _) if view.func.name == "__init__" && is_plain(view, attr) => vec![attr.clone()],
        (None, Expr::Local(given)) if view.is_as_given(*given) => given_by(view, *given)?,
        _ => return None,
    };
    Some(layers.iter().map(|attr| vec![Test::NameContains(Name::from(format!(".{attr}.")))]).collect())
}

/// The layers that constructors of the file give a function for a parameter, if nothing else calls it.
fn given_by(view: &View<'_>, given: LocalId) -> Option<Vec<Name>> {
    let at = view.func.params.iter().position(|p| p.local == given)?;
    if view.func.class.is_some() || near::times_said(view.files, &view.func.name) > MOST_SAID {
        return None;
    }
    let mut layers = Vec::new();
    for other in near::functions(view, view.at.module) {
        let func = view.project.func(other);
        if func.name != "__init__" || func.class.is_none() {
            continue;
        }
        let init = near::shared(view, other);
        for step in 0..init.steps.len() {
            let Some(Rvalue::Call { callee, args }) = init.value(step) else { continue };
            if near::function(&init, callee) != Some(view.at) {
                continue;
            }
            let layer = init.through(&args.get(at)?.value);
            let attr = near::own_attribute(&init, &layer).filter(|attr| is_plain(&init, attr))?;
            layers.push(attr.clone());
        }
    }
    // Its definition, and each call.
    let said = near::times_said(view.files, &view.func.name);
    (!layers.is_empty() && said == layers.len() + 1).then_some(layers)
}

/// How often a name may stand in the project for its calls to be looked at.
const MOST_SAID: usize = 8;

/// Whether a constructor makes a layer that holds no others: a norm, or one of torch.
fn is_plain(init: &View<'_>, attr: &Name) -> bool {
    init.steps.iter().any(|step| match step.stmt {
        Stmt::SetAttr { name, value, .. } if name == attr => match init.expr(value) {
            Expr::Call { callee, .. } => callee.last_name().is_some_and(|class| {
                class.ends_with("Norm") || matches!(class, "Linear" | "Embedding" | "Conv1d" | "Conv2d" | "Parameter")
            }),
            _ => false,
        },
        _ => false,
    })
}
