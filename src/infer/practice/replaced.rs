//! Hooks on parameters that are replaced afterwards. In: a function. Out: hooks on the parameters of a model, registered by this function or by
//! one of the project, before `to_empty` of a model on the meta device, or before a state dict is assigned. Never: hooks that are registered
//! once more afterwards, or on another branch. Source: torch.nn.Module, `_apply` and `load_state_dict(assign=True)`: where data cannot be
//! set in place, there are new parameters, without the hooks of the old. Next: `uneven.rs`.

use super::Found;
use super::averaged::REGISTER;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::view::View;
use crate::ir::{ArgKind, Const, LocalId, Operand, Rvalue, Stmt};
use crate::source::Name;

/// Methods of a module that go over its parameters.
const WALKS: &[&str] = &["parameters", "named_parameters", "modules", "named_modules"];

/// `attach_hooks(model)`, then `model.to_empty(device)`
pub fn hooks(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some((model, method)) = replaces(view, i) else { continue };
        let registers = |at: &usize| registers(view, *at, &model);
        let same_way = |at: &usize| {
            let other = &view.steps[*at];
            !other.guards.iter().any(|a| step.guards.iter().any(|b| a.at == b.at && a.holds != b.holds))
        };
        let Some(lost) = (0..i).rev().filter(same_way).find(registers) else { continue };
        let bound_between = view.defs(model).iter().any(|d| *d > lost && *d < i);
        if bound_between || (i + 1..view.steps.len()).any(|at| registers(&at)) {
            continue;
        }
        let mistake =
            Membership::HooksLost { model: view.local_name(model).clone(), method, registered: view.place(step.id) };
        out.push((view.place(view.steps[lost].id), Practice::Membership(mistake)));
    }
}

/// A model whose parameters a step replaces.
fn replaces(view: &View<'_>, step: usize) -> Option<(LocalId, Name)> {
    let Some(Rvalue::CallMethod { base, name, args }) = view.value(step) else { return None };
    let assigns = || {
        let given = view.argument(args, usize::MAX, "assign");
        given.is_some_and(|a| view.through(a) == Expr::Const(Const::Bool(true)))
    };
    let replaces = match name.as_str() {
        // From one device to another data are set in place, from the meta device they cannot be.
        "to_empty" => view.code().contains("\"meta\"") || view.code().contains("'meta'"),
        "load_state_dict" => assigns(),
        _ => false,
    };
    match (replaces, view.expr(base)) {
        (true, Expr::Local(model)) => Some((model, name.clone())),
        _ => None,
    }
}

/// Whether a step registers hooks on the parameters of a model: itself, or by a function that is given the model.
fn registers(view: &View<'_>, step: usize, model: &LocalId) -> bool {
    let is_model = |o: &Operand| view.expr(o) == Expr::Local(*model);
    match view.value(step) {
        Some(Rvalue::CallMethod { base, name, .. }) if REGISTER.contains(&name.as_str()) => walks(view, base, *model),
        Some(Rvalue::Call { callee, args }) => {
            let given = args.iter().position(|a| a.kind == ArgKind::Positional && is_model(&a.value));
            let (Some(given), Some(at)) = (given, near::function(view, callee)) else { return false };
            let helper = near::shared(view, at);
            let Some(param) = helper.func.params.get(given).map(|p| p.local) else { return false };
            (0..helper.steps.len()).any(|at| match helper.value(at) {
                Some(Rvalue::CallMethod { base, name, .. }) if REGISTER.contains(&name.as_str()) => {
                    walks(&helper, base, param)
                }
                _ => false,
            })
        }
        _ => false,
    }
}

/// Whether a value is one that a loop over the parameters of a model gives, or a parameter of one of its modules.
pub(super) fn walks(view: &View<'_>, value: &Operand, model: LocalId) -> bool {
    let mut work = vec![view.through(value)];
    let mut seen: Vec<LocalId> = Vec::new();
    while let Some(next) = work.pop() {
        let mut found = false;
        next.any(&mut |e| {
            match e {
                Expr::Call { callee, .. } => {
                    let walk = matches!(&**callee, Expr::Attr(base, name)
                        if WALKS.contains(&name.as_str()) && **base == Expr::Local(model));
                    found |= walk;
                }
                Expr::Local(local) if !seen.contains(local) => {
                    seen.push(*local);
                    for def in view.defs(*local) {
                        match view.steps[*def].stmt {
                            Stmt::For { iter, .. } => work.push(view.through(iter)),
                            Stmt::Unpack { value, .. } => work.push(view.through(value)),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
            false
        });
        if found {
            return true;
        }
    }
    false
}
