//! Groups that are lost on the way down. In: a function that may be given a group and calls itself. Out: a call of itself without that group:
//! what is nested communicates over the default one. Never: a call under a test of the group, a group that the function does not use, or
//! one that it binds itself. Source: AReaL `all_gather_tensor_container`, apex `convert_syncbn_model`. Next: `group_argument.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::slips::Slip;
use super::view::View;
use crate::infer::scale::groups::of_group_name;
use crate::ir::{Arg, ArgKind, Const, Func, FuncKind, Operand, Param, Rvalue};
use crate::project::Resolved;

/// Names of parameters that are a group of ranks wherever they stand.
const GROUPS: &[&str] = &["process_group", "pg", "dist_group", "device_mesh"];
/// Names of parameters that are one where something communicates over it.
const MAYBE: &[&str] = &["group", "_group", "mesh", "_mesh", "comm"];
/// Functions that take a group.
const ASKS: &[&str] = &["get_world_size", "get_rank", "get_process_group_ranks"];

/// Whether a parameter may be left out and is a group by its name.
pub fn may_be_group(param: &Param) -> bool {
    let name = param.name.as_str();
    param.has_default && (is_group(name) || MAYBE.iter().any(|end| name.ends_with(end)))
}

fn is_group(name: &str) -> bool {
    GROUPS.contains(&name) || name.ends_with("_pg") || name.ends_with("process_group") || of_group_name(name).is_some()
}

/// Whether a function may call itself and have a group that may be left out.
pub fn may_forget(func: &Func) -> bool {
    func.kind == FuncKind::Function && func.params.iter().any(may_be_group)
}

/// `[gather(d) for d in data]` in `gather(data, group=None)`
pub fn forgotten(view: &View<'_>, out: &mut Found) {
    for (position, param) in view.func.params.iter().enumerate().filter(|(_, p)| may_be_group(p)) {
        if !only_default(view, param) || !is_used(view, param) {
            continue;
        }
        for (i, step) in view.steps.iter().enumerate() {
            let Some((args, bound)) = calls_itself(view, i) else { continue };
            let given = view.argument(args, position.saturating_sub(bound), &param.name).is_some();
            let tested = step.guards.iter().any(|g| near::deep(view, &view.through(g.test)).mentions(param.local));
            // `total(part, reduce=False)`: the inner call does not communicate.
            let switches = args.iter().any(|a| matches!(a.value, Operand::Const(Const::Bool(_))));
            if given || tested || switches || args.is_empty() {
                continue;
            }
            let (function, parameter) = (view.func.name.clone(), param.name.clone());
            let slip = Slip::GroupForgotten { function, parameter, given: view.spot(param.span) };
            out.push((view.place(step.id), Practice::Slips(slip)));
        }
    }
}

/// Whether a parameter is bound only where nothing was given.
fn only_default(view: &View<'_>, param: &Param) -> bool {
    let tested = |step: &usize| view.steps[*step].guards.iter().any(|g| view.through(g.test).mentions(param.local));
    view.defs(param.local).iter().all(tested)
}

/// The arguments of a call by which a function calls itself, and how many parameters are bound already.
fn calls_itself<'a>(view: &View<'a>, step: usize) -> Option<(&'a [Arg], usize)> {
    let value = view.value(step)?;
    let (args, bound) = match value {
        Rvalue::Call { args, .. } if view.func.class.is_none() => {
            let itself = matches!(view.project.path(&view.callee(value)?), Resolved::Func(at) if at == view.at);
            (args, itself.then_some(0)?)
        }
        Rvalue::CallMethod { base, name, args } => {
            (args, (*name == view.func.name && near::is_self(view, base)).then_some(1)?)
        }
        _ => return None,
    };
    let stars = args.iter().any(|a| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar));
    (!stars).then_some((args, bound))
}

/// Whether a function communicates over a parameter, asks it for ranks, or hands a group on to something else.
fn is_used(view: &View<'_>, param: &Param) -> bool {
    let is = |e: &Expr| *e == Expr::Local(param.local);
    let over = view.collectives().iter().any(|(_, c)| c.group.is_some_and(|g| is(&view.through(g))));
    let asked = || {
        (0..view.steps.len()).any(|i| {
            let (Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }), Some(path)) =
                (view.value(i), view.value(i).and_then(|v| view.callee(v)))
            else {
                return false;
            };
            let takes = |a: &Arg| is(&view.expr(&a.value));
            let keyword = |a: &Arg| matches!(&a.kind, ArgKind::Keyword(k) if is_group(k) || k == "group");
            let asks = ASKS.contains(&super::lost::last(&path).as_str());
            args.iter().any(|a| takes(a) && (asks || keyword(a) || is_group(&param.name)))
                && calls_itself(view, i).is_none()
        })
    };
    over || asked()
}
