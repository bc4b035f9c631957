//! Gradients that are averaged over ranks on one branch and summed over the same ranks on the other. In: a function. Out: the sum. Never: a
//! class, or a file of functions, that divides by a number of ranks anywhere. Next: `each_round.rs`.

use super::expr::Expr;
use super::found::{Practice, Scales};
use super::view::{CollectiveCall, Step, View};
use super::{Found, near};
use crate::ir::{BinOp, Operand, Rvalue};
use crate::project::FuncRef;

/// `if small: all_reduce(grad, op=AVG)`, `else: reduce_scatter_tensor(out, grad)`
pub fn branches<'a>(view: &View<'a>, out: &mut Found) {
    let of_gradients: Vec<(usize, bool, &CollectiveCall<'a>)> = view
        .collectives()
        .iter()
        .filter(|(_, call)| matches!(call.rule.op.as_str(), "all_reduce" | "reduce_scatter"))
        .filter(|(_, call)| call.input.is_some_and(|input| is_gradient(view, input)))
        .filter_map(|(step, call)| Some((*step, averages(view, call)?, call)))
        .collect();
    let group = |call: &CollectiveCall<'a>| call.group.map(|g| near::deep(view, &view.expr(g)));
    for (sum, _, summed) in of_gradients.iter().filter(|(_, mean, _)| !mean) {
        let apart = |other: usize| exclude(&view.steps[*sum], &view.steps[other]);
        let same = |other: &CollectiveCall<'a>| group(summed) == group(other);
        let mean = of_gradients.iter().find(|(step, mean, call)| *mean && apart(*step) && same(call));
        if let Some((mean, ..)) = mean
            && !scales_somewhere(view)
        {
            let averaged = view.place(view.steps[*mean].id);
            out.push((view.place(view.steps[*sum].id), Practice::Scales(Scales::MixedMean { averaged })));
        }
    }
}

/// Whether a value is what an attribute `grad` holds, by its name or where it comes from.
fn is_gradient(view: &View<'_>, operand: &Operand) -> bool {
    match near::deep(view, &view.expr(operand)) {
        Expr::Attr(_, name) => name == "grad",
        _ => false,
    }
}

/// Whether a reduction takes the mean; `None`: neither that nor a sum, or not known.
fn averages<'a>(view: &View<'a>, call: &CollectiveCall<'a>) -> Option<bool> {
    let at = call.rule.reduce_op?;
    let Some(given) = view.argument(call.args, at, &call.rule.args.params.get(at)?.name) else { return Some(false) };
    match view.expr(given).last_name()? {
        "AVG" => Some(true),
        "SUM" => Some(false),
        _ => None,
    }
}

/// Whether two steps stand on the two sides of one test.
fn exclude(a: &Step<'_>, b: &Step<'_>) -> bool {
    a.guards.iter().any(|x| b.guards.iter().any(|y| x.at == y.at && x.holds != y.holds))
}

/// Whether the class, or a file without one, divides by something that may be a number of ranks, or scales anything in place.
fn scales_somewhere(view: &View<'_>) -> bool {
    let concerned = |at: &FuncRef| view.func.class.is_none() || view.project.func(*at).class == view.func.class;
    near::functions(view, view.at.module).into_iter().filter(concerned).any(|at| {
        let other = near::other(view, at);
        (0..other.steps.len()).any(|i| match other.value(i) {
            Some(
                Rvalue::Binary { op: BinOp::Div, right, .. }
                | Rvalue::InPlace { op: BinOp::Div | BinOp::Mul, right, .. },
            ) => speaks_of_ranks(&other, right),
            Some(Rvalue::CallMethod { name, args, .. }) if matches!(name.as_str(), "div_" | "mul_" | "div") => {
                args.first().is_some_and(|arg| speaks_of_ranks(&other, &arg.value))
            }
            _ => false,
        })
    })
}

fn speaks_of_ranks(view: &View<'_>, operand: &Operand) -> bool {
    let words = ["world", "ranks", "replicas", "gpus", "mesh", "dp_"];
    near::deep(view, &view.expr(operand)).any(&mut |e| {
        let name = match e {
            Expr::Local(local) => Some(view.local_name(*local).as_str()),
            other => other.last_name(),
        };
        // A plain `group` is one of the groups of parameters that an optimizer has.
        let counts = |name: &str| name.ends_with("_group") || words.iter().any(|word| name.contains(word));
        name.is_some_and(|name| counts(&name.to_lowercase()))
    })
}
