//! Lists of one buffer. In: a function. Out: `n * [torch.empty_like(x)]` as the list that a collective writes the parts of all ranks to: its entries are
//! one tensor, which keeps what is written last. Never: lists of objects, which are replaced, and lists whose entries are set one by one.
//! Next: `lapses.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::lapses::Lapse;
use super::lost::last;
use super::view::View;
use crate::ir::{BinOp, BuildKind, Item, Operand, Rvalue, Stmt};
use crate::rules::{Entry, Form};
use crate::source::Name;

pub fn lists(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some((collective, list)) = view.value(i).and_then(|value| written(view, value)) else { continue };
        let Some(made) = repeated(view, list) else { continue };
        let set = |s: &usize| matches!(view.steps[*s].stmt, Stmt::SetItem { base, .. } if base == list);
        let touched = match list {
            Operand::Local(l) => view.readers(*l).iter().any(set),
            _ => false,
        };
        if !touched && is_read(view, list) && !view.code().contains("raises(") {
            let list = match view.expr(list) {
                Expr::Local(l) => Some(view.local_name(l).clone()),
                _ => None,
            };
            let mistake = Lapse::OneBuffer { collective, list, call: view.place(step.id) };
            out.push((view.place(view.steps[made].id), Practice::Lapse(mistake)));
        }
    }
}

/// Whether anything but collectives reads a list: of a benchmark nobody does.
fn is_read(view: &View<'_>, list: &Operand) -> bool {
    let Operand::Local(list) = list else { return false };
    let reads = |s: &usize| view.value(*s).and_then(|v| written(view, v)).is_none();
    view.readers(*list).iter().any(reads)
}

/// The list of tensors that a collective writes to.
fn written<'a>(view: &View<'a>, value: &'a Rvalue) -> Option<(Name, &'a Operand)> {
    if let Some(call) = view.collective(value) {
        let list = call.output.filter(|_| call.rule.form == Form::IntoList)?;
        return Some((last(&call.rule.name), list));
    }
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let (path, Some(Entry::Intrinsic(rule))) = view.ruled(value)? else { return None };
    let gathers = &*rule.does == "rooted-collective" && path.ends_with(".gather");
    let list = view.argument(args, 1, "gather_list").filter(|_| gathers)?;
    Some((last(&path), list))
}

/// Where a list is made that has one tensor many times.
fn repeated(view: &View<'_>, list: &Operand) -> Option<usize> {
    let (mut made, mut value) = view.source(list)?;
    if let Rvalue::Use(from) = value {
        (made, value) = view.source(from)?;
    }
    let Rvalue::Binary { op: BinOp::Mul, left, right } = value else { return None };
    let one = |o: &Operand| match view.source(o) {
        Some((_, Rvalue::Build { kind: BuildKind::List, items })) => match &**items {
            [Item::One(item)] => is_tensor(&view.through(item)),
            _ => false,
        },
        _ => false,
    };
    let number = match (one(left), one(right)) {
        (true, false) => right,
        (false, true) => left,
        _ => return None,
    };
    // Once is no repetition.
    let many = !matches!(view.through(number), Expr::Const(crate::ir::Const::Int(..=1)));
    many.then_some(made)
}

/// Methods and functions that make a tensor; so do those that end in `_like` and begin with `new_`.
const MAKES: &[&str] = &["empty", "zeros", "ones", "full", "tensor", "rand", "randn", "clone"];

/// Whether an expression makes a tensor.
pub(super) fn is_tensor(e: &Expr) -> bool {
    let Expr::Call { callee, args, .. } = e else { return false };
    // Of no entries there is nothing to keep.
    let nothing = args.first().is_some_and(|(_, size)| *size == Expr::Const(crate::ir::Const::Int(0)));
    !nothing && callee.last_name().is_some_and(|n| MAKES.contains(&n) || n.ends_with("_like") || n.starts_with("new_"))
}
