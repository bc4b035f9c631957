//! Collectives in the order of a set. In: a function. Out: a collective in a loop over a set of strings, or of objects that it is itself about:
//! their order is that of hashes, which each process chooses for itself. Never: a set that is sorted by more than constants, or one of which
//! nothing says what it holds: numbers come in the same order everywhere.
//! Source: Python, `PYTHONHASHSEED`, and objects whose hash is their address. Next: `raw.rs`.

use super::Found;
use super::coming::Coming;
use super::expr::Expr;
use super::found::Practice;
use super::lost::last;
use super::near;
use super::raw::{Sort, raw};
use super::view::View;
use crate::ir::{ArgKind, BinOp, BuildKind, CmpOp, FuncKind, LocalId, Operand, Rvalue, Stmt};
use crate::project::{FuncRef, Resolved};
use crate::source::Name;

/// A part of the text of every function that makes a set by name.
pub const WORDS: &[&str] = &["set(", "{"];

/// Methods that give a set of a set.
const METHODS: &[&str] = &["union", "intersection", "difference", "symmetric_difference", "copy"];

/// Functions that give the elements of a set in its order.
const SAME_ORDER: &[&str] = &["list", "tuple", "enumerate", "iter"];

/// Methods of strings.
const OF_STRINGS: &[&str] = &[
    "startswith",
    "endswith",
    "split",
    "rsplit",
    "replace",
    "lower",
    "upper",
    "strip",
    "removeprefix",
    "removesuffix",
];

/// How far a set is followed.
const MOST: usize = 5;

pub fn loops(view: &View<'_>, out: &mut Found) {
    for (at, step) in view.steps.iter().enumerate() {
        let Stmt::For { dst, iter, .. } = step.stmt else { continue };
        if !is_set(view, iter, 0) {
            continue;
        }
        let element = element(view, iter, *dst, at);
        let inside = (at + 1..view.steps.len()).filter(|i| view.steps[*i].loops.contains(&at));
        let mut calls = inside.filter_map(|i| Some((i, communicates(view, i)?)));
        let found = calls.find(|(i, _)| {
            is_about(view, *i, element) || depends(view, *i, element) && holds_strings(view, at, element)
        });
        if let Some((i, collective)) = found {
            let sorted = sorted_by_few(view, iter).map(|def| view.place(view.steps[def].id));
            let mistake = Coming::SetOrder { collective, call: view.place(view.steps[i].id), sorted };
            out.push((view.part(step.id, 0), Practice::Coming(mistake)));
        }
    }
}

/// The variable that an element of the set is bound to: behind `enumerate`, the second.
fn element(view: &View<'_>, iter: &Operand, dst: LocalId, at: usize) -> LocalId {
    if view.expr(iter).call_of("enumerate").is_none() {
        return dst;
    }
    let unpacked = view.steps.get(at + 1).map(|s| s.stmt);
    match unpacked {
        Some(Stmt::Unpack { value: Operand::Local(whole), before, .. }) if *whole == dst && before.len() == 2 => {
            before[1]
        }
        _ => dst,
    }
}

fn is_set(view: &View<'_>, operand: &Operand, depth: usize) -> bool {
    let Operand::Local(local) = operand else { return false };
    let defs = view.defs(*local);
    let sorted = |i: &usize| matches!(view.value(*i), Some(Rvalue::CallMethod { base, name, .. }) if name == "sort" && base == operand);
    !view.is_param(*local)
        && depth < MOST
        && !view.readers(*local).iter().any(sorted)
        && !defs.is_empty()
        && defs.iter().all(|def| view.value(*def).is_some_and(|value| gives_set(view, value, *local, depth + 1)))
}

fn gives_set<'a>(view: &View<'a>, value: &'a Rvalue, own: LocalId, depth: usize) -> bool {
    // What a variable held before, which the other definitions say.
    let set = |o: &Operand| *o == Operand::Local(own) || is_set(view, o, depth);
    match value {
        Rvalue::Use(o) => set(o),
        Rvalue::Build { kind: BuildKind::Set, items } => items.len() != 1,
        Rvalue::Binary { op, left, right } | Rvalue::InPlace { op, left, right } => {
            matches!(op, BinOp::BitOr | BinOp::BitAnd | BinOp::BitXor | BinOp::Sub) && set(left) && set(right)
        }
        Rvalue::CallMethod { base, name, .. } => METHODS.contains(&name.as_str()) && set(base),
        Rvalue::Call { args, .. } => {
            let Some(path) = view.callee(value) else { return false };
            match path.trim_start_matches("builtins.") {
                "set" | "frozenset" => true,
                "sorted" => args.len() == 2 && set(&args[0].value) && is_coarse(view, &args[1].value),
                name => SAME_ORDER.contains(&name) && args.first().is_some_and(|a| set(&a.value)),
            }
        }
        _ => false,
    }
}

/// Where what a loop goes through is sorted, by a key that leaves much as it was.
fn sorted_by_few(view: &View<'_>, iter: &Operand) -> Option<usize> {
    let Operand::Local(local) = iter else { return None };
    let sorts = |def: &usize| view.bound(*def, *local).call_of("sorted").is_some();
    view.defs(*local).iter().rev().copied().find(sorts)
}

/// Whether a key of a sort gives one of a few constants: elements of the same key stay in their order.
fn is_coarse(view: &View<'_>, key: &Operand) -> bool {
    let Some(at) = near::function(view, key) else { return false };
    let inner = near::shared(view, at);
    let constant = |e: &Expr| match e {
        Expr::Const(_) => true,
        Expr::Choice(_, a, b) => [a, b].into_iter().all(|e| matches!(**e, Expr::Const(_))),
        Expr::Compare(op, ..) => matches!(op, CmpOp::In | CmpOp::NotIn | CmpOp::Eq | CmpOp::Ne),
        _ => false,
    };
    let mut returned = inner.steps.iter().filter_map(|s| match s.stmt {
        Stmt::Return { value } => Some(inner.expr(value)),
        _ => None,
    });
    inner.func.kind == FuncKind::Lambda && returned.all(|e| constant(&e))
}

/// Whether the body of a loop takes its variable for a string.
fn holds_strings(view: &View<'_>, at: usize, element: LocalId) -> bool {
    let is = |o: &Operand| *o == Operand::Local(element);
    let text = |o: &Operand| view.expr(o).string().is_some();
    view.readers(element).iter().filter(|i| view.steps[**i].loops.contains(&at)).any(|i| match view.value(*i) {
        Some(Rvalue::CallMethod { base, name, .. }) => is(base) && OF_STRINGS.contains(&name.as_str()),
        Some(Rvalue::Compare { op, left, right }) => match op {
            CmpOp::Eq | CmpOp::Ne => is(left) && text(right) || is(right) && text(left),
            CmpOp::In | CmpOp::NotIn => text(left) && is(right),
            _ => false,
        },
        Some(Rvalue::Binary { op: BinOp::Add, left, right }) => is(left) && text(right) || is(right) && text(left),
        Some(Rvalue::Call { args, .. }) => {
            let name = view.value(*i).and_then(|value| view.callee(value));
            let asks =
                name.is_some_and(|n| matches!(n.trim_start_matches("builtins."), "getattr" | "hasattr" | "setattr"));
            asks && args.get(1).is_some_and(|a| is(&a.value))
        }
        _ => false,
    })
}

/// Whether a collective is given an element, or an attribute of it: a tensor, a parameter or a group, whose hash is its address.
fn is_about(view: &View<'_>, step: usize, element: LocalId) -> bool {
    let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step) else { return false };
    // A rank, as the root of a broadcast is, is a number.
    let mut positional = 0;
    args.iter().any(|a| {
        let first = a.kind == ArgKind::Positional && positional == 0;
        positional += usize::from(a.kind == ArgKind::Positional);
        let about = first || matches!(&a.kind, ArgKind::Keyword(k) if k == "group" || k == "tensor");
        let value = match view.expr(&a.value) {
            Expr::Attr(base, name) if matches!(name.as_str(), "grad" | "data" | "main_grad") => *base,
            other => other,
        };
        about && value == Expr::Local(element)
    })
}

/// Whether what a collective is given follows from an element.
fn depends(view: &View<'_>, step: usize, element: LocalId) -> bool {
    let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step) else { return false };
    args.iter().any(|a| near::roots(view, &a.value).contains(&element))
}

/// The collective that a step is, itself or as the function of the project that wraps it under the same name.
fn communicates(view: &View<'_>, step: usize) -> Option<Name> {
    let value = view.value(step)?;
    if let Some(call) = raw(view, value) {
        return (call.sort == Sort::Everyone).then_some(call.name);
    }
    if let Some(call) = view.collective(value) {
        return Some(last(&call.rule.name));
    }
    if !view.may_communicate(value) {
        return None;
    }
    let path = view.callee(value)?;
    let Resolved::Func(at) = view.project.path(&path) else { return None };
    let name = last(&path);
    wraps(view, at, &name).then_some(name)
}

/// Whether a function of the project calls the collective of its own name.
fn wraps(view: &View<'_>, at: FuncRef, name: &Name) -> bool {
    let inner = near::shared(view, at);
    (0..inner.steps.len()).any(|i| {
        inner.value(i).and_then(|value| raw(&inner, value)).is_some_and(|c| c.sort == Sort::Everyone && c.name == *name)
    })
}
