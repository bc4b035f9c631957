//! Statistics of a norm that are summed past autograd. In: the forward of a module with parameters. Out: a raw sum of squares over ranks that scales
//! what the forward returns. In: a function that sums deviations over ranks. Out: the mean of this rank as their centre. Never: autograd functions, code that only infers, and what runs without gradients.
//! Source: torch.distributed, whose collectives autograd does not see. Next: `cut.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::mixed_mean::averages;
use super::near;
use super::view::{CollectiveCall, View};
use crate::ir::{BinOp, LocalId, Operand, Rvalue};
use crate::project::ClassRef;
use crate::rules::Form;

/// What stands in code that is not trained.
const UNTRAINED: &[&str] =
    &["nference", "no_grad", "weight_loader", "generate(", "requires_grad=False", "requires_grad_("];
const SQUARES: &[&str] = &["pow", "square"];
const SUMS: &[&str] = &["sum", "mean"];
const COPIES: &[&str] = &["stack", "cat", "tensor", "clone"];
const ROOTS: &[&str] = &["rsqrt", "sqrt"];

/// `s = x.pow(2).sum(-1)`, `dist.all_reduce(s)`, `x * torch.rsqrt(s / n)`
pub fn squares(view: &View<'_>, out: &mut Found) {
    if view.func.name != "forward" || !is_of_trained_module(view) {
        return;
    }
    for (i, call) in view.collectives() {
        let in_place = matches!(call.rule.form, Form::InPlace) && call.rule.op == "all_reduce";
        if !in_place || call.rule.differentiable || averages(view, call).is_none() || view.without_gradient(*i) {
            continue;
        }
        let Some(Operand::Local(sum)) = call.input else { continue };
        let mut made = view.defs(*sum).iter().filter(|d| *d < i);
        let Some(made) = made.next_back().filter(|d| is_sum_of_squares(&view.bound(**d, *sum))) else { continue };
        let of = |o: &Operand| near::roots(view, o).contains(sum) || view.expr(o).mentions(*sum);
        let root = (*i + 1..view.steps.len()).find(|s| takes_root(view, *s, &of));
        let Some(root) = root else { continue };
        let mistake = Membership::StatisticCut {
            collective: super::lost::last(&call.rule.name),
            made: view.place(view.steps[*made].id),
            used: view.place(view.steps[root].id),
        };
        out.push((view.place(view.steps[*i].id), Practice::Membership(mistake)));
    }
}

/// `m = x.mean()`, `dist.all_reduce(m)`, `x - m`: the sum of the means of all ranks is no mean.
pub fn centres(view: &View<'_>, out: &mut Found) {
    for (at, call) in view.collectives() {
        let Some(Operand::Local(mean)) = call.input.filter(|_| sums_in_place(view, call)) else {
            continue;
        };
        let [made] = view.defs(*mean) else { continue };
        let bound = view.bound(*made, *mean);
        let of = match &bound {
            Expr::Call { callee, args, .. } if callee.last_name() == Some("mean") => match (&**callee, args.first()) {
                (Expr::Attr(base, _), _) => &**base,
                (Expr::Path(path), Some((_, of))) if path == "torch.mean" => of,
                _ => continue,
            },
            _ => continue,
        };
        let is_mean = |o: &Operand| near::local(o) == Some(*mean);
        let readers = || view.readers(*mean).iter().copied().filter(|s| s > at);
        let scales = |s: usize| match view.value(s) {
            Some(Rvalue::Binary { op: BinOp::Mul | BinOp::Div, .. } | Rvalue::InPlace { .. }) => true,
            Some(Rvalue::CallMethod { base, name, .. }) => {
                is_mean(base) && (name.ends_with('_') || name == "div" || name == "mul")
            }
            _ => false,
        };
        let taken = readers().find(|s| match view.value(*s) {
            Some(Rvalue::Binary { op: BinOp::Sub, left, right }) => is_mean(right) && view.expr(left) == *of,
            _ => false,
        });
        let plain = matches!(of, Expr::Local(local) if view.defs(*local).len() <= 1);
        if let Some(taken) = taken.filter(|_| plain && !readers().any(scales)) {
            let mistake = Membership::SummedMean {
                mean: view.local_name(*mean).clone(),
                made: view.place(view.steps[*made].id),
                taken: view.place(view.steps[taken].id),
            };
            out.push((view.place(view.steps[*at].id), Practice::Membership(mistake)));
        }
    }
}

/// `d = ((x - s / n) ** 2).sum()`, `dist.all_reduce(d)`, where the sum `s` is summed over the ranks as well: what is squared is the distance from
/// the mean of this rank. Never: where that mean is used otherwise, as to correct for it. Source: Chan, Golub, LeVeque 1983, pairwise variance.
pub fn deviations(view: &View<'_>, out: &mut Found) {
    for (at, call) in view.collectives().iter().filter(|(_, call)| sums_in_place(view, call)) {
        let Some(Operand::Local(squares)) = call.input else { continue };
        let Some(made) = view.defs(*squares).iter().rfind(|d| *d < at) else { continue };
        let bound = view.bound(*made, *squares);
        let Some((mean, sum)) = centre(view, &bound).filter(|_| adds_up(&bound)) else { continue };
        let summed = view.collectives().iter().find(|(other, call)| {
            // What is summed in place itself is the sum of all ranks from there on.
            let copied = |o: &Operand| *other > *made || calls(&view.through(o), COPIES);
            other != at
                && sums_in_place(view, call)
                && call.input.is_some_and(|o| copied(o) && near::roots(view, o).contains(&sum))
        });
        let taken_off = |s: &usize| matches!(view.value(*s), Some(Rvalue::Binary { op: BinOp::Sub, right, .. }) if near::local(right) == mean);
        let alone = mean.is_none_or(|mean| view.readers(mean).iter().all(taken_off));
        let Some((summed, _)) = summed.filter(|_| alone) else { continue };
        let mistake = Membership::OwnCentre {
            squares: view.local_name(*squares).clone(),
            summed: view.place(view.steps[*summed].id),
            reduced: view.place(view.steps[*at].id),
        };
        out.push((view.place(view.steps[*made].id), Practice::Membership(mistake)));
    }
}

fn sums_in_place<'a>(view: &View<'a>, call: &CollectiveCall<'a>) -> bool {
    matches!(call.rule.form, Form::InPlace) && call.rule.op == "all_reduce" && averages(view, call) == Some(false)
}

/// The mean that is taken off in a square, if it is used elsewhere, and the sum that it is made of.
fn centre(view: &View<'_>, squares: &Expr) -> Option<(Option<LocalId>, LocalId)> {
    let mut found = None;
    squares.any(&mut |e| {
        let base = match e {
            Expr::Binary(BinOp::Pow, base, _) => &**base,
            Expr::Call { callee, args, .. } if callee.last_name().is_some_and(|n| SQUARES.contains(&n)) => {
                match (&**callee, args.first()) {
                    (Expr::Attr(base, _), _) => &**base,
                    (_, Some((_, of))) => of,
                    _ => return false,
                }
            }
            _ => return false,
        };
        let Expr::Binary(BinOp::Sub, _, mean) = base else { return false };
        let (named, mean) = match **mean {
            Expr::Local(local) => (Some(local), view.through(&Operand::Local(local))),
            ref other => (None, other.clone()),
        };
        if let Expr::Binary(BinOp::Div, sum, _) = mean
            && let Expr::Local(sum) = *sum
        {
            found = Some((named, sum));
        }
        found.is_some()
    });
    found
}

fn is_of_trained_module(view: &View<'_>) -> bool {
    let Some(class) = near::class_of(view) else { return false };
    let class = view.project.class(ClassRef { module: view.at.module, class });
    let text = view.text(view.spot(class.span));
    let whole = view.file();
    text.lines().next().is_some_and(|line| line.contains("Module"))
        && text.contains("Parameter(")
        && !UNTRAINED.iter().any(|word| whole.contains(word))
}

fn is_sum_of_squares(expr: &Expr) -> bool {
    calls(expr, SQUARES) && adds_up(expr)
}

fn adds_up(expr: &Expr) -> bool {
    calls(expr, SUMS)
}

/// Whether an expression calls one of these.
fn calls(expr: &Expr, names: &[&str]) -> bool {
    expr.any(&mut |e| matches!(e, Expr::Call { callee, .. } if callee.last_name().is_some_and(|n| names.contains(&n))))
}

/// Whether a step takes the root of something.
pub(super) fn takes_root(view: &View<'_>, step: usize, of: &dyn Fn(&Operand) -> bool) -> bool {
    match view.value(step) {
        Some(Rvalue::CallMethod { base, name, args }) => {
            ROOTS.contains(&name.as_str()) && (of(base) || args.iter().any(|a| of(&a.value)))
        }
        Some(Rvalue::Call { callee, args }) => {
            view.through(callee).last_name().is_some_and(|n| ROOTS.contains(&n)) && args.iter().any(|a| of(&a.value))
        }
        _ => false,
    }
}
