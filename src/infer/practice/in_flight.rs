//! Gradients that are changed while a collective in the background may still write them. In: a function. Out: an in-place change of what was given to
//! a collective just before, in the same round, without a wait between. Never: where anything is called that may wait. Next: `handles.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Until};
use super::near;
use super::raw::{Sort, raw};
use super::view::View;
use crate::ir::{Rvalue, Stmt};
use crate::source::Name;

/// Methods that neither wait nor run code of the user.
const HARMLESS: &[&str] = &["append", "size", "numel", "rank", "dim"];

/// `works.append(all_reduce(p.grad, async_op=True))`, `p.grad.div_(n)`
pub fn changed(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { value, .. } = step.stmt else { continue };
        let Some(call) = raw(view, value).filter(|c| c.is_async() && c.sort == Sort::Everyone) else { continue };
        let Some(buffer @ Expr::Attr(..)) = call.buffer.map(|b| view.expr(b)) else { continue };
        let Some(name) = buffer.last_name().filter(|name| name.contains("grad")) else { continue };
        if !view.in_plain_contexts(i) {
            continue;
        }
        for later in i + 1..view.steps.len() {
            let next = &view.steps[later];
            let together = next.loops == step.loops
                && next.guards.len() == step.guards.len()
                && next.guards.iter().zip(step.guards.iter()).all(|(a, b)| a.at == b.at && a.holds == b.holds);
            if !together {
                break;
            }
            if changes(view, later, &buffer) {
                let practice = Practice::ReadInFlight {
                    collective: call.name.clone(),
                    launched: view.place(step.id),
                    until: Until::End { read: None },
                    buffer: Name::from(name),
                };
                out.push((view.place(next.id), practice));
                break;
            }
            if !only_looks(view, later) {
                break;
            }
        }
    }
}

/// Whether a step changes a tensor in place.
fn changes(view: &View<'_>, step: usize, buffer: &Expr) -> bool {
    match view.value(step) {
        Some(Rvalue::InPlace { left, .. }) => view.expr(left) == *buffer,
        Some(Rvalue::CallMethod { base, name, .. }) => {
            name.ends_with('_') && name != "requires_grad_" && view.expr(base) == *buffer
        }
        _ => false,
    }
}

/// Whether a step surely does not wait.
fn only_looks(view: &View<'_>, step: usize) -> bool {
    match view.steps[step].stmt {
        _ if near::only_tells(view, step) => true,
        Stmt::Append { .. } => true,
        Stmt::Assign { value: value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. }), .. } => {
            view.callee(value).is_some_and(|path| match path.strip_prefix('.') {
                Some(method) => HARMLESS.contains(&method),
                None => path.starts_with("torch.distributed") && path.ends_with(".get_world_size"),
            })
        }
        Stmt::Assign { .. } => true,
        _ => false,
    }
}
