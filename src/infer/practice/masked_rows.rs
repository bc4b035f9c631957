//! Rows that stand for what another rank has. In: a function. Out: a lookup with positions of which a mask has made those of other ranks
//! harmless, whose result is summed over ranks with their rows still in it. Never: a mask that is not of both bounds of this rank's rows,
//! anything made of the mask or the positions that is read later, and a result that anything but the sum reads before.
//! Source: Megatron-LM, `VocabParallelEmbedding.forward`. Next: `own_part.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Unlike};
use super::near;
use super::view::View;
use crate::ir::{ArgKind, BinOp, CmpOp, Const, LocalId, Operand, Rvalue};
use rustc_hash::FxHashSet;

/// `local = (ids - first).masked_fill((ids < first) | (ids >= last), 0)`, `out = F.embedding(local, weight)`, and a sum of `out`.
pub fn summed(view: &View<'_>, out: &mut Found) {
    for (i, call) in view.collectives() {
        let sums = call.rule.op == "all_reduce" || call.rule.op == "reduce_scatter";
        let Some(input) = call.input.and_then(near::local).filter(|_| sums) else { continue };
        let Some((lookup, positions)) = looked_up(view, input, *i) else { continue };
        let Some(Masked { at, mask, ids }) = masked(view, positions).filter(|m| m.at < lookup) else { continue };
        let (made, taken) = (&view.steps[lookup], &view.steps[*i]);
        let plain = made.guards.len() == taken.guards.len() && made.loops == taken.loops;
        let read = (lookup + 1..*i).any(|s| view.reads(s).iter().any(|o| near::local(o) == Some(input)));
        let given = call.rule.reduce_op.and_then(|at| {
            let param = call.rule.args.params.get(at)?;
            view.argument(call.args, at, &param.name)
        });
        let whole = given.is_none_or(|op| view.expr(op).last_name() == Some("SUM"));
        if plain && whole && !read && !is_read_later(view, &[mask, ids, positions], lookup) {
            let unlike = Unlike::OthersRows {
                mask: view.local_name(mask).clone(),
                masked: view.place(view.steps[at].id),
                lookup: view.place(view.steps[lookup].id),
            };
            out.push((view.place(view.steps[*i].id), Practice::Unlike(unlike)));
        }
    }
}

/// The lookup that gives a value, and the variable of its positions. It is given nothing but these and the rows: no position of padding.
fn looked_up(view: &View<'_>, value: LocalId, before: usize) -> Option<(usize, LocalId)> {
    let [at] = view.defs(value) else { return None };
    if *at >= before {
        return None;
    }
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(*at)? else { return None };
    let path = view.callee(view.value(*at)?)?;
    if path != "torch.nn.functional.embedding" || args.len() != 2 || args.iter().any(|a| a.kind != ArgKind::Positional)
    {
        return None;
    }
    Some((*at, near::local(&args[0].value)?))
}

/// Positions that were made harmless.
struct Masked {
    at: usize,
    mask: LocalId,
    /// What they were before.
    ids: LocalId,
}

/// Where positions from the first row of this rank on are made harmless outside of its rows.
fn masked(view: &View<'_>, positions: LocalId) -> Option<Masked> {
    let [at] = view.defs(positions) else { return None };
    let Rvalue::CallMethod { base, name, args } = view.value(*at)? else { return None };
    let zero = |o: &Operand| matches!(o, Operand::Const(Const::Int(0)));
    if name != "masked_fill" || args.len() != 2 || !zero(&args[1].value) {
        return None;
    }
    let mask = near::local(&args[0].value).filter(|l| !view.is_temp(*l))?;
    let [made] = view.defs(mask) else { return None };
    let Expr::Binary(BinOp::BitOr, below, above) = view.bound(*made, mask) else { return None };
    let (Expr::Compare(CmpOp::Lt, low, first), Expr::Compare(CmpOp::Ge, high, _)) = (*below, *above) else {
        return None;
    };
    let (Expr::Local(ids), true) = (&*low, low == high) else { return None };
    // What is looked up is the position among this rank's rows: no row is set apart for the others.
    let moved = matches!(near::deep(view, &view.expr(base)), Expr::Binary(BinOp::Sub, from, by) if *from == *low && by == first);
    moved.then_some(Masked { at: *at, mask, ids: *ids })
}

/// Whether anything after a step reads one of these variables or what is made of them before, or anything keeps it.
fn is_read_later(view: &View<'_>, of: &[LocalId], lookup: usize) -> bool {
    let mut made: FxHashSet<LocalId> = of.iter().copied().collect();
    for step in 0..view.steps.len() {
        let reads = view.reads(step).into_iter().any(|o| near::local(o).is_some_and(|l| made.contains(&l)));
        if !reads || step == lookup {
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
