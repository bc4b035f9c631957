//! Losses for schedules of pipelines that scale gradients themselves. In: a function. Out: a schedule of torch with a number of microbatches,
//! whose loss function divides by it too. Never: a schedule that is told not to scale, or a loss function that is not in view.
//! Source: torch.distributed.pipelining.schedules, `scale_grads=True`: gradients are divided by the number of microbatches.
//! Next: `factor.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::view::View;
use crate::ir::{Arg, BinOp, Const, Rvalue, Stmt};
use crate::source::{Name, Place};

/// `Schedule1F1B(stage, n_microbatches=n, loss_fn=loss)`, with `return loss / n`
pub fn losses(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value @ Rvalue::Call { callee, args }) = view.value(i) else { continue };
        let Some(loss) = view.argument(args, usize::MAX, "loss_fn") else { continue };
        let known = view.callee(value).is_some_and(|path| is_schedule(&path)) || is_chosen(view, &view.through(callee));
        if !known || scales_not(view, args) {
            continue;
        }
        let Some(count) = view.argument(args, 1, "n_microbatches") else { continue };
        let count = view.through(count);
        let Some(loss) = near::function(view, loss) else { continue };
        let loss = near::other(view, loss);
        if let Some((by, place)) = divides(view, &count, &loss) {
            let mistake = Membership::ScheduleDivides { by, schedule: view.place(step.id) };
            out.push((place, Practice::Membership(mistake)));
        }
    }
}

fn is_schedule(path: &Name) -> bool {
    path.starts_with("torch.distributed.pipelining") && super::lost::last(path).starts_with("Schedule")
}

/// `get_schedule_class(name)(stage, ...)`
fn is_chosen(view: &View<'_>, callee: &Expr) -> bool {
    let Expr::Call { callee, .. } = callee else { return false };
    near::path(view, callee)
        .is_some_and(|path| path.starts_with("torch.distributed.pipelining") && path.ends_with("get_schedule_class"))
}

/// Whether a schedule is told not to scale, or may be.
fn scales_not<'a>(view: &View<'a>, args: &'a [Arg]) -> bool {
    use crate::ir::ArgKind::{DoubleStar, Star};
    let told = view.argument(args, usize::MAX, "scale_grads");
    let open = args.iter().any(|a| matches!(a.kind, Star | DoubleStar));
    open || told.is_some_and(|told| view.through(told) != Expr::Const(Const::Bool(true)))
}

/// The number of microbatches by which all that a loss function returns is divided.
fn divides(view: &View<'_>, count: &Expr, loss: &View<'_>) -> Option<(Name, Place)> {
    let mut found = None;
    for step in &loss.steps {
        let Stmt::Return { value } = step.stmt else { continue };
        let (made, value) = loss.source(value)?;
        let Rvalue::Binary { op: BinOp::Div, right, .. } = value else { return None };
        let by = loss.through(right);
        if !is_same(view, count, loss, &by) {
            return None;
        }
        found = Some((name_of(loss, &by)?, loss.place(loss.steps[made].id)));
    }
    found
}

/// Whether two functions speak of the same number: by its name, or by its value.
fn is_same(view: &View<'_>, count: &Expr, loss: &View<'_>, by: &Expr) -> bool {
    match (count, by) {
        (Expr::Const(a), Expr::Const(b)) => a == b && *a != Const::Int(1),
        _ => match (name_of(view, count), name_of(loss, by)) {
            (Some(a), Some(b)) => {
                a == b || [a, b].iter().all(|n| n.as_str().to_lowercase().replace('_', "").contains("microbatches"))
            }
            _ => false,
        },
    }
}

fn name_of(view: &View<'_>, expr: &Expr) -> Option<Name> {
    match expr {
        Expr::Local(local) => Some(view.local_name(*local).clone()),
        Expr::Const(Const::Int(n)) => Some(Name::from(n.to_string())),
        other => other.last_name().map(Name::from),
    }
}
