//! Gradients that a backward returns before it has summed them. In: a class. Out: a return on the way, where a weight needs no gradient, of
//! what the backward sums over ranks afterwards and returns in the same place. Never: a condition on the input whose gradient it is, or on
//! anything but whether a gradient is needed. Source: torch.autograd.Function, `needs_input_grad`. Next: `backwards.rs`.

use super::backwards::{Backwards, both_ways};
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::view::{Guard, View};
use super::{Class, Found, Lint};
use crate::ir::{BuildKind, Const, Item, LocalId, Operand, Rvalue, Stmt};

/// Operations that make the gradient of one rank's part complete.
const SUMS: &[&str] = &["all_reduce", "reduce_scatter"];

/// `if not weight.requires_grad: return grad_input, None`, and `all_reduce(grad_input)` below.
pub fn unsummed<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let Some((_, backward)) = both_ways(lint, class.at).filter(|_| lint.is_autograd(class.at)) else { return };
    let view = lint.view(backward);
    let returns: Vec<(usize, Vec<Option<LocalId>>)> =
        (0..view.steps.len()).filter_map(|step| Some((step, returned(&view, step)?))).collect();
    if returns.len() < 2 {
        return;
    }
    for (at, call) in view.collectives().iter().filter(|(_, call)| SUMS.contains(&call.rule.op.as_str())) {
        let Some(input) = call.input.and_then(near::local).filter(|l| !view.is_temp(*l)) else { continue };
        for (early, values) in returns.iter().filter(|(step, _)| step < at) {
            let Some(place) = values.iter().position(|v| *v == Some(input)) else { continue };
            let later =
                returns.iter().any(|(step, values)| step > at && values.get(place).is_some_and(Option::is_some));
            let changed = view.defs(input).iter().any(|def| (*early..*at).contains(def));
            let guards = &view.steps[*early].guards;
            // On its own way it may have been summed.
            let summed = view.collectives().iter().any(|(step, call)| {
                step < early && call.input.and_then(near::local) == Some(input) && SUMS.contains(&call.rule.op.as_str())
            });
            let on_weight = !guards.is_empty() && guards.iter().all(|guard| asks_of_weight(&view, guard, place));
            if later && !changed && !summed && on_weight {
                let mistake = Backwards::EarlyReturn {
                    class: lint.project.class(class.at).name.clone(),
                    gradient: view.local_name(input).clone(),
                    collective: super::lost::last(&call.rule.name),
                    summed: view.place(view.steps[*at].id),
                };
                out.push((view.place(view.steps[*early].id), Practice::Backwards(mistake)));
                return;
            }
        }
    }
}

/// What a step returns, if it returns several things: the variables among them.
fn returned(view: &View<'_>, step: usize) -> Option<Vec<Option<LocalId>>> {
    let Stmt::Return { value } = view.steps[step].stmt else { return None };
    match view.source(value) {
        Some((_, Rvalue::Build { kind: BuildKind::Tuple, items })) => Some(
            items
                .iter()
                .map(|item| match item {
                    Item::One(Operand::Local(local)) => Some(*local),
                    _ => None,
                })
                .collect(),
        ),
        _ => None,
    }
}

/// Whether a test asks if a gradient is needed of anything but the input in a place.
fn asks_of_weight(view: &View<'_>, guard: &Guard<'_>, place: usize) -> bool {
    let test = near::deep(view, &view.expr(guard.test));
    let mut asks = false;
    let mut other = false;
    test.any(&mut |e| {
        match e {
            Expr::Attr(of, name) if name == "requires_grad" => {
                let named = match &**of {
                    Expr::Local(local) => Some(view.local_name(*local).as_str()),
                    other => other.last_name(),
                };
                asks |= named.is_some_and(|n| n.contains("weight") || n.contains("bias") || n == "w");
            }
            Expr::Item(of, index) if matches!(&**of, Expr::Attr(_, name) if name == "needs_input_grad") => {
                let own = matches!(**index, Expr::Const(Const::Int(n)) if usize::try_from(n) == Ok(place));
                asks |= !own;
                other |= own;
            }
            _ => {}
        }
        false
    });
    asks && !other
}
