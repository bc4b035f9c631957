//! What the tests around statements ask: whether the model is trained, and on how many ranks. In: an operand of a test. Out: whether, and
//! the side of the branch that counts. Never: the values of flags. Next: `gradient/mod.rs`.

use super::expr::Expr;
use super::near;
use super::view::View;
use crate::ir::{CmpOp, Operand, UnOp};

/// Whether a condition asks about training or gradients.
pub fn asks_training(view: &View<'_>, test: &Operand) -> bool {
    // One that is kept in a variable asks for the same.
    near::deep(view, &view.expr(test)).any(&mut |e| {
        let name = match e {
            Expr::Local(l) => Some(view.local_name(*l).as_str()),
            other => other.last_name(),
        };
        name.is_some_and(|n| ["training", "grad", "infer", "eval", "generat"].iter().any(|w| n.contains(w)))
    })
}

/// Whether a condition that asks for the number of ranks holds for several of them; `None` if it asks for something else.
pub fn several_ranks(view: &View<'_>, test: &Operand) -> Option<bool> {
    asks_ranks(view, &view.expr(test))
}

fn asks_ranks(view: &View<'_>, test: &Expr) -> Option<bool> {
    fn name<'e>(view: &'e View<'_>, e: &'e Expr) -> Option<&'e str> {
        match e {
            Expr::Local(local) => Some(view.local_name(*local).as_str()),
            Expr::Call { callee, .. } => name(view, callee),
            other => other.last_name(),
        }
    }
    match test {
        Expr::Unary(UnOp::Not, inner) => asks_ranks(view, inner).map(|holds| !holds),
        // Where a program runs on several ranks, flags beside that are as the branch wants them.
        Expr::Bool { and, of } => {
            let answers: Vec<Option<bool>> = of.iter().map(|e| asks_ranks(view, e)).collect();
            let strong = answers.contains(&Some(!and));
            let all = answers.iter().all(Option::is_some);
            match (strong, all || *and) {
                (true, _) => Some(!and),
                (false, true) if answers.contains(&Some(*and)) => Some(*and),
                _ => None,
            }
        }
        Expr::Compare(op, size, one) => {
            let counts = |name: &str| name == "world" || name.ends_with("world_size") || name == "num_ranks";
            let Expr::Const(crate::ir::Const::Int(one)) = &**one else { return None };
            match (counts(name(view, size)?), op, *one) {
                (true, CmpOp::Gt | CmpOp::Ne, 1) | (true, CmpOp::Ge, 2) => Some(true),
                (true, CmpOp::Eq | CmpOp::Le, 1) | (true, CmpOp::Lt, 2) => Some(false),
                _ => None,
            }
        }
        other => {
            let name = name(view, other)?;
            let has = |word: &str| name.split('_').any(|w| w == word);
            // `dist` alone, or with other words, may be a distance; and some only evaluate on several ranks.
            let runs = ["distributed", "ddp"].iter().any(|w| name.contains(w) && has(w))
                || matches!(name, "is_dist" | "use_dist" | "in_dist");
            let runs = runs && !["eval", "test", "val", "validation"].iter().any(|w| has(w));
            (name == "is_initialized" || name == "is_available" || runs && !has("not")).then_some(true)
        }
    }
}
