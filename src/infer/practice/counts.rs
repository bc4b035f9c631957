//! Sums over all ranks divided by a count of one. In: a function. Out: the division, at the count. Never: without evidence that the count
//! differs between the ranks: a comment, or the same labels in the summed value and in the count. Source: DESIGN.md section 7.
//! Next: `gradient/mod.rs` for [`root`].

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::gradient::root;
use super::hints::{Says, hints};
use super::raw::raw;
use super::reducing::{self, Reduced};
use super::view::View;
use crate::ir::{Arg, BinOp, Const, LocalId, Operand, Rvalue, Stmt};
use crate::rules::Form;
use rustc_hash::FxHashSet;

/// What a value is computed from, as far as the operations are known.
#[derive(Default)]
pub(super) struct Slice {
    pub locals: FxHashSet<LocalId>,
    /// Steps that sum.
    pub sums: Vec<usize>,
    /// A function adds up, or a product of matrices.
    pub adds: bool,
    /// Steps that communicate, the input of each.
    pub collectives: Vec<(usize, Option<Operand>)>,
    /// Something in it is not known, or knows of other ranks.
    pub open: bool,
}

pub fn local_counts(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some((left, right)) = quotient(view, i) else { continue };
        let count = slice(view, right);
        let Some(counted) = count.sums.iter().min().copied() else { continue };
        let knows = |l: &LocalId| ["world", "size", "ranks", "global"].iter().any(|w| view.local_name(*l).contains(w));
        let others = count.open || count.locals.iter().any(knows);
        if others || !count.collectives.is_empty() || !counts(view, counted) {
            continue;
        }
        let sum = slice(view, left);
        // A count over the same count is a number of times.
        let text = |step: usize| view.text(view.place(view.steps[step].id));
        if !sum.sums.is_empty() && sum.sums.iter().all(|step| *step == counted || text(*step) == text(counted)) {
            continue;
        }
        let place = view.place(view.steps[counted].id);
        // What was divided or copied before the sum is this rank's own.
        let summed = |at: usize| at < i && !copied_before(view, left, at);
        if let Some((at, _)) = sum.collectives.iter().filter(|(at, _)| summed(*at)).find(|(at, input)| {
            evident(view, *at, input.as_ref(), &sum, &count) || counted_together(view, counted, *at)
        }) {
            let practice = Practice::LocalCount {
                divided: view.place(step.id),
                reduced: Some(view.place(view.steps[*at].id)),
                comment: None,
            };
            out.push((place, practice));
        } else if sum.collectives.is_empty()
            && !sum.sums.is_empty()
            && is_loss(view, i)
            && let Some(comment) = averaged(view)
        {
            let practice = Practice::LocalCount { divided: view.place(step.id), reduced: None, comment: Some(comment) };
            out.push((place, practice));
        }
    }
}

/// Whether a value is a copy that was made before a step.
pub(super) fn copied_before(view: &View<'_>, value: &Operand, at: usize) -> bool {
    match view.through(value) {
        Expr::Call { callee, step, .. } => {
            let copies =
                matches!(&*callee, Expr::Attr(_, name) if matches!(name.as_str(), "clone" | "item" | "tolist"));
            copies && step < at && !is_input(view, value, at)
        }
        _ => false,
    }
}

/// Whether a variable is what a collective reduces in place.
fn is_input(view: &View<'_>, value: &Operand, at: usize) -> bool {
    let call = view.value(at).and_then(|v| view.collective(v));
    call.is_some_and(|c| c.rule.form == Form::InPlace && c.input == Some(value))
}

pub(super) fn quotient<'a>(view: &View<'a>, step: usize) -> Option<(&'a Operand, &'a Operand)> {
    match view.value(step)? {
        Rvalue::Binary { op: BinOp::Div, left, right } | Rvalue::InPlace { op: BinOp::Div, left, right } => {
            Some((left, right))
        }
        Rvalue::CallMethod { base, name, args } if matches!(name.as_str(), "div" | "div_" | "true_divide") => {
            Some((base, &args.first()?.value))
        }
        _ => None,
    }
}

/// Whether what a step sums is a mask: a comparison, or named so.
fn counts(view: &View<'_>, step: usize) -> bool {
    let Some(Rvalue::CallMethod { base, .. }) = view.value(step) else { return false };
    is_mask(view, &view.expr(base)) || is_mask(view, &view.through(base))
}

pub(super) fn is_mask(view: &View<'_>, e: &Expr) -> bool {
    match e {
        Expr::Compare(..) => true,
        Expr::Local(l) => view.local_name(*l).contains("mask"),
        Expr::Attr(base, name) => name.contains("mask") || is_mask(view, base),
        Expr::Item(_, key) => key.string().is_some_and(|k| k.contains("mask")),
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(base, _) => is_mask(view, base),
            _ => false,
        },
        _ => false,
    }
}

/// Whether the count is known to differ between the ranks of a collective that the sum goes through.
fn evident(view: &View<'_>, at: usize, input: Option<&Operand>, sum: &Slice, count: &Slice) -> bool {
    let Some(input) = input else { return false };
    let before = slice_until(view, input, at);
    if !before.collectives.is_empty() {
        return false;
    }
    let labels = |l: &LocalId| !view.is_temp(*l) && count.locals.contains(l);
    if !sum.open && !before.open && before.locals.iter().any(labels) && (gathers(view, at) || over_data(view, at)) {
        return true;
    }
    let said: Vec<LocalId> = hints(view)
        .into_iter()
        .filter(|h| h.says == Says::Varies && h.shards.is_empty())
        .flat_map(|h| h.locals)
        .collect();
    before.locals.iter().any(|l| said.contains(l)) && count.locals.iter().any(|l| said.contains(l))
}

/// Whether the function has counted the same mask over the ranks of a sum: `all_reduce(stack([x.sum(), mask.sum()]), group=g)`.
fn counted_together(view: &View<'_>, counted: usize, at: usize) -> bool {
    let mask = |step: usize| match view.value(step) {
        Some(Rvalue::CallMethod { base, .. }) => root(view, base),
        _ => None,
    };
    let whole = |step: usize| match view.value(step) {
        Some(Rvalue::CallMethod { args, .. }) => args.is_empty(),
        _ => false,
    };
    let group = |step: usize| {
        let call = view.collective(view.value(step)?)?;
        let sums = call.rule.op == "all_reduce" && !call.args.iter().any(|a| takes_extreme(view, &a.value));
        sums.then(|| call.group.map(|g| view.through(g)))
    };
    let (Some(of), Some(over), true) = (mask(counted), group(at), whole(counted)) else { return false };
    if view.is_temp(of) || !view.is_param(of) || !view.defs(of).is_empty() {
        return false;
    }
    view.collectives().iter().any(|(step, call)| {
        let alike = *step != at && group(*step).as_ref() == Some(&over);
        let sums = || call.input.map(|input| slice_until(view, input, *step).sums).unwrap_or_default();
        alike && sums().into_iter().any(|s| s != counted && whole(s) && mask(s) == Some(of))
    })
}

fn takes_extreme(view: &View<'_>, o: &Operand) -> bool {
    matches!(view.through(o).last_name(), Some("MAX" | "MIN" | "AVG" | "PRODUCT"))
}

fn gathers(view: &View<'_>, at: usize) -> bool {
    let named = |n: &str| n.to_lowercase().contains("gather");
    match view.value(at) {
        Some(Rvalue::CallMethod { base, .. }) => view.through(base).last_name().is_some_and(named),
        _ => false,
    }
}

/// Whether a reduction sums over ranks that hold different tokens: all of them, or a group that is named so.
pub(super) fn over_data(view: &View<'_>, at: usize) -> bool {
    let Some(call) = view.value(at).and_then(|v| view.collective(v)) else {
        return reducing::of_call(view, at) == Some(Reduced::Sum);
    };
    let other =
        call.args.iter().any(|a| matches!(view.through(&a.value).last_name(), Some("MAX" | "MIN" | "AVG" | "PRODUCT")));
    let named = call.group.is_none_or(|g| {
        let name = match view.through(g) {
            Expr::Local(l) => view.local_name(l).to_string(),
            Expr::Call { callee, .. } => callee.last_name().unwrap_or("").to_string(),
            other => other.last_name().unwrap_or("").to_string(),
        };
        let words: Vec<&str> = name.split('_').collect();
        ["dp", "data", "cp", "context", "sp", "sequence", "world"].iter().any(|w| words.contains(w))
    });
    call.rule.op == "all_reduce" && !other && named
}

/// Whether gradients are taken of a quotient.
fn is_loss(view: &View<'_>, step: usize) -> bool {
    let Stmt::Assign { dst, .. } = view.steps[step].stmt else { return false };
    (0..view.steps.len()).any(|i| match view.value(i) {
        Some(Rvalue::CallMethod { base, name, .. }) => name == "backward" && root(view, base) == Some(*dst),
        _ => false,
    })
}

/// How comments say that gradients are averaged.
pub const AVERAGED: &[&str] = &["averages", "averaged", "takes the mean", "means the"];

/// One of these, a helper that reduces, or something that communicates, stands in a function whose counts are looked at.
pub const EVIDENT: &[&str] = &["averages", "averaged", "takes the mean", "means the", ".apply", "reduce"];

/// A comment of the function that says that gradients are averaged over ranks.
fn averaged(view: &View<'_>) -> Option<crate::source::Place> {
    let text = view.text(view.spot(view.func.span));
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if let Some(at) = line.find('#') {
            let comment = line[at..].to_lowercase();
            let wraps = ["fsdp", "ddp", "data parallel", "data-parallel"].iter().any(|w| comment.contains(w));
            if wraps && AVERAGED.iter().any(|w| comment.contains(w)) {
                let from = view.func.span.start + (start + at) as u32;
                let to = view.func.span.start + (start + line.trim_end().len()) as u32;
                return Some(view.spot(crate::source::Span::new(from, to)));
            }
        }
        start += line.len();
    }
    None
}

pub(super) fn slice(view: &View<'_>, o: &Operand) -> Slice {
    slice_until(view, o, view.steps.len())
}

/// The steps before one that write to a variable without binding it, and to which: reductions in place or into it, and what is appended.
fn writes(view: &View<'_>, until: usize) -> Vec<(usize, LocalId)> {
    let written = |at: usize| match view.steps[at].stmt {
        Stmt::Append { collection, .. } => Some(*collection),
        Stmt::Assign { value, .. } => root(view, raw(view, value)?.buffer?),
        _ => None,
    };
    (0..until).filter_map(|at| Some((at, written(at)?))).collect()
}

/// What an operand is computed from by the steps before one.
pub(super) fn slice_until(view: &View<'_>, o: &Operand, until: usize) -> Slice {
    let mut out = Slice::default();
    let mut todo: Vec<Operand> = vec![o.clone()];
    let until = until.min(view.steps.len());
    let others = writes(view, until);
    while let Some(next) = todo.pop() {
        let Operand::Local(local) = next else { continue };
        if !out.locals.insert(local) {
            continue;
        }
        let written = others.iter().filter(|(_, into)| *into == local).map(|(at, _)| *at);
        let mut at: Vec<usize> = view.defs(local).iter().copied().filter(|at| *at < until).chain(written).collect();
        at.sort_unstable();
        at.dedup();
        for at in at {
            match view.steps[at].stmt {
                Stmt::Append { value, .. } | Stmt::Unpack { value, .. } => todo.push(value.clone()),
                Stmt::Assign { dst, value } if *dst == local => follow(view, at, value, &mut out, &mut todo),
                Stmt::Assign { value, .. } => {
                    let input = view.collective(value).and_then(|c| c.input.cloned());
                    todo.extend(input.clone());
                    out.collectives.push((at, input));
                }
                Stmt::For { iter, dst, .. } if *dst == local => todo.push(iter.clone()),
                _ => {}
            }
        }
    }
    out
}

fn follow<'a>(view: &View<'a>, at: usize, value: &'a Rvalue, out: &mut Slice, todo: &mut Vec<Operand>) {
    match value {
        Rvalue::Call { args, callee } => {
            if let Operand::Global(name) = callee
                && matches!(
                    name.as_str(),
                    "max" | "min" | "sum" | "int" | "float" | "zip" | "enumerate" | "list" | "abs"
                )
            {
                todo.extend(args.iter().map(|a| a.value.clone()));
                return;
            }
            let path = view.callee(value);
            out.adds |= path.as_ref().is_some_and(|p| adds_up(p));
            if path.as_ref().is_some_and(|p| view.rules.op(p).is_some()) {
                todo.extend(args.iter().map(|a| a.value.clone()));
            } else {
                called(view, at, value, out, todo);
            }
        }
        Rvalue::CallMethod { base, name, args } => {
            out.adds |= adds_up(name);
            let method = !matches!(view.through(base), Expr::Path(_));
            if method && view.rules.tensor_method(name).is_some() {
                if matches!(name.as_str(), "sum" | "count_nonzero") {
                    out.sums.push(at);
                }
                todo.push(base.clone());
                todo.extend(args.iter().map(|a| a.value.clone()));
            } else if view.callee(value).is_some_and(|p| view.rules.op(&p).is_some()) {
                todo.extend(args.iter().map(|a| a.value.clone()));
            } else if method && taken_by_name(view, name, args) {
                todo.push(base.clone());
            } else {
                called(view, at, value, out, todo);
            }
        }
        other => {
            out.adds |= matches!(other, Rvalue::Binary { op: BinOp::MatMul, .. });
            todo.extend(other.operands().into_iter().cloned());
        }
    }
}

/// Whether a method takes what stands under a name, as an index does: `batch.pop("labels")`.
fn taken_by_name(view: &View<'_>, name: &str, args: &[Arg]) -> bool {
    let by_name = |arg: &Arg| matches!(view.expr(&arg.value), Expr::Const(Const::Str(_)));
    matches!(name, "pop" | "get") && matches!(args, [one] if by_name(one))
}

/// Whether an operation adds up what it is given, by the end of its name.
fn adds_up(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    matches!(
        last,
        "sum" | "count_nonzero" | "matmul" | "mm" | "bmm" | "einsum" | "bincount" | "index_add_" | "scatter_add_"
    )
}

/// A call that is no operation of tensors: a collective, an autograd function that gathers, or anything.
fn called<'a>(view: &View<'a>, at: usize, value: &'a Rvalue, out: &mut Slice, todo: &mut Vec<Operand>) {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return };
    let first = args.first().map(|a| a.value.clone());
    if let Rvalue::CallMethod { base, name, .. } = value
        && name == "apply"
        && view.through(base).last_name().is_some_and(|n| n.to_lowercase().contains("gather"))
    {
        out.collectives.push((at, first.clone()));
        todo.extend(first);
        return;
    }
    let path = view.callee(value);
    let rule = path.as_ref().and_then(|p| match view.rules.get(p) {
        Some(crate::rules::Entry::Collective(rule)) => Some(rule.clone()),
        _ => None,
    });
    if rule.is_some_and(|r| r.form == Form::Result) || reducing::of_call(view, at).is_some() {
        out.collectives.push((at, first.clone()));
        todo.extend(first);
        return;
    }
    out.open = true;
}
