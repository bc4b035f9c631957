//! Blocks of other ranks that a loop takes up and never looks at. In: the backward of an autograd function. Out: a call in a loop over the blocks
//! of a gathered buffer that reads what the forward has saved, while nothing reads the block: each round is that of this rank's own part. Never: a
//! block of which anything is used, or a loop that calls nothing with what was saved.
//! Source: diffusers issue 14265. Next: `stale.rs`, for values that go round.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::training::Training;
use super::view::View;
use super::wrapped::called_function;
use crate::ir::{Arg, BinOp, LocalId, LocalKind, Operand, Rvalue, Stmt};
use rustc_hash::FxHashSet;

/// Methods whose result has the values of their tensor, in another shape or elsewhere.
const PURE: &[&str] =
    &["reshape", "reshape_as", "view", "view_as", "contiguous", "clone", "to", "unbind", "chunk", "split", "flatten"];
/// Methods that say how large their tensor is.
const SIZES: &[&str] = &["numel", "size", "dim", "stride"];

/// `for i in range(n): key, value = parts[(rank + i) % n]; dq, dk, dv = op(ctx, grad)`
pub fn blocks(view: &View<'_>, out: &mut Found) {
    if near::autograd_class(view).is_none() || view.func.name != "backward" {
        return;
    }
    let Some(context) = view.func.params.first().map(|p| p.local) else { return };
    for (i, step) in view.steps.iter().enumerate() {
        let (Stmt::Assign { dst, value: Rvalue::Item { base, index } }, Some(round)) = (step.stmt, step.loops.last())
        else {
            continue;
        };
        if !goes_round(view, index) || !is_gathered(view, base) || !is_dead(view, i, *round, &mut FxHashSet::default())
        {
            continue;
        }
        let reads_saved = |at: &usize| view.steps[*at].loops.contains(round) && takes_saved(view, *at, context);
        let Some(call) = (i + 1..view.steps.len()).find(reads_saved) else { continue };
        let variable = named(view, *dst, i).unwrap_or_else(|| view.text(view.place(step.id)).into());
        let mistake = Training::BlockNeverRead { variable, taken: view.place(step.id) };
        let place = view.place(view.steps[call].id);
        if !out.iter().any(|(at, _)| *at == place) {
            out.push((place, Practice::Training(mistake)));
        }
    }
}

/// Whether an index is another one in each round: `(rank + i) % n`, or a variable that the loop takes on so.
fn goes_round(view: &View<'_>, index: &Operand) -> bool {
    let turns = |e: &Expr| e.any(&mut |e| matches!(e, Expr::Binary(BinOp::Mod, ..)));
    let taken_on = |local: LocalId| view.defs(local).iter().any(|def| turns(&view.bound(*def, local)));
    turns(&near::deep(view, &view.expr(index))) || near::local(index).is_some_and(taken_on)
}

/// Whether something holds what all ranks have: a collective or a function of the project that communicates gives it.
fn is_gathered(view: &View<'_>, base: &Operand) -> bool {
    let Some(local) = near::local(base) else { return false };
    view.defs(local).iter().any(|def| {
        let mut calls = false;
        near::deep(view, &view.bound(*def, local)).any(&mut |e| {
            if let Expr::Call { step, .. } = e {
                calls |= view.value(*step).is_some_and(|value| {
                    let gathers = |at| near::communicates(&near::other(view, at));
                    view.collective(value).is_some() || called_function(view, value).is_some_and(gathers)
                });
            }
            calls
        });
        calls
            || view
                .collectives()
                .iter()
                .any(|(at, call)| *at > *def && call.output.and_then(near::local) == Some(local))
    })
}

/// Whether nothing comes of what a step makes, in its loop or behind it: it is taken apart, and the parts are left alone.
fn is_dead(view: &View<'_>, step: usize, round: usize, seen: &mut FxHashSet<usize>) -> bool {
    if !seen.insert(step) {
        return true;
    }
    let mut unread = |local: &LocalId| {
        let own = !matches!(view.func.locals()[*local].kind, LocalKind::Cell | LocalKind::Captured);
        let later = |at: &&usize| **at > round && (**at > step || view.steps[**at].loops.contains(&round));
        own && view.readers(*local).iter().filter(later).all(|at| is_dead(view, *at, round, seen))
    };
    match view.steps[step].stmt {
        Stmt::Assign { dst, value } => match value {
            Rvalue::CallMethod { name, .. } if SIZES.contains(&name.as_str()) => true,
            Rvalue::Attr { name, .. } => name == "shape",
            Rvalue::CallMethod { name, .. } => PURE.contains(&name.as_str()) && unread(dst),
            Rvalue::Item { .. } | Rvalue::Use(_) => unread(dst),
            _ => false,
        },
        Stmt::Unpack { before, star, after, .. } => before.iter().chain(star).chain(after.iter()).all(unread),
        _ => false,
    }
}

/// Whether a step calls a function of the project with the context, and that function reads what was saved there; or one that the context keeps.
fn takes_saved(view: &View<'_>, step: usize, context: LocalId) -> bool {
    let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
        return false;
    };
    let given = |arg: &Arg| near::local(&arg.value) == Some(context);
    let kept = |base: &Operand, name: &str| near::local(base) == Some(context) && name.contains("backward");
    if matches!(value, Rvalue::CallMethod { base, name, .. } if kept(base, name)) {
        return args.iter().any(given);
    }
    args.iter().any(given)
        && called_function(view, value).is_some_and(|at| near::other(view, at).code().contains("saved_tensors"))
}

/// The variable that holds what a step takes, or the first of those that it is taken apart into.
fn named(view: &View<'_>, dst: LocalId, step: usize) -> Option<crate::source::Name> {
    if !view.is_temp(dst) {
        return Some(view.local_name(dst).clone());
    }
    view.readers(dst).iter().filter(|at| **at > step).find_map(|at| match view.steps[*at].stmt {
        Stmt::Unpack { before, .. } => before.first().map(|local| view.local_name(*local).clone()),
        Stmt::Assign { dst, .. } if !view.is_temp(*dst) => Some(view.local_name(*dst).clone()),
        _ => None,
    })
}
