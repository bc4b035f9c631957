//! Parameters that are divided by the number of ranks in place of their gradients. In: a function. Out: the division, after a sum of the gradient
//! of the same parameter that nothing divides. Never: parameters that are summed themselves, or gradients that are divided as well. Next: `lapses.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::lapses::Lapse;
use super::lost::{last, written};
use super::mixed_mean::averages;
use super::near;
use super::view::View;
use crate::ir::{BinOp, Operand, Rvalue};

/// `all_reduce(p.grad)`, `p.data /= world_size`
pub fn divided(view: &View<'_>, out: &mut Found) {
    let sums: Vec<(usize, Expr, &super::view::CollectiveCall<'_>)> = view
        .collectives()
        .iter()
        .filter(|(_, call)| call.rule.op == "all_reduce" && averages(view, call) == Some(false))
        .filter_map(|(step, call)| Some((*step, parameter(&view.expr(written(call)?), true)?, call)))
        .collect();
    for (at, step) in view.steps.iter().enumerate() {
        let Some(of) = is_divided(view, at).and_then(|of| parameter(&view.expr(of), false)) else { continue };
        let Some((sum, _, call)) = sums.iter().find(|(s, p, _)| *s < at && *p == of) else { continue };
        let other = |s: usize| match is_divided(view, s) {
            Some(divided) => parameter(&view.expr(divided), true).is_some_and(|p| p == of),
            None => false,
        };
        let itself = view
            .collectives()
            .iter()
            .any(|(_, call)| written(call).is_some_and(|o| parameter(&view.expr(o), false).is_some_and(|p| p == of)));
        if itself || (0..view.steps.len()).any(other) || view.steps[*sum].loops != step.loops {
            continue;
        }
        let parameter = match &of {
            Expr::Local(local) => view.local_name(*local).clone(),
            other => crate::source::Name::from(other.last_name().unwrap_or_default()),
        };
        let mistake = Lapse::ParameterDivided {
            parameter,
            collective: last(&call.rule.name),
            summed: view.place(view.steps[*sum].id),
        };
        out.push((view.place(step.id), Practice::Lapse(mistake)));
    }
}

/// The parameter of whose gradient, or of whose values, an expression is.
fn parameter(of: &Expr, gradient: bool) -> Option<Expr> {
    match of {
        Expr::Attr(base, name) if name == "data" => match parameter(base, gradient) {
            Some(of) => Some(of),
            None => (!gradient && !matches!(**base, Expr::Path(_))).then(|| (**base).clone()),
        },
        Expr::Attr(base, name) if gradient && matches!(name.as_str(), "grad" | "main_grad") => Some((**base).clone()),
        _ => None,
    }
}

/// What a step divides in place by a number of ranks.
fn is_divided<'v>(view: &'v View<'_>, step: usize) -> Option<&'v Operand> {
    let (of, by) = match view.value(step)? {
        Rvalue::InPlace { op: BinOp::Div, left, right } => (left, right),
        Rvalue::CallMethod { base, name, args } if name == "div_" => (base, &args.first()?.value),
        _ => return None,
    };
    let ranks = near::deep(view, &view.expr(by)).any(&mut |e| {
        let name = match e {
            Expr::Local(local) => Some(view.local_name(*local).as_str()),
            other => other.last_name(),
        };
        name.is_some_and(|n| n.contains("world_size") || n == "num_ranks")
    });
    ranks.then_some(of)
}
