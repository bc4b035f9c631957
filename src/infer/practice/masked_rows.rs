//! Rows that stand for what another rank has. In: a function. Out: a lookup with positions of which a mask has made those of other ranks
//! harmless, whose result is summed over ranks with their rows still in it. Never: a mask that is not of both bounds of this rank's rows,
//! anything made of the mask or the positions that is read later, and a result that anything but the sum reads before.
//! Source: Megatron-LM, `VocabParallelEmbedding.forward`. Next: `own_part.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Unlike};
use super::near;
use super::view::View;
use crate::ir::{ArgKind, BinOp, CmpOp, Const, LocalId, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use rustc_hash::FxHashSet;

/// Functions between a sum and the one that asks for it: `leave(x)`, which applies an autograd function, whose forward calls a helper.
const MAX_DEPTH: usize = 4;

/// `local = ids - first`, `local[(ids < first) | (ids >= last)] = 0`, `out = F.embedding(local, weight)`, and a sum of `out`.
pub fn summed(view: &View<'_>, out: &mut Found) {
    for lookup in 0..view.steps.len() {
        let Some((rows, positions)) = looked_up(view, lookup) else { continue };
        let Some(taken) = view.readers(rows).iter().copied().find(|reader| *reader > lookup) else { continue };
        let Some(Masked { at, mask, ids }) = masked(view, positions).filter(|m| m.at < lookup) else { continue };
        let (made, sum) = (&view.steps[lookup], &view.steps[taken]);
        let plain = made.guards.len() <= sum.guards.len() && made.loops == sum.loops;
        if plain && sums(view, taken, rows, MAX_DEPTH) && !is_read_later(view, &[mask, ids, positions], at, lookup) {
            let unlike = Unlike::OthersRows {
                mask: view.local_name(mask).clone(),
                masked: view.place(view.steps[at].id),
                lookup: view.place(view.steps[lookup].id),
            };
            out.push((view.place(sum.id), Practice::Unlike(unlike)));
        }
    }
}

/// The rows that a lookup gives, and the variable of its positions. It is given nothing but these and the rows: no position of padding.
fn looked_up(view: &View<'_>, step: usize) -> Option<(LocalId, LocalId)> {
    let Stmt::Assign { dst, value } = view.steps[step].stmt else { return None };
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let plain = args.len() == 2 && args.iter().all(|a| a.kind == ArgKind::Positional);
    if !plain || view.callee(value)? != "torch.nn.functional.embedding" || view.defs(*dst) != [step] {
        return None;
    }
    Some((*dst, near::local(&args[0].value)?))
}

/// Whether a step sums a value over ranks, itself or through what it calls.
fn sums(view: &View<'_>, step: usize, value: LocalId, depth: usize) -> bool {
    if let Some((_, call)) = view.collectives().iter().find(|(at, _)| *at == step) {
        let whole = view.operator(call).is_none_or(|op| view.expr(op).last_name() == Some("SUM"));
        let input = call.input.and_then(near::local);
        return whole && input == Some(value) && matches!(call.rule.op.as_str(), "all_reduce" | "reduce_scatter");
    }
    let (callee, args, before) = match view.value(step) {
        Some(Rvalue::Call { callee, args }) => (near::function(view, callee), args, 0),
        // The context stands before the arguments.
        Some(Rvalue::CallMethod { base, name, args }) if name == "apply" => (forward(view, base), args, 1),
        _ => return false,
    };
    let at = args.iter().position(|a| a.kind == ArgKind::Positional && near::local(&a.value) == Some(value));
    let (Some(callee), Some(at), true) = (callee, at, depth > 0) else { return false };
    let inner = near::shared(view, callee);
    let Some(param) = inner.func.params.get(at + before).map(|p| p.local) else { return false };
    let takes = |step: &usize| {
        let of_param = |o: &&Operand| near::roots(&inner, o).contains(&param);
        inner
            .reads(*step)
            .into_iter()
            .filter(of_param)
            .filter_map(near::local)
            .any(|l| sums(&inner, *step, l, depth - 1))
    };
    (0..inner.steps.len()).any(|step| takes(&step))
}

/// The forward of the class of the project that a value is.
fn forward(view: &View<'_>, class: &Operand) -> Option<FuncRef> {
    view.project.own_method(near::class_named(view, class)?, "forward")
}

/// Positions that were made harmless.
pub(super) struct Masked {
    pub(super) at: usize,
    pub(super) mask: LocalId,
    /// What they were before.
    pub(super) ids: LocalId,
}

/// Where positions from the first row of this rank on are made harmless outside of its rows: in one expression, or in place. Where there is
/// one rank alone they may be what was given.
pub(super) fn masked(view: &View<'_>, positions: LocalId) -> Option<Masked> {
    let zero = |o: &Operand| matches!(o, Operand::Const(Const::Int(0)));
    let named = |o: &Operand| near::local(o).filter(|l| !view.is_temp(*l));
    let filled = |step: usize| match view.value(step)? {
        Rvalue::CallMethod { base, name, args } if name == "masked_fill" && args.len() == 2 && zero(&args[1].value) => {
            Some((base, named(&args[0].value)?))
        }
        _ => None,
    };
    if let [at] = view.defs(positions)
        && let Some((base, mask)) = filled(*at)
    {
        let (ids, first) = bounds(view, mask)?;
        return is_moved(&near::deep(view, &view.expr(base)), ids, &first).then_some(Masked { at: *at, mask, ids });
    }
    let (at, mask) = (0..view.steps.len()).find_map(|step| match view.steps[step].stmt {
        Stmt::SetItem { base, index, value } if near::local(base) == Some(positions) && zero(value) => {
            Some((step, named(index)?))
        }
        Stmt::Assign { dst, .. } if *dst == positions => {
            let (base, mask) = filled(step)?;
            (near::local(base) == Some(positions)).then_some((step, mask))
        }
        _ => None,
    })?;
    let (ids, first) = bounds(view, mask)?;
    let others = view.defs(positions).iter().filter(|step| **step != at);
    let ways: Vec<Expr> = others.map(|step| view.bound(*step, positions)).collect();
    let moved = |way: &Expr| is_moved(way, ids, &first);
    let known = ways.iter().all(|way| moved(way) || *way == Expr::Local(ids));
    (known && ways.iter().filter(|way| moved(way)).count() == 1).then_some(Masked { at, mask, ids })
}

/// The positions and the first row of a mask of both bounds: `(ids < first) | (ids >= last)`.
fn bounds(view: &View<'_>, mask: LocalId) -> Option<(LocalId, Expr)> {
    let [made] = view.defs(mask) else { return None };
    let Expr::Binary(BinOp::BitOr, below, above) = view.bound(*made, mask) else { return None };
    let (Expr::Compare(CmpOp::Lt, low, first), Expr::Compare(CmpOp::Ge, high, _)) = (*below, *above) else {
        return None;
    };
    match (&*low, low == high) {
        (Expr::Local(ids), true) => Some((*ids, *first)),
        _ => None,
    }
}

/// Whether positions are those among this rank's rows: no row is set apart for the others.
fn is_moved(moved: &Expr, ids: LocalId, first: &Expr) -> bool {
    let Expr::Binary(BinOp::Sub, from, by) = moved else { return false };
    let copied = |e: &Expr| match e {
        Expr::Call { callee, args, .. } => {
            args.is_empty() && matches!(&**callee, Expr::Attr(of, name) if name == "clone" && **of == Expr::Local(ids))
        }
        e => *e == Expr::Local(ids),
    };
    copied(from) && **by == *first
}

/// Whether anything after a step reads one of these variables or what is made of them before, or anything keeps it.
fn is_read_later(view: &View<'_>, of: &[LocalId], masked: usize, lookup: usize) -> bool {
    let mut made: FxHashSet<LocalId> = of.iter().copied().collect();
    for step in 0..view.steps.len() {
        let reads = view.reads(step).into_iter().any(|o| near::local(o).is_some_and(|l| made.contains(&l)));
        if !reads || step == masked || step == lookup {
            continue;
        }
        let known = match view.value(step) {
            Some(Rvalue::CallMethod { name, .. }) => matches!(name.as_str(), "masked_fill" | "clone" | "size"),
            Some(value) => !matches!(value, Rvalue::Call { .. } | Rvalue::InPlace { .. }),
            None => false,
        };
        if step > lookup || !known {
            return true;
        }
        made.extend(view.binds(step));
    }
    false
}
