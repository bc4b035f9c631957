//! Gradients that are copied before they are reduced. In: a class. Out: a method that copies the gradients of one list of parameters to
//! those of another, before the gradients of the first are reduced: the other list keeps what one rank had. Never: a copy that is made
//! again after the reduction. Next: `order.rs`.

use super::expr::Expr;
use super::found::{Late, Practice};
use super::near;
use super::view::View;
use super::{Class, Found, Lint};
use crate::ir::{LocalId, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};

/// Attributes that keep a gradient.
const GRADIENTS: &[&str] = &["grad", "main_grad"];

/// What a step does with the gradients of a list that the object keeps.
enum Does {
    /// From one list to another.
    Copies(Name),
    Reduces(Name),
}

/// `self.copy_to_master()`, and `self.reduce()` after it.
pub fn stepped<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let text = lint.files[lint.project.file(class.at.module)].slice(lint.project.class(class.at).span);
    if !text.contains("reduce") || !text.contains(".grad") || !text.contains("zip(") {
        return;
    }
    for (_, func) in &lint.project.class(class.at).methods {
        let view = lint.view(crate::project::FuncRef { module: class.at.module, func: *func });
        let all = events(&view, 0);
        for (i, (copied, does)) in all.iter().enumerate() {
            let Does::Copies(list) = does else { continue };
            let same = |d: &Does| matches!(d, Does::Reduces(other) if other == list);
            let again = |d: &Does| matches!(d, Does::Copies(other) if other == list);
            let Some(reduced) = all[i + 1..].iter().find(|(at, d)| same(d) && at.0 != copied.0) else { continue };
            let renewed = all[i + 1..].iter().any(|(at, d)| again(d) && at.0 != copied.0);
            let before = all[..i].iter().any(|(_, d)| same(d));
            if !renewed && !before {
                let mistake = Practice::LateReduction { why: Late::Copied, gradients: copied.1, before: copied.1 };
                out.push((reduced.0.1, mistake));
                break;
            }
        }
    }
}

/// What a method does, and the methods of the object that it calls: at which of its own steps, where that stands, and what.
fn events(view: &View<'_>, depth: usize) -> Vec<((usize, Place), Does)> {
    let mut out = Vec::new();
    for step in 0..view.steps.len() {
        let at = (step, view.place(view.steps[step].id));
        match (view.steps[step].stmt, view.value(step)) {
            (Stmt::SetAttr { base, name, value }, _) if GRADIENTS.contains(&name.as_str()) => {
                let from = gradient_in(view, &view.expr(value)).and_then(|of| list_of(view, step, of));
                let to = near::local(base).and_then(|of| list_of(view, step, of));
                if let (Some(from), Some(to)) = (from, to)
                    && from != to
                {
                    out.push((at, Does::Copies(from)));
                }
            }
            (_, Some(value)) => {
                if let Some(call) = view.collective(value) {
                    let of = call.input.and_then(|input| gradient_in(view, &view.through(input)));
                    if let Some(list) =
                        of.and_then(|of| list_of(view, step, of)).filter(|_| call.rule.op == "all_reduce")
                    {
                        out.push((at, Does::Reduces(list)));
                    }
                } else if let (Rvalue::CallMethod { base, name, .. }, 0) = (value, depth)
                    && near::is_self(view, base)
                    && let Some(method) = own_method(view, name)
                {
                    out.extend(events(&method, depth + 1).into_iter().map(|(_, does)| (at, does)));
                }
            }
            _ => {}
        }
    }
    out
}

fn own_method<'a>(view: &View<'a>, name: &Name) -> Option<std::rc::Rc<View<'a>>> {
    near::methods(view, near::class_of(view)?).into_iter().find(|method| method.func.name == *name)
}

/// The variable whose gradient an expression is, or is made of.
fn gradient_in(view: &View<'_>, expr: &Expr) -> Option<LocalId> {
    let mut found = None;
    expr.any(&mut |e| {
        if let Expr::Attr(of, name) = e
            && GRADIENTS.contains(&name.as_str())
            && let Expr::Local(local) = &**of
            && !view.is_param(*local)
        {
            found.get_or_insert(*local);
        }
        false
    });
    found
}

/// The list of the object through which the loop around a step goes with a variable: `self.model` of
/// `for p, q in zip(self.model, self.master)`.
fn list_of(view: &View<'_>, step: usize, local: LocalId) -> Option<Name> {
    view.steps[step].loops.iter().rev().find_map(|at| {
        let Stmt::For { dst, iter, .. } = view.steps[*at].stmt else { return None };
        if *dst == local {
            return near::own_attribute(view, &view.through(iter)).cloned();
        }
        let unpacked = view.steps.iter().find_map(|s| match s.stmt {
            Stmt::Unpack { value: Operand::Local(value), before, star: None, .. } if value == dst => Some(before),
            _ => None,
        })?;
        let place = unpacked.iter().position(|l| *l == local)?;
        let zipped = view.through(iter);
        let (_, list) = zipped.call_of("zip")?.get(place)?;
        near::own_attribute(view, list).cloned()
    })
}
