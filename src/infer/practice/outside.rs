//! Parameters that no wrapper sees. In: a function. Out: an optimizer that is given what a wrapper was told to leave alone, and modules
//! that are put into a model after it was wrapped. Never: a file that sums gradients in a way of its own, or where what is trained is not
//! followed. Next: `wrapped.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::no_sync::sums_itself;
use super::quiet::{is_file_quiet, is_read_whole};
use super::training::Training;
use super::view::View;
use super::wrapped::{Wrapped, call, changes, given, parameters_of, wrappers};
use crate::ir::{Arg, ArgKind, LocalId, LocalKind, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, Resolved};
use crate::rules::Entry;
use crate::source::{Name, Place};
use std::rc::Rc;

const MOST_DEPTH: usize = 8;
const MOST_CALLERS: usize = 4;

/// An optimizer is given what a wrapper leaves alone.
pub fn ignored(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some((rule, args)) = wrapper_call(view, i) else { continue };
        for (n, arg) in args.iter().enumerate() {
            let ArgKind::Keyword(name) = &arg.kind else { continue };
            if !rule.ignores.contains(name) || sums_itself(view) || reduces(view) {
                continue;
            }
            let wrapped_apart = || near::has_any(view.code(), &["distributeddataparallel", "ddp("]);
            if !is_read_whole(&near::bare(view.file()), &["transformers", "peft"], OTHERWISE) || wrapped_apart() {
                return;
            }
            let roots = roots(view, &arg.value);
            let wrapper = super::lost::last(&rule.name);
            let place = view.part(step.id, n + 1);
            if roots.is_empty() || wraps_again(view, i, &roots) || roots.iter().any(|e| is_of_experts(view, e)) {
                continue;
            }
            for (at, made, stepped) in trained(view, &roots) {
                let mistake = Training::Ignored { wrapper: wrapper.clone(), ignored: place, optimizer: made };
                out.push((stepped.unwrap_or(at), Practice::Training(mistake)));
            }
        }
    }
}

/// Whether a name says that each rank has experts of its own: their gradients are whole.
fn is_of_experts(view: &View<'_>, expr: &Expr) -> bool {
    let named = |name: &str| near::has_any(&name.to_lowercase(), &["expert", "moe"]) || near::has_part(name, "ep");
    let names = |e: &Expr| match e {
        Expr::Local(local) => named(view.local_name(*local)),
        Expr::Path(name) | Expr::Attr(_, name) => named(name),
        _ => false,
    };
    // A list that a comprehension fills is made of what stands in its statements.
    let made = |local: LocalId| {
        near::roots(view, &Operand::Local(local)).into_iter().any(|l| named(view.local_name(l)))
            || collected(view, local).into_iter().any(|o| near::deep(view, &view.expr(o)).any(&mut |e| names(e)))
            || view.defs(local).iter().any(|d| named(view.text(view.place(view.steps[*d].id))))
    };
    expr.any(&mut |e| names(e) || matches!(e, Expr::Local(local) if made(*local)))
}

/// A call of a wrapper that the rules know.
fn wrapper_call<'a>(view: &View<'a>, step: usize) -> Option<(&'a crate::rules::WrapperRule, &'a [Arg])> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    Some((view.rules.wrappers().get(&view.callee(value)?)?, args))
}

/// What an argument holds: itself, and what it is a list of.
fn roots(view: &View<'_>, operand: &Operand) -> Vec<Expr> {
    let expr = view.expr(operand);
    let mut out = Vec::new();
    match &expr {
        Expr::Local(_) => out.push(expr.clone()),
        Expr::Attr(..) => out.push(expr.clone()),
        _ => {}
    }
    // A list that is filled elsewhere is itself alone.
    match view.through(operand) {
        Expr::Build(items) => out.extend(items.into_iter().filter(|e| matches!(e, Expr::Attr(..) | Expr::Local(_)))),
        Expr::Call { callee, args, .. } if matches!(callee.last_name(), Some("set" | "list")) => {
            out.extend(args.into_iter().map(|(_, e)| e).filter(|e| matches!(e, Expr::Attr(..) | Expr::Local(_))));
        }
        other @ (Expr::Attr(..) | Expr::Local(_)) => out.push(other),
        _ => {}
    }
    out.dedup();
    out
}

/// Whether everything in an expression comes from these.
fn derived(view: &View<'_>, expr: &Expr, roots: &[Expr], depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    if roots.contains(expr) {
        return true;
    }
    let inner = |e: &Expr| derived(view, e, roots, depth);
    match expr {
        Expr::Attr(base, _) => inner(base),
        Expr::Element(of) | Expr::Item(of, _) => inner(of),
        Expr::Build(items) => !items.is_empty() && items.iter().all(inner),
        Expr::Call { callee, args, .. } => match &**callee {
            Expr::Attr(base, name) if matches!(name.as_str(), "parameters" | "named_parameters" | "modules") => {
                inner(base)
            }
            Expr::Path(path) if matches!(path.as_str(), "list" | "set" | "filter" | "tuple" | "itertools.chain") => {
                args.last().is_some_and(|(_, e)| inner(e))
            }
            _ => false,
        },
        Expr::Local(local) if !view.is_param(*local) => {
            let [def] = view.defs(*local) else { return false };
            let collected = collected(view, *local);
            match collected.is_empty() {
                true => inner(&view.bound(*def, *local)),
                false => collected.iter().all(|o| inner(&view.expr(o))),
            }
        }
        _ => false,
    }
}

/// What a comprehension, or the loop that a variable stands for, collects.
fn collected<'a>(view: &View<'a>, list: LocalId) -> Vec<&'a Operand> {
    let same = |other: LocalId| {
        other == list
            || matches!(view.defs(list), [def] if matches!(view.value(*def), Some(Rvalue::Use(Operand::Local(l))) if *l == other))
    };
    let appended = view.steps.iter().filter_map(|s| match s.stmt {
        Stmt::Append { collection, value, .. } if same(*collection) => Some(value),
        _ => None,
    });
    appended.collect()
}

/// Whether another wrapper is given one of these.
fn wraps_again(view: &View<'_>, step: usize, roots: &[Expr]) -> bool {
    (0..view.steps.len()).any(|i| {
        let first = wrapper_call(view, i).and_then(|(_, args)| args.first()).filter(|_| i != step);
        first.is_some_and(|a| derived(view, &view.expr(&a.value), roots, MOST_DEPTH))
    })
}

/// Optimizers that are given nothing but these: where they are made, and where they step.
fn trained(view: &View<'_>, roots: &[Expr]) -> Vec<(Place, Place, Option<Place>)> {
    let mut out = Vec::new();
    for at in near::functions(view, view.at.module) {
        let other = near::other(view, at);
        for (i, s) in other.steps.iter().enumerate() {
            let Some(given) = optimizer(&other, i) else { continue };
            let expr = match given {
                Operand::Local(local) => Expr::Local(*local),
                constant => other.expr(constant),
            };
            let own = at == view.at && derived(view, &expr, roots, MOST_DEPTH);
            let place = other.place(s.id);
            if own || at != view.at && comes_back(view, &other, &expr, roots) {
                out.push((place, place, stepped(&other, i)));
            } else if at != view.at && is_handed(view, &other, &expr, roots) {
                let first = passed(&other, i).or_else(|| stepped(&other, i));
                out.extend(first.map(|first| (place, place, Some(first))));
            }
        }
    }
    out
}

/// Words of files in which the gradients of these may be brought together after all.
const OTHERWISE: &[&str] = &[
    "all_reduce",
    "all_gather",
    "gather",
    "reduce",
    "average",
    "sync",
    "comm",
    "share",
    "setattr(",
    "parameters_to_vector",
];

/// Whether a parameter of another function holds these: its callers hand it what this function returns; or nobody in the file calls it, and it
/// has by the same names what this function returns, the wrapped model and these.
fn is_handed(view: &View<'_>, other: &View<'_>, expr: &Expr, roots: &[Expr]) -> bool {
    let Expr::Local(param) = expr else { return false };
    if !other.is_as_given(*param) || !is_file_quiet(view) {
        return false;
    }
    let callers = given(other, *param);
    if !callers.is_empty() {
        return callers.len() <= MOST_CALLERS
            && callers.iter().all(|(caller, _, value)| {
                let here = caller.at == view.at && derived(view, value, roots, MOST_DEPTH);
                here || comes_back(view, caller, value, roots)
            });
    }
    let is_root = |e: &Expr| matches!(e, Expr::Local(l) if view.local_name(*l) == other.local_name(*param));
    roots.iter().any(is_root)
        && view.steps.iter().any(|s| match s.stmt {
            Stmt::Return { value } => returns_both(view, other, value, roots),
            _ => false,
        })
}

/// Whether a function returns these beside a model that it has wrapped, and another one has a parameter of the model's name.
fn returns_both(view: &View<'_>, other: &View<'_>, value: &Operand, roots: &[Expr]) -> bool {
    let Some((_, Rvalue::Build { items, .. })) = view.source(value) else { return false };
    let all: Vec<Expr> = (0..items.len()).map(|at| returned(view, value, Some(at))).collect();
    let wrapped = |e: &Expr| {
        let Expr::Local(local) = e else { return false };
        let wraps = view.defs(*local).last().is_some_and(|def| wrapper_call(view, *def).is_some());
        wraps && other.func.params.iter().any(|p| p.name == *view.local_name(*local))
    };
    all.iter().any(wrapped) && all.iter().any(|e| derived(view, e, roots, MOST_DEPTH))
}

/// The backward pass in front of the step of an optimizer that a step makes, in the same function.
fn passed(view: &View<'_>, made: usize) -> Option<Place> {
    stepped(view, made)?;
    let backward = |i: &usize| matches!(view.value(*i), Some(Rvalue::CallMethod { name, .. }) if name == "backward");
    (made..view.steps.len()).find(backward).map(|i| view.place(view.steps[i].id))
}

/// What an optimizer is given by a call that makes one.
fn optimizer<'a>(view: &View<'a>, step: usize) -> Option<&'a Operand> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let made = view.callee(value).is_some_and(|path| path.starts_with("torch.optim."));
    view.argument(args, 0, "params").filter(|_| made)
}

/// Whether a value is what a function, seen by `view`, returns, and comes from these there.
fn comes_back(view: &View<'_>, caller: &View<'_>, expr: &Expr, roots: &[Expr]) -> bool {
    let expr = match expr {
        Expr::Local(local) => caller.through(&Operand::Local(*local)),
        other => other.clone(),
    };
    let (whole, at) = match expr {
        Expr::Item(whole, at) => match *at {
            Expr::Const(crate::ir::Const::Int(n)) => (*whole, usize::try_from(n).ok()),
            _ => return false,
        },
        other => (other, None),
    };
    let Expr::Call { callee, .. } = whole else { return false };
    if super::wrapped::function(caller, &callee) != Some(view.at) {
        return false;
    }
    let returned: Vec<Expr> = view
        .steps
        .iter()
        .filter_map(|s| match s.stmt {
            Stmt::Return { value } => Some(returned(view, value, at)),
            _ => None,
        })
        .collect();
    !returned.is_empty() && returned.iter().all(|e| derived(view, e, roots, MOST_DEPTH))
}

/// What is returned, or an item of it; lists that a comprehension fills stay variables.
fn returned(view: &View<'_>, value: &Operand, at: Option<usize>) -> Expr {
    let operand = match (at, view.source(value)) {
        (None, _) => value,
        (Some(at), Some((_, Rvalue::Build { items, .. }))) => match items.get(at) {
            Some(crate::ir::Item::One(operand)) => operand,
            _ => return Expr::Unknown,
        },
        _ => return Expr::Unknown,
    };
    match operand {
        Operand::Local(local) => Expr::Local(*local),
        other => view.expr(other),
    }
}

/// Where the optimizer that a step makes steps, in the same function.
fn stepped(view: &View<'_>, made: usize) -> Option<Place> {
    let of = view.binds(made);
    view.steps.iter().enumerate().skip(made).find_map(|(i, s)| match view.value(i) {
        Some(Rvalue::CallMethod { base: Operand::Local(l), name, .. }) if name == "step" => {
            let same = of.contains(l)
                || view.source(&Operand::Local(*l)).is_some_and(|(d, _)| d == made)
                || view
                    .defs(*l)
                    .iter()
                    .any(|d| matches!(view.value(*d), Some(Rvalue::Use(Operand::Local(t))) if of.contains(t)));
            same.then(|| view.place(s.id))
        }
        _ => None,
    })
}

/// Whether the file communicates a gradient, or parameters one by one.
fn reduces(view: &View<'_>) -> bool {
    near::functions(view, view.at.module).into_iter().any(|at| {
        let other = near::other(view, at);
        other.collectives().iter().any(|(_, call)| {
            call.input.is_none_or(|o| {
                other.through(o).any(&mut |e| match e {
                    Expr::Attr(_, name) => name.contains("grad") || name == "data",
                    Expr::Element(_) => true,
                    Expr::Local(l) => other.defs(*l).iter().any(|d| matches!(other.steps[*d].stmt, Stmt::For { .. })),
                    _ => false,
                })
            })
        })
    })
}

/// A module with parameters is put into a model that was wrapped before.
pub fn attached(view: &View<'_>, out: &mut Found) {
    for i in 0..view.steps.len() {
        let Some((base, module)) = puts(view, i) else { continue };
        let Some(class) = with_parameters(view, &view.through(module)) else { continue };
        let base = view.expr(base);
        if is_of_experts(view, &base) || is_of_experts(view, &Expr::Path(class.clone())) {
            continue;
        }
        let mut models = Vec::new();
        ancestors(view, &base, MOST_DEPTH, &mut models);
        for model in models {
            for (site, step, model) in sites(view, i, &model) {
                let Some(wrapped) = wrapped_before(&site, &model, step) else { continue };
                let Some(optimizer) = optimizer_after(&site, &model, step) else { continue };
                if sums_itself(&site) || sums_itself(view) || reduces(&site) || touched(&site, &model, step) {
                    continue;
                }
                let wrapper = super::lost::last(&wrapped.rule.name);
                let (put, at) = (view.place(view.steps[i].id), site.place(site.steps[step].id));
                let mistake =
                    Training::Attached { module: class.clone(), wrapper, wrapped: wrapped.place(), put, optimizer };
                if !out.iter().any(|(place, _)| *place == at) {
                    out.push((at, Practice::Training(mistake)));
                }
            }
        }
    }
}

/// A module that a step puts into another: where, and which.
fn puts<'a>(view: &View<'a>, step: usize) -> Option<(&'a Operand, &'a Operand)> {
    match view.steps[step].stmt {
        Stmt::SetAttr { base, value, .. } | Stmt::SetItem { base, value, .. } => Some((base, value)),
        Stmt::Assign { value: Rvalue::Call { callee, args }, .. } => {
            let [base, _, value] = &args[..] else { return None };
            let named = matches!(view.expr(callee), Expr::Path(path) if path == "setattr");
            named.then_some((&base.value, &value.value))
        }
        _ => None,
    }
}

/// The name of the class of a module that is made here and has parameters that are no distributed tensors.
fn with_parameters(view: &View<'_>, module: &Expr) -> Option<Name> {
    let Expr::Call { callee, .. } = super::wrapped::same(module) else { return None };
    let path = near::path(view, callee)?;
    let has = |entry: Option<&Entry>| matches!(entry, Some(Entry::Module(rule)) if !rule.params.is_empty());
    if has(view.rules.get(&path)) {
        return Some(super::lost::last(&path));
    }
    let Resolved::Class(at) = view.project.path(&path) else { return None };
    makes_parameters(view, at).then(|| view.project.class(at).name.clone())
}

fn makes_parameters(view: &View<'_>, at: ClassRef) -> bool {
    let class = view.project.class(at);
    let text = view.files[view.project.file(at.module)].slice(class.span).to_lowercase();
    if ["dtensor", "distribute_", "fully_shard", "all_reduce"].iter().any(|w| text.contains(w)) {
        return false;
    }
    let Some((_, init)) = class.methods.iter().find(|(n, _)| n == "__init__") else { return false };
    let init = near::other(view, FuncRef { module: at.module, func: *init });
    init.steps.iter().any(|s| {
        let Stmt::SetAttr { base, value, .. } = s.stmt else { return false };
        let Expr::Call { callee, .. } = init.through(value) else { return false };
        let rule = near::path(&init, &callee).and_then(|path| init.rules.get(&path));
        near::is_self(&init, base)
            && match rule {
                Some(Entry::Module(rule)) => !rule.params.is_empty(),
                Some(Entry::Intrinsic(rule)) => rule.does == "parameter",
                _ => false,
            }
    })
}

/// The variables and attributes inside of which an expression is, itself first.
fn ancestors(view: &View<'_>, expr: &Expr, depth: usize, out: &mut Vec<Expr>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match expr {
        Expr::Attr(base, _) => {
            out.push(expr.clone());
            ancestors(view, base, depth, out);
        }
        Expr::Item(base, _) | Expr::Element(base) => ancestors(view, base, depth, out),
        Expr::Call { callee, args, .. } => match &**callee {
            Expr::Attr(base, _) => ancestors(view, base, depth, out),
            Expr::Path(path) if matches!(path.as_str(), "list" | "getattr" | "enumerate" | "dict") => {
                args.first().into_iter().for_each(|(_, e)| ancestors(view, e, depth, out));
            }
            _ => {}
        },
        Expr::Local(local) if view.local_name(*local) != "self" => {
            out.push(expr.clone());
            if let ([def], false) = (view.defs(*local), view.is_param(*local)) {
                let value = view.bound(*def, *local);
                if matches!(value, Expr::Element(_) | Expr::Item(..) | Expr::Attr(..)) {
                    ancestors(view, &value, depth, out);
                }
            }
        }
        _ => {}
    }
}

/// Where a model comes from: this step, or the calls that hand it in.
fn sites<'a>(view: &View<'a>, step: usize, model: &Expr) -> Vec<(Rc<View<'a>>, usize, Expr)> {
    match model {
        Expr::Local(local) if view.is_as_given(*local) => {
            let inside = |model: Expr| match model {
                Expr::Attr(base, name) if name == "module" => *base,
                other => other,
            };
            let all = given(view, *local).into_iter().take(MOST_CALLERS);
            all.map(|(caller, step, model)| (caller, step, inside(model))).collect()
        }
        _ => vec![(near::shared(view, view.at), step, model.clone())],
    }
}

/// The wrapper that a model went through before a step of the same function.
fn wrapped_before<'a>(view: &View<'a>, model: &Expr, step: usize) -> Option<Wrapped<'a>> {
    match model {
        Expr::Local(local) if view.func.locals()[*local].kind != LocalKind::Captured => {
            wrappers(view, model, step).into_iter().next()
        }
        Expr::Attr(..) => {
            let name = near::own_attribute(view, model)?;
            let set = view.steps[..step].iter().enumerate().rev().find_map(|(i, s)| match s.stmt {
                Stmt::SetAttr { base, name: other, value } if other == name && near::is_self(view, base) => {
                    Some((i, value))
                }
                _ => None,
            });
            let (at, value) = set?;
            let value = view.expr(value);
            let made = wrappers(view, &value, at).into_iter().next();
            made.or_else(|| {
                (at..step).find_map(|s| {
                    let (rule, (inner, step)) = changes(view, model, s, MOST_DEPTH)?;
                    Some(Wrapped { rule: rule?, view: inner, step })
                })
            })
        }
        _ => None,
    }
}

/// An optimizer that is made of the parameters of a model after a step.
fn optimizer_after(view: &View<'_>, model: &Expr, step: usize) -> Option<Place> {
    (step + 1..view.steps.len()).find_map(|i| {
        let given = optimizer(view, i)?;
        (parameters_of(view, given)? == *model).then(|| view.place(view.steps[i].id))
    })
}

/// Whether a model is handed after a step to something that may wrap it, or sum its gradients.
fn touched(view: &View<'_>, model: &Expr, step: usize) -> bool {
    (step + 1..view.steps.len()).any(|i| {
        let rebound = view.binds(i).iter().any(|l| *model == Expr::Local(*l));
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            return rebound;
        };
        let mentions = |e: &Expr| {
            let mut all = Vec::new();
            ancestors(view, e, MOST_DEPTH, &mut all);
            all.contains(model)
        };
        if !args.iter().any(|a| mentions(&view.expr(&a.value))) {
            return rebound;
        }
        let Some((callee, _)) = call(view, value) else { return true };
        if let Some(at) = super::wrapped::function(view, &callee) {
            let code = near::other(view, at).code().to_string();
            return ["shard", "ddp", "fsdp", "parallel", "wrap", "reduce", "sync", "broadcast", "prepare"]
                .iter()
                .any(|w| code.contains(w));
        }
        let path = near::path(view, &callee).unwrap_or_default();
        let known = path.starts_with("torch.optim.")
            || path.starts_with("torch.nn.utils.")
            || path.starts_with("torch.nn.functional.");
        !known && path.contains('.')
            || matches!(callee, Expr::Attr(..))
                && !matches!(callee.last_name(), Some("append" | "info" | "log" | "debug" | "print"))
    })
}
