//! Training loops that sum gradients over other axes than the one over which ranks have their own data. In: a function, the reducers of
//! the project. Out: a step whose gradients nothing sums over the data axis, where gradients are divided by its size, or losses are
//! averaged over it. Never: a project that names a wrapper, an engine or a hook. Source: DESIGN.md section 7. Next: `reducers.rs`.

use super::expr::Expr;
use super::found::{Practice, Scales};
use super::reducers::{axes_of, is_gradient, parameter_loop};
use super::view::View;
use super::{Found, Lint};
use crate::ir::{BinOp, FuncKind, Operand, Rvalue};
use crate::project::{FuncRef, Resolved};
use crate::rules::{Entry, Gives};
use crate::source::{Name, Place};

/// The axis over which ranks have other samples, as the rules call it.
const DATA: &str = "dp";

/// Words of code that may sum gradients in a way that is not followed.
const WRAPPERS: &[&str] = &[
    "distributeddataparallel",
    "dataparallel(",
    "ddp",
    "fsdp",
    "fully_shard",
    "fullysharded",
    "optimizer(",
    "zeroredundancy",
    "deepspeed",
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

/// Steps of optimizers over gradients that nothing sums over the data axis.
pub fn steps(lint: &Lint<'_>, view: &View<'_>, out: &mut Found) {
    if view.func.kind != FuncKind::Function {
        return;
    }
    let method = |i: usize, wanted: &str| match view.value(i) {
        Some(Rvalue::CallMethod { base, name, .. }) if name == wanted => Some(base),
        _ => None,
    };
    let Some(last) = (0..view.steps.len()).rev().find(|i| method(*i, "step").is_some_and(|o| is_optimizer(view, o)))
    else {
        return;
    };
    let Some(backward) = (0..last).rev().find(|i| method(*i, "backward").is_some()) else { return };
    if !(backward + 1..last).all(|i| is_followed(view, i)) || summed_elsewhere(lint) {
        return;
    }
    let Some((evidence, divided)) = evidence(lint) else { return };
    let mistake = Scales::DataNotSummed {
        axis: Name::from(DATA),
        backward: view.place(view.steps[backward].id),
        evidence,
        divided,
        reducer: lint.reducers.all.iter().find(|r| r.through.is_none()).map(|r| r.place),
    };
    out.push((view.place(view.steps[last].id), Practice::Scales(mistake)));
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
fn is_followed(view: &View<'_>, step: usize) -> bool {
    match view.value(step) {
        Some(value @ Rvalue::Call { .. }) => view.callee(value).is_some_and(|path| {
            path.starts_with("torch.") || matches!(view.project.path(&path), Resolved::Func(_)) || !path.contains('.')
        }),
        Some(Rvalue::CallMethod { args, .. }) => {
            args.is_empty() || view.value(step).and_then(|v| view.callee(v)).is_some()
        }
        _ => true,
    }
}

/// Whether some reducer may sum over the data axis, or the project has none of its own, or names what may sum.
fn summed_elsewhere(lint: &Lint<'_>) -> bool {
    let own = |at: FuncRef| lint.reducers.all.iter().any(|r| r.func == at && r.axes.is_some());
    let may = |axes: &Option<Vec<Name>>| axes.as_ref().is_none_or(|a| a.iter().any(|a| a == DATA));
    let all = &lint.reducers.all;
    let sums = all.iter().any(|r| may(&r.axes) && !r.through.is_some_and(own));
    sums || lint.project.modules.iter().any(|m| {
        let text = lint.files[m.file].text.to_lowercase();
        WRAPPERS.iter().any(|w| text.contains(w))
    })
}

/// What says that ranks of the data axis have their own data: gradients that are divided by its size, else a collective over it of a
/// project that sums gradients over other axes.
fn evidence(lint: &Lint<'_>) -> Option<(Place, bool)> {
    let mut reduced = None;
    for (module, m) in lint.project.modules.iter_enumerated() {
        let text = &lint.files[m.file].text;
        if !text.contains("data_parallel") && !text.contains(DATA) {
            continue;
        }
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
    let has_own = lint.reducers.all.iter().any(|r| r.axes.is_some());
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
