//! Models that are wrapped and then used around the wrapper. In: a function. Out: a pass through `model.module` whose result is trained on,
//! where nothing in the function, or in the class that keeps the model, calls the model itself. Never: a model that is handed on or used in
//! an inner function, a class with bases of its own, or a file that sums gradients in a way of its own. Source: torch.nn.parallel.DistributedDataParallel: its own forward prepares the
//! reducer, without which the hooks of the parameters do nothing. Next: `wrapped.rs`, `rules/torch/wrappers.toml`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::no_sync::sums_itself;
use super::training::Training;
use super::view::View;
use super::wrapped::{parameters_of, same, wrappers};
use crate::ir::{ClassId, LocalId, LocalKind, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef};
use crate::source::{Name, Span};
use rustc_hash::FxHashSet;
use std::rc::Rc;

/// The attribute under which a wrapper keeps what it wraps.
pub(super) const INNER: &str = "module";

/// Bases of a class that call nothing of it.
const BASES: &[&str] = &["", "object", "nn.Module", "torch.nn.Module"];
/// How many methods a loss goes through before its backward pass.
const MOST_METHODS: usize = 2;

/// Methods of a model that are no pass through it.
pub(super) const NO_PASS: &[&str] = &[
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
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { continue };
        let wraps = view.callee(value).and_then(|path| view.rules.wrappers().get(&path));
        let Some(rule) = wraps.filter(|rule| !rule.in_place && !args.is_empty()) else { continue };
        let Some(model) = variable(view, i) else { continue };
        if view.defs(model).iter().any(|d| *d > i + 1) || sums_itself(view) {
            continue;
        }
        let Some(pass) = only_inside(view, model, i) else { continue };
        if is_trained(view, pass) && steps(view, model) {
            let wrapper = super::lost::last(&rule.name);
            let model = view.local_name(model).clone();
            let mistake = Training::Bypassed { model, wrapper, wrapped: view.place(step.id) };
            out.push((view.place(view.steps[pass].id), Practice::Training(mistake)));
        }
    }
}

/// Whether a function steps with the gradients of a model: an optimizer has its parameters, or one comes from elsewhere and no other model
/// is wrapped. Gradients that anything reads are summed there, or wanted of one rank.
fn steps(view: &View<'_>, model: LocalId) -> bool {
    if !view.code().contains(".step(") || reads_gradients(view.code()) {
        return false;
    }
    let (mut others, mut wrapped, mut measured) = (false, 0, false);
    for i in 0..view.steps.len() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            continue;
        };
        if matches!(value, Rvalue::CallMethod { base, name, .. } if name == "eval" && is_of(&view.through(base), model))
        {
            measured = true;
        }
        let Some(path) = view.callee(value) else { continue };
        wrapped += usize::from(view.rules.wrappers().get(&path).is_some());
        if path.starts_with("torch.optim.") && !path.contains("lr_scheduler") {
            if args.first().and_then(|a| parameters_of(view, &a.value)).is_some_and(|of| is_of(&of, model)) {
                return true;
            }
            others = true;
        }
    }
    !others && !measured && wrapped == 1
}

/// Whether an expression is a model or a part of it.
pub(super) fn is_of(expr: &Expr, model: LocalId) -> bool {
    match same(expr) {
        Expr::Attr(base, _) => is_of(base, model),
        other => *other == Expr::Local(model),
    }
}

/// Whether a text reads a gradient.
pub(super) fn reads_gradients(code: &str) -> bool {
    near::ending(code, ".grad").next().is_some()
}

/// Whether parameters are handed to a function that may sum their gradients: one that makes no object and is none of torch.
fn is_handed(view: &View<'_>, parameters: LocalId) -> bool {
    view.readers(parameters).iter().any(|used| match view.value(*used) {
        Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) => view.callee(value).is_none_or(|path| {
            let makes = super::lost::last(&path).starts_with(char::is_uppercase);
            !path.starts_with("torch.") && !makes && path.contains(['.', '_'])
        }),
        _ => false,
    })
}

/// The variable of this function alone that a call is given to.
pub(super) fn variable(view: &View<'_>, call: usize) -> Option<LocalId> {
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
    let later = view.readers(model).iter().copied().filter(|step| *step > wrapped);
    passes(view, model, later)?.into_iter().next()
}

/// The passes through the module inside a wrapper, if these steps that read it do nothing else with it.
pub(super) fn passes(view: &View<'_>, model: LocalId, readers: impl Iterator<Item = usize>) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for later in readers {
        let is_model = |o: &Operand| *o == Operand::Local(model);
        match view.value(later)? {
            Rvalue::Attr { base, name } if is_model(base) && name == INNER => {
                let Stmt::Assign { dst, .. } = view.steps[later].stmt else { return None };
                all.extend(calls_of(view, *dst)?);
            }
            // `model.module(x)`
            Rvalue::CallMethod { base, name, args } if is_model(base) && !args.iter().any(|a| is_model(&a.value)) => {
                let Stmt::Assign { dst, .. } = view.steps[later].stmt else { return None };
                if name.ends_with("parameters") && is_handed(view, *dst) {
                    return None;
                }
                if name == INNER {
                    all.push(later);
                } else if !NO_PASS.contains(&name.as_str()) {
                    return None;
                }
            }
            _ => return None,
        }
    }
    Some(all)
}

/// The passes through a module that a variable holds, if that is all that is done with it.
fn calls_of(view: &View<'_>, inner: LocalId) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for used in view.readers(inner).iter().copied() {
        match view.value(used)? {
            Rvalue::CallMethod { base, name, .. } if *base == Operand::Local(inner) => {
                all.extend((!NO_PASS.contains(&name.as_str())).then_some(used));
            }
            Rvalue::Call { callee, .. } if *callee == Operand::Local(inner) => all.push(used),
            _ => return None,
        }
    }
    Some(all)
}

/// The same of a model that a class keeps: `self.model = Wrapper(model)`, and `self.model.module(x)` in its methods.
pub fn in_class(view: &View<'_>, out: &mut Found) {
    let Some(class) = view.func.class else { return };
    let mut asked: Vec<&Name> = Vec::new();
    for step in &view.steps {
        let Stmt::Assign { dst, value: Rvalue::Attr { base, name } } = step.stmt else { continue };
        if !near::is_self(view, base) || asked.contains(&name) || !reads_inner(view, *dst) {
            continue;
        }
        asked.push(name);
        if near::assigned(view, class, name).len() != 1 {
            continue;
        }
        // The class is looked at before its callers: one method of it is the one to say this of, or the one that gives what is inside.
        let Some((at, pass)) = of_class(view, class, name) else { continue };
        let method = near::shared(view, at);
        let reads = || {
            method.steps.iter().any(|s| matches!(s.stmt, Stmt::Assign { dst, value: Rvalue::Attr { base, name: read } } if read == name && near::is_self(&method, base) && reads_inner(&method, *dst)))
        };
        if at != view.at && (reads() || first_giver(view, class, name) != Some(view.at)) {
            continue;
        }
        let kept = Expr::Attr(Box::new(view.expr(base)), name.clone());
        let wrapped = wrappers(view, &kept, view.steps.len());
        let [wrapper] = &wrapped[..] else { continue };
        if wrapper.rule.in_place || sums_itself(view) {
            continue;
        }
        let mistake = Training::Bypassed {
            model: Name::from(format!("self.{name}")),
            wrapper: super::lost::last(&wrapper.rule.name),
            wrapped: wrapper.place(),
        };
        out.push((method.place(method.steps[pass].id), Practice::Training(mistake)));
    }
}

/// The first method of a class that gives what is inside of a wrapper that it keeps.
fn first_giver(view: &View<'_>, class: ClassId, name: &str) -> Option<FuncRef> {
    near::methods(view, class).iter().find(|method| gives_inner(method, name)).map(|method| method.at)
}

/// Whether all that a method does is to give what is inside of a wrapper: `return self.model.module if isinstance(self.model, DDP) else self.model`.
fn gives_inner(method: &View<'_>, name: &str) -> bool {
    let kept = |e: &Expr| near::own_attribute(method, e).is_some_and(|read| read == name);
    let inner = |e: &Expr| matches!(e, Expr::Attr(base, attr) if attr == INNER && kept(base));
    let given = |value: &Operand| match method.expr(value) {
        Expr::Choice(_, a, b) => [&*a, &*b].iter().all(|e| kept(e) || inner(e)) && (inner(&a) || inner(&b)),
        other => inner(&other) || kept(&other),
    };
    let mut unwraps = false;
    method.func.params.len() == 1
        && method.steps.iter().all(|step| match step.stmt {
            Stmt::Return { value } => {
                unwraps |= method.expr(value).any(&mut |e| inner(e));
                given(value)
            }
            Stmt::If { .. } => true,
            Stmt::Assign { value: Rvalue::Call { callee, .. }, .. } => {
                method.expr(callee).last_name().is_some_and(|name| matches!(name, "isinstance" | "hasattr"))
            }
            Stmt::Assign { dst, .. } => method.is_temp(*dst),
            _ => false,
        })
        && unwraps
}

/// Whether what a model keeps inside is read, or called: anything else says nothing, and where a model comes from is much to follow.
pub(super) fn reads_inner(view: &View<'_>, model: LocalId) -> bool {
    view.readers(model).iter().any(|later| match view.value(*later) {
        Some(Rvalue::Attr { base, name } | Rvalue::CallMethod { base, name, .. }) => {
            name == INNER && *base == Operand::Local(model)
        }
        _ => false,
    })
}

/// The answer of `only_inside_class`, which each method of a class asks for.
fn of_class(view: &View<'_>, class: ClassId, name: &Name) -> Option<(FuncRef, usize)> {
    let make = || only_inside_class(view, class, name);
    match view.beside() {
        Some(beside) => beside.inner((ClassRef { module: view.at.module, class }, name.clone()), make),
        None => make(),
    }
}

/// The first trained pass in a class through the module inside a wrapper that it keeps, if that is all that anything does with it.
fn only_inside_class(view: &View<'_>, class: ClassId, name: &str) -> Option<(FuncRef, usize)> {
    let definition = &view.project.modules[view.at.module].ir.classes[class];
    let methods = near::methods(view, class);
    let file = &view.files[view.project.file(view.at.module)];
    let header = file.whole().get(definition.name_span.end as usize..)?.split(':').next()?;
    let code = near::code(view, Span::new(0, file.whole().len() as u32));
    if !code.contains(".step(") || reads_gradients(&code) {
        return None;
    }
    if !BASES.contains(&header.trim().trim_matches(['(', ')'])) || methods.iter().any(|m| !m.collectives().is_empty()) {
        return None;
    }
    let (mut first, mut seen) = (None, 0);
    let givers: Vec<&Name> = methods.iter().filter(|m| gives_inner(m, name)).map(|m| &m.func.name).collect();
    for method in &methods {
        let mut passed = Vec::new();
        if givers.contains(&&method.func.name) {
            let reads = |s: &&super::view::Step<'_>| matches!(s.stmt, Stmt::Assign { value: Rvalue::Attr { base, name: read }, .. } if read == name && near::is_self(method, base));
            seen += method.steps.iter().filter(reads).count();
            continue;
        }
        for step in &method.steps {
            match step.stmt {
                Stmt::SetAttr { base, name: set, .. } if set == name && near::is_self(method, base) => seen += 1,
                Stmt::Assign { dst, value: Rvalue::Attr { base, name: read } }
                    if read == name && near::is_self(method, base) =>
                {
                    seen += 1;
                    passed.extend(passes(method, *dst, method.readers(*dst).iter().copied())?);
                }
                // `self.unwrapped().loss(x)`
                Stmt::Assign {
                    dst,
                    value: Rvalue::Attr { base, name: read } | Rvalue::CallMethod { base, name: read, .. },
                } if givers.contains(&read) && near::is_self(method, base) => {
                    passed.extend(calls_of(method, *dst)?);
                }
                // `self.model(x)`
                Stmt::Assign { value: Rvalue::CallMethod { base, name: called, .. }, .. }
                    if called == name && near::is_self(method, base) =>
                {
                    return None;
                }
                _ => {}
            }
        }
        let trained = passed.into_iter().find(|pass| is_trained_in(method, &methods, *pass, MOST_METHODS));
        first = first.or(trained.map(|pass| (method.at, pass)));
    }
    let attribute = format!(".{name}");
    let own = near::ending(&code, &attribute.to_lowercase()).count();
    let elsewhere = view.files.saying(&definition.name).any(|other| {
        let text = view.files[other].whole();
        other != view.project.file(view.at.module) && near::ending(text, &attribute).next().is_some()
    });
    first.filter(|_| own == seen && !elsewhere)
}

/// Whether a pass is trained on in its method, or where the methods of a class call that one.
fn is_trained_in(method: &View<'_>, methods: &[Rc<View<'_>>], pass: usize, depth: usize) -> bool {
    let text = method.files[method.project.file(method.at.module)].whole();
    let decorated = || {
        let before = text.get(..method.func.span.start as usize).unwrap_or_default();
        before.trim_end().rsplit('\n').next().is_some_and(|line| line.trim_start().starts_with('@'))
    };
    if method.without_gradient(pass) || decorated() {
        return false;
    }
    if is_trained(method, pass) {
        return true;
    }
    let returned = depth > 0 && flows(method, pass, |step, held| matches!(step, Stmt::Return { value } if held(value)));
    returned
        && methods.iter().any(|caller| {
            (0..caller.steps.len()).any(|i| match caller.value(i) {
                Some(Rvalue::CallMethod { base, name, .. }) if *name == method.func.name => {
                    near::is_self(caller, base) && is_trained_in(caller, methods, i, depth - 1)
                }
                _ => false,
            })
        })
}

/// Whether `backward()` starts from what a step gives.
fn is_trained(view: &View<'_>, pass: usize) -> bool {
    !view.without_gradient(pass)
        && flows(view, pass, |step, held| match step {
            Stmt::Assign { value: Rvalue::CallMethod { base, name, .. }, .. } => name == "backward" && held(base),
            _ => false,
        })
}

/// Whether a later step does something with what comes from a step, but for what `detach` gives.
pub(super) fn flows(view: &View<'_>, from: usize, does: impl Fn(&Stmt, &dyn Fn(&Operand) -> bool) -> bool) -> bool {
    let Stmt::Assign { dst, .. } = view.steps[from].stmt else { return false };
    let mut all: FxHashSet<LocalId> = [*dst].into_iter().collect();
    for later in from + 1..view.steps.len() {
        let stmt = view.steps[later].stmt;
        if does(stmt, &|o: &Operand| matches!(o, Operand::Local(l) if all.contains(l))) {
            return true;
        }
        let Stmt::Assign { dst, value } = stmt else { continue };
        match value {
            Rvalue::CallMethod { name, .. } if matches!(name.as_str(), "detach" | "item") => {}
            other => {
                if other.operands().into_iter().any(|o| matches!(o, Operand::Local(l) if all.contains(l))) {
                    all.insert(*dst);
                }
            }
        }
    }
    false
}
