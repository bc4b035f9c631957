//! Models that are wrapped and then used around the wrapper. In: a function. Out: a pass through `model.module` whose result is trained on,
//! where nothing in the function calls the model itself. Never: a model that is handed on, kept or used in an inner function, or a file
//! that sums gradients in a way of its own. Source: torch.nn.parallel.DistributedDataParallel: its own forward prepares the
//! reducer, without which the hooks of the parameters do nothing. Next: `wrapped.rs`, `rules/torch/wrappers.toml`.

use super::Found;
use super::found::Practice;
use super::no_sync::sums_itself;
use super::training::Training;
use super::view::View;
use crate::ir::{LocalId, LocalKind, Operand, Rvalue, Stmt};
use rustc_hash::FxHashSet;

/// The attribute under which a wrapper keeps what it wraps.
const INNER: &str = "module";

/// Methods of a model that are no pass through it.
const NO_PASS: &[&str] = &[
    "state_dict",
    "load_state_dict",
    "parameters",
    "named_parameters",
    "modules",
    "named_modules",
    "children",
    "named_children",
    "buffers",
    "named_buffers",
    "train",
    "eval",
    "zero_grad",
    "to",
    "cuda",
    "half",
    "float",
    "bfloat16",
    "requires_grad_",
    "apply",
    "save_pretrained",
];

pub fn around(view: &View<'_>, out: &mut Found) {
    if !view.collectives().is_empty() {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value) = view.value(i) else { continue };
        let Rvalue::Call { args, .. } = value else { continue };
        let wraps = view.callee(value).and_then(|path| view.rules.wrappers().get(&path));
        let Some(rule) = wraps.filter(|rule| !rule.in_place && !args.is_empty()) else { continue };
        let Some(model) = variable(view, i) else { continue };
        if view.defs(model).iter().any(|d| *d > i + 1) || sums_itself(view) {
            continue;
        }
        let Some(pass) = only_inside(view, model, i) else { continue };
        if is_trained(view, pass) {
            let wrapper = super::lost::last(&rule.name);
            let model = view.local_name(model).clone();
            let mistake = Training::Bypassed { model, wrapper, wrapped: view.place(step.id) };
            out.push((view.place(view.steps[pass].id), Practice::Training(mistake)));
        }
    }
}

/// The variable of this function alone that a call is given to.
fn variable(view: &View<'_>, call: usize) -> Option<LocalId> {
    let Stmt::Assign { dst, .. } = view.steps[call].stmt else { return None };
    let plain = |local: LocalId| view.func.locals()[local].kind == LocalKind::Plain;
    if plain(*dst) {
        return Some(*dst);
    }
    match view.readers(*dst) {
        [one] => match view.steps[*one].stmt {
            Stmt::Assign { dst, value: Rvalue::Use(_) } if plain(*dst) => Some(*dst),
            _ => None,
        },
        _ => None,
    }
}

/// The first pass through the module inside the wrapper, if the wrapper is never called, handed on or kept.
fn only_inside(view: &View<'_>, model: LocalId, wrapped: usize) -> Option<usize> {
    let mut pass = None;
    for later in view.readers(model).iter().copied().filter(|step| *step > wrapped) {
        let is_model = |o: &Operand| *o == Operand::Local(model);
        match view.value(later)? {
            Rvalue::Attr { base, name } if is_model(base) && name == INNER => {
                let Stmt::Assign { dst, .. } = view.steps[later].stmt else { return None };
                for used in view.readers(*dst).iter().copied() {
                    match view.value(used)? {
                        Rvalue::CallMethod { base, name, .. } if *base == Operand::Local(*dst) => {
                            if !NO_PASS.contains(&name.as_str()) {
                                pass = pass.or(Some(used));
                            }
                        }
                        Rvalue::Call { callee, .. } if *callee == Operand::Local(*dst) => pass = pass.or(Some(used)),
                        _ => return None,
                    }
                }
            }
            // `model.module(x)`
            Rvalue::CallMethod { base, name, args } if is_model(base) && !args.iter().any(|a| is_model(&a.value)) => {
                if name == INNER {
                    pass = pass.or(Some(later));
                } else if !NO_PASS.contains(&name.as_str()) {
                    return None;
                }
            }
            _ => return None,
        }
    }
    pass
}

/// Whether `backward()` starts from what a step gives.
fn is_trained(view: &View<'_>, pass: usize) -> bool {
    let Stmt::Assign { dst, .. } = view.steps[pass].stmt else { return false };
    let mut held: FxHashSet<LocalId> = [*dst].into_iter().collect();
    for later in pass + 1..view.steps.len() {
        let Stmt::Assign { dst, value } = view.steps[later].stmt else { continue };
        let is_held = |o: &Operand| matches!(o, Operand::Local(l) if held.contains(l));
        match value {
            Rvalue::CallMethod { base, name, .. } if name == "backward" => {
                if is_held(base) && !view.without_gradient(pass) {
                    return true;
                }
            }
            Rvalue::CallMethod { name, .. } if matches!(name.as_str(), "detach" | "item") => {}
            other => {
                if other.operands().into_iter().any(is_held) {
                    held.insert(*dst);
                }
            }
        }
    }
    false
}
