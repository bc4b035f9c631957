//! Gradients that a function gives instead of the backward pass. In: a function with a call of `torch.autograd.grad` for the parameters of a model that is wrapped.
//! Out: that call, where its results become the gradients that an optimizer steps with: the hooks with
//! which the wrapper sums sit where gradients are accumulated, and this call accumulates none. Never: parameters that are changed by hand and may be put back, a graph that goes on, a backward pass beside it, or a
//! file that sums anything but what it reports. Source: torch.nn.parallel.DistributedDataParallel. Next: `no_forward.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::quiet::{is_file_quiet, is_handed_on, is_optimizer_quiet, is_quiet, is_read_whole};
use super::ranks::LONE_JOB;
use super::unshared::Unshared;
use super::view::View;
use super::wrapped::{Wrapped, parameters_of, wrappers};
use crate::ir::{ArgKind, BinOp, Const, LocalId, Operand, Rvalue, Stmt};
use crate::project::Resolved;
use crate::rules::Keeps;
use crate::source::Name;

/// Words of files in which gradients may be brought together, or ranks have nothing to share.
const OTHERWISE: &[&str] = &[
    "all_reduce",
    "reduc",
    "gather",
    "scatter",
    "all_to_all",
    "alltoall",
    "rpc",
    "mpi",
    "comm",
    "sync",
    "mean_over",
    "average",
    "load_state_dict",
    ".copy_(",
    "rank !=",
    "rank ==",
    LONE_JOB,
    "world_size == 1",
    "autograd.function",
    "manual_seed",
];

/// Methods that change a parameter, or a gradient, by what they are given.
const CHANGES: &[&str] = &["copy_", "sub_", "add_"];

/// `grads = torch.autograd.grad(loss, params)`, `p.grad = g`, `optimizer.step()`
pub fn stepped(view: &View<'_>, out: &mut Found) {
    for step in 0..view.steps.len() {
        let Some((wrapped, model, grads)) = taken(view, step) else { continue };
        let Some(put) = (step + 1..view.steps.len()).find(|at| puts(view, *at, grads)) else { continue };
        // What is changed by hand may be put back.
        if changes_parameter(view, put) {
            continue;
        }
        let Some(last) = (put + 1..view.steps.len()).find(|at| is_step(view, *at)) else { continue };
        let text = near::bare(view.file());
        if !is_read_whole(&text, &[], OTHERWISE)
            || text.contains(".backward(")
            || !is_file_quiet(view)
            || !is_quiet(view, step + 1..last, None)
        {
            return;
        }
        if is_handed_on(view, &model, last + 1..view.steps.len(), None) {
            return;
        }
        let Some(model) = view.name_of(&model).map(Name::from) else { return };
        let wrapper = super::lost::last(&wrapped.rule.name);
        let mistake =
            Unshared::HooksNotRun { model, wrapper, wrapped: wrapped.place(), put: view.place(view.steps[put].id) };
        out.push((view.place(view.steps[step].id), Practice::Unshared(mistake)));
        return;
    }
}

/// How a model was wrapped for whose parameters a step takes gradients, the model, and what holds the gradients.
fn taken<'a>(view: &View<'a>, step: usize) -> Option<(Wrapped<'a>, Expr, LocalId)> {
    let Stmt::Assign { dst, value } = view.steps[step].stmt else { return None };
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    if view.callee(value)? != "torch.autograd.grad" || view.without_gradient(step) {
        return None;
    }
    // What is differentiated again is no step.
    let goes_on = args.iter().any(|a| {
        let off = matches!(a.value, Operand::Const(Const::Bool(false) | Const::None));
        matches!(&a.kind, ArgKind::Keyword(k) if k == "create_graph") && !off || a.kind == ArgKind::DoubleStar
    });
    let inputs = view.argument(args, 1, "inputs").filter(|_| !goes_on)?;
    let model = parameters_of(view, inputs)?;
    let mut all = wrappers(view, &model, step).into_iter();
    let (Some(wrapped), None) = (all.next(), all.next()) else { return None };
    // Sharded wrappers have no parameters of their own names any more.
    let copies = !wrapped.rule.in_place && wrapped.rule.keeps == Keeps::Whole;
    copies.then_some((wrapped, model, *dst))
}

/// Whether a value is made of the gradients.
fn is_made_of(view: &View<'_>, value: &Operand, grads: LocalId) -> bool {
    near::reached(view, value, |_| true).contains(&grads)
}

/// `p.grad = g`, `p.grad.copy_(g)`, `p.data.sub_(lr * g)`, `p -= lr * g`, or a function of the file that does the first for all.
fn puts(view: &View<'_>, step: usize, grads: LocalId) -> bool {
    match view.steps[step].stmt {
        Stmt::SetAttr { name, value, .. } => name == "grad" && is_made_of(view, value, grads),
        Stmt::Assign { value: Rvalue::Call { callee, args }, .. } => {
            let given = args.iter().any(|arg| is_made_of(view, &arg.value, grads));
            given && near::function(view, callee).is_some_and(|at| sets_gradients(&near::shared(view, at)))
        }
        _ => changes_by(view, step, Some(grads)),
    }
}

/// Whether a function sets gradients in a loop.
fn sets_gradients(inner: &View<'_>) -> bool {
    inner.steps.iter().any(|s| matches!(s.stmt, Stmt::SetAttr { name, .. } if name == "grad") && !s.loops.is_empty())
}

/// Whether a step changes a parameter, or its gradient, in place, by these gradients if they are given.
fn changes_by(view: &View<'_>, step: usize, grads: Option<LocalId>) -> bool {
    let by = |value: &Operand| grads.is_none_or(|grads| is_made_of(view, value, grads));
    match view.steps[step].stmt {
        Stmt::Assign { value: Rvalue::CallMethod { base, name, args }, .. } => {
            let target = matches!(view.expr(base), Expr::Attr(_, of) if matches!(of.as_str(), "grad" | "data"))
                || is_round_variable(view, base);
            CHANGES.contains(&name.as_str()) && target && args.iter().any(|arg| by(&arg.value))
        }
        Stmt::Assign { value: Rvalue::InPlace { op: BinOp::Sub, left, right }, .. } => {
            let target = matches!(view.expr(left), Expr::Attr(_, of) if of == "data") || is_round_variable(view, left);
            target && by(right)
        }
        _ => false,
    }
}

/// Whether an operand is a variable of a loop over a model's parameters.
fn is_round_variable(view: &View<'_>, operand: &Operand) -> bool {
    let Some(local) = near::local(operand).filter(|l| !view.is_temp(*l)) else { return false };
    view.steps.iter().any(|s| match s.stmt {
        Stmt::For { dst, .. } => *dst == local || unpacked(view, *dst).contains(&local),
        _ => false,
    })
}

/// The variables that a loop takes its element apart into.
fn unpacked<'a>(view: &View<'a>, element: LocalId) -> &'a [LocalId] {
    let of = |s: &super::view::Step<'a>| match s.stmt {
        Stmt::Unpack { value: Operand::Local(value), before, .. } if *value == element => Some(&**before),
        _ => None,
    };
    view.steps.iter().find_map(of).unwrap_or_default()
}

/// Whether what a step changes is the parameter itself, and no optimizer has to.
fn changes_parameter(view: &View<'_>, step: usize) -> bool {
    let of_gradient = match view.value(step) {
        Some(Rvalue::CallMethod { base, .. }) => matches!(view.expr(base), Expr::Attr(_, of) if of == "grad"),
        _ => false,
    };
    changes_by(view, step, None) && !of_gradient
}

/// `optimizer.step()`, of one that does nothing else.
fn is_step(view: &View<'_>, step: usize) -> bool {
    let Some(Rvalue::CallMethod { base, name, args }) = view.value(step) else { return false };
    let optimizer = args.first().map_or(base, |arg| &arg.value);
    let expr = view.expr(optimizer);
    let named = view.name_of(&expr).is_some_and(|name| {
        let name = name.to_lowercase();
        name.contains("optim") || near::has_part(&name, "opt")
    });
    name == "step" && named && !is_own_optimizer(view, optimizer) && is_optimizer_quiet(view, optimizer)
}

/// Whether an optimizer is one of the project: its step may do more.
fn is_own_optimizer(view: &View<'_>, optimizer: &Operand) -> bool {
    let Some((_, value)) = view.source(optimizer) else { return false };
    view.callee(value).is_some_and(|path| matches!(view.project.path(&path), Resolved::Class(_) | Resolved::Func(_)))
}
