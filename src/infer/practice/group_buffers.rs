//! Buffers that are made for the ranks of one group, in a collective over all ranks. In: a function. Out: a gather or a scatter without a
//! group, of which the output has as many parts as the group has ranks. Never: where the group may be left out on purpose: a test asks for
//! something, or the same collective is given it elsewhere in the function. And a group that may be that of all ranks. Next: `all_ranks.rs`.

use super::Found;
use super::all_ranks::{may_be_all, size_of_other};
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::near;
use super::view::{CollectiveCall, Guard, View};
use crate::ir::{Arg, ArgKind, BinOp, BuildKind, CmpOp, Const, LocalId, Operand, Rvalue, Stmt, UnOp};
use crate::rules::Form;
use crate::source::{Name, Place};

/// Functions and methods that make a tensor of given sizes.
const MAKES: &[&str] = &["empty", "zeros", "new_empty", "new_zeros"];

pub fn made_for_group(view: &View<'_>, out: &mut Found) {
    if sets_group_of_all(view) {
        return;
    }
    for (i, call) in view.collectives() {
        let alone = call.rule.group.is_some() && call.rule.default_group.is_empty();
        if !alone || call.group.is_some_and(|g| !view.expr(g).is_none()) {
            continue;
        }
        let made = match (call.rule.form, call.rule.op.as_str()) {
            (Form::IntoList, "all_gather") => listed(view, call),
            (Form::IntoOutput, "all_gather") => shaped(view, call, BinOp::Mul),
            (Form::IntoOutput, "reduce_scatter") => {
                shaped(view, call, BinOp::FloorDiv).or_else(|| pieces(view, call.input?))
            }
            _ => None,
        };
        let Some((size, made)) = made else { continue };
        let elsewhere =
            view.collectives().iter().any(|(j, c)| j != i && c.rule.op == call.rule.op && c.group.is_some());
        let plain = |g: &Guard<'_>| asks_for_several(view, g) || asks_for_value(view, g, call);
        if !elsewhere && view.steps[*i].guards.iter().all(plain) && !may_be_all(view) {
            let collective = super::lost::last(&call.rule.name);
            let mistake = Scales::BufferOfGroup { collective, size, made };
            out.push((view.place(view.steps[*i].id), Practice::Scales(mistake)));
        }
    }
}

/// Whether a function makes a group of all ranks: `initialize(tensor_parallel_size=dist.get_world_size())`.
fn sets_group_of_all(view: &View<'_>) -> bool {
    let sets = |a: &Arg| {
        let size = matches!(&a.kind, ArgKind::Keyword(k) if k.ends_with("parallel_size"));
        size && super::rank_tests::is_number_of_ranks(view, &view.expr(&a.value))
    };
    view.code().contains("parallel_size=")
        && (0..view.steps.len()).any(|i| match view.value(i) {
            Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => args.iter().any(sets),
            _ => false,
        })
}

/// Whether a test asks whether there is anything to hand over: a stage of a pipeline may have nothing.
fn asks_for_value(view: &View<'_>, guard: &Guard<'_>, call: &CollectiveCall<'_>) -> bool {
    let Expr::Compare(CmpOp::IsNot, value, none) = view.expr(guard.test) else { return false };
    guard.holds && none.is_none() && call.input.is_some_and(|input| view.expr(input) == *value)
}

/// Whether a test asks whether there are several ranks, or any at all: others may choose between the groups.
fn asks_for_several(view: &View<'_>, guard: &Guard<'_>) -> bool {
    let sized = |e: &Expr| view.name_of(e).is_some_and(|name| name.contains("size"));
    match near::deep(view, &view.expr(guard.test)) {
        Expr::Compare(_, left, right) => {
            matches!(*right, Expr::Const(Const::Int(_))) && near::deep(view, &left).any(&mut |e| sized(e))
        }
        Expr::Unary(UnOp::Not, inner) => is_initialized(&inner),
        other => is_initialized(&other),
    }
}

fn is_initialized(expr: &Expr) -> bool {
    expr.call_of("is_initialized").or_else(|| expr.call_of("is_available")).is_some()
}

/// What a list has one entry for each of, and nothing else: `xs` of `[f(x) for x in xs]`.
fn entry_for_each<'a>(view: &View<'a>, list: &Operand) -> Option<&'a Operand> {
    let mut list = near::local(list)?;
    while let [one] = view.defs(list)
        && let Some(Rvalue::Use(Operand::Local(next))) = view.value(*one)
    {
        list = if changed_by_method(view, list) { return None } else { *next };
    }
    let [made] = view.defs(list) else { return None };
    let Some(Rvalue::Build { kind: BuildKind::List, items }) = view.value(*made) else { return None };
    let mut added =
        view.steps.iter().filter(|s| matches!(s.stmt, Stmt::Append { collection, .. } if *collection == list));
    let (step, None) = (added.next()?, added.next()) else { return None };
    let around = &view.steps[*made];
    if !items.is_empty() || changed_by_method(view, list) || step.loops.len() != around.loops.len() + 1 {
        return None;
    }
    let filtered = step.guards.len() != around.guards.len();
    match view.steps[*step.loops.last()?].stmt {
        Stmt::For { iter, .. } if !filtered => Some(iter),
        _ => None,
    }
}

/// `[torch.empty_like(x) for _ in range(size)]`
fn listed(view: &View<'_>, call: &CollectiveCall<'_>) -> Option<(Name, Place)> {
    let (_, Rvalue::Call { callee, args }) = view.source(entry_for_each(view, call.output?)?)? else { return None };
    let [length] = &args[..] else { return None };
    let counted = view.expr(callee).last_name() == Some("range");
    counted.then(|| size_of_other(view, &length.value)).flatten()
}

/// `[t.contiguous() for t in x.chunk(size, dim=dim)]`, or the chunks as they are.
fn pieces(view: &View<'_>, given: &Operand) -> Option<(Name, Place)> {
    let cut = |of: &Operand| match view.source(of)?.1 {
        Rvalue::CallMethod { name, args, .. } if name == "chunk" => {
            size_of_other(view, view.argument(args, 0, "chunks")?)
        }
        Rvalue::Call { callee, args } => match view.expr(callee).last_name()? {
            "chunk" => size_of_other(view, view.argument(args, 1, "chunks")?),
            _ => None,
        },
        _ => None,
    };
    let inner = |of: &Operand| match view.source(of)?.1 {
        Rvalue::Call { callee, args } if view.expr(callee).last_name() == Some("list") => cut(&args.first()?.value),
        _ => None,
    };
    cut(given).or_else(|| inner(given)).or_else(|| cut(entry_for_each(view, given)?))
}

/// Whether a method of a list is called, which may make it longer.
fn changed_by_method(view: &View<'_>, list: LocalId) -> bool {
    view.readers(list)
        .iter()
        .any(|s| matches!(view.value(*s), Some(Rvalue::CallMethod { base: Operand::Local(base), .. }) if *base == list))
}

/// `shape = list(x.size())`, `shape[0] *= size`, `torch.empty(shape)`, where `x` is what the collective takes.
fn shaped(view: &View<'_>, call: &CollectiveCall<'_>, grows: BinOp) -> Option<(Name, Place)> {
    let (_, Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.source(call.output?)? else {
        return None;
    };
    let made = view.through(call.output?);
    let Expr::Call { callee, step: buffer, .. } = &made else { return None };
    let shape = args.first().and_then(|a| near::local(&a.value))?;
    if !callee.last_name().is_some_and(|n| MAKES.contains(&n)) || !is_shape_of(view, shape, &taken(view, call)?) {
        return None;
    }
    let mut set = view.steps.iter().filter_map(|s| match s.stmt {
        Stmt::SetItem { base: Operand::Local(base), index, value } if *base == shape => Some((index, value)),
        _ => None,
    });
    let ((index, value), None) = (set.next()?, set.next()) else { return None };
    let (at, Rvalue::InPlace { op, left, right } | Rvalue::Binary { op, left, right }) = view.source(value)? else {
        return None;
    };
    let first = Expr::Const(Const::Int(0));
    let whole = Expr::Item(Box::new(Expr::Local(shape)), Box::new(first.clone()));
    let grown = *op == grows && view.expr(index) == first && view.expr(left) == whole && at < *buffer;
    // Nothing else looks at the sizes, which it might change.
    let alone = view.readers(shape).iter().all(|s| {
        *s == *buffer
            || matches!(view.steps[*s].stmt, Stmt::SetItem { .. })
            || matches!(view.value(*s), Some(Rvalue::Item { .. }))
    });
    (grown && alone).then(|| size_of_other(view, right)).flatten()
}

/// What a collective takes, which is bound once.
fn taken(view: &View<'_>, call: &CollectiveCall<'_>) -> Option<Expr> {
    let given = view.expr(call.input?);
    let whole = match &given {
        Expr::Call { callee, args, .. } if args.is_empty() => match &**callee {
            Expr::Attr(base, name) if name == "contiguous" => (**base).clone(),
            _ => return None,
        },
        other => other.clone(),
    };
    let Expr::Local(local) = whole else { return None };
    (view.defs(local).len() + usize::from(view.is_param(local)) == 1).then_some(whole)
}

/// Whether a list has the sizes of a value: `list(x.size())`, `list(x.shape)`.
fn is_shape_of(view: &View<'_>, shape: LocalId, of: &Expr) -> bool {
    if view.is_param(shape) {
        return false;
    }
    let Expr::Call { callee, args, .. } = view.through(&Operand::Local(shape)) else { return false };
    let [(_, sizes)] = args.as_slice() else { return false };
    let base = match sizes {
        Expr::Call { callee, args, .. } if args.is_empty() => match &**callee {
            Expr::Attr(base, name) if name == "size" => base,
            _ => return false,
        },
        Expr::Attr(base, name) if name == "shape" => base,
        _ => return false,
    };
    callee.last_name() == Some("list") && **base == *of
}
