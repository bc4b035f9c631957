//! Gradients of a whole input that a split weight gives in parts. In: an autograd function. Out: a backward that hands back the product of its
//! gradient with a weight as it is, where the forward reduces what it makes of the product of input and weight over ranks: these have other
//! rows of the weight and the same input. Never: a backward that communicates, or callers that give it what something else hands on. Source:
//! ml-cross-entropy, pull request 42. Next: `weight_left.rs`.

use super::backwards::{Backwards, both_ways};
use super::expr::Expr;
use super::found::Practice;
use super::view::View;
use super::{Class, Found, Lint, near};
use crate::ir::{BinOp, BuildKind, Item, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, Resolved};
use crate::source::Place;

/// Reductions over the columns of a product, each of which the ranks have others of.
const OVER_COLUMNS: &[&str] = &["sum", "amax", "max", "logsumexp"];
/// Words of files in which a gradient may be summed elsewhere.
const ELSEWHERE: &[&str] = &[
    "copy_to",
    "register_hook",
    "grad_placements",
    "CopyTo",
    "gather_from",
    "no_grad",
    "detach()",
    "requires_grad_",
    ".grad,",
    ".grad)",
];

/// `s = (e @ c.t()).exp().sum(-1)`, `all_reduce(s)`, and `return d @ c, ...`
pub fn parts<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let Some((forward, backward)) = both_ways(lint, class.at).filter(|_| lint.is_autograd(class.at)) else { return };
    let text = lint.files[lint.project.file(class.at.module)].whole();
    if ELSEWHERE.iter().any(|word| text.contains(word)) {
        return;
    }
    let (forward, backward) = (lint.view(forward), lint.view(backward));
    let Some((input, product, weight)) = (0..forward.steps.len()).find_map(|step| product(&forward, step)) else {
        return;
    };
    let reduced: Vec<usize> = forward
        .collectives()
        .iter()
        .filter(|(at, call)| {
            call.rule.op == "all_reduce" && call.input.is_some_and(|o| is_over_columns(&forward, o, *at, product))
        })
        .map(|(at, _)| *at)
        .collect();
    if reduced.len() < 2 || near::communicates(&backward) {
        return;
    }
    let name = forward.local_name(weight);
    let own = usize::from(forward.func.params.first().is_some_and(|p| p.name == "ctx"));
    let Some(slot) = forward.func.params.iter().position(|p| p.local == input).and_then(|at| at.checked_sub(own))
    else {
        return;
    };
    let Some((returned, made)) = given_back(&backward, slot, name) else { return };
    if !is_called_plainly(lint, class.at, slot) {
        return;
    }
    let mistake = Backwards::InputNotSummed {
        class: lint.project.class(class.at).name.clone(),
        input: forward.local_name(input).clone(),
        weight: name.clone(),
        reduced: forward.place(forward.steps[reduced[0]].id),
        made,
    };
    out.push((returned, Practice::Backwards(mistake)));
}

/// `e @ c.t()` of two parameters, with the variable for it.
fn product(view: &View<'_>, step: usize) -> Option<(LocalId, LocalId, LocalId)> {
    let Rvalue::Binary { op: BinOp::MatMul, left, right } = view.value(step)? else { return None };
    let Stmt::Assign { dst, .. } = view.steps[step].stmt else { return None };
    let param = |e: &Expr| match e {
        Expr::Local(l) if view.is_as_given(*l) => Some(*l),
        _ => None,
    };
    let turned = match view.expr(right) {
        Expr::Attr(base, name) if matches!(name.as_str(), "T" | "mT") => param(&base),
        Expr::Call { callee, .. } => match &*callee {
            Expr::Attr(base, name) if matches!(name.as_str(), "t" | "transpose") => param(base),
            _ => None,
        },
        _ => None,
    }?;
    Some((param(&view.expr(left))?, *dst, turned))
}

/// Whether a value that is reduced is one of each row of a product.
fn is_over_columns(view: &View<'_>, value: &Operand, at: usize, product: LocalId) -> bool {
    let Some(local) = near::local(value) else { return false };
    let Some(made) = view.last_def(local, at) else { return false };
    let Expr::Call { callee, .. } = view.bound(made, local) else { return false };
    callee.last_name().is_some_and(|name| OVER_COLUMNS.contains(&name)) && near::comes_from(view, value, product, 0)
}

/// Whether every application of a function gives it an input as its caller was given it.
fn is_called_plainly(lint: &Lint<'_>, class: ClassRef, slot: usize) -> bool {
    lint.naming(class).all(|site| {
        (0..site.steps.len()).all(|step| match site.value(step) {
            Some(Rvalue::CallMethod { base, name, args }) if name == "apply" => {
                let own = match site.through(base) {
                    Expr::Path(path) => matches!(site.project.path(&path), Resolved::Class(at) if at == class),
                    _ => false,
                };
                let as_given = |e: &Expr| matches!(e, Expr::Local(l) if site.is_as_given(*l));
                !own || args.get(slot).is_none_or(|a| as_given(&site.expr(&a.value)))
            }
            _ => true,
        })
    })
}

/// Where a backward returns the product of something with the weight in a slot, whatever its type is turned into, and where it makes that.
fn given_back(view: &View<'_>, slot: usize, weight: &str) -> Option<(Place, Place)> {
    let is_weight = |o: &Operand| {
        let mut expr = view.expr(o);
        while let Expr::Call { callee, .. } = expr {
            expr = match *callee {
                Expr::Attr(base, _) => *base,
                _ => return false,
            };
        }
        matches!(expr, Expr::Local(l) if view.local_name(l) == weight)
    };
    let is_product = |local: LocalId| {
        let made = |s: usize| match view.value(s) {
            Some(Rvalue::Binary { op: BinOp::MatMul, right, .. }) => {
                is_weight(right) && matches!(view.steps[s].stmt, Stmt::Assign { dst, .. } if *dst == local)
            }
            _ => false,
        };
        (0..view.steps.len()).find(|s| made(*s))
    };
    view.steps.iter().find_map(|step| {
        let Stmt::Return { value } = step.stmt else { return None };
        let (_, Rvalue::Build { kind: BuildKind::Tuple, items }) = view.source(value)? else { return None };
        let Item::One(given) = items.get(slot)? else { return None };
        let mut local = near::local(given)?;
        if let Some((_, Rvalue::CallMethod { base, name, .. })) = view.source(given)
            && matches!(name.as_str(), "to" | "type_as" | "view" | "reshape" | "view_as")
        {
            local = near::local(base)?;
        }
        is_product(local).map(|made| (view.place(step.id), view.place(view.steps[made].id)))
    })
}
