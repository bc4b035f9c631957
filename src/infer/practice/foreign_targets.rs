//! Targets of other ranks in the gradient of a loss over a split vocabulary. In: the backward of an autograd function. Out: where 1 is taken
//! off at the positions that a rank has made of the targets, in a class whose forward makes those of other ranks 0 and takes what was looked up
//! there out of its sum, while the backward asks for no mask: each rank pushes its first row for every target of the others. Never: a backward
//! that reads the mask, the targets or anything that is made of them, or a forward that writes to what it saves where the mask holds.
//! Source: Megatron-LM, `VocabParallelCrossEntropy`; nanotron, `_ShardedCrossEntropy`. Next: `masked_rows.rs`.

use super::expr::Expr;
use super::found::{Practice, Unlike};
use super::masked_rows::{Masked, masked};
use super::view::View;
use super::{Found, near};
use crate::ir::{Arg, ArgKind, BinOp, Const, LocalId, Operand, Rvalue, Stmt};
use rustc_hash::FxHashSet;

/// Methods that give the same entries in the same order.
const SAME: &[&str] =
    &["to", "float", "long", "type_as", "half", "bfloat16", "view", "view_as", "reshape", "flatten", "contiguous"];

/// `grad[rows, positions] -= 1.0`, where the forward says `positions[mask] = 0` and `picked[mask] = 0`.
pub fn subtracted(view: &View<'_>, out: &mut Found) {
    if view.func.name != "backward" {
        return;
    }
    let Some(class) = near::autograd_class(view) else { return };
    let (Some(forward), Some(unpacked)) = (view.project.own_method(class, "forward"), saved(view)) else { return };
    let forward = near::shared(view, forward);
    let Some(given) = kept(&forward).filter(|given| given.len() == unpacked.len()) else { return };
    if !near::communicates(&forward) || !only_its_members(view) {
        return;
    }
    for step in 0..view.steps.len() {
        let Some(positions) = taken_off(view, step).and_then(|positions| of_saved(&positions)) else { continue };
        let Some(at) = (positions < unpacked.len()).then_some(positions) else { continue };
        let Some((masked, zeroed)) = harmless(&forward, &given[at].value) else { continue };
        if asks(view, &forward, &unpacked, given, at, &masked) {
            continue;
        }
        let unlike = Unlike::ForeignTargets {
            mask: forward.local_name(masked.mask).clone(),
            masked: forward.place(forward.steps[masked.at].id),
            zeroed: forward.place(forward.steps[zeroed].id),
        };
        out.push((view.place(view.steps[step].id), Practice::Unlike(unlike)));
    }
}

/// The variables that a backward unpacks what was saved into.
fn saved(view: &View<'_>) -> Option<Vec<LocalId>> {
    let ctx = view.func.params.first()?.local;
    let mut all = (0..view.steps.len()).filter_map(|i| match view.steps[i].stmt {
        Stmt::Unpack { value, before, star: None, after } if after.is_empty() => match view.expr(value) {
            Expr::Attr(of, name) if *of == Expr::Local(ctx) && name == "saved_tensors" => Some((i, before)),
            _ => None,
        },
        _ => None,
    });
    let ((step, locals), None) = (all.next()?, all.next()) else { return None };
    locals.iter().all(|local| view.defs(*local) == [step]).then(|| locals.to_vec())
}

/// What a forward saves, if it does so once.
fn kept<'a>(forward: &View<'a>) -> Option<&'a [Arg]> {
    let mut all = (0..forward.steps.len()).filter_map(|i| match forward.value(i) {
        Some(Rvalue::CallMethod { name, args, .. }) if name == "save_for_backward" => Some(&args[..]),
        _ => None,
    });
    let (one, None) = (all.next()?, all.next()) else { return None };
    one.iter().all(|a| a.kind == ArgKind::Positional).then_some(one)
}

/// Whether the context is asked for its members and given to nobody.
fn only_its_members(view: &View<'_>) -> bool {
    let Some(ctx) = view.func.params.first() else { return false };
    view.readers(ctx.local).iter().all(|step| matches!(view.value(*step), Some(Rvalue::Attr { .. })))
}

/// The positions at which a step takes 1 off, and nothing else.
fn taken_off(view: &View<'_>, step: usize) -> Option<Expr> {
    let one = |e: &Expr| matches!(e, Expr::Const(number) if number.is_number(1.0));
    match view.steps[step].stmt {
        Stmt::SetItem { index, value, .. } => {
            let Expr::Binary(BinOp::Sub, from, by) = view.expr(value) else { return None };
            let Expr::Build(indices) = view.expr(index) else { return None };
            let positions = bare(near::deep(view, indices.last()?));
            (one(&by) && matches!(*from, Expr::Item(..))).then_some(positions)
        }
        Stmt::Assign { value: Rvalue::Binary { op: BinOp::Sub, right, .. }, .. }
        | Stmt::Assign { value: Rvalue::InPlace { op: BinOp::Sub, right, .. }, .. } => {
            let made = bare(near::deep(view, &view.expr(right)));
            let [(_, positions), ..] = made.call_of("one_hot")? else { return None };
            Some(bare(near::deep(view, positions)))
        }
        _ => None,
    }
}

/// Which of what was saved an expression is.
fn of_saved(expr: &Expr) -> Option<usize> {
    let Expr::Item(of, at) = expr else { return None };
    match (&**of, &**at) {
        (Expr::Attr(_, name), Expr::Const(Const::Int(at))) if name == "saved_tensors" => usize::try_from(*at).ok(),
        _ => None,
    }
}

/// What a value is without conversions and views.
fn bare(mut value: Expr) -> Expr {
    loop {
        value = match value {
            Expr::Call { callee, args, step } => match *callee {
                Expr::Attr(of, name) if SAME.contains(&name.as_str()) => *of,
                callee => return Expr::Call { callee: Box::new(callee), args, step },
            },
            other => return other,
        };
    }
}

/// The mask under which positions were made harmless, and where what was looked up there is taken out of a sum.
fn harmless(forward: &View<'_>, positions: &Operand) -> Option<(Masked, usize)> {
    let mut all: Vec<LocalId> = near::reached(forward, positions, |_| true).into_iter().collect();
    all.sort_unstable();
    let masked = all.into_iter().filter(|local| !forward.is_temp(*local)).find_map(|local| masked(forward, local))?;
    let zero = |o: &Operand| matches!(forward.expr(o), Expr::Const(number) if number.is_number(0.0));
    let of_mask = |o: &Operand| near::local(o) == Some(masked.mask);
    let zeroed = (masked.at + 1..forward.steps.len()).find(|step| match forward.steps[*step].stmt {
        Stmt::SetItem { index, value, .. } => of_mask(index) && zero(value),
        Stmt::Assign { value: Rvalue::CallMethod { name, args, .. }, .. } => {
            let fills = matches!(name.as_str(), "masked_fill" | "masked_fill_") && args.len() == 2;
            fills && of_mask(&args[0].value) && zero(&args[1].value)
        }
        _ => false,
    })?;
    Some((masked, zeroed))
}

/// Whether a backward asks for the mask or the targets, or for what a forward has made of them, but for the positions themselves.
fn asks(
    view: &View<'_>,
    forward: &View<'_>,
    unpacked: &[LocalId],
    given: &[Arg],
    positions: usize,
    masked: &Masked,
) -> bool {
    let told = |operand: &Operand| {
        let from = near::reached(forward, operand, |_| true);
        from.contains(&masked.mask) || from.contains(&masked.ids)
    };
    let read = |at: usize| at != positions && view.is_read(unpacked[at]);
    let by_saved = (0..given.len()).any(|at| read(at) && told(&given[at].value));
    let Some(ctx) = view.func.params.first() else { return true };
    let members: FxHashSet<&str> = (0..view.steps.len())
        .filter_map(|step| match view.value(step) {
            Some(Rvalue::Attr { base, name }) if near::local(base) == Some(ctx.local) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    let by_member = forward.steps.iter().any(|step| match step.stmt {
        Stmt::SetAttr { name, value, .. } => members.contains(name.as_str()) && told(value),
        _ => false,
    });
    // What is saved may have been made right where the mask holds.
    let of_others: FxHashSet<LocalId> = (0..given.len())
        .filter(|at| *at != positions)
        .flat_map(|at| near::reached(forward, &given[at].value, |_| true))
        .collect();
    let written = forward.steps.iter().any(|step| match step.stmt {
        Stmt::SetItem { base, index, .. } => {
            told(index) && near::local(base).is_some_and(|local| of_others.contains(&local))
        }
        _ => false,
    });
    by_saved || by_member || written
}
