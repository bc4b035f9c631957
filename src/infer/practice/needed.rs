//! Gradients that are computed where another one is asked for. In: the backward of an autograd function. Out: a gradient under
//! `ctx.needs_input_grad[i]` that is returned for another input, where the one of input i has a test of its own or is none. Never: gradients that
//! one test computes together, or tests of several inputs. Source: `torch.autograd.Function.backward`: the entries of `needs_input_grad` are
//! those of the arguments of `apply`. Next: `nones.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::lapses::Lapse;
use super::near;
use super::view::{Guard, View};
use crate::ir::{Const, LocalId, Stmt, StmtId};
use crate::project::FuncRef;
use crate::source::Name;

/// The input that one test asks for, and the statement that tests it.
type Asked = (usize, StmtId);

/// `if ctx.needs_input_grad[1]: grad_bias = ...` and `return grad_x, grad_weight, grad_bias`
pub fn gradients(view: &View<'_>, out: &mut Found) {
    let Some(class) = near::autograd_class(view).filter(|_| view.func.name == "backward") else { return };
    let Some(forward) = view.project.own_method(class, "forward") else { return };
    for step in &view.steps {
        let Stmt::Return { value } = step.stmt else { continue };
        let Expr::Build(items) = view.expr(value) else { continue };
        let asked: Vec<Option<Asked>> = items.iter().map(|item| asked_for(view, item)).collect();
        for (j, own) in asked.iter().enumerate() {
            let Some((i, test)) = *own else { continue };
            if i == j || i >= items.len() {
                continue;
            }
            let apart = items[i].is_none() || asked[i].is_some_and(|(k, other)| k == i && other != test);
            let (Some(gradient), Some(input)) = (local_of(&items[j]), input(view, forward, i)) else { continue };
            if apart && !together(view, &items, j, test) {
                let mistake = Lapse::NeededOther {
                    gradient: view.local_name(gradient).clone(),
                    asked: i,
                    returned: j,
                    input,
                    at: view.place(step.id),
                };
                out.push((view.part(test, 0), Practice::Lapse(mistake)));
                return;
            }
        }
    }
}

fn local_of(item: &Expr) -> Option<LocalId> {
    match item {
        Expr::Local(local) => Some(*local),
        _ => None,
    }
}

/// The one test of an input under which a gradient is computed, wherever it is.
fn asked_for(view: &View<'_>, item: &Expr) -> Option<Asked> {
    let local = local_of(item)?;
    let mut found = None;
    for def in view.defs(local) {
        if view.bound(*def, local).is_none() {
            continue;
        }
        let tests = view.steps[*def].guards.iter().filter(|g| asks(view, g));
        let mut tests = tests.map(|g| Some((index(view, g)?, g.at)));
        let (Some(one), None) = (tests.next()?, tests.next()) else { return None };
        if found.is_some_and(|before| before != one) {
            return None;
        }
        found = Some(one);
    }
    found
}

/// Whether a test asks for gradients of inputs.
fn asks(view: &View<'_>, guard: &Guard<'_>) -> bool {
    view.expr(guard.test).any(&mut |e| matches!(e, Expr::Attr(_, name) if name == "needs_input_grad"))
}

/// The input of `ctx.needs_input_grad[i]`, where it holds.
fn index(view: &View<'_>, guard: &Guard<'_>) -> Option<usize> {
    match view.expr(guard.test) {
        Expr::Item(base, at) if guard.holds => match (*base, *at) {
            (Expr::Attr(_, name), Expr::Const(Const::Int(n))) if name == "needs_input_grad" => usize::try_from(n).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the same statement tests for another gradient that is returned in its own place: the two are computed together.
fn together(view: &View<'_>, items: &[Expr], at: usize, test: StmtId) -> bool {
    items.iter().enumerate().filter(|(k, _)| *k != at).any(|(k, item)| {
        let own = asked_for(view, item);
        own.is_some_and(|(i, other)| other == test && i == k)
    })
}

/// What the forward calls an input.
fn input(view: &View<'_>, forward: FuncRef, at: usize) -> Option<Name> {
    view.project.func(forward).params.get(at + 1).map(|p| p.name.clone())
}
