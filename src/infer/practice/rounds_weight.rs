//! What all micro-batches weigh: sums over a list of them. In: a variable, and the list. Out: where it is added up, here or in a function that is given
//! the list. Never: a mean, or a sum that anything divides. Next: `rounds_divided.rs`, which asks.

use super::expr::Expr;
use super::near;
use super::view::View;
use super::wrapped::called_function;
use crate::ir::{Arg, ArgKind, BinOp, LocalId, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};
use rustc_hash::FxHashSet;

/// How many functions deep a sum is followed.
const MOST_CALLS: usize = 2;

/// The micro-batches: a variable, or an attribute of one.
#[derive(Clone, PartialEq)]
pub(super) struct Batches {
    root: LocalId,
    attrs: Vec<Name>,
}

/// The micro-batches that an expression is.
pub(super) fn batches(expr: &Expr) -> Option<Batches> {
    match expr {
        Expr::Local(root) => Some(Batches { root: *root, attrs: Vec::new() }),
        Expr::Attr(base, name) => {
            let mut of = batches(base)?;
            of.attrs.push(name.clone());
            Some(of)
        }
        _ => None,
    }
}

/// What a call gives a parameter.
pub(super) fn argument<'a>(inner: &View<'_>, args: &'a [Arg], param: usize) -> Option<&'a Operand> {
    let name = &inner.func.params.get(param)?.name;
    let named = args.iter().find(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == name));
    let at = param.checked_sub(usize::from(inner.func.class.is_some()))?;
    let positional = || args.get(at).filter(|a| a.kind == ArgKind::Positional);
    named.or_else(positional).map(|a| &a.value)
}

/// Where a variable is the sum of something over all micro-batches.
pub(super) fn total(view: &View<'_>, local: LocalId, batches: &Batches) -> Option<Place> {
    total_inside(view, local, batches, MOST_CALLS)
}

fn total_inside(view: &View<'_>, local: LocalId, batches: &Batches, calls: usize) -> Option<Place> {
    let (mut seen, mut steps, mut queue) = (FxHashSet::default(), Vec::new(), vec![local]);
    while let Some(next) = queue.pop() {
        if !seen.insert(next) {
            continue;
        }
        for (i, step) in view.steps.iter().enumerate() {
            let made = view.binds(i).contains(&next)
                || matches!(step.stmt, Stmt::Append { collection, .. } if *collection == next);
            if made {
                steps.push(i);
                queue.extend(view.reads(i).into_iter().filter_map(near::local));
            }
        }
    }
    let divides = |i: usize| {
        matches!(
            view.value(i),
            Some(
                Rvalue::Binary { op: BinOp::Div | BinOp::FloorDiv, .. }
                    | Rvalue::InPlace { op: BinOp::Div | BinOp::FloorDiv, .. }
            )
        )
    };
    let other = |i: usize| {
        near::name_of_call(view, i).is_some_and(|name| matches!(name.as_str(), "mean" | "max" | "min" | "len"))
    };
    if steps.iter().any(|i| divides(*i) || other(*i)) {
        return None;
    }
    let is_over = |i: usize| match view.steps[i].stmt {
        Stmt::For { iter, .. } => {
            let iter = view.expr(iter);
            let inner = iter.call_of("enumerate").and_then(|args| args.first()).map(|(_, of)| of);
            self::batches(inner.unwrap_or(&iter)).as_ref() == Some(batches)
        }
        _ => false,
    };
    let loops = steps.iter().copied().find(|i| is_over(*i));
    let adds = |i: usize| match view.value(i) {
        Some(Rvalue::Binary { op: BinOp::Add, .. } | Rvalue::InPlace { op: BinOp::Add, .. }) => {
            loops.is_some_and(|over| view.steps[i].loops.contains(&over))
        }
        _ => near::name_of_call(view, i).is_some_and(|name| name == "sum"),
    };
    if let (Some(_), Some(added)) = (loops, steps.iter().copied().find(|i| adds(*i))) {
        return Some(view.place(view.steps[added].id));
    }
    steps.into_iter().find_map(|i| summed_by(view, i, batches, calls.checked_sub(1)?))
}

/// Where a function of the project that a step calls with the micro-batches sums over them.
fn summed_by(view: &View<'_>, step: usize, batches: &Batches, calls: usize) -> Option<Place> {
    let value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step)? else { return None };
    let inner = near::shared(view, called_function(view, value)?);
    let given = (0..inner.func.params.len()).find_map(|param| {
        let of = self::batches(&view.expr(argument(&inner, args, param)?))?;
        let rest = batches.attrs.strip_prefix(of.attrs.as_slice())?;
        (of.root == batches.root).then(|| Batches { root: inner.func.params[param].local, attrs: rest.to_vec() })
    })?;
    let mut all = inner.steps.iter().filter_map(|s| match s.stmt {
        Stmt::Return { value } => Some(value),
        _ => None,
    });
    let (one, None) = (all.next()?, all.next()) else { return None };
    total_inside(&inner, near::local(one)?, &given, calls)?;
    Some(view.place(view.steps[step].id))
}
