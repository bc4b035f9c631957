//! Samplers whose order is another on each rank. In: a function. Out: a sampler that shuffles with a seed into which this rank's number goes, and
//! takes a slice of what it has shuffled. Never: a sampler that keeps the order, one that is told that there is one replica, where each rank
//! draws for itself, or a number that all replicas of one set share. Source: torch 2.9, torch.utils.data.DistributedSampler: "seed: ... should
//! be identical across all processes in the distributed group". Next: `sampler.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::lost::last;
use super::membership::Membership;
use super::near;
use super::unfold::unfold;
use super::view::View;
use crate::ir::{ArgKind, BinOp, Const, LocalKind, Operand, Rvalue};
use crate::source::Place;

/// The end of the name of what slices by the rank.
const SAMPLER: &str = "DistributedSampler";

/// Names of the number of this process.
const RANKS: &[&str] = &["rank", "global_rank", "world_rank", "local_rank", "process_index", "local_process_index"];

pub fn seeds(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            continue;
        };
        let Some(sampler) = view.callee(value).map(|p| last(&p)).filter(|name| name.ends_with(SAMPLER)) else {
            continue;
        };
        let Some(seed) = view.argument(args, 4, "seed") else { continue };
        let told = |at, name| view.argument(args, at, name).map(|o| unfold(view, &view.expr(o), i));
        let is_ordered = told(3, "shuffle") == Some(Expr::Const(Const::Bool(false)));
        let is_alone = told(1, "num_replicas") == Some(Expr::Const(Const::Int(1)));
        if is_ordered || is_alone {
            continue;
        }
        let (own, replicas) = (told(2, "rank"), told(1, "num_replicas"));
        let same =
            |e: &Expr| is_rank(view, e) || own.as_ref().is_some_and(|own| own == e && !matches!(e, Expr::Const(_)));
        if !has_rank(&unfold(view, &view.expr(seed), i), &same, replicas.as_ref()) {
            continue;
        }
        let made = made(view, seed).unwrap_or(view.place(step.id));
        let mistake = Membership::SeedOfRank { sampler, sliced: view.place(step.id) };
        out.push((made, Practice::Membership(mistake)));
    }
}

/// Whether this rank's number is in an expression. Divided by the number of replicas, it is that of the replicas' set: one for all of it.
fn has_rank(expr: &Expr, is_rank: &dyn Fn(&Expr) -> bool, replicas: Option<&Expr>) -> bool {
    match expr {
        Expr::Binary(BinOp::FloorDiv, _, by) if replicas.is_some_and(|n| is_alike(n, by)) => false,
        _ => is_rank(expr) || expr.inner().into_iter().any(|e| has_rank(e, is_rank, replicas)),
    }
}

/// Whether two expressions are the same, wherever what they call is called.
fn is_alike(a: &Expr, b: &Expr) -> bool {
    let parts = |a: &[(ArgKind, Expr)], b: &[(ArgKind, Expr)]| {
        a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && is_alike(a, b))
    };
    match (a, b) {
        (Expr::Call { callee, args, .. }, Expr::Call { callee: other, args: given, .. }) => {
            is_alike(callee, other) && parts(args, given)
        }
        _ => a == b,
    }
}

/// Whether an expression is the number of this process.
fn is_rank(view: &View<'_>, expr: &Expr) -> bool {
    match expr {
        Expr::Call { callee, args, .. } => {
            args.is_empty() && near::path(view, callee).is_some_and(|p| p == "torch.distributed.get_rank")
        }
        Expr::Local(local) => RANKS.contains(&view.local_name(*local).as_str()),
        Expr::Attr(_, name) => RANKS.contains(&name.as_str()),
        // `os.environ["RANK"]`
        Expr::Item(_, key) => key.string().is_some_and(|key| matches!(key.as_str(), "RANK" | "LOCAL_RANK")),
        _ => false,
    }
}

/// Where a variable of the function gets the seed.
fn made(view: &View<'_>, seed: &Operand) -> Option<Place> {
    let local = near::local(seed).filter(|l| view.func.locals()[*l].kind != LocalKind::Temp)?;
    match view.defs(local) {
        [one] => Some(view.place(view.steps[*one].id)),
        _ => None,
    }
}
