//! Norms of the gradients of one stage of a pipeline. In: a function. Out: the gradients of what a rank has of a model are clipped by a function
//! that knows of no other rank, in a class or function that runs the schedule of a pipeline and steps: every stage scales by another norm. Never:
//! where a test asks for the pipeline, anything of the file sums norms, the largest norm is given by stages, or a comment says that each stage
//! is clipped by itself. Source: torchtitan, pull request 649. Next: `shard_norm.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::group_argument::{STAGES, called, names_group, schedule_steps};
use super::training::Training;
use super::view::View;
use super::{Found, near, shard_norm};
use crate::ir::{Arg, FuncKind, Operand, Rvalue};
use crate::source::{Name, Place};
use std::rc::Rc;

/// How comments say that stages are meant to be clipped one by one.
const EACH: &[&str] =
    &["per stage", "per-stage", "each stage", "stage-local", "own stage", "stage's own", "stage local"];

/// Words by which code calls the model, or all of its parameters.
const MODEL: &[&str] = &["model", "module", "stage", "params", "parameters", "grads", "chunk"];

/// `self.pp_schedule.step(x)`, and `clip_grad_norm_(parameters, most)` before the optimizer steps.
pub fn clipped(view: &View<'_>, out: &mut Found) {
    let clips = |i: usize| {
        let found = shard_norm::norm(view, i).filter(|_| !is_method(view, i)).or_else(|| own_clip(view, i));
        found.map(|(name, args)| (i, name, args))
    };
    let all: Vec<_> = (0..view.steps.len()).filter_map(clips).collect();
    if all.is_empty() {
        return;
    }
    let beside = beside(view);
    let Some(schedule) = beside.iter().find_map(|other| runs(other)) else { return };
    if !beside.iter().any(|other| steps(other)) || reduces_norms(view) {
        return;
    }
    if near::notes(view).iter().any(|note| near::has_any(&note.text, EACH)) {
        return;
    }
    for (i, function, args) in all {
        // What is clipped may be called a stage; a bound that is made of their number may be right.
        let told = args.iter().skip(1).any(|a| view.through(&a.value).any(&mut |e| speaks_of_stages(view, e)));
        let guarded = view.steps[i]
            .guards
            .iter()
            .any(|g| near::deep(view, &view.through(g.test)).any(&mut |e| speaks_of_stages(view, e)));
        // One parameter at a time is clipped alike on every stage, and a part beside the model has a step of its own.
        let said = view.text(view.part(view.steps[i].id, 1)).to_lowercase();
        let is_beside = said.starts_with("self.") && said.ends_with(".parameters()") || !said.contains(['(', '[', '.']);
        let of_model = !is_beside || near::has_any(said.trim_end_matches(".parameters()"), MODEL);
        if told || guarded || !of_model || shard_norm::only_measures(view, args) || shard_norm::is_whole_here(view, i) {
            continue;
        }
        out.push((view.place(view.steps[i].id), Practice::Training(Training::StageNorm { function, schedule })));
    }
}

/// A call of a function of the project that clips as torch does, and is given no ranks.
fn own_clip<'a>(view: &View<'a>, step: usize) -> Option<(Name, &'a [Arg])> {
    let (at, args) = called(view, step)?;
    let inner = near::shared(view, at);
    let alone = !near::communicates(&inner) && !inner.func.params.iter().any(names_group);
    let wrappers = view.rules.wrappers();
    let norm = |i: usize| {
        let path = inner.value(i).and_then(|value| inner.callee(value));
        path.is_some_and(|path| wrappers.is_norm(&path) || wrappers.is_norm_of_tensors(&path))
    };
    let clips = || (0..inner.steps.len()).any(norm);
    (alone && clips()).then(|| (inner.func.name.clone(), args))
}

/// Whether a step calls a method of an object, which may know of other ranks.
fn is_method(view: &View<'_>, step: usize) -> bool {
    view.value(step).and_then(|value| view.callee(value)).is_none_or(|path| path.starts_with('.'))
}

/// The functions that run together with one: the methods of its class; of no class, itself.
fn beside<'a>(view: &View<'a>) -> Vec<Rc<View<'a>>> {
    match near::class_of(view) {
        Some(class) => near::methods(view, class),
        None => vec![near::shared(view, view.at)],
    }
}

/// Where a function runs the schedule of a pipeline on something.
fn runs(view: &View<'_>) -> Option<Place> {
    schedule_steps(view).find(|(_, args)| !args.is_empty()).map(|(i, _)| view.place(view.steps[i].id))
}

/// Whether a function lets an optimizer step.
fn steps(view: &View<'_>) -> bool {
    let optimizes =
        |base: &Operand| view.name_of(&view.expr(base)).is_some_and(|name| name.to_lowercase().contains("opt"));
    (0..view.steps.len()).any(|i| match view.value(i) {
        Some(Rvalue::CallMethod { base, name, .. }) => name == "step" && optimizes(base),
        _ => false,
    })
}

/// Whether anything in the file may reduce a norm over ranks: a function that communicates and speaks of norms, or of gradients over stages.
fn reduces_norms(view: &View<'_>) -> bool {
    near::functions(view, view.at.module).into_iter().any(|at| {
        if view.project.func(at).kind != FuncKind::Function {
            return false;
        }
        let other = near::shared(view, at);
        let code = other.code();
        let reduces = near::has_any(code, &["all_reduce", "all_gather", "allreduce", "psum"]);
        reduces && (code.contains("norm") || STAGES.iter().any(|word| near::words(code, word).next().is_some()))
    })
}

fn speaks_of_stages(view: &View<'_>, expr: &Expr) -> bool {
    let of = |name: &str| STAGES.iter().chain(&["stage", "stages", "schedule"]).any(|word| near::has_part(name, word));
    view.name_or_callee(expr).is_some_and(of) || expr.string().is_some_and(|text| of(text))
}
