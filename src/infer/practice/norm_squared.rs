//! Norms that are summed over ranks and squared after it. In: a function. Out: a sum over ranks of what a norm of gradients gave, here or in a
//! function that returns one, where the sum is squared and goes into the root that gradients are scaled by: the square of a sum of norms is no
//! sum of squares. Never: norms of the first order, code in which one rank alone has a norm, or a sum that anything changes before it is
//! squared. Source: fastmoe pull request 65. Next: `asked_norm.rs`, norms that stay as they are summed.

use super::Found;
use super::asked_norm::{NORMS, clips, has_first_order};
use super::expr::Expr;
use super::found::Practice;
use super::handles::excludes;
use super::local_norm::{flow, is_root};
use super::named_axes::of_group;
use super::near;
use super::rank_tests::returned;
use super::training::Training;
use super::view::View;
use super::wrapped::function;
use crate::ir::{BinOp, Const, LocalId, Operand, Rvalue, Stmt};

/// Code in which one rank of a group has a norm and the others have nothing: the sum is what that one has.
const ONE_HAS: &[&str] = &["get_rank", "rank ==", ".rank()", "owner", "owns", "is_first", "is_last"];
/// Methods that give what they are called on, in another form.
const SAME: &[&str] = &["view", "reshape", "float", "double", "to", "cuda", "clone", "detach", "squeeze", "item"];
/// How a number is squared in the text of a function.
pub const SQUARES: &[&str] = &["**", "pow(", "square(", " * "];
/// Words of names, and of code, of what one rank alone may have: weights that stages share, and whole parameters that count on one rank.
const SHARED: &[&str] = &["embed", "tied", "shared"];
const COPIES: &[&str] = &["duplicate", "shared", "replicated", "tied"];
/// How deep a norm is followed.
const MOST_STEPS: usize = 4;

/// `experts = norm_of(grads)`, `all_reduce(experts)`, and `total += experts ** 2`
pub fn summed(view: &View<'_>, out: &mut Found) {
    let alone = |line: &str| near::has_any(line, &["world_size", "num_processes"]);
    if near::has_any(view.code(), ONE_HAS) || has_first_order(view) || near::refusals(view.code()).any(alone) {
        return;
    }
    for (i, call) in view.collectives() {
        let Some(total) = call.input.and_then(near::local).filter(|_| call.rule.op == "all_reduce") else { continue };
        let is_sum = view.operator(call).is_none_or(|op| view.through(op).last_name() == Some("SUM"));
        let same_path = |def: &usize| !excludes(&view.steps[*def], &view.steps[*i]);
        let defs: Vec<usize> = view.defs(total).iter().copied().filter(same_path).collect();
        let norm = |def: &usize| is_norm(view, &view.bound(*def, total), MOST_STEPS);
        let plain = |def: &usize| def < i && (norm(def) || is_zero(&view.bound(*def, total)));
        let one_may = one_may_have(view, total, call.group);
        if !is_sum || one_may || is_changed(view, total) || !defs.iter().all(plain) {
            continue;
        }
        let Some(made) = defs.iter().copied().find(|def| norm(def)) else { continue };
        let Some(square) = (i + 1..view.steps.len()).find(|step| squares(view, *step, total)) else { continue };
        let held = flow(view, view.binds(square).iter().copied().collect(), square);
        let root = (square + 1..view.steps.len()).find(|step| is_root(view, *step, &held));
        let used = clips(view, total, *i).or_else(|| root.map(|step| view.place(view.steps[step].id)));
        let Some(used) = used else { continue };
        let (made, squared) = (view.place(view.steps[made].id), view.place(view.steps[square].id));
        out.push((view.place(view.steps[*i].id), Practice::Training(Training::NormSquared { made, squared, used })));
        return;
    }
}

/// Whether one rank of the group may have all that the norm is of, so that the others add nothing: what one stage has, or what counts on one
/// rank of those that have parts.
fn one_may_have(view: &View<'_>, total: LocalId, group: Option<&Operand>) -> bool {
    let over = group.and_then(|group| of_group(view, &view.expr(group))).unwrap_or_default();
    let is = |axes: &[&str]| over.iter().any(|axis| axes.contains(&axis.as_str()));
    near::has_any(&view.local_name(total).to_lowercase(), SHARED)
        || is(&["pp"])
        || !is(&["dp", "ep"]) && near::has_any(view.code(), COPIES)
}

/// Whether an expression is a norm of any order but the first, or what a function gives that returns one.
fn is_norm(view: &View<'_>, e: &Expr, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let Expr::Call { callee, args, .. } = near::deep(view, e) else { return false };
    let first = |e: &Expr| match near::deep(view, e) {
        Expr::Const(Const::Int(n)) => n == 1,
        Expr::Const(Const::Float(bits)) => (f64::from_bits(bits) - 1.0).abs() < 1e-9,
        _ => false,
    };
    match &*callee {
        Expr::Attr(base, name) if SAME.contains(&name.as_str()) => return is_norm(view, base, depth),
        Expr::Attr(_, name) if name == "norm" => return !args.iter().any(|(_, e)| first(e)),
        Expr::Path(path) if path.starts_with("torch.") => {
            let named = callee.last_name().is_some_and(|name| NORMS.contains(&name));
            return named && !args.iter().any(|(_, e)| first(e));
        }
        _ => {}
    }
    let Some(at) = function(view, &callee) else { return false };
    let inner = near::shared(view, at);
    let values = returned(&inner);
    let norm = |e: &Expr| is_norm(&inner, e, depth);
    inner.collectives().is_empty()
        && !has_first_order(&inner)
        && values.iter().any(norm)
        && values.iter().all(|e| norm(e) || is_zero(e))
}

/// Whether an expression is made of nothing, for a rank without such parameters.
fn is_zero(e: &Expr) -> bool {
    let Expr::Call { callee, args, .. } = e else { return false };
    match callee.last_name() {
        Some("zeros" | "zeros_like") => true,
        Some("tensor") => args.first().is_some_and(|(_, e)| match e {
            Expr::Build(items) => !items.is_empty() && items.iter().all(is_nothing),
            other => is_nothing(other),
        }),
        _ => false,
    }
}

fn is_nothing(e: &Expr) -> bool {
    match e {
        Expr::Const(Const::Int(n)) => *n == 0,
        Expr::Const(Const::Float(bits)) => f64::from_bits(*bits) == 0.0,
        _ => false,
    }
}

/// Whether a step squares a variable.
fn squares(view: &View<'_>, step: usize, total: LocalId) -> bool {
    let is = |o: &Operand| near::local(o) == Some(total);
    let two = |o: &Operand| match view.expr(o) {
        Expr::Const(Const::Int(n)) => n == 2,
        Expr::Const(Const::Float(bits)) => (f64::from_bits(bits) - 2.0).abs() < 1e-9,
        other => view.name_of(&other) == Some("norm_type"),
    };
    match view.value(step) {
        Some(Rvalue::Binary { op: BinOp::Pow, left, right }) => is(left) && two(right),
        Some(Rvalue::Binary { op: BinOp::Mul, left, right }) => is(left) && is(right),
        Some(Rvalue::CallMethod { base, name, args }) if is(base) => match name.as_str() {
            "square" => args.is_empty(),
            "pow" => args.first().is_some_and(|arg| two(&arg.value)),
            _ => false,
        },
        _ => false,
    }
}

/// Whether anything changes a variable in place, or divides it or multiplies it by another one: a mean may come of it.
fn is_changed(view: &View<'_>, total: LocalId) -> bool {
    let is = |o: &Operand| near::local(o) == Some(total);
    view.steps.iter().any(|step| match step.stmt {
        Stmt::Assign { value, .. } => match value {
            Rvalue::CallMethod { base, name, .. } => is(base) && name.ends_with('_'),
            Rvalue::Binary { op: BinOp::Div, left, .. } => is(left),
            Rvalue::Binary { op: BinOp::Mul, left, right } => is(left) != is(right),
            Rvalue::InPlace { left, .. } => is(left),
            _ => false,
        },
        _ => false,
    })
}
