//! Means of each rank's batch that are gathered as if they were samples. In: a function. Out: `gather_for_metrics` of a mean over the batch: it drops the samples that fill up the last
//! batch, one entry for each, and a mean has them in it already; ranks with fewer samples weigh as much as the others. Never: losses, means
//! along another dim, or what is repeated for each sample. Source: accelerate, `Accelerator.gather_for_metrics`. Next: `mean_of_own.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::unshared::Unshared;
use super::view::View;
use crate::ir::{ArgKind, Const, Rvalue};

/// Parts of names of what is one value for a batch by intention.
const LOSSES: &[&str] = &["loss", "losses", "ppl", "perplexity", "nll"];

/// `accuracy = (a > b).float().mean()` and `accelerator.gather_for_metrics(accuracy)`
pub fn gathers(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(Rvalue::CallMethod { name, args, .. }) = view.value(i) else { continue };
        let Some(given) = args.first().filter(|_| name == "gather_for_metrics") else { continue };
        let (made, value) = match view.expr(&given.value) {
            Expr::Local(local) => {
                let named_loss = LOSSES.iter().any(|part| near::has_part(view.local_name(local), part));
                let Some(def) = view.last_def(local, i).filter(|_| !named_loss) else { continue };
                (def, view.bound(def, local))
            }
            // A variable that is bound once is seen through.
            Expr::Call { step, callee, args } => (step, Expr::Call { step, callee, args }),
            other => (i, other),
        };
        if is_mean_of_comparison(view, &value, made) {
            let mistake = Unshared::MeanGathered { mean: view.place(view.steps[made].id) };
            out.push((view.place(step.id), Practice::Unshared(mistake)));
        }
    }
}

/// Whether a value is the mean over the batch of which samples are right.
fn is_mean_of_comparison(view: &View<'_>, value: &Expr, before: usize) -> bool {
    let Expr::Call { callee, args, .. } = value else { return false };
    let Expr::Attr(of, name) = &**callee else { return false };
    let whole = args.iter().all(|(kind, arg)| match kind {
        ArgKind::Positional => *arg == Expr::Const(Const::Int(0)),
        ArgKind::Keyword(k) => k == "keepdim" || k == "dim" && *arg == Expr::Const(Const::Int(0)),
        _ => false,
    });
    name == "mean" && whole && compares(view, of, before, 4)
}

fn compares(view: &View<'_>, e: &Expr, before: usize, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    match e {
        Expr::Compare(..) => true,
        Expr::Call { callee, args, .. } => match &**callee {
            Expr::Attr(of, name) if matches!(name.as_str(), "float" | "double" | "to" | "detach") => {
                compares(view, of, before, depth)
            }
            Expr::Attr(_, name) => matches!(name.as_str(), "eq" | "gt" | "ge" | "lt" | "le") && args.len() == 1,
            _ => false,
        },
        Expr::Local(local) => {
            view.last_def(*local, before).is_some_and(|def| compares(view, &view.bound(def, *local), def, depth))
        }
        _ => false,
    }
}
