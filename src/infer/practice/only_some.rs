//! What communicates without saying so, on some ranks only. In: a function. Out: under a test of the rank among all, a call of a function of the
//! project that communicates over all ranks whatever it is given; the only barrier of a file; what a library does with all ranks. Never: a
//! counterpart on the other ranks, a branch that calls something which may hold it, or a test that asks for the number of ranks as well.
//! Source: torch.distributed, `barrier`; torch.distributed.checkpoint, `save`; torch.distributed.tensor, `DTensor.full_tensor`.
//! Next: `ranks.rs`, whose tests these are.

use super::Found;
use super::found::Practice;
use super::lost::last;
use super::ranks::{ALONE_WORDS, by_rank, is_exit, mentions, other_branch_calls, same, without_group};
use super::raw::{Sort, raw};
use super::view::{Guard, View};
use super::wrapped;
use crate::ir::{Arg, ArgKind, Rvalue};
use crate::project::{ClassRef, FuncRef};
use crate::source::Name;

/// Functions of libraries that every rank has to call, and the argument that says otherwise.
const TOGETHER: &[&str] = &[
    "torch.distributed.checkpoint.save",
    "torch.distributed.checkpoint.load",
    "torch.distributed.checkpoint.state_dict_saver.save",
    "torch.distributed.checkpoint.state_dict_loader.load",
];
const ALONE: &[&str] = &["no_dist", "process_group", "use_collectives"];

/// How many calls lie between a test and what communicates.
const MOST_CALLS: usize = 2;

pub fn calls(view: &View<'_>, out: &mut Found) {
    if view.func.is_generator || view.func.name.starts_with("__") {
        return;
    }
    for i in 0..view.steps.len() {
        let guards = &view.steps[i].guards;
        let Some(guard) = guards.iter().find(|g| by_rank(view, g)) else { continue };
        let Some(name) = communicates(view, i) else { continue };
        let alone = guards.iter().any(|g| mentions(view, g, ALONE_WORDS));
        if alone || matched(view, i, &name, guard) || other_branch_calls(view, guard) {
            continue;
        }
        let exit = is_exit(view, guard);
        let condition = view.part(guard.at, 0);
        out.push((view.place(view.steps[i].id), Practice::SomeRanks { collective: name, condition, exit }));
    }
}

/// Whether the same is called elsewhere in the function, where the other ranks may come.
fn matched(view: &View<'_>, step: usize, name: &str, guard: &Guard<'_>) -> bool {
    (0..view.steps.len()).any(|j| {
        let guards = &view.steps[j].guards;
        let here = guards.iter().any(|g| same(g, guard));
        let elsewhere = || guards.iter().any(|g| by_rank(view, g) && !same(g, guard));
        let talks = || view.value(j).is_some_and(|v| raw(view, v).is_some() || callee(view, v).is_some());
        let again = || called_name(view, j).is_some_and(|other| other == *name);
        j != step && !here && (again() || elsewhere() && talks())
    })
}

fn called_name(view: &View<'_>, step: usize) -> Option<Name> {
    match view.value(step)? {
        Rvalue::CallMethod { name, .. } => Some(name.clone()),
        value => Some(last(&view.callee(value)?)),
    }
}

/// The name of what a step calls, if all ranks have to call it.
fn communicates(view: &View<'_>, step: usize) -> Option<Name> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let own = || !view.project.methods_named(&Name::from("full_tensor")).is_empty();
    if matches!(value, Rvalue::CallMethod { name, .. } if name == "full_tensor") && args.is_empty() && !own() {
        return Some(Name::from("full_tensor"));
    }
    if let Some(call) = raw(view, value) {
        let only = || barriers(view) == 1;
        let everyone = call.sort == Sort::Everyone && without_group(call.group) && call.name.contains("barrier");
        return (everyone && only()).then_some(call.name);
    }
    let path = view.callee(value)?;
    if TOGETHER.contains(&path.as_str()) {
        let alone = |a: &Arg| match &a.kind {
            ArgKind::Keyword(k) => ALONE.contains(&k.as_str()),
            ArgKind::DoubleStar | ArgKind::Star => true,
            ArgKind::Positional => false,
        };
        let placed = args.iter().filter(|a| a.kind == ArgKind::Positional).count();
        let otherwise = placed > 3 || args.iter().any(alone);
        return (!otherwise).then(|| Name::from(path.rsplit_once('.').map_or(path.as_str(), |(_, name)| name)));
    }
    let called = callee(view, value)?;
    always(&view.other(called), 0).then(|| view.project.func(called).name.clone())
}

/// How many barriers a file has.
fn barriers(view: &View<'_>) -> usize {
    let text = view.files[view.project.file(view.at.module)].whole();
    text.matches("barrier(").count() + text.matches("wait_for_everyone(").count()
}

/// The function of the project that is called.
fn callee(view: &View<'_>, value: &Rvalue) -> Option<FuncRef> {
    match value {
        Rvalue::Call { callee, .. } => wrapped::function(view, &view.through(callee)),
        Rvalue::CallMethod { base, name, .. } if super::near::is_self(view, base) => {
            let class = super::near::class_of(view)?;
            view.project.own_method(ClassRef { module: view.at.module, class }, name)
        }
        _ => None,
    }
}

/// Whether a function communicates over all ranks whatever it is given.
fn always(view: &View<'_>, depth: usize) -> bool {
    if view.func.is_generator || view.func.is_async {
        return false;
    }
    (0..view.steps.len()).any(|i| {
        let step = &view.steps[i];
        let reached = step.guards.is_empty() && step.loops.is_empty();
        let Some(value) = view.value(i).filter(|_| reached) else { return false };
        match raw(view, value) {
            Some(call) => call.sort == Sort::Everyone && without_group(call.group),
            None => {
                let deeper = || callee(view, value).is_some_and(|at| always(&view.other(at), depth + 1));
                depth + 1 < MOST_CALLS && deeper()
            }
        }
    })
}
