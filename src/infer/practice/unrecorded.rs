//! Functions that only run without gradients. In: a finding about a gradient, and the function that it stands in. Out: whether all that is seen to
//! call the function records nothing, or the process does not, or the file freezes all objects of its class, or
//! trains a student beside a module that it calls without gradients. Never: a module that is handed on, or a function that nothing calls: others
//! may call it with gradients. Next: `mod.rs`, which asks of what the checks have found.

use super::Lint;
use super::called::callers;
use super::near;
use super::view::View;
use crate::ir::{Arg, LocalId, Operand, Rvalue, Stmt};
use crate::project::ClassRef;
use crate::source::{Place, Span};
use std::rc::Rc;

/// How far callers are followed.
const MOST: usize = 2;

/// Methods of a module that give it back, and others that train nothing.
const SAME: &[&str] = &["eval", "cuda", "cpu", "to", "half", "bfloat16", "float", "requires_grad_"];
const READS: &[&str] = &["load_state_dict", "state_dict", "buffers", "modules", "named_modules"];

/// Whether the function around a place only runs without gradients.
pub fn is_idle(lint: &Lint<'_>, place: Place) -> bool {
    let around = lint.project.module_of(place.file).and_then(|module| lint.project.func_around(module, place.span));
    let Some(view) = around.map(|at| lint.view(at)) else { return false };
    let class = near::class_of(&view).map(|class| &lint.project.modules[view.at.module].ir.classes[class].name);
    let name = class.unwrap_or(&view.func.name);
    // Another file may call it otherwise.
    is_only_unrecorded(&view) && lint.files.saying(name).all(|file| file == place.file)
}

/// Whether nothing that is seen calls a function so that its gradients are recorded.
fn is_only_unrecorded(view: &View<'_>) -> bool {
    let text = view.file();
    let off = || text.contains("set_grad_enabled(False)") && !text.contains(".backward(");
    // That the function itself records nothing may be the mistake.
    off() || only(view, 0)
}

fn only(view: &View<'_>, depth: usize) -> bool {
    let sites = match near::class_of(view) {
        Some(class) if view.func.name == "forward" => {
            let at = ClassRef { module: view.at.module, class };
            if is_made_frozen(view, &view.project.class(at).name) {
                return true;
            }
            let sites = sites(view, at);
            if sites.as_ref().is_some_and(Vec::is_empty) && is_taught(view) {
                return true;
            }
            sites
        }
        Some(_) => named_sites(view),
        None => Some(callers(view)),
    };
    let unrecorded = |(site, step): &(Rc<View<'_>>, usize)| {
        site.without_gradient(*step)
            || is_frozen(site, *step)
            || near::is_unrecorded(site)
            || depth < MOST && only(site, depth + 1)
    };
    sites.is_some_and(|sites| !sites.is_empty() && sites.iter().all(unrecorded))
}

/// The calls of a method by its name, if no other class has one of that name.
fn named_sites<'a>(view: &View<'a>) -> Option<Vec<(Rc<View<'a>>, usize)>> {
    let name = &view.func.name;
    let special = name.starts_with("__") || view.rules.tensor_method(name).is_some();
    if special || view.project.methods_named(name).len() != 1 {
        return None;
    }
    let mut out = Vec::new();
    for at in near::functions(view, view.at.module) {
        let caller = near::shared(view, at);
        for step in 0..caller.steps.len() {
            match caller.value(step) {
                Some(Rvalue::CallMethod { name: called, .. }) if called == name => out.push((caller.clone(), step)),
                // Handed on.
                Some(Rvalue::Attr { name: read, .. }) if read == name => return None,
                _ => {}
            }
        }
    }
    Some(out)
}

/// Whether a function of the file trains something beside a module that it is given and calls without gradients alone: that module may be of
/// any class which nothing in sight makes.
fn is_taught(view: &View<'_>) -> bool {
    near::functions(view, view.at.module).into_iter().any(|at| {
        let trainer = near::shared(view, at);
        let calls: Vec<(LocalId, bool)> = (0..trainer.steps.len())
            .filter_map(|step| match trainer.value(step) {
                Some(Rvalue::Call { callee: Operand::Local(callee), .. }) if trainer.is_param(*callee) => {
                    Some((*callee, trainer.without_gradient(step)))
                }
                _ => None,
            })
            .collect();
        let is_teacher = |of: &LocalId| calls.iter().all(|(callee, without)| callee != of || *without);
        let trains = calls.iter().any(|(callee, without)| !without && !is_teacher(callee));
        trains && trainer.code().contains(".backward(") && calls.iter().any(|(callee, _)| is_teacher(callee))
    })
}

/// How parameters are taken out of training.
const FREEZES: &[&str] = &["requires_grad_(False)", "requires_grad = False"];

/// Whether all objects of a class are frozen where they are made: the file gives each to a function that freezes, or freezes what holds it.
fn is_made_frozen(view: &View<'_>, class: &str) -> bool {
    let text = view.file();
    let (word, mut made) = (format!("{class}("), 0);
    let freezes = |text: &str| FREEZES.iter().any(|how| text.contains(how));
    let is_frozen = |func: &Span, at: usize| {
        let own = &text[func.start as usize..func.end as usize];
        let line = text[..at].rsplit('\n').next().unwrap_or_default();
        let Some((holder, before)) = line.split_once(" = ") else { return false };
        let given_to =
            before.strip_suffix('(').and_then(|call| call.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next());
        let own_function = given_to.and_then(|name| view.project.own_function(view.at.module, name));
        let looped = own.split_once(&format!(" in {}.parameters():", holder.trim()));
        own_function.is_some_and(|at| freezes(view.text(view.spot(view.project.func(at).span))))
            || own.contains(&format!("{}.requires_grad_(False)", holder.trim()))
            || looped.is_some_and(|(_, rest)| rest.lines().take(2).any(freezes))
    };
    for (at, _) in text.match_indices(&word) {
        let line = text[..at].rsplit('\n').next().unwrap_or_default();
        if line.trim_start().starts_with("class ") || line.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let around = view.project.func_around(view.at.module, Span::new(at as u32, at as u32));
        if !around.is_some_and(|func| is_frozen(&view.project.func(func).span, at)) {
            return false;
        }
        made += 1;
    }
    made > 0
}

/// Whether a call is given what belongs to a model that the function freezes.
fn is_frozen(view: &View<'_>, call: usize) -> bool {
    let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(call) else { return false };
    (0..call)
        .filter_map(|step| near::frozen(view, step))
        .any(|model| args.iter().any(|arg| near::roots(view, &arg.value).contains(&model)))
}

/// The calls of the objects of a class of modules, if all are seen that the file makes.
fn sites<'a>(view: &View<'a>, class: ClassRef) -> Option<Vec<(Rc<View<'a>>, usize)>> {
    let path = view.project.qualified_class(class);
    let mut out = Vec::new();
    for at in near::functions(view, view.at.module) {
        let maker = near::shared(view, at);
        for step in 0..maker.steps.len() {
            let makes = maker.value(step).is_some_and(|value| match value {
                Rvalue::Call { .. } => maker.callee(value).is_some_and(|callee| callee == path),
                _ => false,
            });
            if let (true, Stmt::Assign { dst, .. }) = (makes, maker.steps[step].stmt) {
                uses(&maker, *dst, &mut out)?;
            }
        }
    }
    Some(out)
}

/// The calls of the module that a variable holds; nothing if it goes where it is not followed.
fn uses<'a>(view: &Rc<View<'a>>, module: LocalId, out: &mut Vec<(Rc<View<'a>>, usize)>) -> Option<()> {
    let is = |operand: &Operand| *operand == Operand::Local(module);
    let given = |args: &[Arg]| args.iter().any(|arg| is(&arg.value));
    for step in view.readers(module).iter().copied() {
        match view.steps[step].stmt {
            Stmt::Assign { dst, value } => match value {
                Rvalue::Call { callee, args } if is(callee) && !given(args) => out.push((view.clone(), step)),
                Rvalue::CallMethod { base, name, args } if is(base) && !given(args) => match name.as_str() {
                    "forward" => out.push((view.clone(), step)),
                    name if SAME.contains(&name) && *dst != module => uses(view, *dst, out)?,
                    name if SAME.contains(&name) || READS.contains(&name) => {}
                    _ => return None,
                },
                Rvalue::Use(_) if *dst != module => uses(view, *dst, out)?,
                _ => return None,
            },
            Stmt::SetAttr { base, name, value } if is(value) && near::is_self(view, base) => {
                of_attribute(view, name, out)?;
            }
            _ => return None,
        }
    }
    Some(())
}

/// The calls of the module that an attribute of the own class holds.
fn of_attribute<'a>(view: &View<'a>, name: &str, out: &mut Vec<(Rc<View<'a>>, usize)>) -> Option<()> {
    for method in near::methods(view, near::class_of(view)?) {
        for step in 0..method.steps.len() {
            match method.value(step) {
                Some(Rvalue::CallMethod { base, name: called, args })
                    if called == name && near::is_self(&method, base) =>
                {
                    let again = |arg: &Arg| {
                        method.expr(&arg.value).any(&mut |e| near::own_attribute(&method, e).is_some_and(|n| n == name))
                    };
                    if args.iter().any(again) {
                        return None;
                    }
                    out.push((method.clone(), step));
                }
                Some(Rvalue::Attr { base, name: read }) if read == name && near::is_self(&method, base) => {
                    let Stmt::Assign { dst, .. } = method.steps[step].stmt else { return None };
                    uses(&method, *dst, out)?;
                }
                _ => {}
            }
        }
    }
    Some(())
}
