//! Collectives that only some ranks reach. In: a function. Out: a collective over all ranks behind a test of the rank, or behind an early exit
//! by rank, with no counterpart; one over a group of a mesh where one rank alone is left. Never: other groups, point-to-point, and branches that
//! call something which may hold the counterpart. Next: `rank_tests.rs`, `raw.rs`.

use super::Found;
use super::expr::Expr;
use super::flow::is_failure;
use super::found::Practice;
use super::near;
use super::rank_tests::{Test, means_distributed, others, test, test_in_part};
use super::raw::{Sort, raw};
use super::view::{Guard, View};
use crate::ir::{Arg, ArgKind, Const, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::Name;

/// Calls that communicate with nobody.
const ALONE: &[&str] = &[
    "print", "info", "warning", "debug", "error", "makedirs", "mkdir", "exists", "len", "str", "int", "format", "join",
];

/// Words of tests that hold where there is one rank alone.
pub(super) const ALONE_WORDS: &[&str] = &[
    "world",
    "size",
    "initialized",
    "available",
    "distributed",
    "ddp",
    "nproc",
    "n_gpu",
    "ngpu",
    "num_gpu",
    "single",
    "multi",
    "solo",
];

/// Collectives of one rank with the others, whose other side may stand in another function.
const ROOTED: &[&str] = &["broadcast", "scatter", "gather", "reduce"];

/// A collective, and the group that it is given.
pub(super) struct Together<'a> {
    pub name: Name,
    pub group: Option<&'a Operand>,
}

/// The collective that an operation is, in place or functional.
pub(super) fn together<'a>(view: &View<'a>, value: &'a Rvalue) -> Option<Together<'a>> {
    if let Some(call) = raw(view, value) {
        return (call.sort == Sort::Everyone).then_some(Together { name: call.name, group: call.group });
    }
    let call = view.collective(value)?;
    let path = view.callee(value)?;
    let functional = path.starts_with("torch.distributed._functional_collectives.");
    functional.then(|| Together { name: super::lost::last(&path), group: call.group })
}

/// Whether all ranks of a group, or of the job, are kept waiting where a test holds.
pub(super) fn waits(view: &View<'_>, group: Option<&Operand>, test: Test) -> bool {
    match group {
        Some(group) if !without_group(Some(group)) => test.of_all && test.one && is_of_mesh(view, group),
        _ => true,
    }
}

/// Whether a group is a mesh or made by one.
fn is_of_mesh(view: &View<'_>, group: &Operand) -> bool {
    let named = |name: &str| near::has_part(name, "mesh") || name.ends_with("Mesh");
    let is_mesh = |e: &Expr| view.name_of(e).is_some_and(named);
    match near::deep(view, &view.through(group)) {
        Expr::Item(of, _) => is_mesh(&of),
        Expr::Call { callee, .. } => match &*callee {
            Expr::Attr(of, name) if name == "get_group" => match &**of {
                Expr::Item(of, _) => is_mesh(of),
                of => is_mesh(of),
            },
            callee => callee.last_name() == Some("init_device_mesh"),
        },
        other => is_mesh(&other),
    }
}

pub fn some_ranks(view: &View<'_>, out: &mut Found) {
    if view.func.is_generator {
        return;
    }
    let everyone: Vec<(usize, Together<'_>)> =
        (0..view.steps.len()).filter_map(|i| Some((i, together(view, view.value(i)?)?))).collect();
    for (i, call) in &everyone {
        let Some((guard, told)) = decided(view, *i).filter(|(_, told)| waits(view, call.group, *told)) else {
            continue;
        };
        let exit = is_exit(view, &guard);
        let matched = everyone.iter().any(|(j, other)| {
            let elsewhere = |g: &Guard<'_>| {
                !same(g, &guard)
                    && (g.at == guard.at || test(view, g).is_some() || mentions(view, g, &["rank", "main", "master"]))
            };
            j != i && other.name == call.name && view.steps[*j].guards.iter().any(elsewhere)
        });
        let whole = without_group(call.group);
        if matched
            || call.name.contains("barrier") && !(exit && whole)
            || other_branch_calls(view, &guard)
            || is_answered(view, &call.name)
            || exit && is_counterpart(view, &call.name, told)
        {
            continue;
        }
        let id = view.steps[*i].id;
        let condition = view.part(guard.at, 0);
        out.push((
            view.place(id),
            Practice::SomeRanks { collective: call.name.clone(), condition, exit: exit.then_some(condition) },
        ));
    }
}

/// The test of ranks that decides whether a step is reached, if there is more than one rank there.
pub(super) fn decided<'a>(view: &View<'a>, step: usize) -> Option<(Guard<'a>, Test)> {
    let guards = &view.steps[step].guards;
    let last = guards.last()?;
    let in_part = || test_in_part(view, last).filter(|_| is_exit(view, last)).map(|told| (last, told));
    let (guard, told) = guards.iter().find_map(|g| Some((g, test(view, g)?))).or_else(in_part)?;
    // Where the program fails on the others, it is written for this one.
    if is_failure(view, guard) || is_lone_job(view) || is_over(view, step) {
        return None;
    }
    let alone = |e: &Expr, holds: bool| says(view, e, ALONE_WORDS) && !means_distributed(view, e, holds);
    let other = guards.iter().any(|g| !same(g, guard) && test(view, g).is_none() && alone(&view.expr(g.test), g.holds));
    let inside = others(view, guard).iter().any(|e| alone(e, guard.holds));
    (!other && !inside).then_some((*guard, told))
}

/// How a file says that one of its jobs has one rank.
pub(super) const LONE_JOB: &str = "world_size=1";

/// Whether a function joins a job of one rank.
pub(super) fn is_lone_job(view: &View<'_>) -> bool {
    let one = |a: &Arg| {
        let named = matches!(&a.kind, ArgKind::Keyword(k) if k == "world_size");
        named && view.through(&a.value) == Expr::Const(Const::Int(1))
    };
    let joins = |i: usize| match view.value(i) {
        Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) => {
            let is = || view.callee(value).is_some_and(|p| super::lost::last(&p) == "init_process_group");
            args.iter().any(one) && is()
        }
        _ => false,
    };
    view.code().contains("init_process_group") && (0..view.steps.len()).any(joins)
}

/// Whether the job has ended before a step.
fn is_over(view: &View<'_>, step: usize) -> bool {
    let ends = |i: usize| {
        let value = view.value(i).filter(|v| matches!(v, Rvalue::Call { .. } | Rvalue::CallMethod { .. }));
        value.and_then(|v| view.callee(v)).is_some_and(|p| super::lost::last(&p).contains("destroy_process_group"))
    };
    view.code().contains("destroy_process_group") && (0..step).any(ends)
}

/// Whether the other side of a collective with a root stands in another function of the file.
pub(super) fn is_answered(view: &View<'_>, name: &Name) -> bool {
    let call = format!("{name}(");
    let count = |text: &str| text.matches(call.as_str()).count();
    let file = view.file();
    ROOTED.iter().any(|word| name.starts_with(word)) && count(file) > count(view.text(view.spot(view.func.span)))
}

/// Whether another function of the module leaves the other ranks to the same collective, and something calls both: `wait_for_main()` and
/// `release_others()`, `__enter__` and `__exit__`.
fn is_counterpart(view: &View<'_>, name: &Name, told: Test) -> bool {
    let functions = near::functions(view, view.at.module);
    let calls = |at: FuncRef, name: &str| near::shared(view, at).code().contains(&format!("{}(", name.to_lowercase()));
    functions.iter().copied().filter(|at| *at != view.at).any(|at| {
        let other = near::shared(view, at);
        let answers = (0..other.steps.len()).any(|i| {
            let same = other.value(i).and_then(|value| together(&other, value)).is_some_and(|call| call.name == *name);
            same && other.steps[i].guards.iter().any(|g| test(&other, g).is_some_and(|t| t.one != told.one))
        });
        let (own, its) = (&view.func.name, &other.func.name);
        let context = |name: &str| matches!(name, "__enter__" | "__exit__");
        let of_one = || context(own) && context(its) && view.func.class == other.func.class;
        answers && (of_one() || functions.iter().any(|f| calls(*f, own) && calls(*f, its)))
    })
}

/// Whether a call is given no group, which stands for all ranks.
pub(super) fn without_group(group: Option<&Operand>) -> bool {
    group.is_none_or(|g| matches!(g, Operand::Const(Const::None)))
}

pub(super) fn same(a: &Guard<'_>, b: &Guard<'_>) -> bool {
    a.at == b.at && a.holds == b.holds
}

pub(super) fn mentions(view: &View<'_>, guard: &Guard<'_>, words: &[&str]) -> bool {
    says(view, &view.expr(guard.test), words)
}

fn says(view: &View<'_>, e: &Expr, words: &[&str]) -> bool {
    e.any(&mut |e| {
        let name = match e {
            Expr::Local(l) => Some(view.local_name(*l).as_str()),
            other => other.last_name(),
        };
        name.is_some_and(|n| words.iter().any(|w| n.to_lowercase().contains(w)))
    })
}

/// Whether the condition holds because the other ranks have left.
pub(super) fn is_exit(view: &View<'_>, guard: &Guard<'_>) -> bool {
    view.steps.iter().any(|s| {
        matches!(s.stmt, Stmt::Return { .. } | Stmt::Continue | Stmt::Break)
            && s.guards.last().is_some_and(|g| g.at == guard.at && g.holds != guard.holds)
    })
}

/// Whether the ranks of the other branch call something that may communicate.
pub(super) fn other_branch_calls(view: &View<'_>, guard: &Guard<'_>) -> bool {
    (0..view.steps.len()).any(|i| {
        let there = view.steps[i].guards.iter().any(|g| g.at == guard.at && g.holds != guard.holds);
        there
            && match view.value(i) {
                Some(Rvalue::Call { callee, .. }) => !view.expr(callee).last_name().is_some_and(|n| ALONE.contains(&n)),
                Some(Rvalue::CallMethod { name, .. }) => !ALONE.contains(&name.as_str()),
                Some(Rvalue::Yield(_) | Rvalue::Await(_)) => true,
                _ => matches!(view.steps[i].stmt, Stmt::Raise),
            }
    })
}
