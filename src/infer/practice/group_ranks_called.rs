//! Calls of functions that communicate over a group, which only some of its ranks reach. In: a function. Out: behind a test that holds on
//! some ranks of the group, a call of a function of the project that runs a collective over a group of the tables whatever it is given.
//! Never: a function that is called elsewhere too, where the other ranks may come. Next: `group_ranks.rs`, whose tests these are.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::group_ranks::{is_elsewhere, is_one, of_some};
use super::near;
use super::only_some::callee;
use super::own_group::{Axes, axes};
use super::ranks::{is_exit, other_branch_calls};
use super::raw::{Sort, raw};
use super::view::{Guard, View};
use crate::ir::StmtId;
use crate::rules::Gives;
use crate::source::Name;
use rustc_hash::FxHashMap;

/// How many calls lie between the test and the collective.
const MOST_CALLS: usize = 3;

/// Parts of names of what tells ranks of a group apart.
pub const RANKS: &[&str] = &["rank", "is_pipeline"];

pub fn calls(view: &View<'_>, out: &mut Found) {
    if view.func.is_generator {
        return;
    }
    // What is called is looked at only where a test may tell ranks apart; one test stands around many steps.
    let mut speaking: FxHashMap<StmtId, bool> = FxHashMap::default();
    let speaks = |g: &Guard<'_>| near::has_any(&view.text(view.part(g.at, 0)).to_lowercase(), RANKS);
    for (i, step) in view.steps.iter().enumerate() {
        let mut may_tell = |g: &Guard<'_>| *speaking.entry(g.at).or_insert_with(|| speaks(g));
        if !step.guards.iter().any(&mut may_tell) || step.guards.iter().any(|g| is_one(view, g)) {
            continue;
        }
        let mut names = Vec::new();
        let Some(over) = reached(view, i, MOST_CALLS, &mut names) else { continue };
        let Some(guard) = step.guards.iter().find(|g| of_some(view, g, (&Expr::Unknown, Some(&over)))) else {
            continue;
        };
        // Each stands where it is defined and where it is called here.
        let alone = |name: &Name| !name.starts_with("__") && view.files.times(&format!("{name}(")) <= 2;
        if !other_branch_calls(view, guard) && names.iter().all(alone) {
            let Some(collective) = names.into_iter().next() else { continue };
            let condition = view.part(guard.at, 0);
            let practice = Practice::SomeOfGroup { collective, condition, exit: is_exit(view, guard) };
            out.push((view.place(step.id), practice));
        }
    }
}

/// The axes of the group over which a call of a function of the project communicates for sure, and the functions on the way.
fn reached(view: &View<'_>, step: usize, depth: usize, names: &mut Vec<Name>) -> Option<Axes> {
    let depth = depth.checked_sub(1)?;
    let at = callee(view, view.value(step)?)?;
    let inner = near::shared(view, at);
    if inner.func.is_generator || inner.func.is_async || !inner.func.captures.is_empty() {
        return None;
    }
    names.push(inner.func.name.clone());
    let plain = |i: &usize| inner.steps[*i].guards.is_empty() && inner.steps[*i].loops.is_empty();
    let found =
        (0..inner.steps.len()).filter(plain).find_map(|i| over(&inner, i).or_else(|| reached(&inner, i, depth, names)));
    if found.is_none() {
        names.pop();
    }
    found
}

/// The axes of the group of a collective that all of its ranks have to reach, and that no other code may run on the other ranks.
fn over(view: &View<'_>, step: usize) -> Option<Axes> {
    let call = raw(view, view.value(step)?).filter(|call| call.sort == Sort::Everyone)?;
    let group = view.expr(call.group?);
    let over = axes(view, &group, Gives::Group, 0)?;
    (!is_elsewhere(view, &call.name, &near::deep(view, &group))).then_some(over)
}
