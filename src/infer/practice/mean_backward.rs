//! Backwards that take the mean of each rank's mean. In: a backward. Out: means that are summed over ranks and divided by the number of ranks,
//! where the forward sums the number of rows over the same ranks. Never: a forward that does not count. Source: SyncBatchNorm of PyTorch,
//! which divides sums by the number of all rows. Next: `counts.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::view::View;
use crate::ir::{BinOp, Operand, Rvalue};

/// Steps that are followed into what is summed.
const MOST_DEPTH: usize = 4;
/// How rows are counted.
const COUNTS: &[&str] = &["size", "numel", "shape"];

/// `all_reduce(dy.mean(0))`, `/ world_size`, where the forward does `all_reduce(cat([x.sum(0), x.size(0)]))`
pub fn of_means(view: &View<'_>, out: &mut Found) {
    if view.func.name != "backward" {
        return;
    }
    let Some(class) = near::class_of(view) else { return };
    let Some(forward) = near::methods(view, class).into_iter().find(|m| m.func.name == "forward") else { return };
    let counted = forward.collectives().iter().find(|(_, c)| {
        let counts =
            |e: &Expr| matches!(e, Expr::Attr(_, n) if n == "shape") || COUNTS.iter().any(|n| e.call_of(n).is_some());
        c.rule.op == "all_reduce"
            && c.input.is_some_and(|i| holds(&forward, &forward.expr(i), 0, &counts))
            && c.input.is_some_and(|i| holds(&forward, &forward.expr(i), 0, &|e| e.call_of("sum").is_some()))
    });
    let Some((counted, _)) = counted else { return };
    let counted = forward.place(forward.steps[*counted].id);
    for (_, call) in view.collectives().iter().filter(|(_, c)| c.rule.op == "all_reduce") {
        let Some(input @ Operand::Local(summed)) = call.input else { continue };
        if !holds(view, &view.expr(input), 0, &|e| e.call_of("mean").is_some()) {
            continue;
        }
        let divided = (0..view.steps.len()).find(|i| match view.value(*i) {
            Some(Rvalue::Binary { op: BinOp::Div, left, right }) => {
                *left == Operand::Local(*summed)
                    && near::deep(view, &view.expr(right)).call_of("get_world_size").is_some()
            }
            _ => false,
        });
        if let Some(divided) = divided {
            let place = view.place(view.steps[divided].id);
            out.push((place, Practice::Membership(Membership::MeanOfMeans { counted })));
        }
    }
}

/// Whether something is in an expression, or in one that a variable in it is bound to.
fn holds(view: &View<'_>, expr: &Expr, depth: usize, wanted: &dyn Fn(&Expr) -> bool) -> bool {
    if depth > MOST_DEPTH {
        return false;
    }
    expr.any(&mut |e| match e {
        Expr::Local(local) => {
            let defs = view.defs(*local);
            defs.len() <= 2 && defs.iter().any(|d| holds(view, &view.bound(*d, *local), depth + 1, wanted))
        }
        other => wanted(other),
    })
}
