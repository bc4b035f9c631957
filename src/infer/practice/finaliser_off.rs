//! A finaliser of gradients that is taken out and never put in its place. In: a function that waits for the model's own reduction of
//! gradients, and its file. Out: that call, where the file sets the finaliser to nothing or has none, steps, and neither calls it nor sums anything
//! itself, though it speaks of ranks that split the model. Never: a file that hands the finaliser on, or one for data parallelism alone.
//! Source: NeMo-RL, issue 3716; Megatron-LM, `finalize_model_grads`. Next: `uncalled.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::training::Training;
use super::view::View;
use crate::ir::{Const, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::{Name, Place, Span};
use std::rc::Rc;

/// A part of names of what finishes gradients, and of the attributes that hold it.
const FINISHES: &str = "finali";

/// How a file says that ranks have parts of a sequence. Of the whole sequence all ranks have the same gradients of what they all have.
const SPLIT: &[&str] = &[
    "sequence_parallel",
    "sequence parallel",
    "sequence-parallel",
    "part of the sequence",
    "sequence shard",
    "shard of the sequence",
];

/// How comments speak of weights that ranks share, and of what makes the gradient of each rank another one.
const WEIGHTS: &[&str] = &[
    "layernorm",
    "layer norm",
    "layer-norm",
    "rmsnorm",
    "norms",
    "norm weight",
    "norm grad",
    "norm scale",
    "replicated",
    "router",
    "embedding",
    "tied",
    "shared weight",
];
const DIFFERS: &[&str] = &[
    "local head",
    "own head",
    "different head",
    "other head",
    "'s head",
    "partial",
    "part of",
    "local token",
    "own token",
    "stages",
    "first and the last",
    "first and last",
];

/// Parts of names of gradients that a call of its own may sum.
const OWN_WAYS: &[&str] = &["tensor", "norm", "embed", "sequence", "replicated", "tied", "shared", "partial"];

/// Parts of names of numbers that are summed to divide by, or to be shown.
const COUNTED: &[&str] = &["token", "num_", "count", "loss", "norm", "metric", "stat"];

/// How a line says that an axis has one rank, or that nothing is split.
const DENIES: &[&str] =
    &["== 1", "=1", "= 1", "is 1", "=false", "= false", ": false", "without", "only data", "disabled"];

/// What reads an attribute or an entry.
const READS: &[&str] = &["getattr", "get", "pop", "hasattr", "setattr", "setdefault"];

/// Parts of names of what runs a backward pass.
const RUNS: &[&str] = &["backward", "forward", "train_step", "run_"];

/// Parts of names of functions that end a run.
const ENDS: &[&str] = &["restore", "abort", "reset", "finish", "end", "close", "exit", "setup", "init", "build"];

/// `model.finish_grad_sync()`, where the file has `config.finalize_func = None`, or runs the backward pass itself and has no finaliser
pub fn steps(view: &View<'_>, out: &mut Found) {
    let Some(at) = (0..view.steps.len()).rev().find(|step| syncs(view, *step)) else { return };
    let module = near::functions(view, view.at.module);
    let functions: Vec<Rc<View<'_>>> = module.into_iter().map(|at| near::shared(view, at)).collect();
    let any =
        |is: &dyn Fn(&View<'_>, usize) -> bool| functions.iter().any(|f| (0..f.steps.len()).any(|step| is(f, step)));
    let off = functions.iter().find_map(|f| taken_out(f));
    if off.is_none() && (!any(&runs_backward) || view.file().contains(FINISHES)) {
        return;
    }
    let kept: Vec<Name> = functions.iter().flat_map(|f| kept(f)).collect();
    if !any(&is_step) || any(&|f, step| finishes(f, step, &kept) || sums(f, step)) {
        return;
    }
    let Some(split) = split(view, off.is_none()) else { return };
    let Some(method) = view.value(at).and_then(|value| near::written_name(view, value)) else { return };
    if view.project.methods_named(&method).iter().any(|(class, _)| class.module == view.at.module) {
        return;
    }
    out.push((view.place(view.steps[at].id), Practice::Training(Training::FinaliserOff { method, off, split })));
}

/// `loss.backward()`
fn runs_backward(view: &View<'_>, step: usize) -> bool {
    matches!(view.value(step), Some(Rvalue::CallMethod { name, .. }) if name == "backward")
}

/// Whether a step calls the model's own reduction of gradients.
fn syncs(view: &View<'_>, step: usize) -> bool {
    let Some(Rvalue::CallMethod { base, name, .. }) = view.value(step) else { return false };
    is_sync(name) && !near::is_self(view, base) && view.expr(base) != Expr::Unknown
}

fn is_sync(name: &str) -> bool {
    name.contains("grad")
        && (name.contains("sync") || name.contains("reduce"))
        && !near::has_any(name, &["no_sync", "set_", "requires", "is_"])
        && !near::has_any(name, OWN_WAYS)
}

fn is_step(view: &View<'_>, step: usize) -> bool {
    matches!(view.value(step), Some(Rvalue::CallMethod { name, .. }) if name == "step")
}

fn is_finaliser(name: &str) -> bool {
    let name = name.to_lowercase();
    name.contains(FINISHES) && name.contains("grad")
}

/// Where a step sets a finaliser to nothing.
fn taken_out(view: &View<'_>) -> Option<(Name, Place)> {
    (0..view.steps.len()).find_map(|step| {
        let (name, nothing) = set(view, step)?;
        nothing.then(|| (name, view.place(view.steps[step].id)))
    })
}

/// The finaliser that a step sets, and whether it sets nothing.
fn set(view: &View<'_>, step: usize) -> Option<(Name, bool)> {
    let (name, value) = match (view.steps[step].stmt, view.value(step)) {
        (Stmt::SetAttr { name, value, .. }, _) => (name.clone(), value),
        (_, Some(Rvalue::Call { callee: Operand::Global(f), args })) if f == "setattr" => {
            let [_, name, value] = &args[..] else { return None };
            (view.expr(&name.value).string()?.clone(), &value.value)
        }
        _ => return None,
    };
    is_finaliser(&name).then(|| (name, is_nothing(view, value)))
}

/// `None`, or a function that does nothing.
fn is_nothing(view: &View<'_>, value: &Operand) -> bool {
    let idle = |at: FuncRef| {
        let text = view.files[view.project.file(at.module)].slice(view.project.func(at).span);
        let said = near::bare(text);
        let body = said.rsplit(':').next().unwrap_or_default().trim();
        matches!(body, "none" | "pass" | "return" | "return none")
    };
    near::deep(view, &view.expr(value)).is_none() || near::function(view, value).is_some_and(idle)
}

/// The names under which a function keeps a finaliser: of variables, attributes and entries.
fn kept(view: &View<'_>) -> Vec<Name> {
    let reads = |value: &Operand| {
        view.through(value).any(&mut |e| match e {
            Expr::Const(Const::Str(text)) => is_finaliser(text),
            other => other.last_name().is_some_and(is_finaliser),
        })
    };
    let mut out = Vec::new();
    for step in &view.steps {
        match step.stmt {
            Stmt::SetAttr { name, value, .. } if reads(value) => out.push(name.clone()),
            Stmt::SetItem { index, value, .. } if reads(value) => out.extend(view.expr(index).string().cloned()),
            Stmt::Assign { dst, value }
                if !view.is_temp(*dst) && !matches!(value, Rvalue::Build { .. }) && reads(&Operand::Local(*dst)) =>
            {
                out.push(view.local_name(*dst).clone());
            }
            _ => {}
        }
    }
    out
}

/// Whether a step calls a finaliser, hands it on, or puts one in its place where a backward pass may still come.
fn finishes(view: &View<'_>, step: usize, kept: &[Name]) -> bool {
    if let Some((_, nothing)) = set(view, step) {
        return !nothing && !is_put_back_late(view, step);
    }
    let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
        return false;
    };
    if near::written_name(view, value).is_some_and(|name| READS.contains(&name.as_str())) {
        return false;
    }
    let is = |name: &Name| name.contains(FINISHES) || kept.contains(name);
    let names = |e: &Expr| match e {
        Expr::Local(local) => is(view.local_name(*local)),
        Expr::Const(Const::Str(text)) => is(text),
        other => other.last_name().is_some_and(|name| is(&Name::from(name))),
    };
    let named = |o: &Operand| view.expr(o).any(&mut |e| names(e)) || view.through(o).any(&mut |e| names(e));
    let called = match value {
        Rvalue::CallMethod { base, name, .. } => is(name) || named(base),
        Rvalue::Call { callee, .. } => named(callee),
        _ => false,
    };
    called || args.iter().any(|arg| named(&arg.value))
}

/// Whether what a step puts in place of nothing is there after the step of the optimizer, or what makes a model.
fn is_put_back_late(view: &View<'_>, step: usize) -> bool {
    let runs = |at: usize| near::name_of_call(view, at).is_some_and(|name| near::has_any(&name, RUNS));
    if (0..view.steps.len()).any(runs) {
        return (0..step).any(|at| is_step(view, at)) && view.steps[step].loops.is_empty();
    }
    (0..step).any(|at| is_step(view, at)) || near::has_any(view.func.name.as_str(), ENDS)
}

/// Whether a step sums gradients in another way.
fn sums(view: &View<'_>, step: usize) -> bool {
    let Some(name) = near::name_of_call(view, step) else { return false };
    let of_gradients = name.contains("grad") && near::has_any(&name, OWN_WAYS) && !name.contains("grad_norm");
    let counted = || {
        let input = view.collectives().iter().find(|(at, _)| *at == step).and_then(|(_, call)| call.input);
        input.is_some_and(|o| view.name_of(&view.through(o)).is_some_and(|name| near::has_any(name, COUNTED)))
    };
    of_gradients
        || near::has_any(&name, &["all_reduce", "allreduce", "reduce_scatter"]) && !is_sync(&name) && !counted()
}

/// Where a file says that the gradients of ranks that share the model differ, or a comment does; nowhere where it says that nothing is split.
fn split(view: &View<'_>, in_comment: bool) -> Option<Place> {
    let text = view.file();
    if near::refusals(text).any(|line| near::has_any(&line.to_lowercase(), SPLIT)) {
        return None;
    }
    let mut found = None;
    let mut start = 0usize;
    for line in text.split_inclusive('\n') {
        let said = line.to_lowercase();
        let comment = said.find('#').map_or("", |at| said[at + 1..].trim_start());
        let differs = near::has_any(comment, WEIGHTS) && near::has_any(comment, DIFFERS);
        let differs = differs && (!in_comment || is_of_model(comment));
        if !comment.starts_with("bug") && (differs || near::has_any(&said, SPLIT)) {
            if near::has_any(&said, DENIES) {
                return None;
            }
            let parts = near::speaks_of(if in_comment { comment } else { &said }, SPLIT);
            if differs || parts && (!in_comment || is_of_model(comment)) {
                let indent = line.len() - line.trim_start().len();
                let from = (start + indent) as u32;
                found = found.or(Some(view.spot(Span::new(from, from + line.trim().len() as u32))));
            }
        }
        start += line.len();
    }
    found
}

/// Whether a comment speaks of ranks that share the model: ranks with parts of a sequence may be reduced over like data ranks.
fn is_of_model(comment: &str) -> bool {
    let of_weights =
        near::has_any(comment, WEIGHTS) && near::has_any(comment, &["sequence_parallel", "sequence parallel"]);
    of_weights
        || near::has_word(comment, "tp")
        || near::has_any(comment, &["tensor parallel", "tensor-parallel", "model parallel", "model-parallel"])
}
