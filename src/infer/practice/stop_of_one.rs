//! Stops that one rank decides for itself. In: a function. Out: a flag of a trainer that ends the training and that the first rank alone sets, where nothing
//! tells the others: they go on, and wait for the first one in the next backward pass. Never: a file that sends anything to other ranks, that sets the flag
//! elsewhere, or a job that is asked for its size. Source: lightning 2.5, `Trainer.should_stop`, which each rank reads for itself;
//! `Strategy.reduce_boolean_decision`; transformers 4.57, `TrainerControl`. Next: `left_alone.rs`.

use super::Found;
use super::coming::Coming;
use super::found::Practice;
use super::near;
use super::only_some::callee;
use super::rank_tests::test;
use super::view::View;
use crate::ir::{Const, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};

/// Flags by which each rank of a trainer leaves its loop.
pub const FLAGS: &[&str] = &["should_stop", "should_training_stop"];
/// Who has them.
const HOLDERS: &[&str] = &["trainer", "control"];
/// Words of files that may tell the other ranks.
const TELLS: &[&str] = &["broadcast", "reduce", "gather", "scatter", "store.set", "psum", "sync", "agree", "consensus"];
/// An argument of logging that says nothing of stops.
const LOGS: &str = "sync_dist";
/// Words of conditions under which there may be one rank alone.
const JOBS: &[&str] = &["world_size", "num_", "n_gpu", "device", "distributed", "strategy", "single"];

/// `if trainer.is_global_zero and asked(): trainer.should_stop = True`
pub fn set(view: &View<'_>, out: &mut Found) {
    let bare = |text: &str| near::bare(text).replace(LOGS, "");
    let file = bare(view.file());
    if near::has_any(&file, TELLS) {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        let Some((flag, set)) = sets(view, i).or_else(|| sets_inside(view, i)) else { continue };
        let Some(guard) = step.guards.iter().find(|g| test(view, g).is_some_and(|t| t.of_all && t.one)) else {
            continue;
        };
        let asks = |at| near::has_any(&view.text(view.part(at, 0)).to_lowercase(), JOBS);
        if step.guards.iter().any(|g| asks(g.at)) || times_set(&file, &flag) != 1 {
            continue;
        }
        let told = view.files.saying(&flag).any(|at| near::has_any(&bare(view.files[at].whole()), TELLS));
        if told {
            return;
        }
        let everyone = |s: &usize| {
            near::name_of_call(view, *s).is_some_and(|name| name.contains("barrier"))
                && !view.steps[*s].guards.iter().any(|g| test(view, g).is_some())
        };
        let barrier = (i + 1..view.steps.len()).find(everyone).map(|s| view.place(view.steps[s].id));
        let mistake = Coming::StopOfOne { flag, set, condition: view.part(guard.at, 0), waits: barrier.is_some() };
        out.push((barrier.unwrap_or(set), Practice::Coming(mistake)));
        return;
    }
}

/// Where a step sets a flag of what the function is given.
fn sets(view: &View<'_>, step: usize) -> Option<(Name, Place)> {
    let Stmt::SetAttr { base, name, value } = view.steps[step].stmt else { return None };
    let off = matches!(value, Operand::Const(Const::Bool(false)));
    let given =
        near::local(base).is_some_and(|l| view.is_as_given(l) && HOLDERS.contains(&view.local_name(l).as_str()));
    (FLAGS.contains(&name.as_str()) && given && !off).then(|| (name.clone(), view.place(view.steps[step].id)))
}

/// The same in a function of the project that a step calls.
fn sets_inside(view: &View<'_>, step: usize) -> Option<(Name, Place)> {
    let value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. }) = view.value(step)? else { return None };
    let inner = near::shared(view, callee(view, value)?);
    // What the callee asks of ranks or jobs itself is not followed.
    (0..inner.steps.len()).find_map(|s| {
        let found = sets(&inner, s)?;
        let asks = |at| near::has_any(&inner.text(inner.part(at, 0)).to_lowercase(), JOBS);
        (!inner.steps[s].guards.iter().any(|g| asks(g.at))).then_some(found)
    })
}

/// How often a text sets a name: an attribute, a variable or an argument.
fn times_set(text: &str, flag: &str) -> usize {
    let is_set = |at: &usize| {
        let rest = text[at + flag.len()..].trim_start();
        rest.starts_with('=') && !rest.starts_with("==") || rest.starts_with("|=")
    };
    near::words(text, flag).filter(is_set).count()
}
