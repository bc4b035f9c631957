//! Weighted means over ranks whose gradient has no weight. In: an autograd function. Out: a backward that does not look at the weight by which
//! the forward multiplies its input before the sum over ranks, and whose own sum it divides by. Never: a backward that reads the weight or
//! anything else that is made of it. Next: `backwards.rs`; `../autograd`, where factors are numbers of ranks.

use super::backwards::{Backwards, both_ways, stored};
use super::expr::Expr;
use super::found::Practice;
use super::view::View;
use super::{Class, Found, Lint, near};
use crate::ir::{BinOp, Item, LocalId, Operand, Rvalue, Stmt};
use crate::source::Place;

/// Words of files in which the weight may come in elsewhere, or no gradient is taken.
const OTHERWISE: &[&str] =
    &["no_grad", "inference_mode", "register_hook", ".grad.", ".grad)", "mark_non_differentiable"];

/// A mean over ranks of what one rank has, each with its weight.
struct Weighted {
    /// What each rank has, and its weight.
    value: LocalId,
    weight: LocalId,
    /// The sum of the weights of all ranks.
    total: LocalId,
    weighed: usize,
}

/// `s = loss * n`, `all_reduce(s)`, `all_reduce(total)`, `return s / total`, and `return grad * ctx.size`
pub fn left_out<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let Some((forward, backward)) = both_ways(lint, class.at).filter(|_| lint.is_autograd(class.at)) else { return };
    let text = lint.files[lint.project.file(class.at.module)].whole();
    if OTHERWISE.iter().any(|word| text.contains(word)) {
        return;
    }
    let (forward, backward) = (lint.view(forward), lint.view(backward));
    let Some(found) = weighted(&forward) else { return };
    let refuses = |word: &&str| forward.code().contains(*word);
    if !communicates_alone(&backward)
        || reads_weight(&forward, &backward, &found)
        || ["raise ", "assert "].iter().any(refuses)
    {
        return;
    }
    let Some(returned) = gives(&forward, &backward, found.value) else { return };
    let mistake = Backwards::WeightLeft {
        class: lint.project.class(class.at).name.clone(),
        weight: forward.local_name(found.weight).clone(),
        weighed: forward.place(forward.steps[found.weighed].id),
    };
    out.push((returned, Practice::Backwards(mistake)));
}

/// Whether nothing in a backward may bring the weights from elsewhere: a collective, or a function that is given the context.
fn communicates_alone(backward: &View<'_>) -> bool {
    let context = backward.func.params.first().map(|p| Operand::Local(p.local));
    let handed = |value: &Rvalue| match value {
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => {
            args.iter().any(|a| Some(&a.value) == context.as_ref())
        }
        _ => false,
    };
    !near::communicates(backward) && !(0..backward.steps.len()).any(|step| backward.value(step).is_some_and(handed))
}

/// Where a backward gives a gradient for a parameter of the forward.
fn gives(forward: &View<'_>, backward: &View<'_>, value: LocalId) -> Option<Place> {
    let slot = forward.func.params.iter().position(|p| p.local == value)?.checked_sub(1)?;
    backward.steps.iter().find_map(|step| {
        let Stmt::Return { value } = step.stmt else { return None };
        let given = match backward.source(value) {
            Some((_, Rvalue::Build { items, .. })) => match items.get(slot)? {
                Item::One(given) => given,
                Item::Star(_) => return None,
            },
            _ if slot == 0 => value,
            _ => return None,
        };
        (!backward.through(given).is_none()).then(|| backward.place(step.id))
    })
}

/// The weighted mean that a forward takes.
fn weighted(view: &View<'_>) -> Option<Weighted> {
    let summed: Vec<(usize, LocalId)> = view
        .collectives()
        .iter()
        .filter(|(_, call)| call.rule.op == "all_reduce")
        .filter_map(|(at, call)| Some((*at, near::local(call.input?)?)))
        .collect();
    let param = |operand: &Operand| near::local(operand).filter(|l| view.is_as_given(*l));
    summed.iter().find_map(|(at, sum)| {
        let weighed = view.defs(*sum).iter().copied().rfind(|def| def < at)?;
        let Some(Rvalue::Binary { op: BinOp::Mul, left, right }) = view.value(weighed) else { return None };
        let (one, other) = (param(left)?, param(right)?);
        let total = |weight: LocalId| {
            let of_weight = |(_, local): &&(usize, LocalId)| local != sum && is_copy(view, *local, weight);
            summed.iter().find(of_weight).map(|(_, local)| *local)
        };
        let pairs = [(one, other), (other, one)];
        let (value, weight, total) =
            pairs.into_iter().find_map(|(value, weight)| Some((value, weight, total(weight)?)))?;
        let divides = |step: usize| match view.value(step) {
            Some(Rvalue::Binary { op: BinOp::Div, left, right }) => {
                near::local(left) == Some(*sum) && near::local(right) == Some(total)
            }
            _ => false,
        };
        (0..view.steps.len()).any(divides).then_some(Weighted { value, weight, total, weighed })
    })
}

/// Whether a variable is a copy of another one.
fn is_copy(view: &View<'_>, local: LocalId, of: LocalId) -> bool {
    let [made] = view.defs(local) else { return false };
    let copies = |name: &str| matches!(name, "clone" | "detach" | "float" | "to" | "contiguous");
    let mut value = view.value(*made);
    loop {
        let base = match value {
            Some(Rvalue::CallMethod { base, name, .. }) if copies(name) => base,
            Some(Rvalue::Use(base)) => base,
            _ => return false,
        };
        match view.source(base) {
            Some((_, inner)) => value = Some(inner),
            None => return near::local(base) == Some(of),
        }
    }
}

/// Whether a backward reads the weight, or what is made of it, other than the sum of all.
fn reads_weight(forward: &View<'_>, backward: &View<'_>, found: &Weighted) -> bool {
    let made = |operand: &Operand| {
        near::local(operand) != Some(found.total) && near::comes_from(forward, operand, found.weight, 0)
    };
    let code = backward.code();
    let kept = stored(forward).into_iter().any(|(name, value)| {
        value.any(&mut |e| matches!(e, Expr::Local(l) if made(&Operand::Local(*l))))
            && code.contains(&format!(".{name}"))
    });
    let saved: Vec<bool> = (0..forward.steps.len())
        .find_map(|step| match forward.value(step) {
            Some(Rvalue::CallMethod { name, args, .. }) if name == "save_for_backward" => {
                Some(args.iter().map(|a| made(&a.value)).collect())
            }
            _ => None,
        })
        .unwrap_or_default();
    if kept || !saved.contains(&true) {
        return kept;
    }
    match near::saved_names(backward)
        .filter(|names| names.len() == saved.len() && code.matches(near::SAVED).count() == 1)
    {
        Some(names) => names.iter().zip(&saved).any(|(local, made)| *made && backward.is_read(*local)),
        // What is taken one by one is not followed.
        None => code.contains(near::SAVED),
    }
}
