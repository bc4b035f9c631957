//! Models that are wrapped and then used around the wrapper, where a function takes the wrapper off, or the pass stands in a helper. In: a
//! function. Out: `unwrap(model)(x)` that is trained on, where nothing calls the model itself; `model.module(x)` in a function whose
//! callers in the file all give it a wrapped model. Never: a model that is handed to what may call it. Next: `bypassed.rs`.

use super::Found;
use super::bypassed::{INNER, NO_PASS, flows, is_of, passes, reads_gradients, reads_inner, variable};
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::no_sync::sums_itself;
use super::training::Training;
use super::view::View;
use super::wrapped::{given, parameters_of, wrappers};
use crate::ir::{LocalId, LocalKind, Operand, Rvalue, Stmt};
use crate::rules::Entry;
use crate::source::{Name, Place};

/// Words of what takes a wrapper off.
pub const UNWRAPS: &[&str] = &["unwrap", ".module"];

/// Attributes that are no pass.
const HARMLESS: &[&str] = &["config", "device", "dtype", "training"];

/// Functions that look at a model and do not call it.
const LOOKS: &[&str] = &["isinstance", "hasattr", "id", "type", "print", "len"];

/// A model that was wrapped: its variable, by what, and where.
struct Wrapped {
    model: LocalId,
    wrapper: Name,
    place: Place,
    /// The step that binds the variable.
    step: usize,
}

/// Parts of names of what may sum gradients in another way.
const SUMS: &[&str] = &["reduce(", "reduce_", "allreduce", "average_", "sync_grads("];

/// Whether a function steps with the gradients as the backward pass leaves them.
fn steps_as_is(view: &View<'_>) -> bool {
    let code = view.code();
    let sums = near::has_any(code, SUMS) || !view.collectives().is_empty();
    // A tensor that is made here with gradients is what is trained: an input, or a code.
    !sums
        && !near::has_any(code, &["requires_grad=true", "requires_grad_()"])
        && code.contains(".step(")
        && !reads_gradients(code)
}

/// `model = Wrapper(model)`, `unwrap(model)(x)`
pub fn around(view: &View<'_>, out: &mut Found) {
    if !steps_as_is(view) {
        return;
    }
    for wrapped in (0..view.steps.len()).flat_map(|i| wrapped(view, i)) {
        let bound = view.defs(wrapped.model).iter().any(|d| *d > wrapped.step);
        if bound || view.func.locals()[wrapped.model].kind != LocalKind::Plain {
            continue;
        }
        if is_frozen(view, wrapped.model) || trains_others(view, None, Some(wrapped.model)) {
            continue;
        }
        let Some(inner) = only_unwrapped(view, &wrapped) else { continue };
        let calls = inner.into_iter().flat_map(|local| called(view, local));
        let Some(pass) = calls.into_iter().find(|pass| is_trained(view, *pass)) else { continue };
        let model = view.local_name(wrapped.model).clone();
        let mistake = Training::Bypassed { model, wrapper: wrapped.wrapper, wrapped: wrapped.place };
        out.push((view.place(view.steps[pass].id), Practice::Training(mistake)));
    }
}

/// The models that a step wraps: by a wrapper, or by the method of a trainer that returns what it is given.
fn wrapped(view: &View<'_>, step: usize) -> Vec<Wrapped> {
    let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
        return Vec::new();
    };
    let place = view.place(view.steps[step].id);
    let made = |model: LocalId, wrapper: Name, step: usize| Wrapped { model, wrapper, place, step };
    let rule = view.callee(value).and_then(|path| view.rules.wrappers().get(&path));
    if let Some(rule) = rule.filter(|rule| !rule.in_place && !args.is_empty()) {
        let model = variable(view, step).filter(|_| !sums_itself(view));
        return model.map(|model| made(model, super::lost::last(&rule.name), step + 1)).into_iter().collect();
    }
    if trainer_does(view, value).is_none_or(|does| does != "trainer-setup") {
        return Vec::new();
    }
    let (Rvalue::CallMethod { name, .. }, Stmt::Assign { dst, .. }) = (value, view.steps[step].stmt) else {
        return Vec::new();
    };
    if let [_] = &args[..] {
        return variable(view, step).map(|model| made(model, name.clone(), step + 1)).into_iter().collect();
    }
    let unpacked = view.readers(*dst).iter().find_map(|at| match view.steps[*at].stmt {
        Stmt::Unpack { before, star: None, after, .. } if after.is_empty() && before.len() == args.len() => {
            Some((*at, before))
        }
        _ => None,
    });
    let Some((at, before)) = unpacked else { return Vec::new() };
    before.iter().map(|model| made(*model, name.clone(), at)).collect()
}

/// What a method of a trainer does, by the rules, that a variable or the module holds.
fn trainer_does<'a>(view: &View<'a>, value: &Rvalue) -> Option<&'a str> {
    let Rvalue::CallMethod { base, name, .. } = value else { return None };
    let Expr::Call { callee, .. } = near::deep(view, &view.expr(base)) else { return None };
    let Some(Entry::Intrinsic(trainer)) = view.rules.get(&near::path(view, &callee)?) else { return None };
    let methods = trainer.role("methods").filter(|_| trainer.does == "trainer")?;
    match view.rules.get(&format!("{methods}.{name}")) {
        Some(Entry::Intrinsic(method)) => Some(&method.does),
        _ => None,
    }
}

/// What is inside of a wrapped model, if nothing calls the model itself or hands it to what may.
fn only_unwrapped(view: &View<'_>, of: &Wrapped) -> Option<Vec<LocalId>> {
    let mut inner = Vec::new();
    let is_model = |o: &Operand| *o == Operand::Local(of.model);
    for at in view.readers(of.model).iter().copied().filter(|at| *at > of.step) {
        let Stmt::Assign { dst, value } = view.steps[at].stmt else { return None };
        match value {
            Rvalue::Attr { base, name } if is_model(base) => {
                if name == INNER {
                    inner.push(*dst);
                } else if !HARMLESS.contains(&name.as_str()) {
                    return None;
                }
            }
            Rvalue::CallMethod { base, name, .. } if is_model(base) => {
                if !NO_PASS.contains(&name.as_str()) {
                    return None;
                }
            }
            Rvalue::CallMethod { .. } => {
                if trainer_does(view, value)? == "trainer-same" {
                    inner.push(*dst);
                }
            }
            Rvalue::Call { callee, args } if !is_model(callee) => {
                let path = view.callee(value);
                let looks = path.as_ref().is_some_and(|p| LOOKS.contains(&super::lost::last(p).as_str()));
                if takes_off(view, callee) && args.len() == 1 {
                    inner.push(*dst);
                } else if !looks {
                    return None;
                }
            }
            _ => return None,
        }
    }
    Some(inner)
}

/// Whether a function of the project gives what is inside of the model that it is given.
fn takes_off(view: &View<'_>, callee: &Operand) -> bool {
    let Some(at) = near::function(view, callee) else { return false };
    let helper = near::shared(view, at);
    let Some(param) = helper.func.params.first().map(|p| p.local) else { return false };
    let returns: Vec<&Operand> = helper
        .steps
        .iter()
        .filter_map(|s| match s.stmt {
            Stmt::Return { value } => Some(value),
            _ => None,
        })
        .collect();
    let off = |value: &Operand| match helper.expr(value) {
        Expr::Attr(base, name) => name == INNER && *base == Expr::Local(param),
        Expr::Choice(_, a, b) => [*a, *b]
            .iter()
            .any(|e| matches!(e, Expr::Attr(base, name) if name == INNER && **base == Expr::Local(param))),
        Expr::Local(local) => helper.defs(local).iter().any(|def| match helper.value(*def) {
            Some(Rvalue::Attr { base, name }) => name == INNER && *base == Operand::Local(local),
            Some(value) => trainer_does(&helper, value) == Some("trainer-same"),
            None => false,
        }),
        _ => false,
    };
    !returns.is_empty() && returns.iter().any(|value| off(value))
}

/// The calls of what a variable holds, and the variable that it is given.
fn called(view: &View<'_>, inner: LocalId) -> Vec<usize> {
    let mut held = vec![inner];
    held.extend(view.readers(inner).iter().filter_map(|at| match view.steps[*at].stmt {
        Stmt::Assign { dst, value: Rvalue::Use(_) } if view.defs(*dst).len() == 1 => Some(*dst),
        _ => None,
    }));
    let mut out: Vec<usize> = held
        .iter()
        .flat_map(|local| view.readers(*local).iter().map(move |at| (*local, *at)))
        .filter(|(local, at)| {
            matches!(view.value(*at), Some(Rvalue::Call { callee, .. }) if *callee == Operand::Local(*local))
        })
        .map(|(_, at)| at)
        .collect();
    out.sort_unstable();
    out
}

/// Whether a backward pass starts from what a step gives: its own, or that of a trainer.
fn is_trained(view: &View<'_>, pass: usize) -> bool {
    !view.without_gradient(pass)
        && !near::is_unrecorded(view)
        && flows(view, pass, |step, held| match step {
            Stmt::Assign { value: value @ Rvalue::CallMethod { base, name, args }, .. } => {
                name == "backward" && held(base)
                    || trainer_does(view, value) == Some("trainer-backward") && args.iter().any(|a| held(&a.value))
            }
            _ => false,
        })
}

/// `train(model)` with a wrapped model, and `model.module(x)` in that function
pub fn in_helper(view: &View<'_>, out: &mut Found) {
    if !steps_as_is(view) || view.code().contains("isinstance(") {
        return;
    }
    for param in &view.func.params {
        let model = param.local;
        if !view.defs(model).is_empty() || !reads_inner(view, model) || is_frozen(view, model) {
            continue;
        }
        if trains_others(view, None, Some(model)) {
            continue;
        }
        let all = passes(view, model, view.readers(model).iter().copied()).unwrap_or_default();
        let Some(pass) = all.into_iter().find(|pass| is_trained(view, *pass)) else { continue };
        let callers = given(view, model);
        let mut by = Vec::new();
        for (caller, step, value) in &callers {
            let wrapped = wrappers(caller, value, *step);
            let [one] = &wrapped[..] else { break };
            let wrapped = variable(&one.view, one.step);
            if one.rule.in_place || trains_others(&one.view, Some(one.step), wrapped) {
                break;
            }
            by.push((super::lost::last(&one.rule.name), one.place()));
        }
        if by.len() != callers.len() || sums_itself(view) {
            continue;
        }
        let Some((wrapper, place)) = by.into_iter().next() else { continue };
        let mistake = Training::Bypassed { model: param.name.clone(), wrapper, wrapped: place };
        out.push((view.place(view.steps[pass].id), Practice::Training(mistake)));
    }
}

/// `inner = model.module if isinstance(model, DDP) else model`, and a trained pass through `inner` in a function that never calls the model:
/// where it is wrapped, nothing sums its gradients.
pub fn chosen(view: &View<'_>, out: &mut Found) {
    if !steps_as_is(view) || view.code().contains("no_sync") {
        return;
    }
    for param in &view.func.params {
        let model = param.local;
        if !view.defs(model).is_empty() || is_frozen(view, model) || trains_others(view, None, Some(model)) {
            continue;
        }
        let inner = view.readers(model).iter().find_map(|at| taken_off(view, *at, model));
        let Some((inner, wrapper, place)) = inner else { continue };
        let calls = view.readers(model).iter().any(|at| match view.value(*at) {
            Some(Rvalue::Call { callee, args }) => {
                let looks = near::name_of_call(view, *at).is_some_and(|name| LOOKS.contains(&name.as_str()));
                *callee == Operand::Local(model) || !looks && args.iter().any(|a| a.value == Operand::Local(model))
            }
            Some(Rvalue::CallMethod { base, name, args }) => {
                *base == Operand::Local(model) && !NO_PASS.contains(&name.as_str())
                    || args.iter().any(|a| a.value == Operand::Local(model))
            }
            _ => false,
        });
        if calls || sums_itself(view) {
            continue;
        }
        let Some(pass) = called(view, inner).into_iter().find(|pass| is_trained(view, *pass)) else { continue };
        let mistake = Training::Bypassed { model: param.name.clone(), wrapper, wrapped: place };
        out.push((view.place(view.steps[pass].id), Practice::Training(mistake)));
    }
}

/// The variable that holds what is inside of a model where that is wrapped, by what it is wrapped, and where that is asked.
fn taken_off(view: &View<'_>, step: usize, model: LocalId) -> Option<(LocalId, Name, Place)> {
    let value = view.value(step)?;
    let asks = matches!(value, Rvalue::Call { .. }) && near::name_of_call(view, step)? == "isinstance";
    let Rvalue::Call { args, .. } = value else { return None };
    let wrapper = args.get(1).filter(|_| asks).map(|a| view.expr(&a.value))?;
    let known = view.rules.wrappers().get(&near::path(view, &wrapper)?)?;
    let held = (step + 1..view.steps.len()).find_map(|at| match view.steps[at].stmt {
        Stmt::Assign { dst, .. } if !view.is_temp(*dst) => Some((at, *dst)),
        _ => None,
    });
    let (at, inner) = held?;
    let is_inner = |e: &Expr| matches!(e, Expr::Attr(base, name) if name == INNER && **base == Expr::Local(model));
    let bound: Vec<Expr> = view.defs(inner).iter().map(|def| view.bound(*def, inner)).collect();
    let fits = view.defs(inner).contains(&at)
        && match &bound[..] {
            [Expr::Choice(_, wrapped, plain)] => is_inner(wrapped) && **plain == Expr::Local(model),
            [wrapped, plain] => is_inner(wrapped) && *plain == Expr::Local(model),
            _ => false,
        };
    fits.then(|| (inner, super::lost::last(&known.name), view.place(view.steps[step].id)))
}

/// Whether a function turns off gradients of a model, or measures with it.
fn is_frozen(view: &View<'_>, model: LocalId) -> bool {
    (0..view.steps.len()).any(|i| match (view.steps[i].stmt, view.value(i)) {
        (Stmt::SetAttr { name, .. }, _) => name == "requires_grad",
        (_, Some(Rvalue::CallMethod { base, name, .. })) => {
            *base == Operand::Local(model) && matches!(name.as_str(), "requires_grad_" | "eval")
        }
        _ => false,
    })
}

/// Whether a function wraps another model than the one that a step wraps, or has an optimizer for others.
fn trains_others(view: &View<'_>, wrapped: Option<usize>, model: Option<LocalId>) -> bool {
    (0..view.steps.len()).any(|i| {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            return false;
        };
        let Some(path) = view.callee(value) else { return false };
        let optimizer =
            path.starts_with("torch.optim.") && !["lr_scheduler", "swa_utils"].iter().any(|w| path.contains(w));
        let own = || {
            let of = args.first().and_then(|a| parameters_of(view, &a.value));
            of.zip(model).is_some_and(|(of, model)| is_of(&of, model))
        };
        wrapped.is_some_and(|at| at != i) && view.rules.wrappers().get(&path).is_some() || optimizer && !own()
    })
}
