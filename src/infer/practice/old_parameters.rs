//! What belongs to the parameters that a model had before. In: a function. Out: an optimizer, or marks that something asks for after the
//! backward pass, of the parameters of a model, before what puts distributed ones in their place; a split over one mesh of what lies on
//! another already. Never: an optimizer that is made or given its parameters again, or what is done on another branch. Source:
//! torch.distributed.fsdp, `fully_shard`, and torch.distributed.tensor.parallel, `parallelize_module`. Next: `replaced.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Placements, Practice};
use super::membership::Membership;
use super::near;
use super::replaced::walks;
use super::training::Training;
use super::view::{Step, View};
use super::wrapped::{call, changes, function, parameters_of};
use crate::ir::{Arg, ArgKind, FuncKind, LocalId, Operand, Rvalue, Stmt};
use crate::rules::{Entry, Keeps};
use crate::source::{Name, Place};
use std::rc::Rc;

/// What makes distributed tensors of parameters.
pub const REPLACES: &[&str] = &["fully_shard", "parallelize_module"];

/// The same, and what flattens parameters that were there before.
pub const WRAPS: &[&str] = &["fully_shard", "parallelize_module", "fsdp", "fullyshardeddataparallel"];

/// Styles that split a weight.
const SPLITS: &[&str] = &["colwiseparallel(", "rowwiseparallel("];

/// Words of functions that may give an optimizer other parameters.
const GIVES: &[&str] = &[
    "swap", "switch", "prepare", "update", "rebuild", "refresh", "rebind", "remap", "initial", "setup", "wrap", "fix",
];

/// Parts of names of functions that take steps with an optimizer.
const TRAINS: &[&str] = &["train", "warm", "fit", "step", "calibrat", "epoch", "tune", "probe"];

/// Attributes of parameters that new ones have as well.
const KEPT: &[&str] = &["requires_grad", "grad", "data"];

/// How far a model is followed into functions.
const MOST_DEPTH: usize = 4;

/// What puts other parameters in the place of those of a model.
struct Replaced {
    by: Name,
    /// It shards over data-parallel ranks; otherwise it splits modules by a plan.
    shards: bool,
    model: Expr,
    step: usize,
}

fn replaced(view: &View<'_>) -> Vec<Replaced> {
    (0..view.steps.len()).filter_map(|step| replaces(view, step)).collect()
}

fn replaces(view: &View<'_>, step: usize) -> Option<Replaced> {
    let value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step)? else { return None };
    if args.iter().any(|a| matches!(&a.kind, ArgKind::Keyword(name) if name.starts_with("ignored"))) {
        return None;
    }
    let made = |by: Name, shards: bool, model: Expr| Replaced { by, shards, model, step };
    if let Some(path) = view.callee(value) {
        let model = || first(view, args);
        let wrapper = view.rules.wrappers().get(&path);
        if wrapper.is_some_and(|rule| rule.in_place && rule.keeps == Keeps::Distributed) {
            return Some(made(super::lost::last(&path), true, model()?));
        }
        // Its flat parameters take the place of those that it was given, unless it is told to keep them.
        let flat = |a: &Arg| {
            !matches!(&a.kind, ArgKind::Keyword(k) if k == "use_orig_params") && a.kind != ArgKind::DoubleStar
        };
        if wrapper.is_some_and(|rule| !rule.in_place && rule.keeps == Keeps::Shards)
            && path.starts_with("torch.")
            && args.iter().all(flat)
        {
            return Some(made(super::lost::last(&path), true, model()?));
        }
        // Styles that prepare inputs and outputs leave parameters as they are.
        if is_plan(view, &path) && near::has_any(view.code(), SPLITS) {
            return Some(made(super::lost::last(&path), false, model()?));
        }
    }
    args.iter().find_map(|a| {
        let model = model_of(view, &a.value)?;
        let (rule, (_, _)) = changes(view, &model, step, MOST_DEPTH)?;
        let rule = rule.filter(|rule| rule.keeps == Keeps::Distributed)?;
        Some(made(super::lost::last(&rule.name), true, model))
    })
}

fn is_plan(view: &View<'_>, path: &str) -> bool {
    matches!(view.rules.get(path), Some(Entry::Intrinsic(rule)) if rule.does == "dtensor-parallelize")
}

/// The model that a call is given first.
fn first(view: &View<'_>, args: &[Arg]) -> Option<Expr> {
    let given = args.iter().find(|a| match &a.kind {
        ArgKind::Positional => true,
        ArgKind::Keyword(name) => name == "module",
        ArgKind::Star | ArgKind::DoubleStar => false,
    });
    model_of(view, &given?.value)
}

/// A variable, or an attribute of the own object.
fn model_of(view: &View<'_>, operand: &Operand) -> Option<Expr> {
    let expr = view.expr(operand);
    (matches!(expr, Expr::Local(_)) || near::own_attribute(view, &expr).is_some()).then_some(expr)
}

/// Whether two steps may both run, the first before the second, on the same model.
fn in_order(view: &View<'_>, from: usize, to: usize, model: &Expr) -> bool {
    if from >= to {
        return false;
    }
    let (a, b) = (&view.steps[from], &view.steps[to]);
    let apart = a.guards.iter().any(|g| b.guards.iter().any(|h| h.at == g.at && h.holds != g.holds));
    // Tests of their own on both sides may exclude each other.
    let alone = |one: &Step<'_>, other: &Step<'_>| {
        one.guards.iter().any(|g| !other.guards.iter().any(|h| h.at == g.at && h.holds == g.holds))
    };
    let apart = apart || alone(a, b) && alone(b, a);
    let left = |step: &Step<'_>| matches!(step.stmt, Stmt::Return { .. } | Stmt::Raise);
    let ends = view.steps[from..to].iter().any(|s| left(s) && s.guards.len() <= a.guards.len());
    let bound = |at: usize| match (view.steps[at].stmt, model) {
        (Stmt::SetAttr { base, name, .. }, Expr::Attr(of, own)) => name == own && view.expr(base) == **of,
        (_, Expr::Local(local)) => view.binds(at).contains(local),
        _ => false,
    };
    !apart && !ends && !(from + 1..to).any(bound)
}

/// `AdamW(model.parameters())`, then `fully_shard(model)`
pub fn optimizers(view: &View<'_>, out: &mut Found) {
    let made: Vec<(usize, Expr)> = (0..view.steps.len()).filter_map(|i| Some((i, optimizer(view, i)?))).collect();
    let replaced = if made.is_empty() { Vec::new() } else { replaced(view) };
    for (i, model) in &made {
        let Some(by) = replaced.iter().find(|r| r.model == *model && in_order(view, *i, r.step, model)) else {
            continue;
        };
        if is_spent(view, *i, by.step) {
            continue;
        }
        let again = |at: usize| at != *i && takes_parameters(view, at, model);
        if (by.step..view.steps.len()).any(again) || gives_others(view, *i) || is_bound_again(view, *i, by.step) {
            continue;
        }
        let mistake = Training::Replaced {
            model: name_of(view, model),
            by: by.by.clone(),
            replaced: view.place(view.steps[by.step].id),
        };
        out.push((view.place(view.steps[*i].id), Practice::Training(mistake)));
    }
}

/// Whether an optimizer was for the whole model: it is deleted before the parameters are replaced, or it steps before and nothing has it later.
fn is_spent(view: &View<'_>, made: usize, replaced: usize) -> bool {
    let mut held: Vec<LocalId> = view.binds(made).to_vec();
    let mut attributes: Vec<&Name> = Vec::new();
    let mut steps = false;
    for i in made + 1..replaced {
        let holds = |o: &Operand| match view.expr(o) {
            Expr::Local(local) => held.contains(&local),
            other => near::own_attribute(view, &other).is_some_and(|name| attributes.contains(&name)),
        };
        match (view.steps[i].stmt, view.value(i)) {
            (Stmt::Delete { local }, _) if held.contains(local) => return true,
            (Stmt::Assign { dst, .. }, Some(Rvalue::Use(o))) if near::local(o).is_some_and(|l| held.contains(&l)) => {
                held.push(*dst);
            }
            (Stmt::SetAttr { base, name, value }, _)
                if near::is_self(view, base) && near::local(value).is_some_and(|l| held.contains(&l)) =>
            {
                attributes.push(name);
            }
            (_, Some(Rvalue::CallMethod { base, name, args })) if name == "step" => {
                steps = steps || holds(base) || args.first().is_some_and(|a| holds(&a.value));
            }
            (_, Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) => {
                let name = near::name_of_call(view, i).unwrap_or_default();
                let trains = near::has_any(&name, TRAINS) && !name.contains("sched");
                let inside = || callee(view, i).is_some_and(|inner| inner.code().contains(".step("));
                steps = steps || args.iter().any(|a| holds(&a.value)) && (trains || inside());
            }
            _ => {}
        }
    }
    let later = (replaced + 1..view.steps.len())
        .any(|i| view.reads(i).iter().any(|o| near::local(o).is_some_and(|l| held.contains(&l))));
    steps && !later
}

/// The model whose parameters an optimizer of torch is made for.
fn optimizer(view: &View<'_>, step: usize) -> Option<Expr> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let path = view.callee(value)?;
    let is_optimizer = path.starts_with("torch.optim.")
        && super::lost::last(&path).starts_with(char::is_uppercase)
        && !["lr_scheduler", "swa_utils"].iter().any(|part| path.contains(part));
    let model = parameters_of(view, &args.first().filter(|_| is_optimizer)?.value)?;
    (matches!(model, Expr::Local(_)) || near::own_attribute(view, &model).is_some()).then_some(model)
}

/// Whether a step may give an optimizer the parameters of a model: it is given them, or the model and something called so.
fn takes_parameters(view: &View<'_>, step: usize, model: &Expr) -> bool {
    let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step) else { return false };
    let name = near::name_of_call(view, step).unwrap_or_default();
    let clips = name.contains("clip") || name.contains("norm");
    let parameters = args.iter().any(|a| parameters_of(view, &a.value).as_ref() == Some(model));
    let whole = args.iter().any(|a| view.expr(&a.value) == *model);
    parameters && !clips || whole && name.contains("optim")
}

/// Whether something may give the optimizer that a step makes other parameters.
fn gives_others(view: &View<'_>, made: usize) -> bool {
    let file = view.file();
    if view.code().contains("param_groups") || near::has_any(file, &["[\"params\"]", "['params']", "data_ptr("]) {
        return true;
    }
    let mut held: Vec<LocalId> = view.binds(made).to_vec();
    (made + 1..view.steps.len()).any(|i| {
        let holds = |o: &Operand| near::local(o).is_some_and(|l| held.contains(&l));
        match (view.steps[i].stmt, view.value(i)) {
            (Stmt::Assign { dst, .. }, Some(Rvalue::Use(o))) if holds(o) => {
                held.push(*dst);
                false
            }
            (_, Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) => {
                let gives = || near::name_of_call(view, i).is_none_or(|name| near::has_any(&name, GIVES));
                args.iter().any(|a| holds(&a.value)) && gives()
            }
            _ => false,
        }
    })
}

/// Whether what holds the optimizer is bound again after it was made, or a call from the replacement on is given it.
fn is_bound_again(view: &View<'_>, made: usize, replaced: usize) -> bool {
    let held = view.binds(made);
    let holds = |o: &Operand| near::local(o).is_some_and(|l| held.contains(&l));
    (made + 1..view.steps.len()).any(|i| match view.steps[i].stmt {
        Stmt::SetAttr { base, name, value } if holds(value) && near::is_self(view, base) => {
            near::class_of(view).is_some_and(|class| near::assigned(view, class, name).len() != 1)
        }
        _ if view.binds(i).iter().any(|local| held.contains(local)) => true,
        _ => match view.value(i) {
            Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => {
                i >= replaced && args.iter().any(|a| holds(&a.value))
            }
            _ => false,
        },
    })
}

fn name_of(view: &View<'_>, model: &Expr) -> Name {
    match model {
        Expr::Local(local) => view.local_name(*local).clone(),
        other => Name::from(format!("self.{}", other.last_name().unwrap_or_default())),
    }
}

/// `param.sequence_parallel = True`, then `fully_shard(model)`
pub fn marks(view: &View<'_>, out: &mut Found) {
    for by in replaced(view).into_iter().filter(|r| r.shards) {
        let Expr::Local(model) = by.model else { continue };
        for i in (0..by.step).filter(|i| in_order(view, *i, by.step, &by.model)) {
            for mark in marked(view, i, model, true) {
                let later = |at: usize| marked(view, at, model, true).contains(&mark) || may_mark(view, at, &mark);
                let again = (by.step + 1..view.steps.len()).any(later);
                let Some(asked) = asked(view, &mark, by.step).filter(|_| !again) else { continue };
                let mistake = Membership::MarksLost {
                    model: view.local_name(model).clone(),
                    method: by.by.clone(),
                    mark,
                    replaced: view.place(view.steps[by.step].id),
                    asked,
                };
                let found = (view.place(view.steps[i].id), Practice::Membership(mistake));
                if !out.iter().any(|(place, _)| *place == found.0) {
                    out.push(found);
                }
            }
        }
    }
}

/// The function of the project that a step calls.
fn callee<'a>(view: &View<'a>, step: usize) -> Option<Rc<View<'a>>> {
    let (called, _) = call(view, view.value(step)?)?;
    function(view, &called).map(|func| near::shared(view, func))
}

/// Whether a step calls a function of the project that may put a mark on anything: its text, or that of one that it calls, names it.
fn may_mark(view: &View<'_>, step: usize, mark: &str) -> bool {
    let named =
        |at: &View<'_>| near::has_any(at.code(), &[format!(".{mark} ="), format!("\"{mark}\""), "setattr".into()]);
    callee(view, step).is_some_and(|inner| {
        let reads = near::ending(inner.code(), ".grad").next().is_some();
        !reads && (named(&inner) || (0..inner.steps.len()).any(|s| callee(&inner, s).is_some_and(|deep| named(&deep))))
    })
}

/// The marks that a step puts on parameters of a model, itself or by a function that is given the model.
fn marked(view: &View<'_>, step: usize, model: LocalId, follows: bool) -> Vec<Name> {
    let on = |base: &Operand| is_parameter(view, base) && walks(view, base, model);
    let new = |name: &Name| !KEPT.contains(&name.as_str());
    match (view.steps[step].stmt, view.value(step)) {
        (Stmt::SetAttr { base, name, .. }, _) if new(name) && on(base) => vec![name.clone()],
        (_, Some(value @ Rvalue::Call { callee, args })) => {
            if view.callee(value).is_some_and(|path| super::lost::last(&path) == "setattr") {
                let name = args.get(1).and_then(|a| view.through(&a.value).string().cloned());
                return name.filter(|name| new(name) && on(&args[0].value)).into_iter().collect();
            }
            let given = args
                .iter()
                .position(|a| a.kind == ArgKind::Positional && follows && view.expr(&a.value) == Expr::Local(model));
            let (Some(given), Some(at)) = (given, near::function(view, callee)) else { return Vec::new() };
            let helper = near::shared(view, at);
            let Some(param) = helper.func.params.get(given).map(|p| p.local) else { return Vec::new() };
            (0..helper.steps.len()).flat_map(|at| marked(&helper, at, param, false)).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether a value is a parameter of a module, and not a module.
fn is_parameter(view: &View<'_>, value: &Operand) -> bool {
    let of = view.through(value);
    let all = |e: &Expr| matches!(e, Expr::Call { callee, .. } if matches!(callee.last_name(), Some("parameters" | "named_parameters")));
    matches!(of, Expr::Attr(_, ref name) if matches!(name.as_str(), "weight" | "bias")) || of.any(&mut |e| all(e))
}

/// Where a function of the file asks for a mark that goes by gradients, and that is not called before a step.
fn asked(view: &View<'_>, mark: &str, before: usize) -> Option<Place> {
    let called = |step: usize| {
        let callee = view.value(step).and_then(|value| call(view, value)).map(|(callee, _)| callee);
        callee.and_then(|callee| function(view, &callee))
    };
    let early: Vec<_> = (0..before).filter_map(called).collect();
    let module = &view.project.modules[view.at.module].ir.funcs;
    let named = near::functions(view, view.at.module).into_iter().filter(|at| {
        let func = &module[at.func];
        let text = view.text(view.spot(func.span));
        func.kind == FuncKind::Function
            && *at != view.at
            && !early.contains(at)
            && text.contains(mark)
            && near::ending(text, ".grad").next().is_some()
    });
    named.into_iter().find_map(|at| {
        let other = near::shared(view, at);
        (0..other.steps.len()).find_map(|i| {
            let asks = match other.value(i)? {
                value @ Rvalue::Call { args, .. } => {
                    let named = args.get(1).and_then(|a| other.through(&a.value).string().cloned());
                    let gets = |path: Name| matches!(super::lost::last(&path).as_str(), "getattr" | "hasattr");
                    named.is_some_and(|name| name == mark) && other.callee(value).is_some_and(gets)
                }
                Rvalue::Attr { name, .. } => name == mark,
                _ => false,
            };
            asks.then(|| other.place(other.steps[i].id))
        })
    })
}

/// `fully_shard(model)`, then `parallelize_module(model, mesh["tp"], plan)`
pub fn meshes(view: &View<'_>, out: &mut Found) {
    if !near::has_any(view.code(), SPLITS) {
        return;
    }
    let all: Vec<Replaced> = (0..view.steps.len()).filter_map(|step| replaces(view, step)).collect();
    for split in all.iter().filter(|r| !r.shards) {
        let sharded = all
            .iter()
            .filter(|r| r.shards)
            .find(|r| in_order(view, r.step, split.step, &r.model) && is_inside(view, split, &r.model));
        let Some(sharded) = sharded else { continue };
        let mistake = Placements::OnOtherMesh {
            model: name_of(view, &split.model),
            by: sharded.by.clone(),
            splits: split.by.clone(),
            sharded: view.place(view.steps[sharded.step].id),
        };
        out.push((view.place(view.steps[split.step].id), Practice::Placements(mistake)));
    }
}

/// Whether a step splits a model, or one of its modules that a loop gives.
fn is_inside(view: &View<'_>, split: &Replaced, model: &Expr) -> bool {
    let over = match &split.model {
        Expr::Local(local) => of_loop(view, *local, split.step),
        _ => None,
    };
    match over {
        // A variable of a loop is another module in each round.
        Some(over) => split.model != *model && over.any(&mut |e| e == model),
        None => split.model == *model,
    }
}

/// What the loop goes over that gives a variable its value at a step.
fn of_loop(view: &View<'_>, local: LocalId, before: usize) -> Option<Expr> {
    let def = view.defs(local).iter().rfind(|def| **def < before)?;
    let over = view.bound(*def, local);
    over.any(&mut |e| matches!(e, Expr::Element(_))).then_some(over)
}
