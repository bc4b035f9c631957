//! Sums over the ranks that share a model which those without gradients leave out. In: a function. Out: a return where a list of gradients is
//! empty, before an all-reduce over model-parallel ranks or stages of a pipeline: with frozen parameters only some of them have any. Never: a
//! return after something is communicated on that side, or groups whose ranks have the same parameters. Source: AReaL, pull
//! request 1139. Next: `own_list.rs`.

use super::Found;
use super::coming::Coming;
use super::expr::Expr;
use super::found::Practice;
use super::lost::last;
use super::near;
use super::view::{Guard, View};
use crate::ir::{CmpOp, Const, LocalId, Stmt, UnOp};
use crate::source::Name;

/// Parts of names of groups whose ranks have other parameters.
const OTHER_PARAMETERS: &[&str] = &["model_parallel", "mp_group", "pp_group", "pipeline", "mp_pg"];
/// Groups of one kind whose names have such a part as well.
const OTHERS: &[&str] = &["tensor_model_parallel"];

/// `if not grads: return 0.0`, and `all_reduce(norm, group=model_parallel_group)`
pub fn left(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Return { .. } = step.stmt else { continue };
        let Some((guard, list)) = step.guards.last().and_then(|g| Some((g, empty(view, g)?))) else { continue };
        let communicates = |s: usize| view.value(s).is_some_and(|value| view.may_communicate(value));
        let here = |s: &usize| view.steps[*s].guards.iter().any(|g| g.at == guard.at && g.holds == guard.holds);
        if (0..i).filter(here).any(communicates) || step.guards.len() > 1 {
            continue;
        }
        let later = view.collectives().iter().find_map(|(at, call)| {
            let group = named(view, &view.expr(call.group?))?;
            (*at > i && call.rule.op == "all_reduce").then(|| (last(&call.rule.name), group, *at))
        });
        if let Some((collective, group, at)) = later {
            let (list, condition) = (view.local_name(list).clone(), view.part(guard.at, 0));
            let reduced = view.place(view.steps[at].id);
            let mistake = Coming::NothingToAdd { collective, list, group, reduced, condition };
            out.push((view.place(step.id), Practice::Coming(mistake)));
            return;
        }
    }
}

/// The list of gradients that is empty where a guard holds: `not grads`, `len(grads) == 0`.
fn empty(view: &View<'_>, guard: &Guard<'_>) -> Option<LocalId> {
    let of = |e: &Expr| match e {
        Expr::Local(local) => {
            let name = view.local_name(*local);
            ["grad", "grads", "gradients"].iter().any(|part| near::has_part(name, part)).then_some(*local)
        }
        _ => None,
    };
    match (view.expr(guard.test), guard.holds) {
        (Expr::Unary(UnOp::Not, list), true) => of(&list),
        (list @ Expr::Local(_), false) => of(&list),
        (Expr::Compare(CmpOp::Eq, counted, zero), true) if *zero == Expr::Const(Const::Int(0)) => {
            let (_, list) = counted.call_of("len")?.first()?;
            of(list)
        }
        _ => None,
    }
}

/// The name of a group whose ranks have other parameters.
fn named(view: &View<'_>, group: &Expr) -> Option<Name> {
    let name = Name::from(view.name_or_callee(group)?);
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    (has(OTHER_PARAMETERS) && !has(OTHERS)).then_some(name)
}
