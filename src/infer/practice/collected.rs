//! Gradients that are put into a list in a loop over parameters, and summed afterwards: one by one, or flattened into one buffer.
//! In: a function and a collective in it. Out: where the gradients are put into the list, and the loop. Never: lists that something
//! else fills as well. Next: `reducers.rs`, which asks.

use super::expr::Expr;
use super::near;
use super::reducers::{is_gradient, is_parameter, parameter_loop};
use super::view::{CollectiveCall, View};
use crate::ir::{Arg, ArgKind, BinOp, LocalId, Operand, Rvalue, Stmt};

/// How far a buffer is followed back to its list.
const MOST_STEPS: usize = 8;
/// How many lists are made of each other.
const MOST_LISTS: usize = 3;
/// Methods that give the same numbers in another shape.
const SHAPES: &[&str] = &["reshape", "view", "flatten", "contiguous", "float", "detach"];

/// Where the gradients are put into the list that a step sums, itself or by a function that it hands the list to, and the loop over
/// parameters around that.
pub fn taken(view: &View<'_>, step: usize) -> Option<(usize, usize)> {
    let mut list = match view.collective(view.value(step)?) {
        Some(call) => summed(view, &call, &|local| is_list(view, local))?,
        None => handed(view, step)?,
    };
    // What a list is made of another one: `torch.cat([grad.reshape(-1) for grad in grads])`.
    for _ in 0..MOST_LISTS {
        let mut puts = (0..view.steps.len()).filter_map(|s| Some((s, put(view, s, list)?)));
        let (at, value) = puts.next()?;
        if puts.next().is_some() {
            return None;
        }
        match parameter_loop(view, at).filter(|_| holds_gradient(view, value)) {
            Some(head) => return Some((at, head)),
            None => list = reshaped(view, value).filter(|other| *other != list)?,
        }
    }
    None
}

/// Where parameters are put into the list that a step goes through, and the loop over all parameters around that.
pub fn chosen(view: &View<'_>, step: usize) -> Option<(usize, usize)> {
    view.steps[step].loops.iter().rev().find_map(|head| {
        let Stmt::For { iter, .. } = view.steps[*head].stmt else { return None };
        let list = near::local(iter).filter(|local| is_list(view, *local))?;
        let mut puts = (0..view.steps.len()).filter_map(|s| Some((s, put(view, s, list)?)));
        let (at, _) = puts.next().filter(|(_, value)| is_parameter(view, value))?;
        let all = parameter_loop(view, at)?;
        puts.next().is_none().then_some((at, all))
    })
}

/// What a comprehension that fills a list gives for each element of what, if nothing else fills it and no condition leaves any out.
pub fn comprehended(view: &View<'_>, list: LocalId) -> Option<(Expr, Expr)> {
    let mut puts = (0..view.steps.len()).filter_map(|s| Some((s, put(view, s, list)?)));
    let ((at, value), None) = (puts.next()?, puts.next()) else { return None };
    let head = *view.steps[at].loops.last()?;
    let Stmt::For { iter, .. } = view.steps[head].stmt else { return None };
    let plain = view.steps[at].guards.len() == view.steps[head].guards.len();
    (plain && is_list(view, list)).then(|| (view.through(iter), view.through(value)))
}

/// The list of which a value is an element in another shape.
fn reshaped(view: &View<'_>, value: &Operand) -> Option<LocalId> {
    let mut expr = view.through(value);
    while let Expr::Call { callee, .. } = &expr {
        let Expr::Attr(base, name) = &**callee else { return None };
        expr = if SHAPES.contains(&name.as_str()) { (**base).clone() } else { return None };
    }
    if let Expr::Local(local) = expr
        && let [one] = view.defs(local)
    {
        expr = view.bound(*one, local);
    }
    match expr {
        Expr::Element(inner) => match *inner {
            Expr::Local(list) if is_list(view, list) => Some(list),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a step puts the gradient of a parameter in hand into a list that a caller has given; the loop over parameters.
pub fn put_for_caller(view: &View<'_>, step: usize) -> Option<usize> {
    let lists = view.func.params.iter().map(|p| p.local).filter(|local| view.defs(*local).is_empty());
    let value = lists.filter_map(|list| put(view, step, list)).next()?;
    parameter_loop(view, step).filter(|_| holds_gradient(view, value))
}

/// Whether an operand is a gradient, or a variable that has one: `grad = param.main_grad`, `grad.data`.
pub fn holds_gradient(view: &View<'_>, operand: &Operand) -> bool {
    view.through(operand).any(&mut |part| match part {
        Expr::Local(local) => {
            let defs = view.defs(*local);
            !defs.is_empty() && defs.iter().all(|def| is_gradient(&view.bound(*def, *local)))
        }
        part => is_gradient(part),
    })
}

/// The list that a step hands to a function of the project that sums what is in it.
fn handed(view: &View<'_>, step: usize) -> Option<LocalId> {
    let Some(Rvalue::Call { callee, args }) = view.value(step) else { return None };
    let given = |arg: &Arg| match arg.value {
        Operand::Local(local) if arg.kind == ArgKind::Positional && is_list(view, local) => Some(local),
        _ => None,
    };
    let (at, list) = args.iter().enumerate().find_map(|(at, arg)| Some((at, given(arg)?)))?;
    let helper = near::shared(view, near::function(view, callee)?);
    let param = helper.func.params.get(at)?.local;
    let sums = |s: usize| {
        let call = helper.value(s).and_then(|value| helper.collective(value));
        call.is_some_and(|call| summed(&helper, &call, &|local| local == param).is_some())
    };
    (0..helper.steps.len()).any(sums).then_some(list)
}

/// The list whose elements a collective sums.
fn summed(view: &View<'_>, call: &CollectiveCall<'_>, is_list: &dyn Fn(LocalId) -> bool) -> Option<LocalId> {
    let sums = matches!(call.rule.op.as_str(), "all_reduce" | "reduce_scatter");
    list_of(view, call.input.filter(|_| sums)?, is_list)
}

/// The list of which an operand is an element, or a buffer made of all elements.
fn list_of(view: &View<'_>, operand: &Operand, is_list: &dyn Fn(LocalId) -> bool) -> Option<LocalId> {
    // The list of a comprehension that is made for the call.
    if let Some((_, Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.source(operand)
        && let Some(Operand::Local(local)) = args.first().map(|a| &a.value)
        && is_list(*local)
    {
        return Some(*local);
    }
    let mut expr = view.through(operand);
    for _ in 0..MOST_STEPS {
        expr = match expr {
            Expr::Local(local) if is_list(local) => return Some(local),
            Expr::Local(local) => match view.through(&Operand::Local(local)) {
                Expr::Local(_) => scaled(view, local)?,
                other => other,
            },
            Expr::Element(inner) | Expr::Item(inner, _) => *inner,
            Expr::Call { args, .. } => args.into_iter().next()?.1,
            _ => return None,
        };
    }
    None
}

/// What a variable is made of that is multiplied or divided in place afterwards: `flat = flatten(grads)` and `flat /= n`.
fn scaled(view: &View<'_>, local: LocalId) -> Option<Expr> {
    let (first, others) = view.defs(local).split_first()?;
    let in_place = |def: &usize| match view.value(*def) {
        Some(Rvalue::InPlace { op, left, .. }) => {
            matches!(op, BinOp::Mul | BinOp::Div) && *left == Operand::Local(local)
        }
        _ => false,
    };
    let made = view.bound(*first, local);
    (!others.is_empty() && others.iter().all(in_place) && !matches!(made, Expr::Local(_))).then_some(made)
}

/// Whether a variable is a list that starts empty and is never bound again.
fn is_list(view: &View<'_>, local: LocalId) -> bool {
    match view.defs(local) {
        [one] => matches!(view.value(*one), Some(Rvalue::Build { items, .. }) if items.is_empty()) || made(view, *one),
        _ => false,
    }
}

/// Whether a step binds the temporary list of a comprehension.
fn made(view: &View<'_>, step: usize) -> bool {
    match view.value(step) {
        Some(Rvalue::Use(Operand::Local(temp))) => match view.defs(*temp) {
            [one] => matches!(view.value(*one), Some(Rvalue::Build { items, .. }) if items.is_empty()),
            _ => false,
        },
        _ => false,
    }
}

/// What a step puts into a list.
fn put<'a>(view: &View<'a>, step: usize, list: LocalId) -> Option<&'a Operand> {
    let same = |l: LocalId| {
        let source = |d: &usize| matches!(view.value(*d), Some(Rvalue::Use(Operand::Local(temp))) if *temp == l);
        l == list || matches!(view.defs(list), [one] if source(one))
    };
    match (view.steps[step].stmt, view.value(step)) {
        (Stmt::Append { collection, value, .. }, _) if same(*collection) => Some(value),
        (_, Some(Rvalue::CallMethod { base: Operand::Local(base), name, args })) if name == "append" && same(*base) => {
            args.first().map(|a| &a.value)
        }
        _ => None,
    }
}
