//! Wrappers of the project's own that nobody asks for their reduction. In: a function with a backward pass and a step over a model that it wraps. Out: the step, where the
//! method of the wrapper that reduces gradients is named nowhere but where it stands. Never: a wrapper with hooks, one whose forward does anything but call
//! the module, or a function that communicates in any other way. Source: DESIGN.md section 7. Next: `uncalled.rs`, for functions.

use super::expr::Expr;
use super::found::Practice;
use super::unshared::Unshared;
use super::view::{Guard, View};
use super::{Found, Lint, data_sum, near};
use crate::infer::scale::wrappers;
use crate::ir::{FuncKind, Rvalue};
use crate::project::{ClassRef, FuncRef, Resolved};
use crate::source::{Name, Place};
use std::rc::Rc;

/// Words of wrappers that reduce on their own, or of subclasses that may.
const ALONE: &[&str] = &["_hook", "autograd.function", "super().step", "queue_callback"];

/// What shows that ranks have other samples.
const SAMPLES: &[&str] = &["distributedsampler", "sampler=", "num_replicas", "shard("];

/// Wrappers that reduce by themselves, anywhere in a project.
const OTHERS: &[&str] = &[
    "DistributedDataParallel",
    "FullyShardedDataParallel",
    "fully_shard",
    "FSDP(",
    "DDP(",
    "replicate(",
    ".initialize(",
];

pub fn wrappers<'a>(lint: &Lint<'a>, view: &View<'a>, out: &mut Found) {
    if !matches!(view.func.kind, FuncKind::Function | FuncKind::Module) || !view.collectives().is_empty() {
        return;
    }
    let Some((backward, last)) = data_sum::region(view) else { return };
    let place = view.place(view.steps[last].id);
    let text = near::bare(view.file());
    if !near::has_any(&text, SAMPLES)
        || near::has_any(&text, ALONE)
        || OTHERS.iter().any(|word| is_said_apart(lint, word))
    {
        return;
    }
    if out.iter().any(|(at, _)| *at == place) || !is_alone(lint, view, backward + 1..last) {
        return;
    }
    let wrapped = (0..backward).filter_map(|step| Some((step, made(view, step)?)));
    let optimized = |step: usize| {
        let names =
            view.binds(step).into_iter().filter(|l| !view.is_temp(*l)).map(|l| view.local_name(l).to_lowercase());
        names.into_iter().any(|name| view.code().contains(&format!("{name}.parameters()")))
    };
    let wrapped = wrapped.filter(|(step, _)| optimized(*step));
    let mut asleep = wrapped.filter_map(|(step, class)| Some((step, class, sleeping(lint, view, class)?)));
    let (Some((step, class, method)), None) = (asleep.next(), asleep.next()) else { return };
    let func = view.project.func(method);
    let of_method = lint.view(method);
    let Some((reduces, _)) = of_method.collectives().first() else { return };
    let mistake = Unshared::NeverCalled {
        wrapper: view.project.class(class).name.clone(),
        method: func.name.clone(),
        wrapped: view.place(view.steps[step].id),
        backward: view.place(view.steps[backward].id),
        reduces: of_method.place(of_method.steps[*reduces].id),
    };
    out.push((place, Practice::Unshared(mistake)));
}

/// `model.sync_dp_grads()`, where `sync_sp_grads` of the same class sums the gradients of marked parameters over other ranks and is named
/// nowhere.
pub fn siblings<'a>(lint: &Lint<'a>, view: &View<'a>, out: &mut Found) {
    for step in 0..view.steps.len() {
        let Some(Rvalue::CallMethod { base, name, .. }) = view.value(step) else { continue };
        if !near::has_any(name, &["grad", "sync", "reduce"]) || near::is_self(view, base) {
            continue;
        }
        // The texts of all files are looked through for methods that sum gradients alone.
        if !lint.reducers().all.iter().any(|reducer| view.project.func(reducer.func).name == *name) {
            continue;
        }
        let Some((class, called)) = only_method(lint, name) else { continue };
        let Some(init) = view.project.own_method(class, "__init__") else { continue };
        let methods = near::methods(&lint.view(init), class.class);
        let Some((_, own)) = sum_of_gradients(&lint.view(called)) else { continue };
        let Some((idle, reduces, group, marked)) = idle_sibling(lint, &methods, called) else { continue };
        if group == own || near::times_said(lint.files, name) != 2 {
            continue;
        }
        let mistake = Unshared::SiblingNeverCalled { called: name.clone(), idle, reduces, marked };
        out.push((view.place(view.steps[step].id), Practice::Unshared(mistake)));
        return;
    }
}

/// The class of the project that alone has a method of this name, and the method.
fn only_method(lint: &Lint<'_>, name: &str) -> Option<(ClassRef, FuncRef)> {
    let mut found = None;
    for module in lint.files.saying(name).filter_map(|file| lint.project.module_of(file)) {
        for class in lint.project.modules[module].ir.classes.ids() {
            let class = ClassRef { module, class };
            if let Some(method) = lint.project.own_method(class, name)
                && found.replace((class, method)).is_some()
            {
                return None;
            }
        }
    }
    found
}

/// The sum over ranks of gradients of parameters that a method issues, and the group.
fn sum_of_gradients(method: &View<'_>) -> Option<(Place, String)> {
    let [(at, call)] = method.collectives() else { return None };
    let loops = !method.steps[*at].loops.is_empty() && method.code().contains("parameters()");
    let sums = call.rule.op == "all_reduce" && method.code().contains(".grad") && loops;
    let group = call.group.map(|group| format!("{:?}", method.expr(group))).unwrap_or_default();
    sums.then(|| (method.place(method.steps[*at].id), group))
}

/// A method of a class, the sum over ranks that it issues, the group, and what it asks parameters for.
type Idle = (Name, Place, String, Name);

/// Another method of the class that sums gradients, of marked parameters alone, and that nothing names.
fn idle_sibling(lint: &Lint<'_>, methods: &[Rc<View<'_>>], called: FuncRef) -> Option<Idle> {
    methods.iter().filter(|method| method.at != called).find_map(|method| {
        let (reduces, group) = sum_of_gradients(method)?;
        let marked = question(method)?;
        let name = &method.func.name;
        (near::times_said(lint.files, name) == 1).then(|| (name.clone(), reduces, group, marked))
    })
}

/// What a method asks parameters for, other than their gradients.
fn question(method: &View<'_>) -> Option<Name> {
    let (at, _) = method.collectives().first()?;
    let asks = |guard: &Guard<'_>| {
        let mut found = None;
        method.through(guard.test).any(&mut |e| {
            if let Expr::Call { callee, args, .. } = e {
                let word = args.iter().find_map(|(_, a)| a.string().cloned());
                found = word.or_else(|| callee.last_name().map(Name::from));
            }
            false
        });
        found.filter(|name| near::has_any(name, &["partial", "sequence", "parallel", "shared", "sp_", "tied"]))
    };
    method.steps[*at].guards.iter().find_map(asks)
}

/// Whether a project says a word as one of its own, and not as the end of another name.
fn is_said_apart(lint: &Lint<'_>, word: &str) -> bool {
    lint.files.saying(word).any(|file| {
        let text = lint.files[file].whole();
        text.match_indices(word).any(|(at, _)| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

/// Whether nothing between the backward pass and the step communicates, or is not known.
fn is_alone<'a>(lint: &Lint<'a>, view: &View<'a>, between: std::ops::Range<usize>) -> bool {
    let silent = |at: &FuncRef| lint.view(*at).collectives().is_empty();
    between.clone().all(|step| data_sum::is_followed(view, step))
        && data_sum::reached(lint, view, between).is_some_and(|all| all.iter().all(silent))
}

/// The class of the project of which a step makes an object that is kept under a name and called.
fn made(view: &View<'_>, step: usize) -> Option<ClassRef> {
    let value @ Rvalue::Call { .. } = view.value(step)? else { return None };
    match view.project.path(&view.callee(value)?) {
        Resolved::Class(class) => Some(class),
        _ => None,
    }
}

/// The method of a wrapper that reduces gradients, where nothing names it and nothing else in the class reduces.
fn sleeping(lint: &Lint<'_>, view: &View<'_>, class: ClassRef) -> Option<FuncRef> {
    wrappers::kept(view.project, class)?;
    let init = lint.view(view.project.own_method(class, "__init__")?);
    let text = near::bare(init.text(init.spot(view.project.class(class).span)));
    let methods = near::methods(&init, class.class);
    let mut reduces = methods.iter().filter(|m| !m.collectives().is_empty() && m.code().contains(".grad"));
    let (Some(method), None) = (reduces.next(), reduces.next()) else { return None };
    let named = method.func.name.starts_with("__") || method.func.name == "forward" || method.func.name == "backward";
    let bases = lint.settings.statics.external_bases(class).all(|base| base.ends_with("Module"));
    let plain = !named && bases && !near::has_any(&text, ALONE);
    (plain && near::times_said(lint.files, &method.func.name) == 1).then_some(method.at)
}
