//! Parts of a permutation that each rank has drawn for itself. In: a function. Out: `randperm` without a generator, of which a rank takes the row or slice of its own number: the parts of the ranks
//! are no parts of one permutation, so some samples are taken twice and some never. Never: a permutation that anything may share, or a file that seeds. Source:
//! MoCo, `_batch_shuffle_ddp`, which broadcasts it. Next: `sample_seed.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::unshared::Unshared;
use super::view::View;
use crate::ir::{ArgKind, LocalId, Rvalue, Stmt};

/// `order = torch.randperm(n)`, and `order.view(world, -1)[rank]`
pub fn taken(view: &View<'_>, out: &mut Found) {
    let text = near::bare(view.file());
    if text.contains("seed") || text.contains("set_rng_state") || text.contains("generator") {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, .. } = step.stmt else { continue };
        if view.is_temp(*dst) || !is_drawn(&view.bound(i, *dst)) {
            continue;
        }
        // Whatever is given it may have the ranks agree.
        let shared = (i..view.steps.len()).any(|at| match view.value(at) {
            Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) => {
                let given = args.iter().any(|a| near::local(&a.value) == Some(*dst));
                given && !view.callee(value).is_some_and(|path| path.starts_with("torch.arg"))
            }
            _ => false,
        });
        let part = (i + 1..view.steps.len()).find(|at| takes_own(view, *at, *dst));
        if let Some(part) = part.filter(|_| !shared) {
            let mistake = Unshared::OwnPermutation { taken: view.place(view.steps[part].id) };
            out.push((view.place(step.id), Practice::Unshared(mistake)));
            return;
        }
    }
}

fn is_drawn(e: &Expr) -> bool {
    match e {
        Expr::Call { callee, args, .. } => match &**callee {
            Expr::Path(path) => {
                let given = |(kind, _): &(ArgKind, Expr)| matches!(kind, ArgKind::Keyword(k) if k == "generator");
                path == "torch.randperm" && !args.iter().any(given)
            }
            Expr::Attr(base, name) => matches!(name.as_str(), "to" | "cuda") && is_drawn(base),
            _ => false,
        },
        _ => false,
    }
}

/// Whether a step takes the row of the own rank: `order.view(world, -1)[rank]`, `order.chunk(world)[rank]`.
fn takes_own(view: &View<'_>, step: usize, order: LocalId) -> bool {
    let Some(Rvalue::Item { base, index }) = view.value(step) else { return false };
    let rank = |e: &Expr| {
        let asked = |e: &Expr| matches!(e, Expr::Call { callee, .. } if callee.last_name() == Some("get_rank"));
        asked(e) || view.name_of(e).is_some_and(|name| near::has_part(&name.to_lowercase(), "rank"))
    };
    let index = view.expr(index);
    let parts = |e: &Expr| match e {
        Expr::Call { callee, args, .. } => match &**callee {
            Expr::Attr(of, name) => {
                let ranks = args.first().is_some_and(|(_, a)| {
                    near::deep(view, a)
                        .any(&mut |e| e.last_name().is_some_and(|n| n.contains("world") || n.contains("size")))
                });
                matches!(name.as_str(), "view" | "reshape" | "chunk" | "tensor_split")
                    && ranks
                    && **of == Expr::Local(order)
            }
            _ => false,
        },
        _ => false,
    };
    (rank(&index) || rank(&near::deep(view, &index))) && parts(&view.through(base))
}
