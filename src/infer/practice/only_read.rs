//! Modules that may only ever run without gradients. In: a class, and the files that name it. Out: whether something is called without
//! gradients there that may be one of its objects, and no object of it is seen to be called otherwise. Never: a file in which nothing is
//! called without gradients. Next: `cut.rs`, which asks.

use super::Lint;
use super::called::callers;
use super::expr::Expr;
use super::near;
use super::view::View;
use crate::ir::{Rvalue, Stmt};
use crate::project::{ClassRef, Resolved};
use crate::source::Name;

/// Whether the objects of a class may be what is called without gradients alone.
pub fn may_be<'a>(lint: &Lint<'a>, class: ClassRef) -> bool {
    let name = &lint.project.class(class).name;
    let views: Vec<View<'a>> = lint.naming(class).collect();
    let mut without = false;
    let mut called: Vec<Name> = Vec::new();
    for view in &views {
        for step in 0..view.steps.len() {
            let Some(object) = object_called(view, step) else { continue };
            match runs_without(view, step) {
                true => without = true,
                false => called.push(object),
            }
        }
    }
    let made = || views.iter().flat_map(|view| holders(view, name));
    without && !made().any(|holder| called.contains(&holder))
}

/// The name of the variable or attribute that a step calls like a module.
fn object_called(view: &View<'_>, step: usize) -> Option<Name> {
    match view.value(step)? {
        Rvalue::Call { callee, .. } => match view.expr(callee) {
            Expr::Local(local) => Some(view.local_name(local).clone()),
            Expr::Attr(_, name) => Some(name),
            _ => None,
        },
        Rvalue::CallMethod { base, name, .. } => {
            let of_object = near::is_self(view, base) || matches!(view.expr(base), Expr::Local(_) | Expr::Attr(..));
            let own = near::class_of(view).is_some_and(|class| {
                view.project.own_method(ClassRef { module: view.at.module, class }, name).is_some()
            });
            (of_object && !own && view.rules.tensor_method(name).is_none()).then(|| name.clone())
        }
        _ => None,
    }
}

/// Whether a step runs without gradients: itself, its function, or all calls of that.
fn runs_without(view: &View<'_>, step: usize) -> bool {
    if view.without_gradient(step) || near::is_unrecorded(view) {
        return true;
    }
    let sites = callers(view);
    !sites.is_empty() && sites.iter().all(|(site, at)| site.without_gradient(*at) || near::is_unrecorded(site))
}

/// The variables and attributes to which a function binds what it makes of a class.
fn holders(view: &View<'_>, class: &Name) -> Vec<Name> {
    let makes = |e: &Expr| match e {
        Expr::Call { callee, .. } => match &**callee {
            Expr::Path(path) => {
                matches!(view.project.path(path), Resolved::Class(at) if view.project.class(at).name == *class)
            }
            other => other.last_name() == Some(class.as_str()),
        },
        _ => false,
    };
    let bound = |step: usize| match view.steps[step].stmt {
        Stmt::Assign { dst, .. } if !view.is_temp(*dst) => {
            makes(&view.bound(step, *dst)).then(|| view.local_name(*dst).clone())
        }
        Stmt::SetAttr { name, value, .. } => view.through(value).any(&mut |e| makes(e)).then(|| name.clone()),
        _ => None,
    };
    (0..view.steps.len()).filter_map(bound).collect()
}
