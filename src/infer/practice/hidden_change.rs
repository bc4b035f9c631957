//! Changes of a number in place that no check follows. In: a function, and variables. Out: whether a step writes one of them in another way than
//! by plain arithmetic, or may. Never: what it is afterwards. Source: torch, methods that end in `_` and arguments `out=` write in place.
//! Next: `hidden_sum.rs`, which asks.

use super::expr::Expr;
use super::near;
use super::view::View;
use crate::ir::{Arg, ArgKind, BinOp, Const, LocalId, Operand, Rvalue, Stmt};
use rustc_hash::FxHashSet;

/// Methods that checks follow, or that leave the values as they are.
const FOLLOWED: &[&str] = &[
    "div_",
    "mul_",
    "add_",
    "sub_",
    "zero_",
    "clamp_",
    "clamp_min_",
    "clamp_max_",
    "requires_grad_",
    "detach_",
    "neg_",
];

/// Parts of names of what takes a value and leaves it as it is: logs, containers, the backward pass.
const OBSERVES: &[&str] = &[
    "log",
    "print",
    "append",
    "extend",
    "update",
    "add",
    "write",
    "record",
    "put",
    "save",
    "backward",
    "step",
    "set",
    "info",
    "debug",
    "warn",
    "track",
    "push",
    "insert",
    "register",
    "store",
    "report",
    "check",
    "assert",
    "display",
    "show",
    "emit",
    "send",
    "del",
    "release",
    "free",
    "raise",
    "len",
    "isinstance",
    "id",
    "hook",
    "observe",
    "histogram",
    "scalar",
    "meter",
    "metric",
];

/// Functions of each value for itself, which make no sum of it and no part of one.
const OF_ONE: &[&str] = &["exp", "log", "sub", "softmax", "log_softmax", "abs", "sqrt", "pow", "neg"];

/// Methods of tensors that write the tensor, and only read what they are given.
const OF_TENSORS: &[&str] = &[
    "copy_",
    "fill_",
    "lerp_",
    "addcmul_",
    "addcdiv_",
    "pow_",
    "masked_fill_",
    "index_add_",
    "scatter_add_",
    "scatter_",
    "index_copy_",
    "index_put_",
    "masked_scatter_",
    "set_",
    "eq_",
    "ne_",
    "logical_and_",
    "logical_or_",
    "baddbmm_",
    "addmm_",
    "remainder_",
];

/// Functions that call the function that they are given with what they are given.
const MAPS: &[&str] = &["map", "tree_map", "tree_map_", "tree_map_only", "starmap", "submit", "apply_async"];

/// Whether what has a name takes a value and leaves it as it is, as far as the name says.
pub fn observes(name: &str) -> bool {
    let name = name.rsplit('.').next().unwrap_or(name).to_lowercase();
    if FOLLOWED.contains(&name.as_str()) || OF_TENSORS.contains(&name.as_str()) {
        return true;
    }
    OBSERVES.iter().any(|w| near::has_part(&name, w))
        || ["log", "print", "write", "assert", "append"].iter().any(|w| name.contains(w))
}

/// Whether a step gives one of these to something of which nothing is known, by a call whose result nothing reads: it may write it.
pub fn gives_away(view: &View<'_>, step: usize, these: &dyn Fn(&Operand) -> bool) -> bool {
    let Stmt::Assign { dst, value: value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) } =
        view.steps[step].stmt
    else {
        return false;
    };
    view.readers(*dst).is_empty()
        && args.iter().any(|a| these(&a.value))
        && !near::written_name(view, value).is_some_and(|name| observes(&name))
}

/// Whether a call is of a function that calls another one, which may write.
pub fn maps(view: &View<'_>, value: &Rvalue) -> bool {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return false };
    let Some(name) = near::written_name(view, value) else { return false };
    MAPS.contains(&name.as_str()) && args.len() > 1
}

/// Whether a step writes one of these variables, or a view of one that has no name, in a way that no check follows.
pub fn changes(view: &View<'_>, step: usize, own: &FxHashSet<LocalId>, copies: &FxHashSet<LocalId>) -> bool {
    let is = |set: &FxHashSet<LocalId>, o: &Operand| near::local(o).is_some_and(|l| set.contains(&l));
    match view.steps[step].stmt {
        Stmt::SetAttr { base, name, .. } => name == "data" && is(own, base),
        Stmt::SetItem { base, index, .. } => is(own, base) && !is_entry(&view.expr(index)),
        Stmt::Assign { value, .. } => match value {
            Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }
                if args.iter().any(|a| is_out(a) && is(own, &a.value)) =>
            {
                !near::written_name(view, value).is_some_and(|name| OF_ONE.contains(&name.as_str()))
            }
            Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } if is_of_several(view, value) => {
                args.iter().any(|a| holds(view, &a.value, own))
            }
            // A hook may multiply the gradient.
            Rvalue::CallMethod { base, name, .. } if name == "register_hook" => is(own, base),
            Rvalue::CallMethod { base, name, .. } if writes(name) => {
                let temp = near::local(base).is_some_and(|l| copies.contains(&l) && view.is_temp(l));
                temp || is(own, base) && !FOLLOWED.contains(&name.as_str())
            }
            _ => false,
        },
        _ => false,
    }
}

/// Whether a call is of a function of torch that writes lists of tensors.
fn is_of_several(view: &View<'_>, value: &Rvalue) -> bool {
    near::written_name(view, value).is_some_and(|name| name.starts_with("_foreach_") || name.starts_with("_amp_"))
}

/// Whether one of these variables is gathered, or sent, and is changed or bound again afterwards: to what came of it, it may be.
pub fn gathered(view: &View<'_>, own: &FxHashSet<LocalId>, copies: &FxHashSet<LocalId>) -> bool {
    let is = |o: &Operand| near::local(o).is_some_and(|l| own.contains(&l) || copies.contains(&l));
    let sends = |i: &usize| match view.value(*i) {
        Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) => {
            let name = near::written_name(view, value).unwrap_or_else(|| "".into());
            let exchanges = [
                "all_gather",
                "allgather",
                "gather_object",
                "isend",
                "p2pop",
                "all_to_all",
                "alltoall",
                "reduce_scatter",
            ];
            near::has_any(&name.to_lowercase(), &exchanges)
                && args.iter().any(|a| is(&a.value) || near::roots(view, &a.value).iter().any(|l| own.contains(l)))
        }
        _ => false,
    };
    let Some(sent) = (0..view.steps.len()).find(sends) else { return false };
    let changed = |i: usize| match view.value(i) {
        Some(Rvalue::CallMethod { base, name, .. }) => {
            writes(name) && near::local(base).is_some_and(|l| own.contains(&l))
        }
        _ => false,
    };
    (sent + 1..view.steps.len())
        .any(|i| changed(i) || view.binds(i).iter().any(|l| own.contains(l)) && is_other(view, i))
}

/// Whether a step gives a variable the value of another one, or adds to it.
fn is_other(view: &View<'_>, step: usize) -> bool {
    let bound = view.binds(step);
    let mut is_own = |e: &Expr| matches!(e, Expr::Local(local) if bound.contains(local));
    match (view.steps[step].stmt, view.value(step)) {
        (_, Some(Rvalue::Use(other @ Operand::Local(local)))) => {
            !view.is_temp(*local) || !view.expr(other).any(&mut is_own)
        }
        (_, Some(Rvalue::Call { args, .. })) => !args.iter().any(|arg| view.expr(&arg.value).any(&mut is_own)),
        (_, Some(Rvalue::InPlace { op: BinOp::Add, .. })) | (Stmt::Unpack { .. }, _) => true,
        _ => false,
    }
}

/// Whether a method writes what it is called on.
fn writes(name: &str) -> bool {
    name.ends_with('_') && !name.ends_with("__")
}

/// Whether an argument is what a function of torch writes its result to.
pub fn is_out(arg: &Arg) -> bool {
    matches!(&arg.kind, ArgKind::Keyword(name) if name == "out")
}

/// Whether an index is that of one entry: the others stay.
fn is_entry(index: &Expr) -> bool {
    matches!(index, Expr::Const(Const::Int(_) | Const::Str(_)) | Expr::Local(_))
}

/// Whether a list that stands in a call has one of these variables.
fn holds(view: &View<'_>, list: &Operand, own: &FxHashSet<LocalId>) -> bool {
    match view.expr(list) {
        Expr::Build(items) => items.iter().any(|e| matches!(e, Expr::Local(l) if own.contains(l))),
        _ => false,
    }
}
