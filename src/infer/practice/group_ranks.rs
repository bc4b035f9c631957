//! Collectives that only some ranks of their group reach. In: a function. Out: a collective over a group of the library, or over one that is
//! kept under the name that the rank has (`local_pg`, `local_rank`), behind a test that holds on some of its ranks: a rank in the group, or
//! a stage of a pipeline. Never: a counterpart on the other ranks, also in another file, a branch that calls something which may hold it, or a
//! group that is given. Next: `ranks.rs`, for the group of all ranks.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::own_group::{Axes, axes};
use super::rank_tests::returned;
use super::ranks::{is_exit, other_branch_calls};
use super::raw::{Sort, raw};
use super::view::{Guard, View};
use super::wrapped;
use crate::ir::{ArgKind, CmpOp, Const, Stmt, UnOp};
use crate::rules::{Entry, Gives};
use crate::source::Name;
use std::rc::Rc;

/// Tests that hold on one stage of a pipeline.
const STAGES: &[&str] = &["is_pipeline_first_stage", "is_pipeline_last_stage"];

/// The axis of the stages.
const PIPELINE: &str = "pp";

pub fn some_of_group(view: &View<'_>, out: &mut Found) {
    if view.func.is_generator {
        return;
    }
    let everyone: Vec<(usize, Name, Expr)> = (0..view.steps.len())
        .filter(|i| !view.steps[*i].guards.is_empty() || view.value(*i).is_some())
        .filter_map(|i| {
            let call = raw(view, view.value(i)?)?;
            let group = call.group.filter(|_| call.sort == Sort::Everyone)?;
            Some((i, call.name, near::deep(view, &view.expr(group))))
        })
        .collect();
    for (i, name, group) in &everyone {
        let guards = &view.steps[*i].guards;
        if guards.is_empty() {
            continue;
        }
        let over = axes(view, group, Gives::Group, 0);
        let Some(guard) = guards.iter().find(|g| of_some(view, g, (group, over.as_ref()))) else { continue };
        // A group of one rank.
        if guards.iter().any(|g| is_one(view, g)) {
            continue;
        }
        // Under another test, or after the branches: the other ranks may meet it there.
        let matched = everyone.iter().any(|(j, _, other)| {
            let same = view.steps[*j].guards.iter().any(|g| g.at == guard.at && g.holds == guard.holds);
            j != i && !same && alike(other, group)
        });
        if !matched && !other_branch_calls(view, guard) && !is_elsewhere(view, name, group) {
            let exit = is_exit(view, guard);
            let practice = Practice::SomeOfGroup { collective: name.clone(), condition: view.part(guard.at, 0), exit };
            out.push((view.place(view.steps[*i].id), practice));
        }
    }
}

/// Whether a test says that something is one.
pub(super) fn is_one(view: &View<'_>, guard: &Guard<'_>) -> bool {
    match near::deep(view, &view.expr(guard.test)) {
        Expr::Compare(op, _, b) if matches!(*b, Expr::Const(Const::Int(1))) => match op {
            CmpOp::Eq | CmpOp::Le => guard.holds,
            CmpOp::Ne | CmpOp::Gt => !guard.holds,
            _ => false,
        },
        _ => false,
    }
}

/// How far a test is followed through functions that return it.
const MOST_STEPS: usize = 8;

/// How many negations of a test are seen through: a name may be bound to its own.
const MOST_NEGATIONS: usize = 8;

/// A group: how it is written, and the axes that the tables give it.
pub(super) type Group<'g> = (&'g Expr, Option<&'g Axes>);

/// Whether a test holds on some ranks of a group.
pub(super) fn of_some(view: &View<'_>, guard: &Guard<'_>, group: Group<'_>) -> bool {
    holds_on_some(view, &view.expr(guard.test), guard.holds, group, MOST_STEPS)
}

fn holds_on_some(view: &View<'_>, test: &Expr, holds: bool, group: Group<'_>, steps: usize) -> bool {
    let Some(steps) = steps.checked_sub(1) else { return false };
    let mut test = near::deep(view, test);
    let mut holds = holds;
    for _ in 0..MOST_NEGATIONS {
        let Expr::Unary(UnOp::Not, inner) = test else { break };
        test = near::deep(view, &inner);
        holds = !holds;
    }
    match &test {
        // On the others there may be many.
        Expr::Compare(op @ (CmpOp::Eq | CmpOp::Ne), a, b) => {
            let one = matches!(**b, Expr::Const(Const::Int(_))) && holds == (*op == CmpOp::Eq);
            one && is_rank_in(view, &near::deep(view, a), group)
        }
        // All of them hold.
        Expr::Bool { and, of } if *and == holds => of.iter().any(|e| holds_on_some(view, e, holds, group, steps)),
        Expr::Call { callee, args, .. } => {
            holds && callee.last_name().is_some_and(|n| STAGES.contains(&n)) && spans_stages(group)
                || args.is_empty()
                    && predicate(view, callee).is_some_and(|(inner, e)| by_axes(&inner, &e, holds, group.1, steps))
        }
        _ => false,
    }
}

/// What a function of the project without arguments returns, if it does nothing else.
fn predicate<'a>(view: &View<'a>, callee: &Expr) -> Option<(Rc<View<'a>>, Expr)> {
    let inner = near::shared(view, wrapped::function(view, callee)?);
    let last = inner.steps.last().filter(|s| matches!(s.stmt, Stmt::Return { .. }))?;
    let alone = last.guards.is_empty() && !inner.func.is_generator && !inner.func.is_async;
    let [value] = &returned(&inner)[..] else { return None };
    alone.then(|| (inner, value.clone()))
}

/// Whether what another function returns holds on some ranks of a group with these axes.
fn by_axes(inner: &View<'_>, test: &Expr, holds: bool, axes: Option<&Axes>, steps: usize) -> bool {
    axes.is_some() && holds_on_some(inner, test, holds, (&Expr::Unknown, axes), steps)
}

/// Whether an expression is the rank in a group.
fn is_rank_in(view: &View<'_>, rank: &Expr, (group, over): Group<'_>) -> bool {
    if let (Some(rank), Some(of)) = (member(rank), member(group).and_then(of_name)) {
        return rank.strip_suffix("_rank").is_some_and(|rank| rank.trim_start_matches('_') == of);
    }
    let Expr::Call { callee, args, .. } = rank else { return false };
    let Some(path) = near::path(view, callee) else { return false };
    if path.starts_with("torch.distributed") && path.ends_with(".get_rank") {
        let given = args
            .iter()
            .find(|(k, _)| *k == ArgKind::Positional || matches!(k, ArgKind::Keyword(name) if name == "group"));
        return given.is_some_and(|(_, g)| alike(&near::deep(view, g), group));
    }
    match view.rules.get(&path) {
        Some(Entry::Group(rule)) => {
            rule.gives == Gives::Rank
                && args.is_empty()
                && !rule.axes.is_empty()
                && over.is_some_and(|over| rule.axes.iter().all(|axis| over.contains(axis)))
        }
        _ => false,
    }
}

/// The name of an attribute.
fn member(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Attr(_, name) => Some(name),
        _ => None,
    }
}

/// What a group is for by its name: `local` of `local_pg`.
fn of_name(group: &str) -> Option<&str> {
    let name = group.trim_start_matches('_');
    let of = ["_process_group", "_group", "_pg"].iter().find_map(|end| name.strip_suffix(end))?;
    (!of.is_empty()).then_some(of)
}

/// Whether the ranks of a group are in several stages.
fn spans_stages((group, over): Group<'_>) -> bool {
    let name = name_of(group);
    let of_embedding = name.is_some_and(|n| n.trim_start_matches("get_").trim_start_matches('_') == "embedding_group");
    of_embedding || over.is_some_and(|a| a.iter().any(|axis| axis == PIPELINE))
}

/// Whether two expressions are one group: the same but for where a getter is called.
fn alike(a: &Expr, b: &Expr) -> bool {
    match (a, b) {
        (Expr::Call { callee: a, args: x, .. }, Expr::Call { callee: b, args: y, .. }) => a == b && x == y,
        _ => a == b,
    }
}

/// Collectives that meet each other.
const FAMILIES: &[&str] = &[
    "broadcast",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "barrier",
    "scatter",
    "gather",
    "reduce",
];

/// Whether other code of the project may run the counterpart on the other ranks: a collective of the same family over a group that is not
/// got by another name. Of a group that is no function of the library anything may be known elsewhere.
pub(super) fn is_elsewhere(view: &View<'_>, name: &Name, group: &Expr) -> bool {
    let (Expr::Call { .. } | Expr::Attr(..), Some(getter)) = (group, name_of(group)) else { return true };
    let known = is_getter(&getter) || matches!(group, Expr::Attr(..)) && of_name(&getter).is_some();
    let Some(family) = FAMILIES.iter().find(|f| name.contains(**f)).filter(|_| known) else { return true };
    let (own, file) = (view.func.span, view.project.file(view.at.module));
    view.files.saying(family).any(|other| {
        let text = view.files[other].whole();
        text.match_indices(family).any(|(at, _)| {
            let inside = other == file && own.start as usize <= at && at < own.end as usize;
            let over =
                |args: &str| if is_getter(&getter) { may_be_over(args, &getter) } else { may_hold(args, &getter) };
            !inside && arguments(&text[at..]).is_some_and(over)
        })
    })
}

fn is_getter(name: &str) -> bool {
    name.starts_with("get_") && name.ends_with("_group")
}

/// What stands between the parentheses of a call, from its name on.
fn arguments(text: &str) -> Option<&str> {
    let rest = text.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').strip_prefix('(')?;
    let mut depth = 1usize;
    let end = rest.char_indices().find(|(_, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    Some(end.map_or(rest, |(at, _)| &rest[..at]))
}

/// Whether arguments may hold the group that a getter gives: they name it, or a group that is got otherwise.
fn may_be_over(args: &str, getter: &str) -> bool {
    let words = args.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| *w != "group");
    let groups: Vec<&str> = words.filter(|w| w.contains("group") || near::has_part(w, "pg")).collect();
    let given = args.contains("group=") || args.contains(',');
    groups.contains(&getter) || given && !groups.iter().any(|g| is_getter(g))
}

/// The same of a group that is an attribute: they name it, or a group without a name of its own.
fn may_hold(args: &str, name: &str) -> bool {
    let words: Vec<&str> = args.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let own = |w: &&&str| of_name(w).is_some_and(|of| of != "process");
    words.contains(&name)
        || words.iter().any(|w| matches!(*w, "group" | "pg" | "process_group")) && !words.iter().any(|w| own(&w))
}

fn name_of(group: &Expr) -> Option<String> {
    match group {
        Expr::Call { callee, .. } => callee.last_name().map(str::to_string),
        other => other.last_name().map(str::to_string),
    }
}
