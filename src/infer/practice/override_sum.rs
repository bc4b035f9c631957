//! Overrides that leave a sum of their base out. In: a class with a base in the project. Out: a method that reduces gradients over the data
//! ranks, where that of the base sums them over ranks that share the model as well. Never: an override that calls the base, speaks of those
//! ranks, or calls what is not known. Source: bigcode-project/Megatron-LM, pull request 11. Next: `uncalled.rs`.

use super::found::Practice;
use super::named_axes;
use super::near;
use super::training::Training;
use super::view::View;
use super::{Class, Found, Lint, class_marks};
use crate::ir::{Operand, Rvalue};
use crate::project::{ClassRef, FuncRef, Resolved};
use crate::source::{Name, Place};

/// How deep methods of a class are followed.
const MOST_DEPTH: usize = 2;

/// Axes whose ranks have other samples.
const DATA: &[&str] = &["dp", "fsdp", "dp_shard", "dp_replicate", "world"];

/// Words of code that speaks of ranks that share a model, and parts of names.
const SHARES: &[&str] = &[
    "model_parallel",
    "tensor_parallel",
    "tensor-parallel",
    "tensor parallel",
    "super",
    "pipeline",
    "sequence_parallel",
    "whole",
    "without ",
    "not split",
];
const AXES: &[&str] = &["tp", "mp", "cp", "pp"];

/// Parts of names of what may reduce gradients.
const REDUCES: &[&str] = &["reduce", "sync", "finali", "gather"];

/// A sum over ranks that a method reaches.
struct Sum {
    axes: Vec<Name>,
    place: Place,
    /// The method of the class that has it, where it is another one.
    helper: Option<Name>,
}

/// What a method reaches, and the methods of others that it calls and that may reduce gradients.
#[derive(Default)]
struct Reached {
    sums: Vec<Sum>,
    unknown: Vec<Name>,
}

/// `def reduce_grads(self)` without the sum over the tensor-parallel group that `def reduce_grads(self)` of the base has
pub fn left_out<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let order = lint.settings.statics.linearized(class.at);
    let [own, bases @ ..] = &order[..] else { return };
    if bases.is_empty() {
        return;
    }
    for (name, func) in &lint.project.class(*own).methods {
        if name.starts_with("__") {
            continue;
        }
        let Some(base) = bases.iter().find_map(|base| lint.project.own_method(*base, name)) else { continue };
        let at = FuncRef { module: own.module, func: *func };
        let of_gradients = |at: FuncRef| {
            let text = lint.files[lint.project.file(at.module)].slice(lint.project.func(at).span);
            text.contains("grad")
        };
        if !of_gradients(base) || !of_gradients(at) {
            continue;
        }
        let (above, below) = (lint.view(base), lint.view(at));
        let Some(sum) = left(lint, &order, &above, &below) else { continue };
        // A class that freezes parameters may leave out those whose gradients its base sums.
        let freezes = || class_marks::text_of(lint, *own).contains("requires_grad");
        if speaks(lint, *own, &sum) || is_called(lint, &above, &sum) || freezes() {
            continue;
        }
        let place = below.spot(below.func.name_span);
        let mistake =
            Training::OverrideSum { method: name.clone(), axes: sum.axes, summed: sum.place, helper: sum.helper };
        out.push((place, Practice::Training(mistake)));
    }
}

/// The sum of the base that an override has not, though it reduces the same gradients.
fn left(lint: &Lint<'_>, order: &[ClassRef], above: &View<'_>, below: &View<'_>) -> Option<Sum> {
    let (mut base, mut own) = (Reached::default(), Reached::default());
    reach(lint, &order[1..], above, None, 0, &mut base);
    reach(lint, order, below, None, 0, &mut own);
    let is_data = |sum: &Sum| sum.axes.iter().all(|axis| DATA.contains(&axis.as_str()));
    let known = |name: &Name| base.unknown.contains(name);
    let reduces = own.sums.iter().any(is_data) || own.unknown.iter().any(known);
    if !reduces || !own.sums.iter().all(is_data) || !own.unknown.iter().all(known) {
        return None;
    }
    let whole = base.sums.iter().any(is_data) || !base.unknown.is_empty();
    base.sums.into_iter().find(|sum| whole && !sum.axes.iter().any(|axis| DATA.contains(&axis.as_str())))
}

fn reach(lint: &Lint<'_>, order: &[ClassRef], view: &View<'_>, helper: Option<&Name>, depth: usize, out: &mut Reached) {
    for step in 0..view.steps.len() {
        let Some(value) = view.value(step) else { continue };
        if let Some(call) = view.collective(value) {
            let axes = call.group.and_then(|group| named_axes::of_group(view, &view.expr(group)));
            match axes.filter(|_| matches!(&*call.rule.op, "all_reduce" | "reduce_scatter")) {
                Some(axes) => {
                    out.sums.push(Sum { axes, place: view.place(view.steps[step].id), helper: helper.cloned() })
                }
                None => out.unknown.push(Name::from("")),
            }
            continue;
        }
        let (Rvalue::Call { .. } | Rvalue::CallMethod { .. }) = value else { continue };
        let own = match value {
            Rvalue::CallMethod { base, name, .. } if near::is_self(view, base) => {
                order.iter().find_map(|class| lint.project.own_method(*class, name)).map(|at| (at, name.clone()))
            }
            _ => None,
        };
        let Some(name) = near::written_name(view, value) else { continue };
        let function = view.callee(value).and_then(|path| match lint.project.path(&path) {
            Resolved::Func(at) => Some((at, name.clone())),
            _ => None,
        });
        match own.or(function).filter(|_| depth < MOST_DEPTH) {
            Some((at, name)) if at != view.at => {
                reach(lint, order, &lint.view(at), Some(helper.unwrap_or(&name)), depth + 1, out);
            }
            _ if near::has_any(&name, REDUCES) && !is_of_torch(view, value) => out.unknown.push(name),
            _ => {}
        }
    }
}

fn is_of_torch<'a>(view: &View<'a>, value: &'a Rvalue) -> bool {
    let of_cuda = |base: &Operand| view.through(base).path().is_some_and(|path| path.starts_with("torch."));
    match value {
        Rvalue::CallMethod { base, .. } => of_cuda(base),
        _ => view.callee(value).is_some_and(|path| path.starts_with("torch.")),
    }
}

/// Whether a class speaks of ranks that share the model, of its base, or of the method that sums.
fn speaks(lint: &Lint<'_>, class: ClassRef, sum: &Sum) -> bool {
    let text = class_marks::text_of(lint, class).to_lowercase();
    text.lines().map(|line| line.split("# bug").next().unwrap_or_default()).any(|line| {
        let names = line.replace(|c: char| !c.is_alphanumeric(), "_");
        AXES.iter().any(|word| near::has_part(&names, word))
            || sum.helper.as_ref().is_some_and(|name| line.contains(name.to_lowercase().as_str()))
            || near::has_any(line, SHARES)
    })
}

/// Whether anything but the method of the base calls what sums.
fn is_called(lint: &Lint<'_>, above: &View<'_>, sum: &Sum) -> bool {
    let Some(helper) = &sum.helper else { return false };
    let inside = near::words(above.text(above.spot(above.func.span)), helper).count();
    let all: usize = lint.files.saying(helper).map(|file| near::words(lint.files[file].whole(), helper).count()).sum();
    all > inside + 1
}
