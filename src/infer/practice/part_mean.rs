//! Means over a part of a dim that is split over ranks. In: a function that computes a loss over classes of which each rank has a part: it takes
//! the largest over all ranks, and adds up sums over that dim. Out: a mean over the same dim that stays that of this rank. Never: a mean that
//! anything communicates, or over another dim. Source: Megatron-LM, label smoothing in `vocab_parallel_cross_entropy`, issue 7452.
//! Next: `own_largest.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::view::View;
use crate::ir::{ArgKind, BinOp, Const, LocalId, Operand, Rvalue, Stmt};
use crate::source::Place;
use rustc_hash::FxHashSet;

/// Methods after which the last dim is another one.
const REDUCES: &[&str] = &["sum", "logsumexp", "gather", "max", "amax", "argmax", "mean"];

/// What makes another last dim, or what is only looked at.
const OTHERS: &[&str] = &["matmul", "mm", "bmm", "linear", "einsum", "detach"];

/// `all_reduce(x.max(-1), MAX)`, `all_reduce(x.exp().sum(-1))`, `x.mean(-1)`
pub fn means(view: &View<'_>, out: &mut Found) {
    let reductions: Vec<(Place, i64, FxHashSet<LocalId>)> = view
        .collectives()
        .iter()
        .filter(|(_, call)| call.rule.op == "all_reduce")
        .filter_map(|(step, call)| {
            let Some(Operand::Local(reduced)) = call.input else { return None };
            let [made] = view.defs(*reduced) else { return None };
            let dim = along(view, *made, "sum")?;
            Some((view.place(view.steps[*step].id), dim, kept_dim(view, call.input?)))
        })
        .collect();
    let largest =
        view.collectives().iter().any(|(step, _)| view.text(view.place(view.steps[*step].id)).contains("MAX"));
    if reductions.is_empty() || !largest {
        return;
    }
    for (at, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, .. } = step.stmt else { continue };
        let Some((base, dim)) = mean(view, at) else { continue };
        let of = kept_dim(view, base);
        let is_self = |p: &crate::ir::Param| p.name == "self";
        let same = |(_, other, roots): &&(Place, i64, FxHashSet<LocalId>)| {
            let shared = |p: &crate::ir::Param| !is_self(p) && of.contains(&p.local) && roots.contains(&p.local);
            *other == dim && view.func.params.iter().any(shared)
        };
        // Of what is reduced along the dim already another dim is the same number.
        let is_whole = view.steps.iter().enumerate().any(|(s, step)| match step.stmt {
            Stmt::Assign { dst, .. } => {
                let method = ["sum", "logsumexp", "gather"].iter().any(|method| calls(view, s, method));
                of.contains(dst) && method && !keeps_dim(view, s)
            }
            _ => false,
        });
        let reduces = |e: &Expr| match e {
            Expr::Call { callee, step, .. } => {
                callee.last_name().is_some_and(|name| REDUCES.contains(&name)) && !keeps_dim(view, *step)
            }
            _ => false,
        };
        let is_reduced = near::deep(view, &view.expr(base)).any(&mut |e| reduces(e));
        let told = is_whole || is_reduced || is_told(view, *dst) || is_given_back(view, *dst);
        let Some((reduced, _, _)) = reductions.iter().find(same).filter(|_| !told) else { continue };
        let size = size(view, at).or_else(|| length(view, dim, &of));
        out.push((view.place(step.id), Practice::Membership(Membership::PartMean { reduced: *reduced, size })));
        return;
    }
}

/// What a step takes the mean of, and the dim: `x.mean(-1)`, `x.sum(-1) / x.size(-1)`.
fn mean<'a>(view: &View<'a>, step: usize) -> Option<(&'a Operand, i64)> {
    match view.value(step)? {
        Rvalue::CallMethod { base, .. } => Some((base, along(view, step, "mean")?)),
        Rvalue::Binary { op: BinOp::Div, left, right } => {
            let (summed, Rvalue::CallMethod { base, .. }) = view.source(left)? else { return None };
            let dim = along(view, summed, "sum")?;
            let is_dim = |e: &Expr| *e == Expr::Const(Const::Int(dim));
            let of_part = match near::deep(view, &view.expr(right)) {
                Expr::Item(shape, at) => is_dim(&at) && shape.last_name() == Some("shape"),
                size => matches!(size.call_of("size"), Some([(_, at)]) if is_dim(at)),
            };
            of_part.then_some((base, dim))
        }
        _ => None,
    }
}

/// Where a variable for the size of this rank's part is set, by which a step divides.
fn size(view: &View<'_>, step: usize) -> Option<Place> {
    let Some(Rvalue::Binary { op: BinOp::Div, right, .. }) = view.value(step) else { return None };
    match view.defs(near::local(right)?) {
        [one] => Some(view.place(view.steps[*one].id)),
        _ => None,
    }
}

/// Where a variable is set to the length of this rank's part, beside a mean over it.
fn length(view: &View<'_>, dim: i64, of: &FxHashSet<LocalId>) -> Option<Place> {
    // What is called a part is meant as one.
    let of_part =
        |l: LocalId| near::has_any(&view.local_name(l).to_lowercase(), &["part", "local", "shard", "own", "per_"]);
    let taken = |step: &usize| match (view.steps[*step].stmt, view.value(*step)) {
        (Stmt::Assign { dst, .. }, Some(Rvalue::CallMethod { base, .. })) => {
            along(view, *step, "size") == Some(dim)
                && !view.is_temp(*dst)
                && !of_part(*dst)
                && near::roots(view, base).iter().any(|l| of.contains(l) && view.is_param(*l))
        }
        _ => false,
    };
    (0..view.steps.len()).find(taken).map(|step| view.place(view.steps[step].id))
}

/// The variables that a value comes from, but for those that came back with one entry along a dim.
fn kept_dim(view: &View<'_>, value: &Operand) -> FxHashSet<LocalId> {
    near::roots_by(view, value, |step| {
        let named = || near::name_of_call(view, step).is_some_and(|name| OTHERS.contains(&name.as_str()));
        let other = match view.value(step) {
            Some(Rvalue::Binary { op: BinOp::MatMul, .. }) => true,
            Some(value) => view.collective(value).is_some() || named(),
            None => false,
        };
        !other && !calls(view, step, "unsqueeze")
    })
}

/// Whether a reduction leaves one entry along its dim, so that what it is added to or taken from keeps that dim: `x.sum(-1, keepdim=True)`.
fn keeps_dim(view: &View<'_>, step: usize) -> bool {
    let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step) else { return false };
    args.iter().any(|arg| {
        matches!(&arg.kind, ArgKind::Keyword(name) if name == "keepdim")
            && arg.value == Operand::Const(Const::Bool(true))
    })
}

/// Whether a step calls a method.
fn calls(view: &View<'_>, step: usize, method: &str) -> bool {
    matches!(view.value(step), Some(Rvalue::CallMethod { name, .. }) if name == method)
}

/// Whether a function gives back a value as it is, alone or beside others: its callers may reduce it.
fn is_given_back(view: &View<'_>, value: LocalId) -> bool {
    let is_it = |o: &Operand| near::local(o) == Some(value) || view.through(o) == Expr::Local(value);
    view.steps.iter().any(|step| match step.stmt {
        Stmt::Return { value: given } => match view.source(given) {
            Some((_, built @ Rvalue::Build { .. })) => near::items(built).unwrap_or_default().into_iter().any(is_it),
            _ => is_it(given),
        },
        _ => false,
    })
}

/// Whether anything that is made of a value, or the value, is communicated, or handed to a function that may do so.
fn is_told(view: &View<'_>, value: LocalId) -> bool {
    let mut made: FxHashSet<LocalId> = std::iter::once(value).collect();
    for (at, step) in view.steps.iter().enumerate() {
        let reads = view.reads(at).into_iter().any(|o| matches!(o, Operand::Local(l) if made.contains(l)));
        let Stmt::Assign { dst, value } = step.stmt else { continue };
        if !reads {
            continue;
        }
        if view.may_communicate(value) || view.collective(value).is_some() {
            return true;
        }
        made.insert(*dst);
    }
    false
}

/// The dim along which a step reduces by a method.
fn along(view: &View<'_>, step: usize, method: &str) -> Option<i64> {
    let Some(Rvalue::CallMethod { name, args, .. }) = view.value(step) else { return None };
    let dim = args.iter().find(|a| match &a.kind {
        ArgKind::Positional => true,
        ArgKind::Keyword(name) => name == "dim",
        ArgKind::Star | ArgKind::DoubleStar => false,
    })?;
    match &dim.value {
        Operand::Const(Const::Int(dim)) if name == method => Some(*dim),
        _ => None,
    }
}
