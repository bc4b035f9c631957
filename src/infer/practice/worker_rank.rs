//! The number of a data worker in the place of a rank. In: a function. Out: a call that is given the number of all ranks, and as the rank among
//! them the number of a worker of this rank's data loader. Never: a number that is computed from both, or workers that are processes of
//! the job. Source: torch.utils.data, `get_worker_info().id`. Next: `world_rank.rs`.

use super::Found;
use super::coming::Coming;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::view::View;
use super::wrapped::function;
use crate::ir::{Arg, ArgKind, Operand, Rvalue};
use crate::source::Name;

/// Names of parameters that are the number of all ranks.
const SIZES: &[&str] = &["world_size", "num_replicas"];

/// How far a number is followed.
const MOST: usize = 4;

pub fn given(view: &View<'_>, out: &mut Found) {
    for i in 0..view.steps.len() {
        let Some(Rvalue::Call { callee, args }) = view.value(i) else { continue };
        let known = function(view, &view.through(callee)).map(|at| &view.project.func(at).params);
        let name = |at: usize, a: &Arg| match &a.kind {
            ArgKind::Keyword(name) => Some(name.clone()),
            ArgKind::Positional => known.and_then(|params| params.get(at)).map(|p| p.name.clone()),
            ArgKind::Star | ArgKind::DoubleStar => None,
        };
        let named = |wanted: &dyn Fn(&str) -> bool| {
            args.iter().enumerate().find(|(at, a)| name(*at, a).is_some_and(|n| wanted(&n))).map(|(_, a)| &a.value)
        };
        let size = named(&|name| SIZES.contains(&name)).is_some_and(|o| is_size(view, o));
        let rank = named(&|name| name == "rank" || name == "global_rank")
            .filter(|o| size && is_worker(view, &view.expr(o), 0));
        if let Some(rank) = rank {
            let given = match rank {
                Operand::Local(local) if !view.is_temp(*local) => view.local_name(*local).clone(),
                _ => Name::from("id"),
            };
            let function = Name::from(view.expr(callee).last_name().unwrap_or("the function"));
            let place = view.place(view.steps[i].id);
            out.push((place, Practice::Coming(Coming::WorkerAsRank { function, given })));
        }
    }
}

/// Whether a value is the number of all ranks and nothing more.
fn is_size(view: &View<'_>, operand: &Operand) -> bool {
    let expr = view.expr(operand);
    let name = match &expr {
        Expr::Local(local) => Some(view.local_name(*local).as_str()),
        Expr::Call { callee, .. } => callee.last_name(),
        other => other.last_name(),
    };
    let counts_workers = |e: &Expr| e.clone().any(&mut |part| part.last_name() == Some("num_workers"));
    let among_workers = match &expr {
        Expr::Local(local) => view.defs(*local).iter().any(|def| counts_workers(&view.bound(*def, *local))),
        other => counts_workers(&near::deep(view, other)),
    };
    name.is_some_and(|n| n.ends_with("world_size")) && !among_workers
}

/// Whether a value is the number of a worker, or a constant where there are none.
fn is_worker(view: &View<'_>, expr: &Expr, depth: usize) -> bool {
    if depth > MOST {
        return false;
    }
    let constant = |e: &Expr| matches!(e, Expr::Const(_));
    match expr {
        Expr::Attr(info, name) if name == "id" => near::deep(view, info).call_of("get_worker_info").is_some(),
        Expr::Choice(_, a, b) => {
            let worker = |e: &Expr| is_worker(view, e, depth + 1);
            worker(a) && (worker(b) || constant(b)) || worker(b) && constant(a)
        }
        Expr::Local(local) if !view.is_param(*local) => {
            let all: Vec<Expr> = view.defs(*local).iter().map(|def| view.bound(*def, *local)).collect();
            let worker = |e: &Expr| is_worker(view, e, depth + 1);
            all.iter().any(worker) && all.iter().all(|e| constant(e) || worker(e))
        }
        _ => false,
    }
}
