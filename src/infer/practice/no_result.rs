//! Collectives that are taken for what they are not. In: a function. Out: the result of one that works in place, used as a tensor; one on
//! what indexing has copied; one of torch_xla that returns its sum, called for nothing. Never: handles of what runs in the background.
//! Next: `lost.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Unlike};
use super::lost::{is_read_later, last};
use super::near;
use super::raw::{Raw, Sort, raw};
use super::view::View;
use crate::ir::{ArgKind, CmpOp, LocalId, LocalKind, Operand, Rvalue, Stmt};
use crate::rules::Entry;

/// `return dist.all_reduce(x)`, `x = dist.all_reduce(x)`
pub fn used(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, value } = step.stmt else { continue };
        let Some(call) = waited(view, value) else { continue };
        let by_hand = |s: &usize| match view.steps[*s].stmt {
            Stmt::Return { .. } => returns_tensors(view, *s, &call),
            Stmt::Assign { value: Rvalue::Binary { .. } | Rvalue::InPlace { .. }, .. } => true,
            _ => false,
        };
        // A name may be bound to something else as well.
        let once = view.is_temp(*dst) || view.defs(*dst).iter().all(|d| *d <= i);
        if let Some(used) = view.readers(*dst).iter().find(|s| **s > i && by_hand(s)).filter(|_| once) {
            let unlike = Unlike::InPlace { collective: call.name.clone(), used: view.place(view.steps[*used].id) };
            out.push((view.place(step.id), Practice::Unlike(unlike)));
        }
    }
}

/// A collective of torch.distributed that returns when it is done.
fn waited<'a>(view: &View<'a>, value: &'a Rvalue) -> Option<Raw<'a>> {
    let call = raw(view, value).filter(|c| c.sort == Sort::Everyone && c.buffer.is_some())?;
    let path = view.callee(value)?;
    let plain = call.args.iter().all(|a| match &a.kind {
        ArgKind::Keyword(name) => name != "async_op",
        ArgKind::Positional => true,
        _ => false,
    });
    (path.starts_with("torch.distributed.") && plain && call.args.len() <= 3).then_some(call)
}

/// Functions and methods that make a tensor of their own.
const MAKES: &[&str] =
    &["matmul", "mm", "bmm", "einsum", "sum", "mean", "zeros", "ones", "empty", "full", "cat", "stack"];

/// Whether a function returns the tensor that the collective writes to elsewhere. It is made here, so that no caller can go on with it.
fn returns_tensors(view: &View<'_>, at: usize, call: &Raw<'_>) -> bool {
    let Some(buffer) = call.buffer else { return false };
    let made = match view.source(buffer) {
        Some((_, Rvalue::Binary { .. })) => true,
        Some((_, Rvalue::Call { .. } | Rvalue::CallMethod { .. })) => match view.through(buffer) {
            Expr::Call { callee, .. } => {
                callee.path().is_some_and(|p| p.starts_with("torch.nn.functional."))
                    || callee.last_name().is_some_and(|n| MAKES.contains(&n))
            }
            _ => false,
        },
        _ => false,
    };
    let written = view.expr(buffer);
    made && view.steps.iter().enumerate().any(|(i, s)| match s.stmt {
        Stmt::Return { value: value @ Operand::Local(_) } if i != at => view.expr(value) == written,
        _ => false,
    })
}

/// `dist.all_reduce(x[ids])`: the sum is written to the rows that indexing has copied.
pub fn indexed(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(call) = view.value(i).and_then(|v| raw(view, v)).filter(|c| c.sort != Sort::Send) else { continue };
        let Some(Operand::Local(temp)) = call.buffer else { continue };
        let ([made], LocalKind::Temp) = (view.defs(*temp), view.func.locals()[*temp].kind) else { continue };
        let Some(Rvalue::Item { base, index }) = view.value(*made) else { continue };
        let whole = view.expr(base);
        if view.readers(*temp).len() == 1
            && is_tensor(view, base)
            && picks(view, index, &whole)
            && is_read_later(view, &whole, i)
        {
            let indexed = view.place(view.steps[*made].id);
            let unlike = Unlike::Indexed { collective: call.name.clone(), indexed };
            out.push((view.place(step.id), Practice::Unlike(unlike)));
        }
    }
}

/// Whether an index is made here, and is a tensor of positions or a mask: a number or a slice copies nothing.
fn picks(view: &View<'_>, index: &Operand, whole: &Expr) -> bool {
    match view.through(index) {
        // A mask of the tensor itself.
        Expr::Compare(op, left, _) => {
            matches!(op, CmpOp::Lt | CmpOp::Le | CmpOp::Gt | CmpOp::Ge | CmpOp::Eq | CmpOp::Ne) && *left == *whole
        }
        Expr::Call { callee, args, .. } => match (callee.last_name(), callee.path()) {
            (Some("nonzero" | "argsort"), _) => true,
            (Some("arange" | "randperm" | "unique"), Some(path)) => path.starts_with("torch."),
            // Of a number it is one position, which copies nothing.
            (Some("tensor"), Some(path)) => {
                path == "torch.tensor" && matches!(args.first(), Some((ArgKind::Positional, Expr::Build(_))))
            }
            _ => false,
        },
        _ => false,
    }
}

/// Whether a value is a tensor: made here, a parameter that is said to be one, or a gradient. A list or a table gives what is in it.
fn is_tensor(view: &View<'_>, base: &Operand) -> bool {
    let hinted = |local: LocalId| {
        let param = view.func.params.iter().find(|p| p.local == local);
        param.and_then(|p| p.hint.as_ref()).is_some_and(|h| h == "Tensor" || h == "torch.Tensor")
            && view.defs(local).is_empty()
    };
    match view.through(base) {
        Expr::Local(local) => hinted(local),
        Expr::Attr(of, name) if name == "grad" || name == "data" => {
            matches!(*of, Expr::Local(l) if hinted(l))
                || matches!(near::deep(view, &of), Expr::Element(all) if all.call_of("parameters").is_some())
        }
        Expr::Call { callee, .. } => {
            const FACTORIES: &[&str] =
                &["torch.zeros", "torch.empty", "torch.ones", "torch.zeros_like", "torch.empty_like", "torch.randn"];
            callee.path().is_some_and(|p| FACTORIES.contains(&p.as_str()) || p == "torch.cat" || p == "torch.stack")
        }
        _ => false,
    }
}

/// Methods after which rows are no longer one after the other.
const REORDERS: &[&str] = &["t", "transpose", "permute", "swapaxes", "movedim"];

/// `dist.recv(x.clone(), src)`, or `x.contiguous()` of what was transposed: what arrives is written to a copy. Where a tensor is contiguous,
/// `x.contiguous()` is the tensor itself. A broadcast may be that of its source, which loses nothing.
pub fn received(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value) = view.value(i) else { continue };
        let Some(call) = raw(view, value).filter(|c| c.sort == Sort::Receive) else { continue };
        let Some(Operand::Local(temp)) = call.buffer else { continue };
        let ([made], LocalKind::Temp) = (view.defs(*temp), view.func.locals()[*temp].kind) else { continue };
        let Some(Rvalue::CallMethod { base, name, .. }) = view.value(*made) else { continue };
        let copied = view.expr(base);
        let reordered = || match view.through(base) {
            Expr::Call { callee, .. } => matches!(&*callee, Expr::Attr(_, n) if REORDERS.contains(&n.as_str())),
            _ => false,
        };
        let copies = matches!(copied, Expr::Local(_))
            && (name == "clone" || name == "contiguous" && reordered() && !view.code().contains("is_contiguous"));
        if copies && view.readers(*temp).len() == 1 && is_read_later(view, &copied, i) {
            let original = view.part(view.steps[*made].id, 0);
            let practice = Practice::LostCopy { collective: call.name.clone(), method: name.clone(), original };
            out.push((view.place(step.id), practice));
        }
    }
}

/// Methods that give one tensor.
const ONE_TENSOR: &[&str] = &["sum", "mean", "detach", "clone", "float"];

/// `xm.all_reduce(xm.REDUCE_SUM, count)` as a statement: of one tensor the sum is returned.
pub fn returned(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, value } = step.stmt else { continue };
        let unused = view.func.locals()[*dst].kind == LocalKind::Temp && view.readers(*dst).is_empty();
        let Some((path, Some(Entry::Intrinsic(rule)))) = view.ruled(value).filter(|_| unused) else { continue };
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { continue };
        if rule.does != "reduce-scaled" {
            continue;
        }
        let Some(given) = view.argument(args, 1, "inputs") else { continue };
        let tensor = match view.through(given) {
            Expr::Call { callee, .. } => matches!(&*callee, Expr::Attr(_, name) if ONE_TENSOR.contains(&name.as_str())),
            _ => false,
        };
        // A sum that is not computed with may be there for its order alone.
        let whole = view.expr(given);
        let computed = (i + 1..view.steps.len()).any(|s| match view.value(s) {
            Some(Rvalue::Binary { left, right, .. } | Rvalue::InPlace { left, right, .. }) => {
                view.expr(left) == whole || view.expr(right) == whole
            }
            _ => false,
        });
        if tensor && computed {
            out.push((view.place(step.id), Practice::UnusedResult { collective: last(&path) }));
        }
    }
}
