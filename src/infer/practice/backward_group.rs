//! Groups of the two directions of an autograd function, from the text alone. In: a class. Out: a collective over all ranks in one direction,
//! where the other communicates over a group that the function is given and keeps; the same in a backward that asks for a group nowhere, where
//! the forward has used one or kept one. Never: a function to which every caller of the file gives the group of all ranks. Source: DESIGN.md section 6. Next: `backwards.rs`; `../autograd`, where both groups are known.

use super::backwards::{Backwards, both_ways, stored};
use super::expr::Expr;
use super::found::Practice;
use super::gradient::target;
use super::view::View;
use super::world_rank::is_all_ranks;
use super::{Class, Found, Lint, near};
use crate::ir::{ArgKind, LocalId, Operand, Rvalue, Stmt};
use crate::source::Place;

/// Operations over whose ranks it matters.
const OPS: &[&str] = &["all_reduce", "all_gather", "reduce_scatter", "all_to_all"];

/// A collective: where it is called, and its group as it is given; none where none is.
type Over = (Place, Option<Expr>);

/// `all_to_all(x, group=group)` forward, with `ctx.group = group`, and `all_to_all(grad)` backward; or the other way round.
pub fn left_out<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let Some((forward, backward)) = both_ways(lint, class.at).filter(|_| lint.is_autograd(class.at)) else { return };
    let (forward, backward) = (lint.view(forward), lint.view(backward));
    let stored = stored(&forward);
    let param = |e: &Expr| match e {
        Expr::Local(l) if forward.is_as_given(*l) => Some(*l),
        _ => None,
    };
    let kept = |e: &Expr| match e {
        Expr::Attr(_, name) => stored.iter().find(|(n, _)| n == name).and_then(|(_, value)| param(value)),
        _ => None,
    };
    let (there, back) = (over(lint, &forward, 0), over(lint, &backward, 0));
    let first = one(&there, &param).zip(there.first());
    let last = one(&back, &kept).zip(back.first());
    let unasked = || asks_nowhere(&backward, &back).filter(|at| is_of_gradient(&backward, *at));
    let mistake = match (first, last) {
        (Some((group, at)), None) if stored.iter().any(|(_, v)| param(v) == Some(group)) => {
            back.iter().find(|(_, g)| g.is_none()).map(|found| (group, at.0, found.0, true))
        }
        (Some((group, at)), None) => unasked().map(|without| (group, at.0, without, true)),
        (None, Some((group, at))) => there.iter().find(|(_, g)| g.is_none()).map(|found| (group, at.0, found.0, false)),
        _ => None,
    };
    let Some((group, with, without, in_backward)) = mistake else {
        if !near::communicates(&forward)
            && let Some(without) = unasked()
        {
            kept_for_nothing(lint, class, (&forward, &backward), without, out);
        }
        return;
    };
    if is_always_all(lint, class, &forward, group) {
        return;
    }
    let (class, group) = (lint.project.class(class.at).name.clone(), forward.local_name(group).clone());
    out.push((without, Practice::Backwards(Backwards::GroupLeftOut { class, group, with, in_backward })));
}

/// A forward that communicates nothing and keeps a group, whose backward communicates over all ranks.
fn kept_for_nothing<'a>(
    lint: &Lint<'a>,
    class: &Class<'a>,
    (forward, backward): (&View<'a>, &View<'a>),
    without: Place,
    out: &mut Found,
) {
    let mut kept = stored(forward).into_iter().filter(|(name, _)| names_group(name));
    let (Some((name, value)), None) = (kept.next(), kept.next()) else { return };
    let unread = (0..backward.steps.len()).all(|step| asks_size(backward, step, &name));
    let is_always_all = match &value {
        Expr::Local(l) if forward.is_as_given(*l) => is_always_all(lint, class, forward, *l),
        other => is_all_ranks(forward, other),
    };
    if !unread || is_always_all {
        return;
    }
    let keeps = |s: &&super::view::Step<'_>| matches!(s.stmt, Stmt::SetAttr { name: n, .. } if *n == name);
    let Some(kept) = forward.steps.iter().find(keeps).map(|s| forward.place(s.id)) else { return };
    let class = lint.project.class(class.at).name.clone();
    out.push((without, Practice::Backwards(Backwards::KeptGroupLeftOut { class, group: name, kept })));
}

/// Whether a step reads nothing by a name, or what it reads goes to functions alone that tell how many ranks there are.
fn asks_size(backward: &View<'_>, step: usize, name: &str) -> bool {
    let Some(Rvalue::Attr { name: read, .. }) = backward.value(step) else { return true };
    let sizes = |s: &usize| {
        let called = backward.value(*s).and_then(|value| near::written_name(backward, value));
        called.is_some_and(|n| n.contains("size"))
    };
    let alone = |local: &LocalId| backward.is_temp(*local) && backward.readers(*local).iter().all(sizes);
    // Beside the number of all ranks it may be asked whether the group has them all.
    read != name || backward.binds(step).iter().all(alone) && !backward.code().contains("get_world_size()")
}

/// Whether a name is that of one group.
fn names_group(name: &str) -> bool {
    let last = name.rsplit('_').next().unwrap_or(name).to_lowercase();
    matches!(last.as_str(), "group" | "pg" | "comm" | "communicator" | "processgroup")
}

/// Where a backward communicates first, if it is over all ranks that it communicates and it hands its context to nobody, who might ask for a group.
fn asks_nowhere(backward: &View<'_>, back: &[Over]) -> Option<Place> {
    let context = backward.func.params.first()?.local;
    let plain = |s: &usize| matches!(backward.value(*s), Some(Rvalue::Attr { .. }));
    let alone = back.iter().all(|(_, g)| g.is_none()) && backward.readers(context).iter().all(plain);
    back.first().filter(|_| alone).map(|(place, _)| *place)
}

/// Whether the step at a place reads what comes from a gradient.
fn is_of_gradient(backward: &View<'_>, at: Place) -> bool {
    let given: Vec<LocalId> = backward.func.params.iter().skip(1).map(|p| p.local).collect();
    let step =
        (0..backward.steps.len()).find(|s| backward.value(*s).is_some() && backward.place(backward.steps[*s].id) == at);
    let from = |o: &Operand| near::roots(backward, o).iter().any(|l| given.contains(l));
    step.is_some_and(|s| backward.reads(s).into_iter().any(from))
}

/// The one parameter that every collective of a direction is given as its group.
fn one(all: &[Over], param: &dyn Fn(&Expr) -> Option<LocalId>) -> Option<LocalId> {
    let groups: Vec<Option<LocalId>> = all.iter().map(|(_, g)| g.as_ref().and_then(param)).collect();
    let first = groups.first().copied().flatten()?;
    groups.iter().all(|g| *g == Some(first)).then_some(first)
}

/// The collectives of a function, and those of functions that it calls, with their groups in its own words.
fn over<'a>(lint: &Lint<'a>, view: &View<'a>, depth: usize) -> Vec<Over> {
    let mut out = Vec::new();
    for step in 0..view.steps.len() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
            continue;
        };
        let place = view.place(view.steps[step].id);
        if let Some(call) = view.collective(value) {
            let plain = call.rule.default_group.is_empty() && call.rule.group.is_some();
            if plain && OPS.contains(&call.rule.op.as_str()) {
                let group = call.group.map(|g| view.through(g)).filter(|g| !g.is_none());
                out.push((place, group));
            }
            continue;
        }
        let Some((at, false)) = target(lint, view, value).filter(|_| depth == 0) else { continue };
        let starred = args.iter().any(|a| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar));
        let helper = lint.view(at);
        for (_, group) in over(lint, &helper, depth + 1).into_iter().filter(|_| !starred) {
            let index = match &group {
                Some(Expr::Local(l)) => helper.func.params.iter().position(|p| p.local == *l),
                _ => None,
            };
            let Some(index) = index.filter(|i| helper.defs(helper.func.params[*i].local).is_empty()) else { continue };
            let param = &helper.func.params[index];
            let given = view.argument(args, index, &param.name).map(|o| view.through(o));
            // What may be left out stands for all ranks.
            if given.is_some() || param.has_default {
                out.push((place, given.filter(|g| !g.is_none())));
            }
        }
    }
    out
}

/// Whether every call in the file gives the group of all ranks, as it is written there.
fn is_always_all(lint: &Lint<'_>, class: &Class<'_>, forward: &View<'_>, group: LocalId) -> bool {
    let Some(index) = forward.func.params.iter().position(|p| p.local == group).and_then(|i| i.checked_sub(1)) else {
        return true;
    };
    let path = format!("{}.apply", lint.project.qualified_class(class.at));
    let mut values = Vec::new();
    for (caller, step) in super::called::sites(forward, &path, Some("apply")) {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = caller.value(step) else {
            continue;
        };
        if caller.callee(value).is_some_and(|p| p.as_str() == path) {
            // What is left out stands for all ranks.
            values.push(args.get(index).is_none_or(|a| is_all_ranks(&caller, &caller.expr(&a.value))));
        }
    }
    !values.is_empty() && values.into_iter().all(|all| all)
}
