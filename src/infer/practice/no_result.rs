//! Collectives that are taken for what they are not. In: a function. Out: the result of one that works in place, used as a tensor; one on
//! what indexing has copied; one of torch_xla that returns its sum, called for nothing. Never: handles of what runs in the background.
//! Next: `lost.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Unlike};
use super::lost::{COPIES, is_read_later, last};
use super::raw::{Raw, Sort, raw};
use super::view::View;
use crate::ir::{ArgKind, LocalKind, Operand, Rvalue, Stmt};
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

/// Whether a function returns a tensor elsewhere: the one that the collective writes to, or a parameter.
fn returns_tensors(view: &View<'_>, at: usize, call: &Raw<'_>) -> bool {
    let written = call.buffer.map(|b| view.expr(b));
    view.steps.iter().enumerate().any(|(i, s)| match s.stmt {
        Stmt::Return { value: value @ Operand::Local(_) } if i != at => Some(view.expr(value)) == written,
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
        if view.readers(*temp).len() == 1 && picks(view, index) && is_read_later(view, &whole, i) {
            let indexed = view.place(view.steps[*made].id);
            let unlike = Unlike::Indexed { collective: call.name.clone(), indexed };
            out.push((view.place(step.id), Practice::Unlike(unlike)));
        }
    }
}

/// Whether an index is a tensor of positions or a mask, by what it is made of or its name: a number or a slice copies nothing.
fn picks(view: &View<'_>, index: &Operand) -> bool {
    match view.through(index) {
        Expr::Compare(..) => true,
        Expr::Call { callee, .. } => {
            callee.last_name().is_some_and(|n| matches!(n, "nonzero" | "where" | "argsort" | "unique" | "randperm"))
        }
        Expr::Local(local) => {
            let name = view.local_name(local).as_str().to_lowercase();
            ["ids", "indices", "mask", "positions"].iter().any(|w| name == *w || name.ends_with(&format!("_{w}")))
        }
        _ => false,
    }
}

/// `dist.recv(x.contiguous(), src)`, `dist.broadcast(x.t().contiguous(), 0)`: what arrives is written to a copy.
pub fn received(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value) = view.value(i) else { continue };
        let Some(call) = raw(view, value).filter(|c| c.sort == Sort::Receive || &*c.name == "broadcast") else {
            continue;
        };
        let Some(Operand::Local(temp)) = call.buffer else { continue };
        let ([made], LocalKind::Temp) = (view.defs(*temp), view.func.locals()[*temp].kind) else { continue };
        let Some(Rvalue::CallMethod { base, name, .. }) = view.value(*made) else { continue };
        let copied = view.expr(base);
        let named = matches!(copied, Expr::Local(_) | Expr::Attr(..));
        let once = view.readers(*temp).len() == 1;
        if named && once && COPIES.contains(&name.as_str()) && is_read_later(view, &copied, i) {
            let original = view.part(view.steps[*made].id, 0);
            let practice = Practice::LostCopy { collective: call.name.clone(), method: name.clone(), original };
            out.push((view.place(step.id), practice));
        }
    }
}

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
            Expr::Call { callee, .. } => match &*callee {
                Expr::Attr(_, name) => {
                    view.rules.tensor_method(name).is_some() && !matches!(&**name, "split" | "chunk" | "unbind")
                }
                _ => false,
            },
            _ => false,
        };
        if tensor && is_read_later(view, &view.expr(given), i) {
            out.push((view.place(step.id), Practice::UnusedResult { collective: last(&path) }));
        }
    }
}
