//! How models are wrapped. In: an expression for a model, and where it is used. Out: the calls of wrappers that the rules know and that
//! it went through: in the same function, in a helper that returns or changes it, in the constructor, at a caller in the same file.
//! Never: a guess: what is not followed gives nothing. Next: `shard_norm.rs` and the other checks that ask.

use super::expr::Expr;
use super::near;
use super::view::{Guard, Step, View};
use crate::ir::{ArgKind, Const, LocalId, LocalKind, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, Resolved};
use crate::rules::WrapperRule;
use crate::source::{Idx, Place};
use std::rc::Rc;

/// A step, with the view that it stands in.
type Site<'a> = (Rc<View<'a>>, usize);

/// A call that wraps a model.
pub struct Wrapped<'a> {
    pub rule: &'a WrapperRule,
    pub view: Rc<View<'a>>,
    pub step: usize,
}

impl Wrapped<'_> {
    pub fn place(&self) -> Place {
        self.view.place(self.view.steps[self.step].id)
    }
}

/// How far a model is followed, how many wrappers of one are looked at, and how many expressions on the way to them: functions that call
/// each other in many ways have exponentially many ways to a model.
const MOST_STEPS: usize = 8;
const MOST_FOUND: usize = 6;
const MOST_VISITS: usize = 200;

/// Methods and functions that give the model that they are given.
const SAME: &[&str] =
    &["to", "cuda", "train", "eval", "compile", "bfloat16", "float", "half", "double", "requires_grad_", "to_empty"];

/// The calls that have wrapped a model when a step uses it.
pub fn wrappers<'a>(view: &View<'a>, model: &Expr, before: usize) -> Vec<Wrapped<'a>> {
    let mut search = Search { found: Vec::new(), left: MOST_VISITS };
    model_of(view, model, before, MOST_STEPS, &mut search);
    if search.left == 0 { Vec::new() } else { search.found }
}

/// What was found, and how many expressions may still be looked at; where that runs out nothing is known.
struct Search<'a> {
    found: Vec<Wrapped<'a>>,
    left: usize,
}

fn model_of<'a>(view: &View<'a>, model: &Expr, before: usize, depth: usize, out: &mut Search<'a>) {
    let Some(depth) = depth.checked_sub(1).filter(|_| out.found.len() < MOST_FOUND) else { return };
    out.left = out.left.saturating_sub(1);
    if out.left == 0 {
        return;
    }
    changed(view, model, before, depth, out);
    match model {
        Expr::Local(local) => variable(view, *local, before, depth, out),
        Expr::Call { callee, args, step } => match &**callee {
            Expr::Attr(base, name) if SAME.contains(&name.as_str()) => model_of(view, base, before, depth, out),
            _ => called(view, callee, args, *step, None, depth, out),
        },
        Expr::Item(whole, at) => {
            if let (Expr::Call { callee, args, step }, Expr::Const(Const::Int(at))) = (&**whole, &**at) {
                called(view, callee, args, *step, usize::try_from(*at).ok(), depth, out);
            }
        }
        Expr::Choice(_, a, b) => {
            model_of(view, a, before, depth, out);
            model_of(view, b, before, depth, out);
        }
        Expr::Attr(..) => {
            let (Some(name), Some(class)) = (near::own_attribute(view, model), near::class_of(view)) else { return };
            for (method, step, value) in near::assigned(view, class, name) {
                let value = method.expr(value);
                model_of(&method, &value, step, depth, out);
            }
        }
        Expr::Path(path) => {
            let Resolved::Value(module, name) = view.project.path(path) else { return };
            let body = near::shared(view, FuncRef { module, func: crate::ir::FuncId::from_index(0) });
            if let Some(local) = body.func.locals().named(&name) {
                model_of(&body, &Expr::Local(local), body.steps.len(), depth, out);
            }
        }
        _ => {}
    }
}

/// A variable: its last values before a step, or what callers give.
fn variable<'a>(view: &View<'a>, local: LocalId, before: usize, depth: usize, out: &mut Search<'a>) {
    for def in view.defs(local).iter().rev().filter(|d| **d < before) {
        let value = view.bound(*def, local);
        if same(&value) == &Expr::Local(local) {
            continue;
        }
        model_of(view, &value, *def, depth, out);
        if is_always(&view.steps[*def], view.steps.get(before)) {
            return;
        }
    }
    if view.func.locals()[local].kind == LocalKind::Captured {
        let outer = view.func.captures.iter().find(|(_, inner)| *inner == local);
        if let (Some((outer, _)), Some(parent)) = (outer, view.func.parent) {
            let around = near::shared(view, FuncRef { module: view.at.module, func: parent });
            model_of(&around, &Expr::Local(*outer), around.steps.len(), depth, out);
        }
    }
    for (caller, step, value) in given(view, local) {
        model_of(&caller, &value, step, depth, out);
    }
}

/// What the names of functions that make a model begin with: `build_model`.
const MAKERS: &[&str] = &["build", "make", "create", "wrap", "setup", "prepare", "init", "shard", "parallelize"];

/// How a parameter that nobody in the file gives, and that says nothing of its class, is wrapped by the one function of the file that is named
/// after it. Whoever asks has to know otherwise that the two go together.
pub fn made_for<'a>(view: &View<'a>, param: LocalId) -> Vec<Wrapped<'a>> {
    let Some(param) = view.func.params.iter().find(|p| p.local == param && p.hint.is_none() && !p.has_default) else {
        return Vec::new();
    };
    let makes = |at: &FuncRef| {
        let called = view.project.func(*at).name.trim_start_matches('_').split_once('_');
        called.is_some_and(|(verb, of)| of == param.name && MAKERS.contains(&verb))
    };
    let ends = |at: &FuncRef| view.project.func(*at).name.contains(param.name.as_str());
    let named = near::functions(view, view.at.module).into_iter().filter(|at| *at != view.at);
    let mut makers = named.filter(ends);
    let (Some(maker), None) = (makers.next().filter(makes), makers.next()) else { return Vec::new() };
    if !given(view, param.local).is_empty() {
        return Vec::new();
    }
    let maker = near::shared(view, maker);
    let returned = maker.steps.iter().enumerate().find_map(|(step, s)| match s.stmt {
        Stmt::Return { value } => Some((step, maker.expr(value))),
        _ => None,
    });
    returned.map_or_else(Vec::new, |(step, model)| wrappers(&maker, &model, step))
}

/// A model without methods that give the same one.
pub fn same(expr: &Expr) -> &Expr {
    match expr {
        Expr::Call { callee, args, .. } => match (&**callee, args.first()) {
            (Expr::Attr(base, name), _) if SAME.contains(&name.as_str()) => same(base),
            (Expr::Path(path), Some((ArgKind::Positional, first))) if path == "torch.compile" => same(first),
            _ => expr,
        },
        _ => expr,
    }
}

/// Whether a step is executed whenever a later one is.
pub(super) fn is_always(step: &Step<'_>, later: Option<&Step<'_>>) -> bool {
    let has = |g: &Guard<'_>| later.is_some_and(|l| l.guards.iter().any(|h| h.at == g.at && h.holds == g.holds));
    step.guards.iter().all(has)
}

/// A call that gives the model, or an item of what it gives.
fn called<'a>(
    view: &View<'a>,
    callee: &Expr,
    args: &[(ArgKind, Expr)],
    step: usize,
    item: Option<usize>,
    depth: usize,
    out: &mut Search<'a>,
) {
    if let Some(rule) = near::path(view, callee).and_then(|path| view.rules.wrappers().get(&path)) {
        out.found.push(Wrapped { rule, view: near::shared(view, view.at), step });
        return;
    }
    if let (Some("compile"), Some((ArgKind::Positional, first))) = (callee.last_name(), args.first()) {
        return model_of(view, first, step, depth, out);
    }
    let Some(at) = function(view, callee) else { return };
    let inner = near::shared(view, at);
    for (i, s) in inner.steps.iter().enumerate() {
        let Stmt::Return { value } = s.stmt else { continue };
        let value = match (inner.through(value), item) {
            (Expr::Build(items), Some(item)) => items.get(item).cloned().unwrap_or(Expr::Unknown),
            (_, Some(_)) => continue,
            (_, None) => inner.expr(value),
        };
        // What it was given, and this call gave it.
        match &value {
            Expr::Local(local) if inner.is_as_given(*local) => {
                changed(&inner, &value, i, depth, out);
                if let Some(given) = argument(&inner, *local, args, at, callee) {
                    model_of(view, given, step, depth, out);
                }
            }
            _ => model_of(&inner, &value, i, depth, out),
        }
    }
}

/// The function of the project that is called: by its name, or a method of the own class.
pub fn function(view: &View<'_>, callee: &Expr) -> Option<FuncRef> {
    if let Some(name) = near::own_attribute(view, callee) {
        let class = near::class_of(view)?;
        return view.project.own_method(ClassRef { module: view.at.module, class }, name);
    }
    match view.project.path(&near::path(view, callee)?) {
        Resolved::Func(at) => Some(at),
        _ => None,
    }
}

/// The function of the project that a call calls, by the path that it is written with.
pub fn called_function<'a>(view: &View<'a>, value: &'a Rvalue) -> Option<FuncRef> {
    match value {
        Rvalue::Call { callee, .. } => function(view, &view.expr(callee)),
        other => function(view, &Expr::Path(view.callee(other)?)),
    }
}

/// What a call gives a parameter of what it calls.
fn argument<'e>(
    inner: &View<'_>,
    param: LocalId,
    args: &'e [(ArgKind, Expr)],
    at: FuncRef,
    callee: &Expr,
) -> Option<&'e Expr> {
    let index = inner.func.params.iter().position(|p| p.local == param)?;
    let bound = inner.project.func(at).class.is_some() && matches!(callee, Expr::Attr(..));
    let name = &inner.func.params.get(index)?.name;
    let index = index.checked_sub(usize::from(bound))?;
    let named = args.iter().find(|(kind, _)| matches!(kind, ArgKind::Keyword(k) if k == name));
    let positional = || args.get(index).filter(|(kind, _)| *kind == ArgKind::Positional);
    named.or_else(positional).map(|(_, e)| e)
}

/// The parameter that a call gives an expression to, where what it calls is followed.
fn parameter<'a>(
    view: &View<'a>,
    callee: &Expr,
    args: &[(ArgKind, Expr)],
    model: &Expr,
) -> Option<(Rc<View<'a>>, LocalId)> {
    if !args.iter().any(|(_, e)| e == model) {
        return None;
    }
    let at = function(view, callee)?;
    let inner = near::shared(view, at);
    let param = inner.func.params.iter().find(|p| argument(&inner, p.local, args, at, callee) == Some(model))?.local;
    Some((inner, param))
}

/// Wrappers that change a model before a step: here, or in a function that is given it.
fn changed<'a>(view: &View<'a>, model: &Expr, before: usize, depth: usize, out: &mut Search<'a>) {
    if !matches!(model, Expr::Local(_) | Expr::Attr(..)) {
        return;
    }
    for step in 0..before.min(view.steps.len()) {
        if let Some((found, at)) = changes(view, model, step, depth) {
            out.found.extend(found.map(|rule| Wrapped { rule, view: near::shared(&at.0, at.0.at), step: at.1 }));
        }
    }
}

/// Whether a step hands a model to something that wraps it in place: the rule, and the call.
pub fn changes<'a>(
    view: &View<'a>,
    model: &Expr,
    step: usize,
    depth: usize,
) -> Option<(Option<&'a WrapperRule>, Site<'a>)> {
    let depth = depth.checked_sub(1)?;
    let value @ (Rvalue::Call { args: given, .. } | Rvalue::CallMethod { args: given, .. }) = view.value(step)? else {
        return None;
    };
    if !given.iter().any(|a| &view.expr(&a.value) == model) {
        return None;
    }
    let (callee, args) = call(view, value)?;
    let rule = near::path(view, &callee).and_then(|path| view.rules.wrappers().get(&path));
    if let Some(rule) = rule.filter(|r| r.in_place) {
        let first = args.first().is_some_and(|(_, e)| e == model);
        return first.then(|| (Some(rule), (near::shared(view, view.at), step)));
    }
    let (inner, param) = parameter(view, &callee, &args, model)?;
    let wanted = Expr::Local(param);
    (0..inner.steps.len()).find_map(|s| changes(&inner, &wanted, s, depth))
}

/// What a call calls, and its arguments.
pub fn call(view: &View<'_>, value: &Rvalue) -> Option<(Expr, Vec<(ArgKind, Expr)>)> {
    let (callee, args) = match value {
        Rvalue::Call { callee, args } => (view.through(callee), args),
        Rvalue::CallMethod { base, name, args } => (
            match view.through(base) {
                Expr::Path(path) => Expr::Path(crate::source::Name::from(format!("{path}.{name}"))),
                _ => Expr::Attr(Box::new(view.expr(base)), name.clone()),
            },
            args,
        ),
        _ => return None,
    };
    Some((callee, args.iter().map(|a| (a.kind.clone(), view.expr(&a.value))).collect()))
}

/// What callers in the same file give a parameter: the caller, the step of the call, and the value.
pub fn given<'a>(view: &View<'a>, param: LocalId) -> Vec<(Rc<View<'a>>, usize, Expr)> {
    let mut out = Vec::new();
    let Some(index) = view.func.params.iter().position(|p| p.local == param) else { return out };
    let name = &view.func.params[index].name;
    let class = view.func.class.map(|class| ClassRef { module: view.at.module, class });
    let index = index.checked_sub(usize::from(class.is_some()));
    let path = match class {
        Some(class) if view.func.name == "__init__" => super::expr::path_of(view.project, &Resolved::Class(class)),
        _ => view.project.qualified(view.at),
    };
    let only = class.is_some() && view.project.methods_named(&view.func.name).len() == 1;
    let method = class.is_some().then_some(view.func.name.as_ref());
    for (caller, step) in super::called::sites(view, &path, method) {
        let args = match caller.value(step) {
            Some(Rvalue::Call { args, .. }) => args,
            Some(Rvalue::CallMethod { base, args, .. }) => {
                let own = near::is_self(&caller, base) && near::class_of(&caller) == view.func.class;
                if !own && !only {
                    continue;
                }
                args
            }
            _ => continue,
        };
        let named = args.iter().find(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == name));
        let positional = || args.get(index?).filter(|a| a.kind == ArgKind::Positional);
        if let Some(arg) = named.or_else(positional) {
            let value = caller.expr(&arg.value);
            out.push((caller, step, value));
        }
    }
    out
}

/// The model whose parameters an operand has, all or some of them: `model.parameters()`, a list or a choice of them.
pub fn parameters_of(view: &View<'_>, operand: &Operand) -> Option<Expr> {
    parameters_through(view, operand, MOST_STEPS)
}

/// The same, of an expression.
pub fn parameters_in(view: &View<'_>, expr: &Expr) -> Option<Expr> {
    parameters(view, expr, MOST_STEPS)
}

fn parameters(view: &View<'_>, expr: &Expr, depth: usize) -> Option<Expr> {
    let depth = depth.checked_sub(1)?;
    match expr {
        Expr::Call { callee, args, .. } => match (&**callee, args.last()) {
            (Expr::Attr(model, name), None) if matches!(name.as_str(), "parameters" | "named_parameters") => {
                Some((**model).clone())
            }
            (Expr::Path(path), Some((ArgKind::Positional, last)))
                if matches!(path.as_str(), "list" | "filter" | "tuple") =>
            {
                parameters(view, last, depth)
            }
            _ => None,
        },
        Expr::Local(local) if !view.is_param(*local) => {
            let [def] = view.defs(*local) else { return None };
            match view.value(*def)? {
                Rvalue::Use(from) => parameters_through(view, from, depth),
                Rvalue::Build { .. } => collected(view, *local, depth),
                _ => parameters(view, &view.bound(*def, *local), depth),
            }
        }
        Expr::Element(of) | Expr::Item(of, _) => parameters(view, of, depth),
        _ => None,
    }
}

fn parameters_through(view: &View<'_>, operand: &Operand, depth: usize) -> Option<Expr> {
    match operand {
        Operand::Local(local) if view.is_temp(*local) && is_collection(view, *local) => collected(view, *local, depth),
        _ => parameters(view, &view.expr(operand), depth),
    }
}

fn is_collection(view: &View<'_>, local: LocalId) -> bool {
    matches!(view.defs(local), [def] if matches!(view.value(*def), Some(Rvalue::Build { .. })))
}

/// The model of what a comprehension collects.
fn collected(view: &View<'_>, list: LocalId, depth: usize) -> Option<Expr> {
    let value = view.steps.iter().find_map(|s| match s.stmt {
        Stmt::Append { collection, value, .. } if *collection == list => Some(value),
        _ => None,
    })?;
    parameters(view, &view.through(value), depth)
}

/// Whether an expression, with the variables in it, names something with one of these words in it, in lowercase.
pub fn says(view: &View<'_>, expr: &Expr, words: &[&str]) -> bool {
    let has = |name: &str| {
        let name = name.to_lowercase();
        words.iter().any(|w| name.contains(w))
    };
    expr.any(&mut |e| match e {
        Expr::Local(local) => has(view.local_name(*local)),
        Expr::Path(name) | Expr::Attr(_, name) | Expr::Const(Const::Str(name)) => has(name),
        _ => false,
    })
}
