//! Collectives that only some ranks of their group reach. In: a function. Out: a collective over a group, behind a test that holds on some
//! of its ranks: a rank in the group, or a stage of a pipeline. Never: a counterpart on the other ranks, or a branch that calls something
//! which may hold it. Next: `ranks.rs`, for the group of all ranks.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::own_group::axes;
use super::ranks::{is_exit, other_branch_calls};
use super::raw::{Sort, raw};
use super::view::{Guard, View};
use crate::ir::{ArgKind, CmpOp, Const, UnOp};
use crate::project::FuncRef;
use crate::rules::{Entry, Gives};
use crate::source::Name;

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
        let Some(guard) = guards.iter().find(|g| of_some(view, g, group)) else { continue };
        // Under another test, or after the branches: the other ranks may meet it there.
        let matched = everyone.iter().any(|(j, _, other)| {
            let same = view.steps[*j].guards.iter().any(|g| g.at == guard.at && g.holds == guard.holds);
            j != i && !same && alike(other, group)
        });
        if !matched && !other_branch_calls(view, guard) && !is_elsewhere(view, group) {
            let exit = is_exit(view, guard);
            let practice = Practice::SomeOfGroup { collective: name.clone(), condition: view.part(guard.at, 0), exit };
            out.push((view.place(view.steps[*i].id), practice));
        }
    }
}

/// Whether a test holds on some ranks of a group.
fn of_some(view: &View<'_>, guard: &Guard<'_>, group: &Expr) -> bool {
    let mut test = near::deep(view, &view.expr(guard.test));
    let mut holds = guard.holds;
    while let Expr::Unary(UnOp::Not, inner) = test {
        test = near::deep(view, &inner);
        holds = !holds;
    }
    match &test {
        // On the others there may be many.
        Expr::Compare(op @ (CmpOp::Eq | CmpOp::Ne), a, b) => {
            let one = matches!(**b, Expr::Const(Const::Int(_))) && holds == (*op == CmpOp::Eq);
            one && is_rank_in(view, &near::deep(view, a), group)
        }
        Expr::Call { callee, .. } => {
            holds && callee.last_name().is_some_and(|n| STAGES.contains(&n)) && spans_stages(view, group)
        }
        _ => false,
    }
}

/// Whether an expression is the rank in a group.
fn is_rank_in(view: &View<'_>, rank: &Expr, group: &Expr) -> bool {
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
                && axes(view, group, Gives::Group, 0).as_ref() == Some(&rule.axes)
        }
        _ => false,
    }
}

/// Whether the ranks of a group are in several stages.
fn spans_stages(view: &View<'_>, group: &Expr) -> bool {
    let name = name_of(view, group);
    let of_embedding = name.is_some_and(|n| n.trim_start_matches("get_").trim_start_matches('_') == "embedding_group");
    of_embedding || axes(view, group, Gives::Group, 0).is_some_and(|a| a.iter().any(|axis| axis == PIPELINE))
}

/// Whether two expressions are one group: the same but for where a getter is called.
fn alike(a: &Expr, b: &Expr) -> bool {
    match (a, b) {
        (Expr::Call { callee: a, args: x, .. }, Expr::Call { callee: b, args: y, .. }) => a == b && x == y,
        _ => a == b,
    }
}

/// Whether another function of the file runs something over a group of the same name.
fn is_elsewhere(view: &View<'_>, group: &Expr) -> bool {
    let Some(name) = name_of(view, group) else { return true };
    let own = view.func.span;
    let inside = |at: FuncRef| {
        let span = view.project.func(at).span;
        span.start <= own.start && own.end <= span.end
    };
    let says = |at: &FuncRef| view.text(view.spot(view.project.func(*at).span)).contains(name.as_str());
    let mut others = near::functions(view, view.at.module).into_iter().filter(|f| !inside(*f)).filter(says);
    others.any(|f| {
        let other = near::other(view, f);
        (0..other.steps.len()).any(|i| {
            let call = other.value(i).and_then(|v| raw(&other, v));
            let over = call.and_then(|c| c.group).map(|g| near::deep(&other, &other.expr(g)));
            over.is_some_and(|g| name_of(&other, &g).as_ref() == Some(&name))
        })
    })
}

fn name_of(view: &View<'_>, group: &Expr) -> Option<String> {
    match group {
        Expr::Call { callee, .. } => callee.last_name().map(str::to_string),
        Expr::Local(local) => Some(view.local_name(*local).to_string()),
        other => other.last_name().map(str::to_string),
    }
}
