//! Counts of all tokens that are given to a loss and that it never reads. In: a function that sums a count over the ranks and steps backward. Out:
//! the mean that a function of the project returns over the tokens of one rank, where the count of all of them is one of its arguments. Never: a
//! count that anything else reads, a loss that is weighed by counts afterwards, or a function that may be replaced by another. Source: verl, pull
//! request 3994. Next: `mean_of_own.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::lapses::Lapse;
use super::view::View;
use super::{Found, near};
use crate::ir::{ArgKind, BinOp, LocalId, Operand, Rvalue, Stmt, UnOp};
use crate::project::FuncRef;
use crate::source::{Name, Place};

/// Parts of names of counts.
const COUNTS: &[&str] = &["token", "count", "mask", "valid", "num", "numel", "weight", "len"];
/// Parts of names of numbers of rounds, which weigh all alike.
const ROUNDS: &[&str] = &["micro", "accum", "batches", "steps", "chunks"];
/// Methods that give the same number.
const SAME: &[&str] = &["item", "to", "float", "double", "detach", "clamp", "clamp_min", "clone"];

/// `all_reduce(count)`, then `loss_of(logits, labels, count).backward()`, where `loss_of` never reads it
pub fn given(view: &View<'_>, out: &mut Found) {
    for (summed, call) in view.collectives() {
        let Some(count) = call.input.and_then(near::local).filter(|_| call.rule.op == "all_reduce") else { continue };
        let other = |e: &Expr| e.any(&mut |e| e.is_other_reduction() || e.last_name() == Some("AVG"));
        if call.args.iter().any(|a| other(&view.expr(&a.value))) || !is_count(view, count, *summed) {
            continue;
        }
        // Where all ranks have equally many, or the same, their means are the mean.
        let file = view.file();
        let group =
            call.group.map(|group| view.expr(group)).and_then(|e| view.name_or_callee(&e).map(str::to_lowercase));
        let same_data = group.is_some_and(|g| ["tp", "tensor", "model"].iter().any(|part| near::has_part(&g, part)));
        if same_data || near::has_any(file, &["ones_like(", "torch.ones(", "broadcast("]) {
            continue;
        }
        for step in *summed + 1..view.steps.len() {
            let Some((function, parameter)) = takes(view, step, count) else { continue };
            let Some(mean) = own_mean(view, function, &parameter) else { continue };
            if !is_stepped(view, step) || !is_else_unread(view, count, *summed, step) {
                continue;
            }
            let mistake = Lapse::CountUnread {
                function: view.project.func(function).name.clone(),
                parameter,
                summed: view.place(view.steps[*summed].id),
                given: view.place(view.steps[step].id),
            };
            out.push((mean, Practice::Lapse(mistake)));
        }
    }
}

/// Whether a variable is a number of tokens, by its name or as the sum of a mask.
fn is_count(view: &View<'_>, count: LocalId, before: usize) -> bool {
    let name = view.local_name(count).to_lowercase();
    let counted = ["token", "count", "valid"].iter().any(|word| name.contains(word));
    let summed = || {
        let Some(def) = view.last_def(count, before) else { return false };
        let sums = |e: &Expr| match e {
            Expr::Call { callee, .. } => callee.last_name() == Some("sum"),
            _ => false,
        };
        view.bound(def, count).any(&mut |e| sums(e)) && view.text(view.place(view.steps[def].id)).contains("mask")
    };
    counted || summed()
}

/// The function that a step gives a count to, and the parameter that takes it.
fn takes(view: &View<'_>, step: usize, count: LocalId) -> Option<(FuncRef, Name)> {
    let Rvalue::Call { callee, args } = view.value(step)? else { return None };
    let at = args.iter().position(|a| is_same(view, &a.value, count, 0))?;
    if args.iter().any(|a| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar)) {
        return None;
    }
    let function = near::function(view, callee)?;
    let func = view.project.func(function);
    let parameter = match &args[at].kind {
        ArgKind::Keyword(name) => func.params.iter().find(|p| p.name == *name)?,
        _ => func.params.get(at)?,
    };
    (func.class.is_none() && !parameter.name.starts_with('_')).then(|| (function, parameter.name.clone()))
}

/// Whether an operand is the count, in another form at most.
fn is_same(view: &View<'_>, operand: &Operand, count: LocalId, depth: usize) -> bool {
    if near::local(operand) == Some(count) {
        return true;
    }
    match view.source(operand) {
        Some((_, Rvalue::CallMethod { base, name, .. })) if SAME.contains(&name.as_str()) => {
            depth < super::super::limits::MAX_VALUE_DEPTH && is_same(view, base, count, depth + 1)
        }
        _ => false,
    }
}

/// Where a function returns a mean of what it is given, if it never reads a parameter.
fn own_mean(view: &View<'_>, function: FuncRef, parameter: &Name) -> Option<Place> {
    let inner = near::shared(view, function);
    let local = inner.func.params.iter().find(|p| p.name == *parameter)?.local;
    let text = view.files[view.project.file(function.module)].whole();
    let before = text.get(..inner.func.span.start as usize)?.trim_end();
    let decorated = before.rsplit('\n').next().is_some_and(|line| line.trim_start().starts_with('@'));
    let code = inner.code();
    // The head names it once.
    let named = near::words(code, &parameter.to_lowercase()).count();
    if inner.is_read(local) || decorated || named != 1 || near::has_any(code, &["locals()", "raise notimplemented"]) {
        return None;
    }
    let mut returned = inner.steps.iter().filter_map(|s| match s.stmt {
        Stmt::Return { value } => Some(value),
        _ => None,
    });
    let (Some(value), None) = (returned.next(), returned.next()) else { return None };
    if near::communicates(&inner) {
        return None;
    }
    let value = match inner.through(value) {
        Expr::Build(all) => all.into_iter().next()?,
        other => other,
    };
    mean(&inner, &value, 0)
}

/// Where the mean is taken that an expression is.
fn mean(view: &View<'_>, expr: &Expr, depth: usize) -> Option<Place> {
    if depth > super::super::limits::MAX_VALUE_DEPTH {
        return None;
    }
    let sum = |e: &Expr| matches!(near::deep(view, e), Expr::Call { callee, .. } if matches!(callee.last_name(), Some("sum" | "masked_sum")));
    match near::deep(view, expr) {
        Expr::Unary(UnOp::Neg, of) => mean(view, &of, depth + 1),
        Expr::Call { callee, step, .. } => {
            let name = callee.last_name()?;
            (name == "mean" || name == "masked_mean").then(|| view.place(view.steps[step].id))
        }
        Expr::Binary(BinOp::Div, a, b) => {
            let a = match near::deep(view, &a) {
                Expr::Unary(UnOp::Neg, of) => near::deep(view, &of),
                other => other,
            };
            let Expr::Call { step, .. } = a else { return None };
            let floor = |e: &Expr| match near::deep(view, e) {
                Expr::Call { callee, .. } => match *callee {
                    Expr::Attr(of, name) if SAME.contains(&name.as_str()) => sum(&of),
                    _ => false,
                },
                _ => false,
            };
            (sum(&a) && (sum(&b) || floor(&b))).then(|| view.place(view.steps[step].id))
        }
        _ => None,
    }
}

/// Whether the backward starts at what a step gives, and no count weighs that on the way.
fn is_stepped(view: &View<'_>, call: usize) -> bool {
    let [made] = view.binds(call)[..] else { return false };
    let back = (call..view.steps.len()).find(|step| match view.value(*step) {
        Some(Rvalue::CallMethod { base, name, args }) if name == "backward" => {
            let loss = args.first().map_or(base, |a| &a.value);
            near::comes_from(view, base, made, call) || near::comes_from(view, loss, made, call)
        }
        _ => false,
    });
    let Some(back) = back else { return false };
    let weighs = |operand: &Operand| {
        let expr = view.expr(operand);
        let named = |name: &str| {
            let name = name.to_lowercase();
            near::has_any(&name, COUNTS) && !near::has_any(&name, ROUNDS)
        };
        let counted = |e: &Expr| view.name_of(e).is_some_and(named) || e.call_of("sum").is_some();
        expr.any(&mut |e| counted(e)) || near::deep(view, &expr).any(&mut |e| counted(e))
    };
    (call + 1..back).all(|step| match view.value(step) {
        Some(Rvalue::Binary { op, left, right } | Rvalue::InPlace { op, left, right }) => {
            let of = |o: &Operand| near::comes_from(view, o, made, call);
            let scales = matches!(op, BinOp::Mul | BinOp::Div);
            !scales || !(of(left) && weighs(right) || of(right) && weighs(left))
        }
        _ => true,
    })
}

/// Whether nothing else is done with a count than to sum it and hand it to one function.
fn is_else_unread(view: &View<'_>, count: LocalId, summed: usize, call: usize) -> bool {
    let captured = view.func.locals()[count].kind == crate::ir::LocalKind::Cell;
    let same = |step: usize| matches!(view.value(step), Some(Rvalue::CallMethod { name, .. }) if SAME.contains(&name.as_str()));
    let other = |step: &usize| {
        *step != summed && *step != call && !view.binds(*step).contains(&count) && !near::only_tells(view, *step)
            // What it is put into another form for.
            && !(same(*step) && view.binds(*step).iter().all(|l| view.readers(*l).iter().all(|s| *s == call)))
    };
    !captured && !view.readers(count).iter().any(other)
}
