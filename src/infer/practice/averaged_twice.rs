//! Means that are divided once more. In: a function. Out: what a collective has averaged over ranks, divided by the number of the same ranks.
//! Never: a division under another condition than the collective, or by the size of another group. Next: `mixed_mean.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::mixed_mean::averages;
use super::near;
use super::view::{CollectiveCall, Step, View};
use crate::ir::{BinOp, Operand, Rvalue};
use crate::source::Name;

/// `all_reduce(x, op=AVG, group=g)`, `x.div_(get_world_size(g))`
pub fn means(view: &View<'_>, out: &mut Found) {
    for (step, call) in view.collectives() {
        if !matches!(call.rule.op.as_str(), "all_reduce" | "reduce_scatter") || averages(view, call) != Some(true) {
            continue;
        }
        let Some(buffer) = call.output.or(call.input) else { continue };
        let buffer = view.expr(buffer);
        let again = (*step + 1..view.steps.len()).find(|i| {
            alike(&view.steps[*step], &view.steps[*i])
                && divided(view, *i).is_some_and(|(of, by)| view.expr(of) == buffer && counts(view, call, by))
        });
        let Some(again) = again else { continue };
        let rebound = match &buffer {
            Expr::Local(local) => view.defs(*local).iter().any(|d| d > step && *d < again),
            Expr::Attr(..) => false,
            _ => true,
        };
        if !rebound {
            let (collective, place) = (Name::from(call.rule.op.as_str()), view.place(view.steps[*step].id));
            let mistake = Membership::AveragedTwice { collective, averaged: place };
            out.push((view.place(view.steps[again].id), Practice::Membership(mistake)));
        }
    }
}

/// Whether two steps are executed together.
fn alike(a: &Step<'_>, b: &Step<'_>) -> bool {
    let same = a.guards.iter().zip(b.guards.iter()).all(|(x, y)| x.at == y.at && x.holds == y.holds);
    a.guards.len() == b.guards.len() && same && a.loops == b.loops && a.handlers == b.handlers
}

fn divided<'a>(view: &View<'a>, step: usize) -> Option<(&'a Operand, &'a Operand)> {
    match view.value(step)? {
        Rvalue::CallMethod { base, name, args } if name == "div_" => Some((base, &args.first()?.value)),
        Rvalue::InPlace { op: BinOp::Div, left, right } | Rvalue::Binary { op: BinOp::Div, left, right } => {
            Some((left, right))
        }
        _ => None,
    }
}

/// Whether a number is that of the ranks of a collective.
fn counts(view: &View<'_>, call: &CollectiveCall<'_>, by: &Operand) -> bool {
    let by = near::deep(view, &view.expr(by));
    let Some(args) = by.call_of("get_world_size") else { return false };
    let group = call.group.map(|g| near::deep(view, &view.expr(g))).filter(|g| !g.is_none());
    match (args, group) {
        ([], None) => true,
        ([(_, of)], Some(group)) => near::deep(view, of) == group,
        _ => false,
    }
}
