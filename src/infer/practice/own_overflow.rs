//! Steps that each rank leaves out by its own gradients. In: a class that looks for gradients that are no numbers, and keeps a group. Out: the look,
//! where nothing in the class communicates and nothing anywhere reads the group; and a flag that is read right behind the look, in a file
//! of model-parallel ranks in which no such flag is reduced; and a look at the shard that a reduce-scatter leaves, which decides about the step. Never: a class with bases in the project, or a group that other code may read.
//! Source: Megatron-LM, `MixedPrecisionOptimizer._unscale_main_grads_and_check_for_nan`. Next: `unused_group.rs`.

use super::coming::Coming;
use super::found::Practice;
use super::lost::last;
use super::near;
use super::omissions::Omission;
use super::ranks::LONE_JOB;
use super::unused_group::is_read;
use super::view::View;
use super::{Class, Found, Lint};
use crate::ir::{LocalId, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::Name;

/// What looks for gradients that are no numbers.
const LOOKS: &[&str] = &["non_finite_check", "isinf(", "isfinite(", "isnan("];

/// Parts of the text of a class that may make ranks equal.
const EQUAL: &[&str] = &["reduce", "gather", "broadcast", "sync", "dist."];

/// `self.group = group`, `return self.found_inf.item() > 0`, `if self.check(): return`, and nothing else.
pub fn decides<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let text = lint.files[lint.project.file(class.at.module)].slice(lint.project.class(class.at).span);
    let looks = text.contains("found_inf") && LOOKS.iter().any(|word| text.contains(word)) && text.contains(".step(");
    let alone = lint.settings.statics.linearized(class.at).len() == 1 && lint.may_be_complete(class.at);
    if !looks || !alone || EQUAL.iter().any(|word| text.contains(word)) {
        return;
    }
    let Some(init) = class.init(lint) else { return };
    let kept = init.steps.iter().find_map(|step| match step.stmt {
        Stmt::SetAttr { base, name, .. } if near::is_self(init, base) && is_group(name) => {
            Some((name.clone(), init.place(step.id)))
        }
        _ => None,
    });
    let Some((group, stored)) = kept.filter(|(name, _)| !is_read(lint, class, name)) else { return };
    let methods = &lint.project.class(class.at).methods;
    let told = methods.iter().filter(|(name, _)| name != "__init__").find_map(|(_, func)| {
        let method = lint.view(FuncRef { module: class.at.module, func: *func });
        let asked = (0..method.steps.len()).find(|at| match method.value(*at) {
            Some(Rvalue::CallMethod { base, name, .. }) if name == "item" => {
                near::own_attribute(&method, &method.expr(base)).is_some_and(|name| name.contains("found_inf"))
            }
            _ => false,
        })?;
        Some(method.place(method.steps[asked].id))
    });
    if let Some(told) = told {
        out.push((told, Practice::Coming(Coming::ByOwnGradients { group, stored })));
    }
}

/// How a flag that says so is called.
const FLAG: &str = "found_inf";
/// What marks it and scales the gradients back.
const MARKS: &str = "_amp_foreach_non_finite_check_and_unscale_";
/// Names of axes of which each rank has gradients of its own.
const OTHERS: &[&str] = &["model_parallel", "tensor_parallel", "grad_stats_parallel"];

/// `_amp_foreach_non_finite_check_and_unscale_(grads, self.found_inf, scale)`, and `self.found_inf.item() > 0` behind it.
pub fn read(view: &View<'_>, out: &mut Found) {
    let quiet = |text: &str| !EQUAL.iter().any(|word| text.contains(word));
    let marks = |at: &usize| view.value(*at).and_then(|v| view.callee(v)).is_some_and(|path| last(&path) == MARKS);
    if !quiet(view.code()) {
        return;
    }
    let Some(looked) = (0..view.steps.len()).find(marks) else { return };
    let (Some(Rvalue::Call { args, .. }) | Some(Rvalue::CallMethod { args, .. })) = view.value(looked) else { return };
    let Some(flag) = view.argument(args, 1, FLAG).map(|flag| view.expr(flag)) else { return };
    let item = |at: &usize| match view.value(*at) {
        Some(Rvalue::CallMethod { base, name, .. }) => name == "item" && view.expr(base) == flag,
        _ => false,
    };
    let Some(asked) = (looked + 1..view.steps.len()).find(item) else { return };
    let given = |at: usize| match view.value(at) {
        Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => {
            at != looked && args.iter().any(|a| view.expr(&a.value) == flag)
        }
        _ => false,
    };
    let file = near::bare(view.file());
    let split = near::has_any(&file, OTHERS) && !near::refusals(&file).any(|line| near::has_any(line, OTHERS));
    // Callers may agree on what it returns, a decorator too; and what was reduced before has one overflow.
    let agrees = ["reduceop.max", "_gather_object", ".any("].iter().any(|word| file.contains(word))
        || near::decorators(view, view.at).any(|line| !line.contains("no_grad"))
        || (0..asked).any(|at| own_call_agrees(view, at, at > looked));
    // Whoever reduces such a flag elsewhere may have done it before this is read.
    let elsewhere = file.split("\n    def ").any(|part| part.contains(FLAG) && !quiet(part) && part.contains("reduce"));
    let named = view.name_of(&flag).is_some_and(|name| name.contains(FLAG));
    if !split || agrees || elsewhere || !named || (0..view.steps.len()).any(given) {
        return;
    }
    let looked = view.place(view.steps[looked].id);
    let flag = Name::from(FLAG);
    out.push((view.place(view.steps[asked].id), Practice::Omission(Omission::OverflowOfRank { flag, looked })));
}

/// Whether a step calls a method of the own class that communicates; `between`: or one that is not known.
fn own_call_agrees(view: &View<'_>, step: usize, between: bool) -> bool {
    let Some(Rvalue::CallMethod { base, name, .. }) = view.value(step) else { return false };
    near::is_self(view, base)
        && match near::own_method(view, name) {
            Some(at) => near::communicates(&near::other(view, at)),
            None => between,
        }
}

/// Whether an attribute is a group of ranks among which the model is split, by its name.
fn is_group(name: &str) -> bool {
    let lower = name.to_lowercase();
    let group = near::has_part(&lower, "group") || near::has_part(&lower, "pg");
    group && ["model", "tensor", "tp", "mp", "parallel"].iter().any(|word| near::has_part(&lower, word))
}

/// What asks whether numbers are finite.
const ASKS: &[&str] = &["isfinite", "isinf", "isnan"];

/// `reduce_scatter(shard, flat)`, `overflow = not isfinite(shard).all()`, and a step where it does not hold: other ranks have other shards.
pub fn of_shard(view: &View<'_>, out: &mut Found) {
    if !view.file().contains("reduce_scatter") || view.file().contains(LONE_JOB) {
        return;
    }
    let shards: Vec<LocalId> = (0..view.steps.len()).flat_map(|at| shard(view, at)).collect();
    if shards.is_empty() {
        return;
    }
    let looks = |at: &usize| {
        let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(*at) else { return false };
        let base = match view.value(*at) {
            Some(Rvalue::CallMethod { base, .. }) => Some(base),
            _ => None,
        };
        let named = near::name_of_call(view, *at).is_some_and(|name| ASKS.contains(&name.as_str()));
        let mut given = args.iter().map(|a| &a.value).chain(base);
        // What was reduced on the way, here or in a function, is the same on all ranks.
        let of_shard = |o: &Operand| {
            let reached = near::reached(view, o, |_| true);
            let made = |s: &usize| view.binds(*s).iter().any(|l| reached.contains(l) && !shards.contains(l));
            shards.iter().any(|shard| reached.contains(shard))
                && !reduced(view, *at).any(|l| reached.contains(&l))
                && !(0..*at).filter(made).any(|s| may_agree(view, s))
        };
        named && given.any(of_shard)
    };
    let Some(looked) = (0..view.steps.len()).find(looks) else { return };
    let flags = view.binds(looked);
    let tells = |o: &Operand| {
        let reached = near::reached(view, o, |def| def >= looked);
        flags.iter().any(|flag| reached.contains(flag))
    };
    // Whatever is told of it may agree with the other ranks.
    let agrees = |at: usize| {
        let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(at) else { return false };
        args.iter().any(|a| tells(&a.value)) && may_agree(view, at)
    };
    if (looked + 1..view.steps.len()).any(agrees) {
        return;
    }
    let steps = |at: &usize| matches!(view.value(*at), Some(Rvalue::CallMethod { name, .. }) if name == "step");
    let stepped = (looked + 1..view.steps.len()).filter(steps).find(|at| {
        let left =
            |s: &super::view::Step<'_>| matches!(s.stmt, Stmt::Return { .. }) && s.guards.iter().any(|g| tells(g.test));
        view.steps[*at].guards.iter().any(|g| tells(g.test)) || view.steps[looked..*at].iter().any(left)
    });
    let Some(stepped) = stepped else { return };
    let mistake = Omission::OverflowOfShard { stepped: view.place(view.steps[stepped].id) };
    out.push((view.place(view.steps[looked].id), Practice::Omission(mistake)));
}

/// Whether a call may make its result, or what it is given, the same on all ranks: it communicates, it is not known what it does and the result is
/// used, or it is called so.
fn may_agree(view: &View<'_>, at: usize) -> bool {
    let Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) = view.value(at) else { return false };
    if view.may_communicate(value) {
        return true;
    }
    let inner = match value {
        Rvalue::Call { callee, .. } => near::function(view, callee),
        Rvalue::CallMethod { base, name, .. } if near::is_self(view, base) => near::own_method(view, name),
        _ => None,
    };
    if let Some(inner) = inner {
        return near::communicates(&near::shared(view, inner));
    }
    let path = view.callee(value).unwrap_or_default();
    if path.starts_with("torch.") || path.starts_with("builtins.") {
        return false;
    }
    let name = near::name_of_call(view, at).unwrap_or_default();
    let used = view.binds(at).iter().any(|l| !view.readers(*l).is_empty());
    // Of a value itself a method asks what it is.
    let of_value = matches!(value, Rvalue::CallMethod { base, .. } if !near::is_self(view, base) && near::own_attribute(view, &view.expr(base)).is_none());
    EQUAL.iter().any(|word| name.contains(word)) || used && !of_value && !BUILTINS.contains(&name.as_str())
}

/// Functions that every program has.
const BUILTINS: &[&str] = &["bool", "float", "int", "print", "any", "all", "not_", "str", "isfinite", "isnan", "isinf"];

/// What collectives other than a reduce-scatter are given before a step.
fn reduced<'v>(view: &'v View<'_>, before: usize) -> impl Iterator<Item = LocalId> + 'v {
    let all = view.collectives().iter().filter(move |(at, call)| *at < before && call.rule.op != "reduce_scatter");
    all.filter_map(|(_, call)| call.input.and_then(near::local))
}

/// The part of the sum of gradients that a step leaves this rank: of a collective, or of a method of the object that gives it back.
fn shard(view: &View<'_>, at: usize) -> Vec<LocalId> {
    let Some(value) = view.value(at) else { return Vec::new() };
    if let Some(call) = view.collective(value).filter(|call| call.rule.op == "reduce_scatter") {
        return call.output.and_then(near::local).map_or_else(|| view.binds(at).to_vec(), |output| vec![output]);
    }
    let Rvalue::CallMethod { base, name, .. } = value else { return Vec::new() };
    let inner = near::own_method(view, name).filter(|_| near::is_self(view, base) && name != &view.func.name);
    let Some(inner) = inner.map(|at| near::shared(view, at)) else { return Vec::new() };
    let own: Vec<LocalId> = inner
        .collectives()
        .iter()
        .filter(|(_, call)| call.rule.op == "reduce_scatter")
        .filter_map(|(_, call)| call.output.and_then(near::local))
        .collect();
    let gives = |s: &super::view::Step<'_>| match s.stmt {
        Stmt::Return { value } => near::local(value).is_some_and(|l| own.contains(&l)),
        _ => false,
    };
    if inner.steps.iter().any(gives) { view.binds(at).to_vec() } else { Vec::new() }
}
