//! Rows that stand for what another rank has. In: a function. Out: a lookup with positions of which a mask has made those of other ranks
//! harmless, whose result is summed over ranks with their rows still in it. Never: where the mask is read between the lookup and the sum.
//! Source: Megatron-LM, `VocabParallelEmbedding.forward`. Next: `own_part.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Unlike};
use super::near;
use super::view::View;
use crate::ir::{Const, LocalId, Operand, Rvalue, Stmt};

/// `local = ids.masked_fill(mask, 0)`, `out = F.embedding(local, weight)`, and a sum of `out`.
pub fn summed(view: &View<'_>, out: &mut Found) {
    for (i, call) in view.collectives() {
        let sums = call.rule.op == "all_reduce" || call.rule.op == "reduce_scatter";
        let Some(input) = call.input.and_then(near::local).filter(|_| sums) else { continue };
        let Some((lookup, positions)) = looked_up(view, input, *i) else { continue };
        let Some((masked, mask)) = masked(view, positions, lookup) else { continue };
        let used = view.readers(mask).iter().any(|s| *s > lookup);
        let also =
            (lookup..*i).any(|s| view.reads(s).iter().any(|o| view.expr(o).any(&mut |e| *e == Expr::Local(mask))));
        if !used && !also {
            let unlike = Unlike::OthersRows {
                mask: view.local_name(mask).clone(),
                masked: view.place(view.steps[masked].id),
                lookup: view.place(view.steps[lookup].id),
            };
            out.push((view.place(view.steps[*i].id), Practice::Unlike(unlike)));
        }
    }
}

/// The lookup that gives a value, and the variable of its positions.
fn looked_up(view: &View<'_>, value: LocalId, before: usize) -> Option<(usize, LocalId)> {
    let [at] = view.defs(value) else { return None };
    if *at >= before {
        return None;
    }
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(*at)? else { return None };
    let path = view.callee(view.value(*at)?)?;
    let position = match path.rsplit('.').next()? {
        "embedding" => 0,
        "index_select" => args.len().checked_sub(1)?,
        _ => return None,
    };
    Some((*at, near::local(&args.get(position)?.value)?))
}

/// Where positions are made harmless, and the mask that says which.
fn masked(view: &View<'_>, positions: LocalId, before: usize) -> Option<(usize, LocalId)> {
    let zero = |o: &Operand| matches!(o, Operand::Const(Const::Int(0)));
    // Assigned to: `positions[mask] = 0`.
    let set = view.steps[..before].iter().enumerate().find_map(|(i, s)| match s.stmt {
        Stmt::SetItem { base: Operand::Local(base), index, value } if *base == positions && zero(value) => {
            Some((i, near::local(index)?))
        }
        _ => None,
    });
    let named = |(at, mask): &(usize, LocalId)| *at < before && !view.is_temp(*mask);
    let made = || {
        let [at] = view.defs(positions) else { return None };
        match view.value(*at)? {
            Rvalue::CallMethod { name, args, .. }
                if name == "masked_fill" && args.len() == 2 && zero(&args[1].value) =>
            {
                Some((*at, near::local(&args[0].value)?))
            }
            _ => None,
        }
    };
    set.or_else(made).filter(named)
}
