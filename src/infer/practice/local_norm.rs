//! Norms over the local parts of distributed gradients. In: a function. Out: squares of `to_local()` gradients of a sharded model that go
//! through a root and scale gradients without a sum over ranks, and the local value of a norm that is a distributed tensor. Never: a
//! value that is handed to anything that may sum it, or a root of each entry alone. Next: `shard_norm.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::shard_norm::norm;
use super::training::Training;
use super::view::{Step, View};
use super::wrapped::{Wrapped, call, function, given, parameters_of, says, wrappers};
use crate::ir::{ArgKind, BinOp, Const, LocalId, Operand, Rvalue, Stmt};
use crate::rules::Keeps;
use crate::source::{Name, Place};
use rustc_hash::FxHashSet;
use std::rc::Rc;

const MOST_DEPTH: usize = 6;
const MOST_CALLERS: usize = 3;
/// What makes squares of gradients, and what makes distributed ones whole.
const SQUARES: &[&str] =
    &[".pow(2).sum()", ".square().sum()", "norm()**2", "norm() ** 2", ".norm().pow(2)", "(g * g).sum()"];
const WHOLE: &[&str] = &["full_tensor", "redistribute", "from_local", "reduce"];
/// Methods that change what they are called on.
const FILLS: &[&str] = &["append", "extend", "add_", "mul_", "copy_", "div_", "pow_", "sqrt_"];

/// Variables that hold what comes from some others.
pub(super) type Held = FxHashSet<LocalId>;

/// `sqrt` of a sum over local parts, as a factor of gradients.
pub fn roots(view: &View<'_>, out: &mut Found) {
    let code = view.code();
    if !["sqrt", "norm", "0.5"].iter().any(|w| code.contains(w)) || !code.contains("grad") {
        return;
    }
    let Some((held, from)) = local_gradients(view) else { return };
    let Some(wrapped) = from.iter().find_map(|e| sharded(view, e, MOST_DEPTH)) else { return };
    let held = flow(view, held, 0);
    if leaves(view, &held) {
        return;
    }
    let summed = summed(view, &held);
    for (i, step) in view.steps.iter().enumerate() {
        if !is_root(view, i, &summed) {
            continue;
        }
        let after = flow(view, view.binds(i).iter().copied().collect(), i);
        if !scales(view, &after, &held) {
            continue;
        }
        let mistake = Training::LocalNorm { wrapped: wrapped.place(), summed: Vec::new() };
        out.push((view.place(step.id), Practice::Training(mistake)));
        return;
    }
}

/// The same of gradients that are chosen by a mark of split parameters: `if p.tensor_model_parallel or tp_rank == 0: total += square`. What
/// counts a whole parameter on one rank alone makes no sense without a sum over the ranks.
pub fn roots_of_marked(view: &View<'_>, out: &mut Found) {
    let code = view.code();
    let marked = view.rules.marks().iter().any(|mark| code.contains(mark.to_lowercase().as_str()));
    if !marked || !code.contains(".grad") || !view.collectives().is_empty() {
        return;
    }
    let gradient = |i: &usize| matches!(view.value(*i), Some(Rvalue::Attr { name, .. }) if name == "grad");
    let gradients: Held = (0..view.steps.len()).filter(gradient).flat_map(|i| view.binds(i)).collect();
    let held = flow(view, gradients, 0);
    if leaves(view, &held) {
        return;
    }
    let Some((asked, mark)) = view.steps.iter().find_map(|step| counts_marked(view, step, &held)) else { return };
    let summed = summed(view, &held);
    for (i, step) in view.steps.iter().enumerate() {
        if !is_root(view, i, &summed) {
            continue;
        }
        let after = flow(view, view.binds(i).iter().copied().collect(), i);
        if scales(view, &after, &held) {
            out.push((view.place(step.id), Practice::Training(Training::MarkedNorm { mark, asked })));
            return;
        }
    }
}

/// Whether a step adds to a sum where a parameter is marked as split, or one rank asks: the condition, and the mark.
fn counts_marked(view: &View<'_>, step: &Step<'_>, held: &Held) -> Option<(Place, Name)> {
    let (Stmt::Append { .. }
    | Stmt::Assign {
        value: Rvalue::InPlace { op: BinOp::Add, .. } | Rvalue::Binary { op: BinOp::Add, .. }, ..
    }) = step.stmt
    else {
        return None;
    };
    let is_held = |o: &&Operand| near::local(o).is_some_and(|l| held.contains(&l));
    if !step.stmt.operands().iter().any(is_held) {
        return None;
    }
    step.guards.iter().filter(|guard| guard.holds).find_map(|guard| {
        let test = near::deep(view, &view.expr(guard.test));
        let (mut mark, mut one) = (None, false);
        test.any(&mut |e| {
            let named = match e {
                Expr::Attr(_, name) => Some(name.as_str()),
                other => other.string().map(|s| s.as_str()),
            };
            mark = mark.take().or_else(|| view.rules.marks().iter().find(|m| Some(m.as_str()) == named).cloned());
            one = one || matches!(e, Expr::Compare(..)) && says(view, e, &["rank"]);
            false
        });
        mark.filter(|_| one).map(|mark| (view.place(guard.at), mark))
    })
}

/// Variables with local parts of gradients, and the parameters that they are of.
fn local_gradients(view: &View<'_>) -> Option<(Held, Vec<Expr>)> {
    let (mut held, mut from) = (Held::default(), Vec::new());
    for i in 0..view.steps.len() {
        let Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) = view.value(i) else { continue };
        if let Some(parameter) = local_part(view, value) {
            held.extend(view.binds(i));
            from.push(parameter);
            continue;
        }
        let Some((callee, args)) = call(view, value) else { continue };
        let Some(at) = function(view, &callee) else { continue };
        let inner = near::other(view, at);
        if !inner.code().contains(".grad") || collects(&inner).is_none() {
            continue;
        }
        held.extend(view.binds(i));
        from.extend(args.into_iter().map(|(_, e)| e));
    }
    (!held.is_empty()).then_some((held, from))
}

/// The parameter of `p.grad.to_local()`.
fn local_part(view: &View<'_>, value: &Rvalue) -> Option<Expr> {
    let Rvalue::CallMethod { base, name, .. } = value else { return None };
    if name != "to_local" {
        return None;
    }
    match view.through(base) {
        Expr::Attr(parameter, name) if name == "grad" => Some(*parameter),
        _ => None,
    }
}

/// Whether a function does nothing but collect local parts of gradients.
fn collects(inner: &View<'_>) -> Option<()> {
    let local = (0..inner.steps.len()).any(|i| inner.value(i).is_some_and(|v| local_part(inner, v).is_some()));
    let communicates =
        !inner.collectives().is_empty() || ["sum(", "norm(", "pow(", "sqrt("].iter().any(|w| inner.code().contains(w));
    let gives = inner.steps.iter().any(|s| matches!(s.stmt, Stmt::Return { value: Operand::Local(_) }));
    (local && gives && !communicates).then_some(())
}

/// The wrapper that keeps the parameters, or the list of them, that an expression stands for in distributed tensors.
fn sharded<'a>(view: &View<'a>, expr: &Expr, depth: usize) -> Option<Wrapped<'a>> {
    let depth = depth.checked_sub(1)?;
    match expr {
        Expr::Element(of) | Expr::Item(of, _) => sharded(view, of, depth),
        Expr::Local(local) if view.is_as_given(*local) => {
            given(view, *local).into_iter().find_map(|(caller, _, value)| sharded(&caller, &value, depth))
        }
        // A variable of loops.
        Expr::Local(local) if view.defs(*local).iter().any(|d| matches!(view.steps[*d].stmt, Stmt::For { .. })) => {
            let mut values = view.defs(*local).iter().map(|d| sharded(view, &view.bound(*d, *local), depth));
            let first = values.next()??;
            values.all(|v| v.is_some()).then_some(first)
        }
        _ => {
            let model = super::wrapped::parameters_in(view, expr)?;
            wrappers(view, &model, view.steps.len()).into_iter().find(|w| w.rule.keeps == Keeps::Distributed)
        }
    }
}

/// What comes from some variables after a step.
pub(super) fn flow(view: &View<'_>, mut held: Held, after: usize) -> Held {
    loop {
        let known = held.len();
        for i in after..view.steps.len() {
            let reads = |held: &Held| view.reads(i).iter().any(|o| matches!(o, Operand::Local(l) if held.contains(l)));
            match view.steps[i].stmt {
                Stmt::Append { collection, .. } if reads(&held) => {
                    held.insert(*collection);
                }
                Stmt::If { .. } | Stmt::While { .. } => {}
                _ if reads(&held) => {
                    held.extend(view.binds(i));
                    // What is filled by a method, or in place.
                    let base = match view.value(i) {
                        Some(Rvalue::CallMethod { base, name, .. }) if FILLS.contains(&name.as_str()) => Some(base),
                        _ => None,
                    };
                    held.extend(base.and_then(near::local).filter(|l| !view.is_param(*l)));
                }
                _ => {}
            }
        }
        if held.len() == known {
            return held;
        }
    }
}

/// What comes from sums over all entries of what is held. A root of each entry, or of sums along a dim, is no norm of the whole.
pub(super) fn summed(view: &View<'_>, held: &Held) -> Held {
    let sums = (0..view.steps.len()).filter(|i| is_sum(view, *i, held));
    flow(view, sums.flat_map(|i| view.binds(i)).collect(), 0)
}

/// Whether a step sums, in one way or another, over all entries of what is held.
fn is_sum(view: &View<'_>, step: usize, held: &Held) -> bool {
    let is = |o: &Operand| near::local(o).is_some_and(|l| held.contains(&l));
    let (args, name, own) = match view.value(step) {
        Some(Rvalue::CallMethod { base, name, args }) if is(base) => (args, name.to_string(), 0),
        Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) => {
            let given = args.iter().any(|a| is(&a.value));
            // The sum of Python adds the items of a list, entry by entry.
            let Some(path) = view.callee(value).filter(|path| given && path.starts_with("torch.")) else {
                return false;
            };
            (args, super::lost::last(&path).to_string(), 1)
        }
        Some(Rvalue::Binary { op: BinOp::MatMul, left, right }) => return is(left) && is(right),
        _ => return false,
    };
    let along = args.iter().any(|a| matches!(&a.kind, ArgKind::Keyword(k) if matches!(k.as_str(), "dim" | "axis")));
    let positional = args.iter().filter(|a| a.kind == ArgKind::Positional).count();
    match name.as_str() {
        "sum" | "mean" | "nansum" => !along && positional <= own,
        "norm" | "vector_norm" => !along && positional <= own + 1,
        "dot" | "vdot" | "inner" | "einsum" | "_foreach_norm" | "get_total_norm" => true,
        _ => false,
    }
}

/// Whether something is handed to what may sum it over ranks.
pub(super) fn leaves(view: &View<'_>, held: &Held) -> bool {
    (0..view.steps.len()).any(|i| {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            return false;
        };
        let is = |o: &Operand| near::local(o).is_some_and(|l| held.contains(&l));
        if !args.iter().any(|a| is(&a.value)) {
            return false;
        }
        if view.collective(value).is_some() {
            return true;
        }
        match value {
            Rvalue::CallMethod { base, name, .. } if is(base) || FILLS.contains(&name.as_str()) => false,
            _ => !view.callee(value).is_some_and(|path| {
                path.starts_with("torch.") && !path.contains("distributed")
                    || path.starts_with("math.")
                    || !path.contains('.')
                    || near::only_tells(view, i)
                    || matches!(value, Rvalue::CallMethod { name, .. } if path.starts_with('.') && is_arithmetic(name))
            }),
        }
    })
}

/// Methods of tensors that compute something of another one.
fn is_arithmetic(name: &str) -> bool {
    let own = ["mul", "div", "add", "sub", "pow", "maximum", "minimum", "dot", "lt", "gt", "le", "ge", "scatter", "to"];
    name.ends_with('_') && !name.contains("reduce") || own.contains(&name)
}

/// Whether a step takes a root of a sum of what is held, or a norm of norms.
pub(super) fn is_root(view: &View<'_>, step: usize, held: &Held) -> bool {
    let is = |o: &Operand| near::local(o).is_some_and(|l| held.contains(&l));
    let stacked =
        |o: &Operand| matches!(view.through(o), Expr::Call { callee, .. } if callee.last_name() == Some("stack"));
    match view.value(step) {
        Some(Rvalue::CallMethod { base, name, .. }) if is(base) => name == "sqrt" || name == "norm" && stacked(base),
        Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) => {
            let last = view.callee(value).map(|path| super::lost::last(&path));
            let Some(first) = args.first().filter(|a| is(&a.value)) else { return false };
            match last.as_deref() {
                Some("sqrt") => true,
                Some("norm" | "vector_norm") => stacked(&first.value),
                _ => false,
            }
        }
        Some(Rvalue::Binary { op: BinOp::Pow, left, right }) => is(left) && is_half(right),
        _ => false,
    }
}

/// Whether an order of a power is that of a root.
fn is_half(order: &Operand) -> bool {
    matches!(order, Operand::Const(Const::Float(bits)) if (f64::from_bits(*bits) - 0.5).abs() < 1e-9)
}

/// Whether gradients are scaled by something.
pub(super) fn scales(view: &View<'_>, by: &Held, gradients: &Held) -> bool {
    let is = |o: &Operand| near::local(o).is_some_and(|l| by.contains(&l));
    let gradient = |o: &Operand| {
        near::local(o).is_some_and(|l| gradients.contains(&l))
            || view.through(o).any(&mut |e| matches!(e, Expr::Attr(_, name) if name == "grad"))
    };
    (0..view.steps.len()).any(|i| match view.value(i) {
        Some(Rvalue::CallMethod { base, name, args }) if matches!(name.as_str(), "mul_" | "div_") => {
            gradient(base) && args.first().is_some_and(|a| is(&a.value))
        }
        Some(Rvalue::InPlace { op: BinOp::Mul | BinOp::Div, left, right }) => gradient(left) && is(right),
        Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) => {
            let each = view.callee(value).is_some_and(|path| path.starts_with("torch._foreach_"));
            matches!((each, &args[..]), (true, [first, second, ..]) if gradient(&first.value) && is(&second.value))
        }
        _ => false,
    })
}

/// `to_local()` of what a norm of distributed gradients gives.
pub fn partial(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(Rvalue::CallMethod { base, name, .. }) = view.value(i) else { continue };
        if name != "to_local" {
            continue;
        }
        let Some(local) = near::local(base) else { continue };
        // What stands between may have made the value whole.
        let nearest = view.defs(local).iter().rfind(|d| **d < i);
        let Some((function, taken, (wrapped, asked))) = nearest.and_then(|def| {
            let (function, shown) = distributed_norm(view, *def, local, i)?;
            Some((function, view.place(view.steps[*def].id), shown))
        }) else {
            continue;
        };
        let after = flow(view, view.binds(i).iter().copied().collect(), i);
        if !is_squared(view, &after) && !is_summed_elsewhere(view, i, &after, MOST_CALLERS) {
            let mistake = Training::PartialNorm { function, taken, wrapped, asked };
            out.push((view.place(step.id), Practice::Training(mistake)));
        }
    }
}

/// Whether a power of a norm is taken, or it is reduced. A sum over the stages of a pipeline adds other parameters, and no parts of these.
fn is_squared(view: &View<'_>, after: &Held) -> bool {
    let of_stages = |step: &Step<'_>| step.guards.iter().any(|g| says(view, &view.expr(g.test), STAGES));
    view.steps.iter().enumerate().filter(|(_, s)| !of_stages(s)).any(|(j, _)| match view.value(j) {
        Some(Rvalue::Binary { op: BinOp::Pow, left, right }) if !is_half(right) => {
            near::local(left).is_some_and(|l| after.contains(&l))
        }
        Some(Rvalue::CallMethod { base, name, .. }) if matches!(name.as_str(), "pow" | "square" | "pow_") => {
            near::local(base).is_some_and(|l| after.contains(&l))
        }
        Some(value) if view.collective(value).is_some() => {
            view.reads(j).iter().any(|o| near::local(o).is_some_and(|l| after.contains(&l)))
        }
        _ => false,
    })
}

/// Whether a value goes to what may sum it: a function that is not torch's, or a caller that is seen. What only tells it uses nothing.
fn is_summed_elsewhere(view: &View<'_>, from: usize, held: &Held, depth: usize) -> bool {
    let is = |o: &Operand| near::local(o).is_some_and(|l| held.contains(&l));
    let mut uses = false;
    for i in from + 1..view.steps.len() {
        let of_stages = view.steps[i].guards.iter().any(|g| says(view, &view.expr(g.test), STAGES));
        if of_stages || !view.reads(i).iter().any(|o| is(o)) {
            continue;
        }
        match (view.steps[i].stmt, view.value(i)) {
            (Stmt::Return { .. }, _) => {
                let callers = super::called::callers(view);
                let sums = |(caller, at): &(Rc<View<'_>>, usize)| {
                    let held = flow(caller, caller.binds(*at).iter().copied().collect(), *at);
                    is_squared(caller, &held) || is_summed_elsewhere(caller, *at, &held, depth - 1)
                };
                if !callers.is_empty() && depth == 0 || callers.iter().any(sums) {
                    return true;
                }
                uses = true;
            }
            (_, Some(Rvalue::CallMethod { base, name, .. })) if is(base) => {
                if matches!(name.as_str(), "redistribute" | "full_tensor") {
                    return true;
                }
            }
            (_, Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. }))) => {
                // Who tells that it is of one rank means it.
                if near::only_tells(view, i) || matches!(value, Rvalue::CallMethod { name, .. } if name == "log") {
                    let text = view.text(view.place(view.steps[i].id)).to_lowercase();
                    uses = uses || !near::has_any(&text, &["rank", "local part"]);
                    continue;
                }
                let path = view.callee(value).unwrap_or_default();
                let path = path.trim_start_matches("builtins.");
                let plain = path.starts_with("torch.") && !path.contains("distributed");
                if !plain
                    && !matches!(path, "float" | "min" | "max" | "isinstance" | "abs")
                    && !path.starts_with("math.")
                {
                    return true;
                }
                uses = true;
            }
            (_, Some(Rvalue::Use(_))) => {}
            _ => uses = true,
        }
    }
    !uses
}

/// Words of conditions that there are several stages.
const STAGES: &[&str] = &["pp_", "_pp", "pipe", "stage"];

/// The norm that a variable is bound to, if it is a distributed tensor where a step reads it: the function, and what says so; `true`: a test.
fn distributed_norm(view: &View<'_>, def: usize, local: LocalId, reader: usize) -> Option<(Name, (Place, bool))> {
    if let Some((function, args)) = norm(view, def) {
        let model = view.argument(args, 0, "parameters").and_then(|o| parameters_of(view, o))?;
        let wrapped = wrappers(view, &model, def).into_iter().find(|w| w.rule.keeps == Keeps::Distributed);
        if let Some(wrapped) = wrapped {
            return Some((function, (wrapped.place(), false)));
        }
    }
    let value = view.value(def)?;
    let path = view.callee(value)?;
    let wrappers = view.rules.wrappers();
    let squares = || {
        let text = view.text(view.place(view.steps[def].id));
        near::has_any(text, SQUARES)
            && (near::has_any(text, &["grad", " g ", " g in"]) || view.func.name.contains("norm"))
            && !near::has_any(view.code(), WHOLE)
    };
    let of_squares = path.trim_start_matches("builtins.") == "sum" && squares();
    let guard = view.steps[reader].guards.iter().find(|g| g.holds && is_asked(view, &view.expr(g.test), local))?;
    (wrappers.is_norm(&path) || wrappers.is_norm_of_tensors(&path) || of_squares)
        .then(|| (super::lost::last(&path), (view.part(guard.at, 0), true)))
}

/// `isinstance(x, DTensor)` of a variable.
fn is_asked(view: &View<'_>, test: &Expr, local: LocalId) -> bool {
    match test.call_of("isinstance") {
        Some([(_, of), (_, class)]) => {
            *of == Expr::Local(local) && near::deep(view, class).last_name() == Some("DTensor")
        }
        _ => false,
    }
}
