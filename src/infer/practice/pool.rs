//! Buffers of a pool that outlive the call: `MemoryBuffer().get(...)` returned by a forward. In: a function. Out: where the next call
//! overwrites what autograd or the caller still holds. Never: a buffer that is used up inside the function. Next: `mod.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::view::View;
use super::wrapped::function;
use super::{Class, Found, Lint};
use crate::ir::{FuncId, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, Resolved};
use crate::source::{Idx, Name};

/// Methods by which a pool hands out a buffer.
const HANDS_OUT: &[&str] = &["get", "get_tensor", "get_buffer", "allocate"];

/// Forwards of autograd functions that return a buffer of a pool, or save it for the backward.
pub fn shared<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let class = class.at;
    let methods = &lint.project.class(class).methods;
    let Some((_, func)) = methods.iter().find(|(name, _)| name == "forward") else { return };
    if !lint.is_autograd(class) {
        return;
    }
    let view = lint.view(FuncRef { module: class.module, func: *func });
    for step in 0..view.steps.len() {
        let Stmt::Assign { dst, .. } = view.steps[step].stmt else { continue };
        if view.is_temp(*dst) || !from_pool(&view, *dst, step) && !from_helper(&view, *dst, step) {
            continue;
        }
        if let Some(kept) = kept(&view, *dst) {
            let practice = Practice::SharedBuffer {
                owner: lint.project.class(class).name.clone(),
                buffer: view.local_name(*dst).clone(),
                kept: view.place(view.steps[kept].id),
            };
            out.push((view.place(view.steps[step].id), practice));
        }
    }
}

/// Whether a step binds a variable to a buffer that a pool hands out: a method of a call or object whose name says that it is a pool.
fn from_pool(view: &View<'_>, local: LocalId, step: usize) -> bool {
    let [only] = view.defs(local) else { return false };
    if *only != step {
        return false;
    }
    let Expr::Call { callee, .. } = view.through(&Operand::Local(local)) else { return false };
    let (base, method) = match &*callee {
        Expr::Attr(base, method) if keeps_nothing(view, base, method) => return false,
        // The pool itself may have a variable of its own, whose name says less.
        Expr::Attr(base, method) => (name_of(view, &near::deep(view, base)), method.to_string()),
        Expr::Path(path) => match path.rsplit_once('.') {
            Some((base, method)) if keeps_nothing(view, &Expr::Path(Name::from(base)), method) => return false,
            Some((base, method)) => (Some(base.to_string()), method.to_string()),
            None => return false,
        },
        _ => return false,
    };
    let pool = base.is_some_and(|b| {
        let last = b.rsplit('.').next().unwrap_or_default().to_lowercase();
        last.contains("buffer") || last.ends_with("pool") || last.contains("workspace")
    });
    pool && HANDS_OUT.contains(&method.as_str())
}

/// Whether a step binds a variable to what a function of the project returns, which is always a buffer of a pool.
fn from_helper(view: &View<'_>, local: LocalId, step: usize) -> bool {
    let Expr::Call { callee, .. } = view.through(&Operand::Local(local)) else { return false };
    let Some(at) = function(view, &callee).filter(|at| view.defs(local) == [step] && *at != view.at) else {
        return false;
    };
    let inner = near::shared(view, at);
    let mut returned = inner.steps.iter().filter_map(|s| match s.stmt {
        Stmt::Return { value } => Some(value),
        _ => None,
    });
    let is_pooled = |value: &Operand| match value {
        Operand::Local(l) => inner.defs(*l).iter().any(|at| from_pool(&inner, *l, *at)) || from_dict(&inner, value),
        Operand::Const(_) | Operand::Global(_) => false,
    };
    inner.steps.iter().any(|s| matches!(s.stmt, Stmt::Return { .. })) && returned.all(is_pooled)
}

/// Views of views that are followed.
const MOST_VIEWS: usize = 8;

/// Whether a value is a view of what a dict of the module keeps, which is called a pool.
fn from_dict(view: &View<'_>, value: &Operand) -> bool {
    let mut expr = view.expr(value);
    for _ in 0..MOST_VIEWS {
        if is_kept(&expr) {
            return true;
        }
        expr = match expr {
            Expr::Item(base, _) => *base,
            Expr::Call { callee, .. } => match *callee {
                Expr::Attr(base, name) if VIEWS.contains(&name.as_str()) => *base,
                _ => return false,
            },
            Expr::Local(local) => return view.defs(local).iter().any(|d| is_kept(&view.bound(*d, local))),
            _ => return false,
        };
    }
    false
}

/// `_POOL[key]`, `_POOL.get(key)`
fn is_kept(expr: &Expr) -> bool {
    let takes = |name: &str| matches!(name, "get" | "setdefault");
    let dict = match expr {
        Expr::Item(base, _) => base.path().map(|p| p.as_str()),
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(base, name) if takes(name) => base.path().map(|p| p.as_str()),
            Expr::Path(path) => path.rsplit_once('.').filter(|(_, name)| takes(name)).map(|(base, _)| base),
            _ => None,
        },
        _ => None,
    };
    dict.is_some_and(|d| {
        let last = d.rsplit('.').next().unwrap_or_default().to_lowercase();
        ["pool", "buffer", "workspace", "scratch"].iter().any(|w| last.contains(w))
    })
}

/// The class of the project of which something is an object, which is made where it is used or once for a module.
fn class_of_object(view: &View<'_>, object: &Expr) -> Option<ClassRef> {
    let made = match near::deep(view, object) {
        Expr::Call { callee, .. } => view.project.path(callee.path()?),
        Expr::Path(path) => {
            let (module, name) = path.rsplit_once('.')?;
            let module = view.project.module_named(module)?;
            let body = near::shared(view, FuncRef { module, func: FuncId::from_index(0) });
            let local = body.func.locals().named(name)?;
            match body.through(&Operand::Local(local)) {
                Expr::Call { callee, .. } => match &*callee {
                    Expr::Local(class) => view.project.member(module, body.local_name(*class))?,
                    other => view.project.path(other.path()?),
                },
                _ => return None,
            }
        }
        _ => return None,
    };
    match made {
        Resolved::Class(class) => Some(class),
        _ => None,
    }
}

/// Whether a class of the project hands out what it does not keep: its method reads nothing of the object, and no item of anything.
fn keeps_nothing(view: &View<'_>, base: &Expr, method: &str) -> bool {
    let Some(class) = class_of_object(view, base) else { return false };
    let Some((_, func)) = view.project.class(class).methods.iter().find(|(name, _)| name == method) else {
        return false;
    };
    let inner = near::shared(view, FuncRef { module: class.module, func: *func });
    let code = inner.code();
    // What is taken out of the pool is nobody else's until it is given back.
    !code.contains("self.") && !code.contains("cls.") && !code.contains("[") || code.contains(".pop(")
}

/// The name of what hands out: of a call, of what it calls.
fn name_of(view: &View<'_>, expr: &Expr) -> Option<String> {
    match expr {
        Expr::Call { callee, .. } => name_of(view, callee),
        Expr::Path(path) => Some(path.to_string()),
        Expr::Attr(_, name) => Some(name.to_string()),
        Expr::Local(local) => Some(view.local_name(*local).to_string()),
        _ => None,
    }
}

/// Methods whose result is the same memory.
const VIEWS: &[&str] = &["view", "reshape", "narrow", "view_as", "transpose", "unsqueeze", "squeeze", "flatten", "t"];

/// The step that keeps a buffer or a view of it beyond the call: a return of it, or of a tuple with it, `save_for_backward`, or an
/// attribute of the context.
fn kept(view: &View<'_>, local: LocalId) -> Option<usize> {
    let mut held = vec![local];
    for step in 0..view.steps.len() {
        let is_held = |e: &Expr| matches!(e, Expr::Local(l) if held.contains(l));
        let keeps = match view.steps[step].stmt {
            Stmt::Return { value } => match view.expr(value) {
                Expr::Build(items) => items.iter().any(is_held),
                Expr::Call { callee, .. } => match &*callee {
                    Expr::Attr(base, name) => VIEWS.contains(&name.as_str()) && is_held(base),
                    _ => false,
                },
                one => is_held(&one),
            },
            Stmt::Assign { value: Rvalue::CallMethod { name, args, .. }, .. } if name == "save_for_backward" => {
                args.iter().any(|a| is_held(&view.expr(&a.value)))
            }
            Stmt::SetAttr { base, value, .. } => near::is_self(view, base) && is_held(&view.expr(value)),
            Stmt::Assign { dst, value: Rvalue::CallMethod { base, name, .. } } => {
                if VIEWS.contains(&name.as_str()) && is_held(&view.expr(base)) && view.defs(*dst).len() == 1 {
                    held.push(*dst);
                }
                false
            }
            Stmt::Assign { dst, value: Rvalue::Use(inner) } => {
                if is_held(&view.expr(inner)) && view.defs(*dst).len() == 1 {
                    held.push(*dst);
                }
                false
            }
            _ => false,
        };
        if keeps {
            return Some(step);
        }
    }
    None
}
