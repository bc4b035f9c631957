//! Handles that nobody waits for, where a method drops those that have completed. In: a class that reduces gradients in the background and keeps the handles in a list. Out: a call of
//! the method that drops the completed ones between the backward pass and the step of an optimizer, where the method that waits for all is named nowhere. Never: a list
//! that is looked at outside of the class, or a loop that waits or synchronizes in another way. Source: fairscale pull request 1172. Next: `kept_handles.rs`.

use super::found::Practice;
use super::kept_handles::is_seen_outside;
use super::near;
use super::quiet::is_read_whole;
use super::raw::raw;
use super::unshared::Unshared;
use super::view::View;
use super::{Class, Found, Lint};
use crate::ir::{Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::{Name, Place};
use std::rc::Rc;

/// What may wait for everything.
const WAITS: &[&str] = &[".wait(", "synchronize(", "barrier(", "wait_stream", "wait_event"];

/// Words of files that may wait in another way.
const OTHERWISE: &[&str] = &["synchronize(", "barrier(", "while ", "__exit__", "__del__", "stream", "event"];

/// `ddp.drop_completed()`, `optimizer.step()`, where `ddp.wait_all()` is called nowhere
pub fn dropped<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let own = lint.files[lint.project.file(class.at.module)].slice(lint.project.class(class.at).span);
    let shows = ["is_completed(", ".wait(", "async_op=True", ".grad"].iter().all(|word| own.contains(word));
    if !shows {
        return;
    }
    let Some(init) = class.init(lint) else { return };
    let text = near::bare(lint.files[lint.project.file(class.at.module)].whole());
    let head = near::bare(own).lines().next().unwrap_or_default().to_string();
    let of_torch = head.contains("nn.module)") || !head.contains('(');
    let optimizer = |line: &str| line.starts_with("class ") && near::has_any(line, &["optim", "adam", "sgd"]);
    let waits_once = text.matches(".wait(").count() == 1;
    if !of_torch || !waits_once || text.lines().any(optimizer) || !is_read_whole(&text, &[], OTHERWISE) {
        return;
    }
    let methods = near::methods(init, class.at.class);
    let mut waiting = methods.iter().filter(|m| near::has_any(m.code(), WAITS));
    let (Some(waits), None) = (waiting.next(), waiting.next()) else { return };
    let mut dropping = methods.iter().filter(|m| m.code().contains("is_completed("));
    let (Some(drops), None) = (dropping.next(), dropping.next()) else { return };
    let Some(list) = list_of(own, drops, waits) else { return };
    let special = waits.func.name.starts_with("__") || drops.at == waits.at || turns(drops);
    if special || near::times_said(lint.files, &waits.func.name) != 1 || is_seen_outside(init, class.at, &list) {
        return;
    }
    let Some(started) = methods.iter().find_map(|m| started(m)) else { return };
    let Some((place, stepped)) = called(lint, class, &drops.func.name) else { return };
    let (drops, waits) = (drops.func.name.clone(), waits.func.name.clone());
    let mistake = Unshared::PendingDropped { drops, waits, started, stepped };
    out.push((place, Practice::Unshared(mistake)));
}

/// The attribute to which handles are added, and of which one method drops some and another waits for all.
fn list_of(class: &str, drops: &Rc<View<'_>>, waits: &Rc<View<'_>>) -> Option<Name> {
    let text = near::bare(class);
    let added = text.match_indices(".append(").filter_map(|(at, _)| {
        let before = &text[..at];
        let start = before.rfind(|c: char| !c.is_alphanumeric() && c != '_')? + 1;
        before[..start].ends_with("self.").then(|| before[start..].to_string())
    });
    let in_both = |name: &String| {
        let (own, loop_over) = (format!("self.{name}"), format!("in self.{name}"));
        let changes = [format!("{own} ="), format!("{own}[:] ="), format!("{own}.pop"), format!("{own}.remove(")];
        near::has_any(drops.code(), &changes)
            && (waits.code().contains(&loop_over) || waits.code().contains(&format!("{own}.pop")))
    };
    added.filter(in_both).map(Name::from).next()
}

/// Whether a method goes on until all have completed.
fn turns(drops: &View<'_>) -> bool {
    drops.code().lines().any(|line| line.trim_start().starts_with("while ") && !line.contains("is_completed("))
}

/// Where a method starts a collective in the background for gradients.
fn started(method: &View<'_>) -> Option<Place> {
    let starts = |step: &usize| {
        let call = method.value(*step).and_then(|value| raw(method, value)).filter(|call| call.is_async());
        call.is_some() && method.code().contains(".grad")
    };
    (0..method.steps.len()).find(starts).map(|step| method.place(method.steps[step].id))
}

/// Where a loop calls a method between a backward pass and the step of an optimizer, and that step, if nothing there may wait.
fn called<'a>(lint: &Lint<'a>, class: &Class<'a>, method: &Name) -> Option<(Place, Place)> {
    let call = format!(".{method}(");
    for module in lint.files.saying(&call).filter_map(|file| lint.project.module_of(file)) {
        for func in lint.project.modules[module].ir.funcs.ids() {
            let at = FuncRef { module, func };
            let function = lint.project.func(at);
            if module == class.at.module && function.class == Some(class.at.class)
                || !lint.files[lint.project.file(module)].slice(function.span).contains(&call)
            {
                continue;
            }
            let caller = lint.view(at);
            if let Some(found) = between(&caller, method).filter(|_| !near::has_any(caller.code(), WAITS)) {
                return Some(found);
            }
        }
    }
    None
}

/// The first call of a method behind a backward pass, and the step of an optimizer behind it in the same loop.
fn between(caller: &View<'_>, method: &Name) -> Option<(Place, Place)> {
    let named = |step: usize, wanted: &str| matches!(caller.value(step), Some(Rvalue::CallMethod { name, .. }) if name == wanted);
    let dropped = |step: usize| match caller.steps[step].stmt {
        Stmt::Assign { dst, .. } => caller.is_temp(*dst) && caller.readers(*dst).is_empty(),
        _ => false,
    };
    let call = (0..caller.steps.len()).find(|step| named(*step, method) && dropped(*step))?;
    let loops = &caller.steps[call].loops;
    let beside = |step: &usize| caller.steps[*step].loops.starts_with(loops);
    (0..call).filter(beside).find(|step| named(*step, "backward"))?;
    let step = (call + 1..caller.steps.len()).filter(beside).find(|step| named(*step, "step"))?;
    // One that all wait for comes behind those before.
    if caller.collectives().iter().any(|(at, _)| (call..step).contains(at)) {
        return None;
    }
    Some((caller.place(caller.steps[call].id), caller.place(caller.steps[step].id)))
}
