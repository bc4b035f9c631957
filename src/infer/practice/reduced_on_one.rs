//! Decisions of all ranks by a sum that one rank has. In: a function. Out: a `reduce` to one rank, behind which every rank decides by the buffer, here or where the function
//! that returns it is called, whether it does something with all others: on other ranks the buffer is a part of the sum, or anything. Never: a value that may have been
//! sent to the others since, or a test or a way that tells ranks apart. Source: torch.distributed, `reduce`: "only the process with rank dst is
//! going to receive the final result". Next: `own_data.rs`.

use super::Found;
use super::coming::Coming;
use super::expr::Expr;
use super::flow::is_failure;
use super::found::Practice;
use super::lost::last;
use super::near;
use super::only_some::{callee, meets_all};
use super::rank_tests::{asks_job, test};
use super::ranks::{is_lone_job, mentions, without_group};
use super::unfold::is_around;
use super::view::{Guard, View};
use crate::ir::{ArgKind, Const, LocalId, Rvalue, Stmt};
use crate::source::{Name, Place};

/// Parts of names of what makes values of ranks equal.
const EQUAL: &[&str] =
    &["reduce", "sync", "gather", "broadcast", "bcast", "average", "agree", "consensus", "all_", "share", "send"];

/// Methods and functions of a number that differ where it does.
const SAME: &[&str] = &["item", "float", "cpu", "detach", "tolist", "double", "abs", "sqrt", "exp", "mean", "round"];

/// Words of tests that tell ranks apart.
const RANKS: &[&str] = &["rank", "main", "master", "world", "primary", "leader"];

/// How far a value is followed.
const MOST: usize = 8;

/// A value that is whole on one rank alone.
struct OnOne {
    reduced: Place,
    name: Name,
    rank: i64,
}

/// `dist.reduce(loss, dst=0)`, and `if loss < best: save()`, where `save` needs all ranks
pub fn decides(view: &View<'_>, out: &mut Found) {
    if view.func.is_generator || is_lone_job(view) {
        return;
    }
    for at in 0..view.steps.len() {
        let guards = &view.steps[at].guards;
        if guards.is_empty() || guards.iter().any(|g| tells_ranks_apart(view, g)) {
            continue;
        }
        let Some(call) = meets_all(view, at) else { continue };
        for guard in guards.iter().filter(|g| !is_failure(view, g) && !is_met_otherwise(view, g)) {
            let Some(before) = view.test_of(guard) else { continue };
            let mut through = Vec::new();
            let Some(one) = decided_by(view, &view.expr(guard.test), before, &mut through, MOST) else { continue };
            if through.iter().any(|local| is_shared(view, *local)) {
                continue;
            }
            let mistake = Coming::ByPartialSum {
                collective: one.name,
                rank: one.rank,
                test: view.part(guard.at, 0),
                call,
                at: view.place(view.steps[at].id),
            };
            if !out.iter().any(|(place, _)| *place == one.reduced) {
                out.push((one.reduced, Practice::Coming(mistake)));
            }
            return;
        }
    }
}

fn tells_ranks_apart(view: &View<'_>, guard: &Guard<'_>) -> bool {
    test(view, guard).is_some() || mentions(view, guard, RANKS)
}

/// Whether something on the other side of a test meets the other ranks.
fn is_met_otherwise(view: &View<'_>, guard: &Guard<'_>) -> bool {
    let other = |i: &usize| view.steps[*i].guards.iter().any(|g| g.at == guard.at && g.holds != guard.holds);
    (0..view.steps.len()).filter(other).any(|i| {
        let inside = |value| callee(view, value).is_some_and(|at| near::communicates(&near::shared(view, at)));
        view.value(i).is_some_and(|value| view.may_communicate(value) || inside(value)) || meets_all(view, i).is_some()
    })
}

/// The sum of one rank that an expression is computed from. `through`: the variables on the way.
fn decided_by(view: &View<'_>, e: &Expr, before: usize, through: &mut Vec<LocalId>, depth: usize) -> Option<OnOne> {
    let depth = depth.checked_sub(1)?;
    let mut inner = |e: &Expr| decided_by(view, e, before, through, depth);
    match e {
        Expr::Local(local) => {
            if let Some(found) = reduced_here(view, *local, before) {
                through.push(*local);
                return Some(found);
            }
            let def = view.last_def(*local, before)?;
            if !is_around(&view.steps[def], &view.steps[before]) {
                return None;
            }
            through.push(*local);
            decided_by(view, &view.bound(def, *local), def, through, depth)
        }
        Expr::Compare(_, a, b) | Expr::Binary(_, a, b) => inner(a).or_else(|| inner(b)),
        Expr::Unary(_, a) => inner(a),
        Expr::Bool { of, .. } => of.iter().find_map(inner),
        Expr::Item(base, index) => match (&**base, &**index) {
            (Expr::Call { step, .. }, Expr::Const(Const::Int(at))) => returned_by(view, *step, Some(*at)),
            _ => inner(base),
        },
        Expr::Call { callee, args, step } => match &**callee {
            Expr::Attr(base, name) if SAME.contains(&name.as_str()) && args.is_empty() => inner(base),
            Expr::Path(path) if SAME.contains(&last(path).as_str()) => inner(&args.first()?.1),
            _ => returned_by(view, *step, None),
        },
        _ => None,
    }
}

/// A `reduce` of a variable that this function runs before a step.
fn reduced_here(view: &View<'_>, local: LocalId, before: usize) -> Option<OnOne> {
    let found = (0..before).rev().find(|at| reduces(view, *at).is_some_and(|(of, _)| of == local))?;
    let again = view.defs(local).iter().any(|def| *def > found && *def < before);
    (!again && is_around(&view.steps[found], &view.steps[before])).then(|| one(view, found)).flatten()
}

fn one(view: &View<'_>, step: usize) -> Option<OnOne> {
    let (_, rank) = reduces(view, step)?;
    let name = last(&view.callee(view.value(step)?)?);
    Some(OnOne { reduced: view.place(view.steps[step].id), name, rank })
}

/// The variable that a step reduces to one rank of all, on every rank, and that rank.
fn reduces(view: &View<'_>, step: usize) -> Option<(LocalId, i64)> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    if view.callee(value)? != "torch.distributed.reduce" {
        return None;
    }
    let alone = view.steps[step].guards.iter().all(|g| asks_job(view, &view.expr(g.test), g.holds));
    let plain = !args.iter().any(|a| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar));
    let Expr::Const(Const::Int(rank)) = near::deep(view, &view.expr(view.argument(args, 1, "dst")?)) else {
        return None;
    };
    let all = without_group(view.argument(args, 3, "group"));
    let buffer = near::local(view.argument(args, 0, "tensor")?)?;
    (alone && plain && all && !view.is_temp(buffer)).then_some((buffer, rank))
}

/// The sum of one rank that a function of the same file gives back to all ranks, or that one of its results is.
fn returned_by(view: &View<'_>, call: usize, index: Option<i64>) -> Option<OnOne> {
    let at = callee(view, view.value(call)?)?;
    if at.module != view.at.module || at == view.at {
        return None;
    }
    let inner = near::shared(view, at);
    let mut returns = (0..inner.steps.len()).filter(|step| matches!(inner.steps[*step].stmt, Stmt::Return { .. }));
    let (Some(end), None) = (returns.next(), returns.next()) else { return None };
    let Stmt::Return { value } = inner.steps[end].stmt else { return None };
    let sum = (0..end).rev().find(|step| reduces(&inner, *step).is_some())?;
    let (buffer, _) = reduces(&inner, sum)?;
    let built = inner.source(value).and_then(|(_, made)| near::items(made));
    let given = match (&built, index) {
        (Some(items), Some(at)) => *items.get(usize::try_from(at).ok()?)?,
        (None, None) => value,
        _ => return None,
    };
    let reached = near::reached(&inner, given, |def| def > sum);
    let told = |step: &usize| inner.steps[*step].guards.iter().any(|g| tells_ranks_apart(&inner, g));
    let bound = |step: &usize| inner.binds(*step).iter().any(|l| reached.contains(l));
    let apart = told(&end) || (sum..end).filter(bound).any(|step| told(&step));
    let whole = inner.defs(buffer).iter().all(|def| *def < sum);
    let shared = reached.iter().any(|local| is_shared_after(&inner, *local, sum));
    (reached.contains(&buffer) && whole && !apart && !shared).then(|| one(&inner, sum)).flatten()
}

/// Whether anything that is given a variable may make it equal on all ranks.
fn is_shared(view: &View<'_>, local: LocalId) -> bool {
    let (steps, own) = (view.readers(local), |step: &usize| reduces(view, *step).is_some_and(|(of, _)| of == local));
    steps.iter().filter(|step| !own(step)).any(|step| shares(view, *step))
}

fn is_shared_after(view: &View<'_>, local: LocalId, after: usize) -> bool {
    view.readers(local).iter().any(|step| *step > after && shares(view, *step))
}

fn shares(view: &View<'_>, step: usize) -> bool {
    if let Some(Rvalue::Build { .. }) = view.value(step) {
        // What a list of it goes to: `broadcast_object_list([loss], src=0)`.
        return view
            .binds(step)
            .iter()
            .flat_map(|made| view.readers(*made))
            .any(|reader| view.value(*reader).is_some_and(|value| view.may_communicate(value)));
    }
    let Some(value) = view.value(step) else { return false };
    let inside = || callee(view, value).is_some_and(|at| near::communicates(&near::shared(view, at)));
    let named = || near::name_of_call(view, step).is_some_and(|name| near::has_any(&name, EQUAL));
    let calls = matches!(value, Rvalue::Call { .. } | Rvalue::CallMethod { .. });
    calls && (named() || view.may_communicate(value) || inside())
}
