//! Backwards of gathers that give every rank the gradient of the first one. In: a class. Out: the first of the parts into which the backward
//! cuts the gradient, where the forward gathered. Never: a backward that knows of ranks, offsets or padding, or cuts into a number of parts
//! that is written out. Source: torch.distributed, `all_gather`: the part of rank i stands at place i. Next: `backwards.rs`.

use super::backwards::{Backwards, methods};
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::view::View;
use super::{Class, Found, Lint};
use crate::ir::{BinOp, BuildKind, Const, Item, LocalId, Operand, Rvalue, Stmt};
use crate::project::Resolved;

/// Words of a backward that may know which part is its own, or of a forward whose parts are not one after the other.
const KNOWS: &[&str] =
    &["rank", "offset", "start", "index", "coord", "pad", "reduce_scatter", "all_to_all", "recv", "scatter", "seq_idx"];

/// Methods that leave what a value is.
const KEEPS: &[&str] = &["contiguous", "clone", "to", "type_as", "float", "detach"];

const MOST_DEPTH: usize = 8;

/// `return grad.chunk(world, dim=ctx.dim)[0], None, None`
pub(super) fn of_first<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let Some((forward, backward)) = methods(lint, class) else { return };
    let file = &lint.files[lint.project.file(class.at.module)];
    let cuts = file.slice(lint.project.func(backward).span);
    if !["[0]", "[:", "[ :", "narrow("].iter().any(|w| cuts.contains(w)) || !file.whole().contains("gather") {
        return;
    }
    let (forward, backward) = (lint.view(forward), lint.view(backward));
    let code = backward.code();
    if KNOWS.iter().any(|w| code.contains(w)) || forward.code().contains("pad") || forward.code().contains("scatter") {
        return;
    }
    let Some(gathered) = gathers(lint, &forward) else { return };
    let Some(grad) = backward.func.params.get(1).map(|p| p.local) else { return };
    for step in &backward.steps {
        let Stmt::Return { value } = step.stmt else { continue };
        let first = match backward.source(value) {
            Some((_, Rvalue::Build { kind: BuildKind::Tuple, items })) => match items.first() {
                Some(Item::One(first)) => first,
                _ => continue,
            },
            _ => value,
        };
        if let Some(cut) = first_part(&backward, first, grad, 0) {
            let class = lint.project.class(class.at).name.clone();
            let mistake = Backwards::FirstPart { class, gathered, returned: backward.place(step.id) };
            out.push((backward.place(backward.steps[cut].id), Practice::Backwards(mistake)));
        }
    }
}

/// Where a forward gathers, itself or in a function that it calls; nothing if it communicates in another way as well.
fn gathers(lint: &Lint<'_>, forward: &View<'_>) -> Option<crate::source::Place> {
    let mut found = None;
    let given = forward.func.params.get(1)?.local;
    // The input whose gradient is looked at is what is gathered, and nothing beside it.
    let is_input = |o: &Operand| match near::deep(forward, &forward.expr(o)) {
        Expr::Call { callee, .. } => matches!(&*callee, Expr::Attr(of, name)
            if KEEPS.contains(&name.as_str()) && **of == Expr::Local(given)),
        other => other == Expr::Local(given),
    };
    for step in 0..forward.steps.len() {
        let Some(value) = forward.value(step) else { continue };
        let gather = match forward.collective(value) {
            Some(call) if call.rule.op == "all_gather" => call.input.is_some_and(is_input),
            Some(_) => return None,
            None => match forward.callee(value).map(|path| lint.project.path(&path)) {
                Some(Resolved::Func(at)) => {
                    let inner = near::other(forward, at);
                    let ops: Vec<bool> =
                        inner.collectives().iter().map(|(_, call)| call.rule.op == "all_gather").collect();
                    if ops.contains(&false) || inner.code().contains("pad") {
                        return None;
                    }
                    let args = match value {
                        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => args.first(),
                        _ => None,
                    };
                    !ops.is_empty() && args.is_some_and(|a| is_input(&a.value))
                }
                _ => false,
            },
        };
        if gather {
            found.get_or_insert(forward.place(forward.steps[step].id));
        }
    }
    found
}

/// The step that takes the first part of a gradient, if that is what an operand is on every way.
fn first_part(view: &View<'_>, operand: &Operand, grad: LocalId, depth: usize) -> Option<usize> {
    let Operand::Local(local) = operand else { return None };
    // What was bound last, where all of it is in one line.
    let step = view.defs(*local).last().copied().filter(|_| depth < MOST_DEPTH)?;
    let value = view.value(step)?;
    let straight = |s: &usize| view.steps[*s].guards.is_empty() && view.steps[*s].loops.is_empty();
    if !view.defs(*local).iter().all(straight) || view.is_param(*local) {
        return None;
    }
    let first = |o: &Operand| matches!(o, Operand::Const(Const::Int(0)));
    let of_grad = |o: &Operand| is_gradient(view, o, grad, depth);
    match value {
        Rvalue::Use(of) => first_part(view, of, grad, depth + 1),
        Rvalue::CallMethod { base, name, .. } if KEEPS.contains(&name.as_str()) => {
            first_part(view, base, grad, depth + 1)
        }
        Rvalue::CallMethod { base, name, args } if name == "narrow" => {
            let start = view.argument(args, 1, "start")?;
            let whole = !matches!(view.argument(args, 2, "length"), Some(Operand::Const(_)) | None);
            (first(start) && whole && of_grad(base)).then_some(step)
        }
        Rvalue::Item { base, index } if first(index) => parts(view, base, &of_grad).then_some(step),
        Rvalue::Item { base, index } => {
            let bounds = slice(view, index)?;
            let from_start = bounds.first().is_some_and(|o| first(o) || matches!(o, Operand::Const(Const::None)));
            let some = matches!(bounds.get(1), Some(Operand::Local(_)));
            (from_start && some && of_grad(base)).then_some(step)
        }
        _ => None,
    }
}

/// Whether a value is the incoming gradient, or its product with something, in as many rows.
fn is_gradient(view: &View<'_>, operand: &Operand, grad: LocalId, depth: usize) -> bool {
    if *operand == Operand::Local(grad) {
        return true;
    }
    let Operand::Local(local) = operand else { return false };
    let Some((_, value)) = view.source(operand).filter(|_| depth < MOST_DEPTH) else {
        // Bound anew to itself: `grad = grad.contiguous()`.
        return *local == grad;
    };
    let inner = |o: &Operand| is_gradient(view, o, grad, depth + 1);
    match value {
        Rvalue::Use(of) => inner(of),
        Rvalue::CallMethod { base, name, .. } => (KEEPS.contains(&name.as_str()) || name == "matmul") && inner(base),
        Rvalue::Binary { op: BinOp::MatMul | BinOp::Mul | BinOp::Div, left, .. } => inner(left),
        _ => false,
    }
}

/// Whether a value is a list of the parts of a gradient, as many as something that is not written out.
fn parts(view: &View<'_>, list: &Operand, of_grad: &dyn Fn(&Operand) -> bool) -> bool {
    let Some((_, value)) = view.source(list) else { return false };
    let (name, whole, args, at) = match value {
        Rvalue::CallMethod { base, name, args } if !matches!(view.expr(base), Expr::Path(_)) => {
            (name.to_string(), base, args, 0)
        }
        Rvalue::Call { callee, args } | Rvalue::CallMethod { base: callee, args, .. } => {
            let Some(path) = view.callee(value) else { return false };
            let _ = callee;
            let Some(first) = args.first() else { return false };
            (path.rsplit('.').next().unwrap_or_default().to_string(), &first.value, args, 1)
        }
        _ => return false,
    };
    let counted = args.get(at).is_some_and(|a| !matches!(view.through(&a.value), Expr::Const(_)));
    matches!(name.as_str(), "chunk" | "split" | "tensor_split") && counted && of_grad(whole)
}

/// The bounds of a slice along the first dim.
fn slice<'a>(view: &View<'a>, index: &Operand) -> Option<Vec<&'a Operand>> {
    let (_, Rvalue::Build { kind: BuildKind::Slice, items }) = view.source(index)? else { return None };
    items.iter().map(|i| if let Item::One(o) = i { Some(o) } else { None }).collect()
}
