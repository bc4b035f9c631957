//! Draws from this rank's own data that are written into buffers which all ranks are to have alike. In: a class with buffers. Out: a method that writes what a helper draws into
//! a buffer, where another method of the class broadcasts what the same helper draws before it writes it there. Never: a file that broadcasts or gathers anything
//! else, or a wrapper that makes buffers equal in each forward. Source: lucidrains/vector-quantize-pytorch pull request 17. Next: `running.rs`, statistics of buffers.

use super::found::Practice;
use super::near;
use super::only_some::callee;
use super::raw::raw;
use super::unshared::Unshared;
use super::view::View;
use super::{Class, Found, Lint, class_marks};
use crate::ir::{Arg, LocalId, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::{Name, Place};
use std::rc::Rc;

/// What draws.
const DRAWS: &[&str] = &["randint(", "randperm(", "multinomial("];
/// Methods that write what they are given.
const WRITES: &[&str] = &["copy_", "index_copy_"];
/// What else may make buffers equal.
const EQUAL: &[&str] = &["broadcast", "all_gather", "scatter(", "sync_buffers"];

/// A method that writes into a buffer what a helper draws.
struct Written<'a> {
    view: Rc<View<'a>>,
    helper: FuncRef,
    drawn: usize,
    buffers: Vec<Name>,
    /// Where what is drawn is sent to all ranks, and the function that does so.
    sent: Option<(usize, Option<FuncRef>)>,
}

/// `self.codes.copy_(broadcast(sample(x)))`, and `self.codes.copy_(torch.where(dead, sample(x), self.codes))`
pub fn written<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let text = class_marks::text_of(lint, class.at);
    let file = lint.files[lint.project.file(class.at.module)].whole();
    if !text.contains("register_buffer(") || !file.contains("broadcast") || !near::has_any(file, DRAWS) {
        return;
    }
    let bare = near::bare(file);
    let wrapped = near::has_any(&bare, &["distributeddataparallel(", "ddp("]);
    if wrapped && !bare.contains("broadcast_buffers=false") {
        return;
    }
    let methods = &lint.project.class(class.at).methods;
    let all: Vec<Written<'a>> = methods
        .iter()
        .filter_map(|(_, func)| found(Rc::new(lint.view(FuncRef { module: class.at.module, func: *func }))))
        .collect();
    for own in all.iter().filter(|w| w.sent.is_none()) {
        let shared = all
            .iter()
            .find(|w| w.sent.is_some() && w.helper == own.helper && w.buffers.iter().any(|b| own.buffers.contains(b)));
        let Some(shared) = shared else { continue };
        let Some((sent, by)) = shared.sent else { continue };
        if is_sent_elsewhere(&bare, shared, by) {
            continue;
        }
        let buffer = own.buffers.iter().find(|b| shared.buffers.contains(b)).cloned();
        let Some(buffer) = buffer else { continue };
        let place: Place = shared.view.place(shared.view.steps[sent].id);
        let function = lint.project.func(own.helper).name.clone();
        let mistake = Unshared::DrawnBeside { function, buffer, shared: place };
        out.push((own.view.place(own.view.steps[own.drawn].id), Practice::Unshared(mistake)));
        return;
    }
}

/// Whether anything in the file but what sends the one draw may make buffers equal.
fn is_sent_elsewhere(bare: &str, shared: &Written<'_>, by: Option<FuncRef>) -> bool {
    let view = &shared.view;
    let mut rest = bare.replace(view.code(), "");
    if let Some(by) = by {
        rest = rest.replace(near::shared(view, by).code(), "");
        // What it is called with is gone, and its own name may stand for a method that nothing calls.
        let name = view.project.func(by).name.to_lowercase();
        if near::has_word(&rest, &name) {
            return true;
        }
    }
    near::has_any(&rest, EQUAL)
}

/// What a method draws and writes into buffers.
fn found(view: Rc<View<'_>>) -> Option<Written<'_>> {
    let (drawn, helper) = (0..view.steps.len()).find_map(|s| Some((s, draws(&view, s)?)))?;
    let made = *view.binds(drawn).first()?;
    let buffers: Vec<Name> = (drawn + 1..view.steps.len()).filter_map(|s| buffer(&view, s, made, drawn)).collect();
    if buffers.is_empty() {
        return None;
    }
    let mut sent = None;
    for s in drawn + 1..view.steps.len() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(s) else {
            continue;
        };
        if !args.iter().any(|a| near::comes_from(&view, &a.value, made, drawn)) {
            continue;
        }
        let inner = callee(&view, value);
        let talks = |at: FuncRef| near::communicates(&near::shared(&view, at));
        if raw(&view, value).is_some() || inner.is_some_and(talks) {
            sent = sent.or(Some((s, inner)));
        } else if inner.is_some() {
            // What else a function of the project does with it is not followed.
            return None;
        }
    }
    Some(Written { helper, drawn, buffers, sent, view })
}

/// The helper that a step calls with this rank's own data, and that draws from it.
fn draws(view: &View<'_>, step: usize) -> Option<FuncRef> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let at = callee(view, value)?;
    let given = |a: &Arg| near::local(&a.value).is_some_and(|l| view.is_as_given(l) && !near::is_self(view, &a.value));
    let inner = near::shared(view, at);
    let draws =
        near::has_any(inner.code(), DRAWS) && !near::communicates(&inner) && !inner.code().contains("generator");
    let returns = inner.steps.iter().any(|s| matches!(s.stmt, Stmt::Return { .. }));
    (draws && returns && args.iter().any(given)).then_some(at)
}

/// The buffer into which a step writes what comes of a draw.
fn buffer(view: &View<'_>, step: usize, made: LocalId, drawn: usize) -> Option<Name> {
    let of = |o: &Operand| near::comes_from(view, o, made, drawn);
    match view.steps[step].stmt {
        Stmt::SetAttr { base, name, value } if near::is_self(view, base) && of(value) => Some(name.clone()),
        Stmt::Assign { value: Rvalue::CallMethod { base, name, args }, .. } if WRITES.contains(&name.as_str()) => {
            let own = view.through(base);
            let name = near::own_attribute(view, &own)?;
            args.iter().any(|a| of(&a.value)).then(|| name.clone())
        }
        _ => None,
    }
}
