//! Sums over ranks that are reached by those that have something to add. In: a function. Out: an all-reduce of what is computed from a list,
//! behind a test that the list is not empty, where ranks of the group put other parameters into it: those of another stage of a pipeline,
//! or the shards of an optimizer. Never: a list that is alike on the ranks of the group, as the gradients of replicas are, or a counterpart in
//! the other branch. Source: Megatron-LM, `calc_params_l2_norm`. Next: `group_ranks.rs`.

use super::Found;
use super::coming::Coming;
use super::expr::Expr;
use super::found::Practice;
use super::lost::last;
use super::near;
use super::own_group::axes;
use super::ranks::other_branch_calls;
use super::view::{Guard, View};
use crate::ir::{CmpOp, Const, LocalId, Operand, Rvalue};
use crate::rules::Gives;
use crate::source::Place;

/// The axis of the stages.
const PIPELINE: &str = "pp";

pub fn sums(view: &View<'_>, out: &mut Found) {
    for (i, call) in view.collectives() {
        let (Some(input), Some(group), "all_reduce") = (call.input, call.group, call.rule.op.as_str()) else {
            continue;
        };
        let found = view.steps[*i].guards.iter().find_map(|g| Some((g, filled(view, g)?)));
        let Some((guard, list)) = found else { continue };
        let Some(axes) = axes(view, &view.expr(group), Gives::Group, 0) else { continue };
        if !near::roots(view, input).contains(&list) || other_branch_calls(view, guard) {
            continue;
        }
        let stages = axes.iter().any(|axis| axis == PIPELINE);
        let Some(put) = put(view, list, stages) else { continue };
        let (collective, list) = (last(&call.rule.name), view.local_name(list).clone());
        let mistake = Coming::OwnList { collective, list, over: axes, put, condition: view.part(guard.at, 0) };
        out.push((view.place(view.steps[*i].id), Practice::Coming(mistake)));
    }
}

/// The list that is not empty where a guard holds: `len(x) > 0`, `x`.
fn filled(view: &View<'_>, guard: &Guard<'_>) -> Option<LocalId> {
    let of = |e: &Expr| match e {
        Expr::Local(local) if !view.is_param(*local) => Some(*local),
        _ => None,
    };
    match view.expr(guard.test) {
        Expr::Compare(op, left, right) if matches!(*right, Expr::Const(Const::Int(0))) => {
            let holds = match op {
                CmpOp::Gt | CmpOp::Ne => true,
                CmpOp::Eq | CmpOp::Le => false,
                _ => return None,
            };
            let (_, counted) = left.call_of("len").filter(|_| holds == guard.holds)?.first()?;
            of(counted)
        }
        test if guard.holds => of(&test),
        _ => None,
    }
}

/// Where a parameter that not every rank has is put into a list; `stages`: the ranks have other layers.
fn put(view: &View<'_>, list: LocalId, stages: bool) -> Option<Place> {
    view.readers(list).iter().find_map(|i| {
        let Some(Rvalue::CallMethod { base, name, .. }) = view.value(*i) else { return None };
        let step = &view.steps[*i];
        if name != "append" || *base != Operand::Local(list) || !of_parameters(view, &step.loops) {
            return None;
        }
        let inside = |g: &&Guard<'_>| view.test_of(g).is_some_and(|at| !view.steps[at].loops.is_empty());
        let sharded = |g: &Guard<'_>| g.holds && view.text(view.part(g.at, 0)).to_lowercase().contains("shard");
        // A mark of the stages says of which parameters all of them have one.
        let marked = |g: &Guard<'_>| {
            view.through(g.test).any(&mut |e| {
                let mark = e.call_of("getattr").and_then(|args| args.get(1)?.1.string().cloned());
                mark.is_some_and(|mark| mark.contains("pipeline"))
            })
        };
        if step.guards.iter().any(marked) {
            return None;
        }
        let mut guards = step.guards.iter().filter(inside);
        let some = if stages { guards.next().is_some() } else { guards.any(sharded) };
        some.then(|| view.place(step.id))
    })
}

/// Whether one of some loops is over parameters.
fn of_parameters(view: &View<'_>, loops: &[usize]) -> bool {
    loops.iter().any(|at| view.text(view.part(view.steps[*at].id, 0)).contains("param"))
}
