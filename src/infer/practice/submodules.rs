//! What the constructor of a module gives it: submodules and parameters, by attribute. In: a class. Out: [`Parts`]. Never: what other
//! methods put there. Next: `gradient/mod.rs`.

use super::Lint;
use super::beside::Parts;
use super::cut::{class_of, is_module};
use super::expr::Expr;
use super::view::View;
use crate::ir::{Operand, Stmt};
use crate::project::{ClassRef, FuncRef};
use crate::source::Name;
use std::rc::Rc;

/// Submodules and parameters of the class of a method, by attribute.
pub fn parts(lint: &Lint<'_>, view: &View<'_>) -> Rc<Parts> {
    let Some(class) = class_of(view).filter(|c| is_module(lint, *c)) else { return Rc::default() };
    match view.beside() {
        Some(beside) => beside.parts(class, || parts_of(lint, class)),
        None => Rc::new(parts_of(lint, class)),
    }
}

fn parts_of(lint: &Lint<'_>, class: ClassRef) -> Parts {
    let Parts { mut submodules, mut parameters } = Parts::default();
    for c in lint.settings.statics.linearized(class).iter() {
        let init = lint.project.class(*c).methods.iter().find(|(n, _)| n == "__init__");
        let Some((_, func)) = init else { continue };
        let view = lint.view(FuncRef { module: c.module, func: *func });
        for step in &view.steps {
            let Stmt::SetAttr { base: Operand::Local(base), name, value } = step.stmt else { continue };
            if view.local_name(*base) != "self" {
                continue;
            }
            match view.expr(value) {
                Expr::Call { callee, .. } => {
                    let made = callee.last_name().unwrap_or("");
                    if made == "Parameter" {
                        parameters.insert(name.clone());
                    } else if made.starts_with(char::is_uppercase) || made.starts_with("build_") {
                        submodules.insert(name.clone());
                    }
                }
                Expr::Local(l)
                    if view.is_param(l) && !["fn", "func", "loss", "group"].iter().any(|w| name.contains(w)) =>
                {
                    submodules.insert(name.clone());
                }
                _ => {}
            }
        }
    }
    let is_method = |n: &Name| {
        lint.settings
            .statics
            .linearized(class)
            .iter()
            .any(|c| lint.project.class(*c).methods.iter().any(|(m, _)| m == n))
    };
    submodules.retain(|n| !is_method(n));
    Parts { submodules, parameters }
}
