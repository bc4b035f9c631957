//! Gradients that are averaged over ranks on one branch and summed over the same ranks on the other. In: a function. Out: the sum. Never: a
//! test of anything but a size, and a file that scales anything in place or makes steps without a scale. Next: `each_round.rs`.

use super::expr::Expr;
use super::found::{Practice, Scales};
use super::view::{CollectiveCall, Guard, Step, View};
use super::{Found, near};
use crate::ir::{BinOp, Operand, Rvalue, Stmt};
use crate::source::Span;

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
        let apart = |other: usize| exclude(view, &view.steps[*sum], &view.steps[other]);
        let of = |call: &CollectiveCall<'a>| call.input.map(|input| near::deep(view, &view.expr(input)));
        let same = |other: &CollectiveCall<'a>| group(summed) == group(other) && of(summed) == of(other);
        let mean = of_gradients.iter().find(|(step, mean, call)| *mean && apart(*step) && same(call));
        if let Some((mean, ..)) = mean
            && !scales_somewhere(view)
            && !are_made_by_hand(view)
        {
            let averaged = view.place(view.steps[*mean].id);
            out.push((view.place(view.steps[*sum].id), Practice::Scales(Scales::MixedMean { averaged })));
        }
    }
}

/// Whether a function makes the gradients itself, of no loss: what they are meant as, the code does not say.
fn are_made_by_hand(view: &View<'_>) -> bool {
    let sets = |step: &Step<'_>| match step.stmt {
        Stmt::SetAttr { name, value, .. } => name == "grad" && !view.expr(value).is_none(),
        _ => false,
    };
    view.steps.iter().any(sets) && !["backward(", "autograd.grad("].iter().any(|word| view.code().contains(word))
}

/// Whether a value is what an attribute `grad` holds, by its name or where it comes from.
fn is_gradient(view: &View<'_>, operand: &Operand) -> bool {
    match near::deep(view, &view.expr(operand)) {
        Expr::Attr(_, name) => name == "grad",
        _ => false,
    }
}

/// Whether a reduction takes the mean; `None`: neither that nor a sum, or not known.
pub fn averages<'a>(view: &View<'a>, call: &CollectiveCall<'a>) -> Option<bool> {
    call.rule.reduce_op?;
    let Some(given) = view.operator(call) else { return Some(false) };
    match view.expr(given).last_name()? {
        "AVG" => Some(true),
        "SUM" => Some(false),
        _ => None,
    }
}

/// Whether two steps of one loop stand on the two sides of one test, which asks how large something is: that says nothing about what is meant.
fn exclude(view: &View<'_>, a: &Step<'_>, b: &Step<'_>) -> bool {
    let sized = |test: &Operand| {
        let measures = |e: &Expr| e.last_name().is_some_and(|n| matches!(n, "numel" | "nelement" | "shape" | "size"));
        matches!(near::deep(view, &view.expr(test)), Expr::Compare(_, left, right)
            if left.any(&mut |e| measures(e)) || right.any(&mut |e| measures(e)))
    };
    let apart = |x: &Guard<'_>, y: &Guard<'_>| x.at == y.at && x.holds != y.holds && sized(x.test);
    !a.loops.is_empty() && a.loops == b.loops && a.guards.iter().any(|x| b.guards.iter().any(|y| apart(x, y)))
}

/// Words of steps for which the scale of a gradient is of no matter.
const WITHOUT_SCALE: &[&str] = &["sign", "sqrt", "norm", "exp_avg", "zeropower", "newton", "adam", "muon", "scale"];

/// Whether anything in the file scales a gradient or what may be one, divides by what may be a number of ranks, or makes of gradients what
/// does not depend on their scale.
fn scales_somewhere(view: &View<'_>) -> bool {
    let whole = view.file();
    let text = near::code(view, Span::new(0, whole.len() as u32));
    if WITHOUT_SCALE.iter().any(|word| text.contains(word)) {
        return true;
    }
    near::functions(view, view.at.module).into_iter().any(|at| {
        let other = near::other(view, at);
        (0..other.steps.len()).any(|i| {
            let value = other.value(i);
            let by_name = || {
                let name = match value {
                    Some(Rvalue::CallMethod { name, .. }) => Some(name.clone()),
                    Some(value @ Rvalue::Call { .. }) => other.callee(value),
                    _ => None,
                };
                let factor =
                    |n: &str| ["div", "mul"].contains(&n.trim_start_matches("_foreach_").trim_end_matches('_'));
                name.is_some_and(|n| n.rsplit('.').next().is_some_and(factor) || n.ends_with("true_divide"))
            };
            match value {
                Some(Rvalue::InPlace { op: BinOp::Div | BinOp::Mul, .. }) => true,
                Some(Rvalue::Binary { op: BinOp::Div | BinOp::Mul, left, right }) => {
                    let gradient = |o| near::deep(&other, &other.expr(o)).any(&mut |e| e.last_name() == Some("grad"));
                    gradient(left) || gradient(right) || speaks_of_ranks(&other, right)
                }
                _ => by_name(),
            }
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
