//! Norms of gradients that are no norms of the whole. In: a function. Out: a root of the squares of local parts, where the code asks whether a gradient
//! is a distributed tensor, and gradients are scaled with it, or what is whole counts as one of several ranks would; and norms that are added over
//! ranks, or averaged over ranks with other experts, by which gradients are clipped. Never: where anything is summed, made whole or handed on that may sum it, or whose callers do.
//! Next: `local_norm.rs`, models that are followed to their wrapper.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::handles::excludes;
use super::local_norm::{Held, flow, is_root, leaves, scales, summed};
use super::named_axes::of_group;
use super::near;
use super::training::Training;
use super::view::View;
use crate::infer::settings::is_degree;
use crate::ir::{BinOp, Const, LocalId, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};

/// Words of code in which parts are made whole, or meant to be parts.
const OTHERWISE: &[&str] = &[
    "full_tensor",
    "redistribute",
    "reduce",
    "gather",
    "local_norm",
    "from_local",
    "funcol",
    "is_replicate",
    "is_shard",
    "mesh.size",
    "assert",
];

/// Lines behind a call that are looked through for a sum of what it gives.
const LINES: usize = 24;

/// What sums, or takes squares to be summed, where a caller does.
const SUMS: &[&str] = &["reduce", "gather", "** 2", "**2", "pow(", "square("];

/// `total += p.grad.to_local().pow(2).sum()` under `isinstance(p.grad, DTensor)`, and `total.sqrt()`
pub fn parts(view: &View<'_>, out: &mut Found) {
    if near::has_any(&near::bare(view.code()), OTHERWISE) || !view.collectives().is_empty() {
        return;
    }
    let Some((held, asked, rounds)) = local_parts(view) else { return };
    if leaves(view, &held) {
        return;
    }
    let summed = summed(view, &held);
    // What has a root in each round is a statistic of each parameter.
    let of_all = |i: &usize| !view.steps[*i].loops.contains(&rounds);
    let Some(root) = (0..view.steps.len()).filter(of_all).find(|i| is_root(view, *i, &summed)) else { return };
    let after = flow(view, view.binds(root).iter().copied().collect(), root);
    let divided = counted_once(view);
    if (divided.is_some() || scales(view, &after, &held)) && !summed_by_callers(view) {
        let mistake = Training::AskedNorm { asked, divided };
        out.push((view.place(view.steps[root].id), Practice::Training(mistake)));
    }
}

/// The local parts of gradients that are taken where the code has asked for distributed ones, where the first is, and the loop around it.
fn local_parts(view: &View<'_>) -> Option<(Held, Place, usize)> {
    let (mut held, mut asked) = (Held::default(), None);
    for (i, step) in view.steps.iter().enumerate() {
        let Some(Rvalue::CallMethod { base, name, .. }) = view.value(i).filter(|_| !step.loops.is_empty()) else {
            continue;
        };
        if name != "to_local" || !is_gradient(view, base) {
            continue;
        }
        let is_asked = step.guards.iter().any(|g| {
            g.holds && matches!(view.expr(g.test).call_of("isinstance"), Some([_, (_, class)]) if named(view, class))
        });
        if is_asked {
            held.extend(view.binds(i));
            asked = asked.or(Some((view.place(step.id), *step.loops.first()?)));
        }
    }
    let (asked, rounds) = asked?;
    Some((flow(view, held, 0), asked, rounds))
}

fn named(view: &View<'_>, class: &Expr) -> bool {
    let class = near::deep(view, class);
    class.last_name().or_else(|| view.name_of(&class)) == Some("DTensor")
}

fn is_gradient(view: &View<'_>, operand: &Operand) -> bool {
    near::deep(view, &view.expr(operand)).any(&mut |e| matches!(e, Expr::Attr(_, name) if name == "grad"))
}

/// Where the square of a whole gradient is divided by the number of ranks of a group: it counts once in a sum over them.
fn counted_once(view: &View<'_>) -> Option<Place> {
    let named = |o: &Operand| near::local(o).is_some_and(|l| is_degree(view.local_name(l)));
    let size = |o: &Operand| {
        named(o)
            || near::deep(view, &view.expr(o)).any(&mut |e| match e {
                Expr::Call { callee, .. } => callee.last_name() == Some("get_world_size"),
                _ => false,
            })
    };
    (0..view.steps.len()).find_map(|i| match view.value(i) {
        Some(Rvalue::Binary { op: BinOp::Div, left, right }) if size(right) => {
            let text = view.text(view.place(view.steps[i].id));
            let square = near::has_any(text, &["pow(", "square(", "**", "norm"]) || local_name_says(view, left);
            square.then(|| view.place(view.steps[i].id))
        }
        _ => None,
    })
}

/// Whether a variable is called after a square.
fn local_name_says(view: &View<'_>, operand: &Operand) -> bool {
    near::local(operand).is_some_and(|l| near::has_any(view.local_name(l), &["sq", "norm", "pow"]))
}

/// Whether what calls this function may sum what it gives, in this file or another.
fn summed_by_callers(view: &View<'_>) -> bool {
    let call = format!("{}(", view.func.name);
    let lower = call.to_lowercase();
    view.files.saying(&call).any(|file| {
        let text = near::bare(view.files[file].whole());
        let mut calls = text.match_indices(&lower).filter(|(at, _)| !text[..*at].ends_with("def "));
        calls.any(|(at, _)| sums_later(&text, at))
    })
}

/// Whether a variable that a call is assigned to is summed in one of the next lines; a call within something else may be.
fn sums_later(text: &str, call: usize) -> bool {
    let line = text[..call].rfind('\n').map_or(0, |end| end + 1);
    let before = text[line..call].trim();
    if before.is_empty() {
        return false;
    }
    let words = |text: &str| text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | ' '));
    let Some(name) = before.split('=').next().map(str::trim).filter(|name| before.contains('=') && words(name)) else {
        return true;
    };
    let mut later = text[call..].lines().take(LINES);
    later.any(|line| near::has_any(line, SUMS) && line.contains(name))
}

/// What takes a norm.
pub(super) const NORMS: &[&str] = &["norm", "vector_norm", "get_total_norm"];

/// `total = vector_norm(stack(norms))`, `all_reduce(total)`, and `max_norm / (total + eps)`
pub fn roots(view: &View<'_>, out: &mut Found) {
    if near::has_any(view.code(), &["assert", "get_rank", "rank ==", ".rank()", "owner", "owns"]) {
        return;
    }
    for (i, call) in view.collectives() {
        let Some(total) = call.input.and_then(near::local).filter(|_| call.rule.op == "all_reduce") else { continue };
        let is_sum = view.operator(call).is_none_or(|op| view.through(op).last_name() == Some("SUM"));
        if !is_sum || !view.code().contains(".grad") && !view.code().contains("grads") || is_changed(view, total, *i) {
            continue;
        }
        let own = |d: &usize| !excludes(&view.steps[*d], &view.steps[*i]);
        let defs: Vec<usize> = view.defs(total).iter().copied().filter(own).collect();
        let plain = defs.iter().all(|d| d < i) && view.steps[*i].loops.is_empty();
        let norms = defs.iter().filter(|d| is_norm(view, **d)).count();
        let others = defs.iter().filter(|d| !is_norm(view, **d) && !is_zero(view, **d)).count();
        let Some(used) = clips(view, total, *i).filter(|_| plain && norms > 0 && others == 0) else { continue };
        out.push((view.place(view.steps[*i].id), Practice::Training(Training::RootsSummed { used })));
        return;
    }
}

/// `norm = squares.sqrt() / get_world_size(dp_group)`, `all_reduce(norm, group=dp_group)`, and `max_norm / (norm + eps)`, in code that knows experts.
pub fn averaged(view: &View<'_>, out: &mut Found) {
    if !near::has_any(&near::bare(view.file()), &["moe", "expert"]) || tells_experts(view) {
        return;
    }
    for (i, call) in view.collectives() {
        let Some(total) = call.input.and_then(near::local).filter(|_| call.rule.op == "all_reduce") else { continue };
        let over = call.group.and_then(|group| of_group(view, &view.expr(group))).unwrap_or_default();
        let Some(def) = view.last_def(total, *i).filter(|_| over == [Name::from("dp")]) else { continue };
        let mean = near::deep(view, &view.bound(def, total));
        let Expr::Binary(BinOp::Div, root, size) = &mean else { continue };
        let counts = size.any(&mut |e| e.last_name() == Some("get_world_size"));
        let Some(root) = root_of(view, root, def, MOST_STEPS).filter(|_| counts) else { continue };
        let Some(used) = clips(view, total, *i) else { continue };
        let mistake = Training::NormsAveraged { root: view.place(view.steps[root].id), used };
        out.push((view.place(view.steps[*i].id), Practice::Training(mistake)));
        return;
    }
}

/// Variables between a mean and the root that it is taken of.
const MOST_STEPS: usize = 4;

/// Whether a function asks which parameters are experts' where it adds up squares.
fn tells_experts(view: &View<'_>) -> bool {
    near::has_any(view.code(), &["moe", "expert"])
}

/// The step that takes a root of what gradients add up to.
fn root_of(view: &View<'_>, e: &Expr, before: usize, depth: usize) -> Option<usize> {
    let depth = depth.checked_sub(1)?;
    match e {
        Expr::Local(local) => {
            let def = view.last_def(*local, before)?;
            root_of(view, &view.bound(def, *local), def, depth)
        }
        Expr::Call { callee, step, .. } if callee.last_name() == Some("sqrt") => {
            let of_gradients = view.code().contains(".grad") && near::has_any(view.code(), SUMS);
            of_gradients.then_some(*step)
        }
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(base, _) => root_of(view, base, before, depth),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a step takes a norm of any order but the first, whose sum over parts is that of the whole.
fn is_norm(view: &View<'_>, def: usize) -> bool {
    let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(def) else {
        return false;
    };
    let named = near::name_of_call(view, def).is_some_and(|name| NORMS.contains(&name.as_str()));
    let first = |o: &Operand| match near::deep(view, &view.expr(o)) {
        Expr::Const(Const::Int(n)) => n == 1,
        Expr::Const(Const::Float(bits)) => (f64::from_bits(bits) - 1.0).abs() < 1e-9,
        _ => false,
    };
    let of_torch = view.callee(value).is_some_and(|path| path.starts_with("torch."));
    named && of_torch && !args.iter().any(|a| first(&a.value)) && !has_first_order(view)
}

/// Whether the default of a parameter of the function is the first order.
pub(super) fn has_first_order(view: &View<'_>) -> bool {
    let code = view.code();
    near::has_any(code, &["norm_type: float = 1.0", "norm_type=1,", "norm_type=1)", "norm_type=1.0", "p=1)", "ord=1)"])
}

/// Whether a step makes a number of nothing, for a rank without parameters.
fn is_zero(view: &View<'_>, def: usize) -> bool {
    let text = view.text(view.place(view.steps[def].id));
    near::name_of_call(view, def).is_some_and(|name| name == "zeros" || name == "tensor" && text.contains("(0"))
}

/// Whether a variable is raised to a power, made a mean or changed in another way in place, or given to what is not followed.
fn is_changed(view: &View<'_>, total: LocalId, sum: usize) -> bool {
    let is = |o: &Operand| near::local(o) == Some(total);
    (0..view.steps.len()).filter(|at| *at != sum).any(|at| match view.steps[at].stmt {
        Stmt::Assign { value: Rvalue::CallMethod { base, name, .. }, .. } if is(base) => {
            !matches!(name.as_str(), "item" | "to" | "float" | "clone" | "detach" | "isnan" | "isinf" | "cpu" | "cuda")
        }
        Stmt::Assign { value: Rvalue::Binary { op: BinOp::Div | BinOp::Mul | BinOp::Pow, left, .. }, .. } => is(left),
        Stmt::Assign { value: Rvalue::InPlace { left, .. }, .. } => is(left),
        Stmt::Assign { value: value @ Rvalue::Call { args, .. }, .. } => {
            view.collective(value).is_some() && args.iter().any(|a| is(&a.value))
        }
        _ => false,
    })
}

/// Where a bound is divided by what a variable holds after a step.
pub(super) fn clips(view: &View<'_>, total: LocalId, after: usize) -> Option<Place> {
    let held = flow(view, std::iter::once(total).collect(), after);
    let is = |o: &Operand| near::local(o).is_some_and(|l| held.contains(&l));
    let bound = |o: &Operand| {
        let name = match view.expr(o) {
            Expr::Local(local) => view.local_name(local).to_string(),
            other => other.last_name().unwrap_or_default().to_string(),
        };
        near::has_any(&name, &["max", "clip", "bound", "threshold"])
    };
    (after + 1..view.steps.len()).find_map(|i| match view.value(i) {
        Some(Rvalue::Binary { op: BinOp::Div, left, right }) if is(right) && !is(left) && bound(left) => {
            Some(view.place(view.steps[i].id))
        }
        _ => None,
    })
}
