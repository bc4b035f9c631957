//! Training loops that sum gradients over other axes than the one over which ranks have their own data. In: a function, the reducers of
//! the project. Out: a step whose gradients nothing sums over the data axis, where gradients are divided by its size, or losses are
//! averaged over it. Never: a project that names a wrapper, an engine or a hook. Source: DESIGN.md section 7. Next: `reducers.rs`.

use super::concerned::{Concerned, When};
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::reducers::{Reducer, Test, axes_of, is_gradient, parameter_loop};
use super::view::View;
use super::{Found, Lint};
use crate::ir::{BinOp, FuncKind, Operand, Rvalue};
use crate::project::{FuncRef, Resolved};
use crate::rules::{Entry, Gives};
use crate::source::{Name, Place};

/// The axis over which ranks have other samples, as the rules call it.
const DATA: &str = "dp";

/// Words of code that may sum gradients in a way that is not followed.
pub const WRAPPERS: &[&str] = &[
    "distributeddataparallel",
    "dataparallel(",
    "ddp",
    "fsdp",
    "fully_shard",
    "fullysharded",
    "optimizer(",
    "zeroredundancy",
    "speed",
    "engine",
    "booster",
    "accelerat",
    "fabric",
    "lightning",
    "hvd",
    "horovod",
    "parallelize",
    "replicate(",
    "distribute_",
    "_hook",
    "grad_sync",
    "get_forward_backward_func",
    "bucket",
    "xla",
    "dtensor",
    "coalesc",
    "flatten_dense",
    "zero1",
    "zero_stage",
    "grad_buffer",
];

/// Methods that sum no gradients.
pub(super) const HARMLESS: &[&str] = &[
    "parameters",
    "named_parameters",
    "zero_grad",
    "step",
    "item",
    "detach",
    "clone",
    "contiguous",
    "view",
    "float",
    "div_",
    "mul_",
    "add_",
    "append",
    "format",
    "info",
    "debug",
    "items",
    "keys",
    "values",
    "get",
    "endswith",
    "startswith",
];
/// Functions that are followed from one step.
const MOST_FUNCTIONS: usize = 40;

/// Steps of optimizers over gradients that nothing sums over the data axis.
pub fn steps<'a>(lint: &Lint<'a>, view: &View<'a>, out: &mut Found) {
    if !matches!(view.func.kind, FuncKind::Function | FuncKind::Module) {
        return;
    }
    let Some((backward, last)) = region(view) else { return };
    // What comes too late is told as such.
    let late = reached(lint, view, last + 1..view.steps.len());
    if late.is_some_and(|all| lint.reducers().all.iter().any(|r| r.func != view.at && all.contains(&r.func))) {
        return;
    }
    if !(backward + 1..last).all(|i| is_followed(view, i)) || names_wrapper(lint) {
        return;
    }
    let Some(reached) = reached(lint, view, backward + 1..last) else { return };
    let (runs, idle): (Vec<&Reducer>, Vec<&Reducer>) =
        lint.reducers().all.iter().filter(|r| !is_inner(lint, r)).partition(|r| reached.contains(&r.func));
    if runs.iter().any(|r| r.axes.is_none()) {
        return;
    }
    let over = |r: &&&Reducer, axis: &str| r.axes.as_ref().is_some_and(|a| a.iter().any(|a| a == axis));
    let place = view.place(view.steps[last].id);
    let backward = view.place(view.steps[backward].id);
    if !runs.iter().any(|r| over(&r, DATA))
        && let Some((evidence, divided)) = evidence(lint)
    {
        let reducer = runs.first().map(|r| r.place);
        let (axis, parameters) = (Name::from(DATA), super::concerned::all(lint));
        let mistake = Scales::DataNotSummed { axis, backward, evidence, divided, reducer, parameters };
        out.push((place, Practice::Scales(mistake)));
        return;
    }
    // A finaliser for marked parameters that the loop leaves out, where it sums others.
    let left = idle.iter().find(|r| asks_mark(lint, r) && !runs.iter().any(|o| o.axes == r.axes));
    if let (Some(left), Some(_)) = (left, runs.first()) {
        let function = lint.project.func(left.func).name.clone();
        let (parameters, when) = taken(lint, left);
        let mistake = Scales::ReducerNotCalled { function, reducer: left.place, backward, parameters, when };
        out.push((place, Practice::Scales(mistake)));
    }
}

/// The last step of an optimizer in a function, and the backward pass before it.
pub fn region(view: &View<'_>) -> Option<(usize, usize)> {
    let method = |i: usize, wanted: &str| match view.value(i) {
        Some(Rvalue::CallMethod { base, name, .. }) if name == wanted => Some(base),
        _ => None,
    };
    let last = (0..view.steps.len()).rev().find(|i| method(*i, "step").is_some_and(|o| is_optimizer(view, o)))?;
    let backward = (0..last).rev().find(|i| method(*i, "backward").is_some())?;
    Some((backward, last))
}

/// Whether a reducer is one that only calls another one of the project.
fn is_inner(lint: &Lint<'_>, reducer: &Reducer) -> bool {
    reducer.through.is_some_and(|at| lint.reducers().all.iter().any(|r| r.func == at && r.axes.is_some()))
}

/// Whether a reducer sums the gradients of parameters with a mark of the rules.
pub fn asks_mark(lint: &Lint<'_>, reducer: &Reducer) -> bool {
    let mark = |t: &Test| matches!(t, Test::Mark(mark) if lint.rules.mark(mark).is_some());
    reducer.axes.is_some() && !reducer.when.is_empty() && reducer.when.iter().all(|all| all.iter().any(mark))
}

/// The parameters that a reducer takes by their mark, and the flags under which they are marked and it runs.
pub fn taken(lint: &Lint<'_>, reducer: &Reducer) -> (Concerned, When) {
    let mark = reducer.when.iter().flatten().find_map(|t| match t {
        Test::Mark(mark) => Some(mark),
        _ => None,
    });
    let (parameters, mut when) = mark.map(|m| super::concerned::marked(lint, m)).unwrap_or_default();
    for (flag, holds, _) in &reducer.outer {
        if !when.iter().any(|(known, _)| known == flag) {
            when.push((flag.clone(), *holds));
        }
    }
    (parameters, when)
}

/// The functions of the project that some steps of a function reach; `None` if that is not known.
pub fn reached(lint: &Lint<'_>, view: &View<'_>, steps: std::ops::Range<usize>) -> Option<Vec<FuncRef>> {
    let mut out = vec![view.at];
    let mut queue: Vec<FuncRef> = steps.filter_map(|i| calls(view, i)).collect();
    while let Some(at) = queue.pop() {
        if out.contains(&at) {
            continue;
        }
        if out.len() >= MOST_FUNCTIONS {
            return None;
        }
        out.push(at);
        let inner = lint.view(at);
        for step in 0..inner.steps.len() {
            if !is_followed(&inner, step) {
                return None;
            }
            queue.extend(calls(&inner, step));
        }
    }
    Some(out)
}

/// The function of the project that a step calls.
fn calls(view: &View<'_>, step: usize) -> Option<FuncRef> {
    match view.project.path(&view.callee(view.value(step)?)?) {
        Resolved::Func(at) => Some(at),
        _ => None,
    }
}

/// An optimizer of torch: made here, or a parameter that is annotated so.
fn is_optimizer(view: &View<'_>, operand: &Operand) -> bool {
    let Expr::Local(local) = view.expr(operand) else { return false };
    if let Some(param) = view.func.params.iter().find(|p| p.local == local) {
        return param.hint.as_deref().is_some_and(|h| h.starts_with("torch.optim.") || h == "Optimizer");
    }
    match view.defs(local) {
        [def] => view.value(*def).and_then(|v| view.callee(v)).is_some_and(|p| p.starts_with("torch.optim.")),
        _ => false,
    }
}

/// Whether a step between backward and step is known to sum nothing, or is seen by the reducers.
pub fn is_followed<'a>(view: &View<'a>, step: usize) -> bool {
    let known = |value: &'a Rvalue| {
        view.callee(value).is_some_and(|path| {
            let local = !path.contains('.');
            local
                || matches!(view.project.path(&path), Resolved::Func(_))
                || view.rules.get(&path).is_some()
                || path.starts_with("torch.")
        })
    };
    match view.value(step) {
        Some(value @ Rvalue::Call { .. }) => known(value),
        Some(value @ Rvalue::CallMethod { name, .. }) => known(value) || HARMLESS.contains(&name.as_str()),
        _ => true,
    }
}

/// Whether the project names anything that may sum gradients in a way that is not followed.
fn names_wrapper(lint: &Lint<'_>) -> bool {
    lint.sums().wraps
}

/// What says that ranks of the data axis have their own data: gradients that are divided by its size, else a collective over it of a
/// project that sums gradients over other axes.
fn evidence(lint: &Lint<'_>) -> Option<(Place, bool)> {
    let mut reduced = None;
    for module in lint.project.modules.ids() {
        let file = lint.project.file(module);
        if !lint.files.says(file, "data_parallel") && !lint.files.says(file, DATA) {
            continue;
        }
        let m = &lint.project.modules[module];
        for (func, f) in m.ir.funcs.iter_enumerated() {
            if f.kind != FuncKind::Function {
                continue;
            }
            let view = lint.view(FuncRef { module, func });
            for step in 0..view.steps.len() {
                if divides(&view, step) {
                    return Some((view.place(view.steps[step].id), true));
                }
                let group = view.value(step).and_then(|v| view.collective(v)).and_then(|c| axes_of(&view, c.group?));
                if reduced.is_none() && group.is_some_and(|axes| axes.iter().any(|a| a == DATA)) {
                    reduced = Some(view.place(view.steps[step].id));
                }
            }
        }
    }
    let has_own = lint.reducers().all.iter().any(|r| r.axes.is_some());
    reduced.filter(|_| has_own).map(|place| (place, false))
}

/// `param.grad /= get_data_parallel_world_size()` in a loop over parameters.
fn divides(view: &View<'_>, step: usize) -> bool {
    let by = match view.value(step) {
        Some(Rvalue::Binary { op: BinOp::Div, left, right } | Rvalue::InPlace { op: BinOp::Div, left, right })
            if is_gradient(&view.through(left)) =>
        {
            right
        }
        Some(Rvalue::CallMethod { base, name, args }) if name == "div_" && is_gradient(&view.through(base)) => {
            let Some(arg) = args.first() else { return false };
            &arg.value
        }
        _ => return false,
    };
    let Expr::Call { callee, .. } = super::near::deep(view, &view.through(by)) else { return false };
    let size = callee.path().and_then(|p| view.rules.get(p));
    let data =
        matches!(size, Some(Entry::Group(rule)) if rule.gives == Gives::Size && rule.axes.iter().any(|a| a == DATA));
    data && parameter_loop(view, step).is_some()
}
