//! Groups that are kept for a call and not given to it. In: a function. Out: a call that leaves out a group or mesh over which the function
//! that it calls communicates, where the caller has one of this name and nothing reads it. Never: a name that anything else reads.
//! Next: `own_group.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::membership::Membership;
use super::near;
use super::view::View;
use crate::ir::{Arg, ArgKind, FuncKind, Operand, Param, Rvalue, Stmt};
use crate::project::{FuncRef, Resolved};
use crate::source::{FileId, Name, Place};
use std::collections::BTreeSet;

/// What asks a group for its ranks alone.
const ASKS: &[&str] = &["get_rank", "get_world_size", "rank", "size", "get_group_rank", "get_local_rank"];

/// Endings of names of groups.
const ENDS: &[&str] = &["group", "mesh", "_pg"];

/// `clip(params)` in a class with `self.pp_mesh`, which nothing reads, where `clip(params, pp_mesh=None)` reduces over that.
pub fn left_out(view: &View<'_>, out: &mut Found) {
    if view.func.kind != FuncKind::Function || view.func.class.is_none() && !view.func.params.iter().any(may_be_group) {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        let Some((at, args)) = called(view, i) else { continue };
        let func = view.project.func(at);
        for (position, param) in func.params.iter().enumerate().filter(|(_, p)| may_be_group(p) && p.has_default) {
            if view.argument(args, position, &param.name).is_some() || !reduces_over(view, at, param) {
                continue;
            }
            let kept = unread(view, &param.name).filter(|_| names_group(param));
            let kept = kept.map(|(own, stored)| (own, stored, false));
            let asked = || {
                asked_alone(view, &param.name, i)
                    .filter(|_| gathers(view, at))
                    .map(|asked| (param.name.clone(), asked, true))
            };
            let Some((own, stored, asked)) = kept.or_else(asked) else { continue };
            let (function, parameter) = (func.name.clone(), param.name.clone());
            let mistake = Scales::GroupNotGiven { function, parameter, own, stored, asked };
            out.push((view.place(step.id), Practice::Scales(mistake)));
            return;
        }
    }
}

/// What axes of pipelines are called.
pub(super) const STAGES: &[&str] = &["pp", "pipe", "pipeline"];

/// `clip(params)` after `schedule.step()`, where `clip(params, pp_mesh=None)` reduces over the stages.
pub fn of_stages(view: &View<'_>, out: &mut Found) {
    let Some((schedule, _)) = schedule_steps(view).next() else { return };
    let of_stages = |name: &str| STAGES.iter().any(|word| near::has_part(name, word));
    for (i, step) in view.steps.iter().enumerate() {
        let Some((at, args)) = called(view, i) else { continue };
        let func = view.project.func(at);
        let wanted =
            func.params.iter().enumerate().find(|(_, p)| names_group(p) && p.has_default && of_stages(&p.name));
        let Some((position, param)) = wanted else { continue };
        let told = args.iter().any(|a| view.through(&a.value).any(&mut |e| e.last_name().is_some_and(of_stages)));
        let guarded =
            step.guards.iter().any(|g| view.through(g.test).any(&mut |e| view.name_of(e).is_some_and(of_stages)));
        if told || guarded || view.argument(args, position, &param.name).is_some() || !reduces_over(view, at, param) {
            continue;
        }
        let (function, parameter) = (func.name.clone(), param.name.clone());
        let schedule = view.place(view.steps[schedule].id);
        let mistake = Membership::StagesLeftOut { function, parameter, schedule };
        out.push((view.place(step.id), Practice::Membership(mistake)));
    }
}

/// The steps at which the schedule of a pipeline runs, with what it is given.
pub(super) fn schedule_steps<'v, 'a>(view: &'v View<'a>) -> impl Iterator<Item = (usize, &'a [Arg])> + 'v {
    (0..view.steps.len()).filter_map(|i| match view.value(i) {
        Some(Rvalue::CallMethod { base, name, args }) if name == "step" && is_schedule(view, base) => {
            Some((i, &args[..]))
        }
        _ => None,
    })
}

/// Whether a value is the schedule of a pipeline by its name: schedules of learning rates are called schedulers.
fn is_schedule(view: &View<'_>, base: &Operand) -> bool {
    let named = |name: &str| near::has_part(name, "schedule") && STAGES.iter().any(|word| near::has_part(name, word));
    match view.expr(base) {
        Expr::Local(local) => named(view.local_name(local)),
        other => other.last_name().is_some_and(named),
    }
}

pub fn names_group(param: &Param) -> bool {
    may_be_group(param) && param.name != "group" && param.name != "mesh"
}

/// Whether a parameter is called a group or mesh, be it of whatever axis.
pub fn may_be_group(param: &Param) -> bool {
    ENDS.iter().any(|end| param.name.ends_with(end))
}

/// The function of the project that a step calls, all of whose arguments are seen.
pub(super) fn called<'a>(view: &View<'a>, step: usize) -> Option<(FuncRef, &'a [Arg])> {
    let value = view.value(step)?;
    let Rvalue::Call { args, .. } = value else { return None };
    if args.iter().any(|a| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar)) {
        return None;
    }
    match view.project.path(&view.callee(value)?) {
        Resolved::Func(at) => Some((at, args)),
        _ => None,
    }
}

/// Whether a function communicates over what a parameter is, which is None if it is left out.
pub(super) fn reduces_over(view: &View<'_>, at: FuncRef, param: &Param) -> bool {
    let inner = near::other(view, at);
    let of = |o: &Operand| near::deep(&inner, &inner.expr(o)).mentions(param.local);
    defaults_to_none(view, at, param)
        && inner.defs(param.local).is_empty()
        && (inner.collectives().iter().any(|(_, c)| c.group.is_some_and(of))
            || (0..inner.steps.len()).any(|step| exchanges_objects(&inner, step).is_some_and(of)))
}

/// The group over which a step exchanges objects: `all_gather_object(out, data, group=group)`.
fn exchanges_objects<'a>(view: &View<'a>, step: usize) -> Option<&'a Operand> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    near::written_name(view, value).filter(|name| name.contains("_object"))?;
    args.iter().find(|arg| matches!(&arg.kind, ArgKind::Keyword(name) if name == "group")).map(|arg| &arg.value)
}

/// Where a parameter that is a group is asked for the place of this rank in it, behind a step and with nothing else done with it.
fn asked_alone(view: &View<'_>, name: &Name, after: usize) -> Option<Place> {
    let param = view.func.params.iter().find(|p| p.name == *name && !p.has_default)?;
    let asks = |step: usize| near::name_of_call(view, step).is_some_and(|name| ASKS.contains(&name.as_str()));
    let readers = view.readers(param.local);
    if !readers.iter().all(|step| asks(*step)) || !view.defs(param.local).is_empty() {
        return None;
    }
    // The rank picks a part of what was made of what the call gave.
    let picks = |asked: usize| {
        (after..view.steps.len()).any(|step| match view.value(step) {
            Some(Rvalue::Item { base, index }) => {
                let of = |operand: &Operand, made: usize| {
                    view.binds(made).iter().any(|l| near::comes_from(view, operand, *l, made))
                };
                let made = near::local(base).is_some_and(|l| view.defs(l).iter().any(|def| *def >= after));
                made && of(index, asked)
            }
            _ => false,
        })
    };
    let rank = |step: &&usize| {
        let named = near::name_of_call(view, **step).is_some_and(|name| name.contains("rank"));
        **step > after && named && picks(**step)
    };
    // As many parts as the group has ranks: what a rank of it takes by its place alone may be of all.
    let size = readers
        .iter()
        .any(|step| *step > after && near::name_of_call(view, *step).is_some_and(|name| name.contains("size")));
    readers.iter().find(rank).filter(|_| size).map(|step| view.place(view.steps[*step].id))
}

/// Whether a function gathers what ranks have, and does nothing else with them.
fn gathers(view: &View<'_>, at: FuncRef) -> bool {
    let code = near::shared(view, at).code().to_owned();
    code.contains("gather") && !near::has_any(&code, &["broadcast", "reduce", " or ", "max", "min("])
}

pub(super) fn defaults_to_none(view: &View<'_>, at: FuncRef, param: &Param) -> bool {
    let text = view.files[view.project.file(at.module)].slice(view.project.func(at).span);
    let head = text.split("):").next().unwrap_or("").split(") ->").next().unwrap_or("");
    head.split(',').any(|part| {
        let name = part.split([':', '=']).next().unwrap_or("").trim().trim_start_matches('(');
        name.ends_with(param.name.as_str()) && part.trim_end().ends_with("None")
    })
}

/// What the caller has under a name and nothing reads: a parameter, or an attribute that its constructor sets.
fn unread(view: &View<'_>, name: &Name) -> Option<(Name, Place)> {
    if let Some(param) = view.func.params.iter().find(|p| p.name == *name) {
        return (!view.is_read(param.local)).then(|| (name.clone(), view.spot(param.span)));
    }
    let class = near::class_of(view)?;
    let set = near::assigned(view, class, name);
    let [(method, step, value)] = set.as_slice() else { return None };
    let is_none = matches!(method.expr(value), Expr::Const(crate::ir::Const::None));
    if method.func.name != "__init__" || is_none || is_named_elsewhere(view, name) {
        return None;
    }
    let Stmt::SetAttr { .. } = method.steps[*step].stmt else { return None };
    Some((Name::from(format!("self.{name}")), method.place(method.steps[*step].id)))
}

/// Whether anything but one assignment names an attribute.
fn is_named_elsewhere(view: &View<'_>, name: &Name) -> bool {
    let (attribute, quoted) = (format!(".{name}"), format!("\"{name}\""));
    let named = |text: &str| near::ending(text, &attribute).count() + text.match_indices(quoted.as_str()).count();
    let saying: BTreeSet<FileId> = view.files.saying(&attribute).chain(view.files.saying(&quoted)).collect();
    saying.into_iter().map(|file| named(view.files[file].whole())).sum::<usize>() != 1
}
