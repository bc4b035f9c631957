//! Steps that change no gradient though they look like it: what is computed where no gradients are recorded, and copies of gradients that are
//! only measured. In: a function. Out: whether a statement is one. Never: execution. Next: `calls.rs`, `eval.rs`.

use super::Run;
use super::value::State;
use crate::infer::practice::view::View;
use crate::ir::{LocalId, LocalKind, Operand, Rvalue, Stmt, StmtId};

/// What is read off a tensor and is no tensor of its size, or changes it in place.
const MEASURES: &[&str] = &[
    "norm",
    "mean",
    "max",
    "min",
    "amax",
    "amin",
    "sum",
    "item",
    "std",
    "var",
    "median",
    "isfinite",
    "isnan",
    "isinf",
    "any",
    "all",
    "print",
    "float",
    "vector_norm",
    "tolist",
];
const IN_PLACE: &[&str] = &["div_", "mul_", "numel", "size", "dim"];

impl<'a> Run<'a> {
    /// Whether a statement of the function under execution is executed without recording gradients.
    pub(super) fn is_unrecorded(&mut self, id: StmtId, state: &State) -> bool {
        let Some(frame) = state.frames.last() else { return false };
        let view = self.view(frame.at);
        let step = view.steps.iter().position(|step| step.id == id);
        step.is_some_and(|step| view.without_gradient(step))
    }

    /// Whether a statement joins tensors in a copy that is reduced over ranks and then only measured: nothing goes back.
    pub(super) fn is_measured(&mut self, id: StmtId, state: &State) -> bool {
        let Some(frame) = state.frames.last() else { return false };
        let view = self.view(frame.at);
        let made = view.steps.iter().find(|step| step.id == id).map(|step| step.stmt);
        match made {
            Some(Stmt::Assign { dst, .. }) if !view.is_temp(*dst) => only_measured(&view, *dst),
            _ => false,
        }
    }
}

fn only_measured(view: &View<'_>, copy: LocalId) -> bool {
    let is = |operand: &Operand| *operand == Operand::Local(copy);
    // Functions inside this one may do more with it.
    if view.func.locals()[copy].kind != LocalKind::Plain {
        return false;
    }
    let (mut reduced, mut measured) = (false, false);
    for step in view.readers(copy) {
        let Some(value) = view.value(*step) else { return false };
        if let Some(call) = view.collective(value) {
            if !call.input.is_some_and(is) || call.output.is_some_and(is) {
                return false;
            }
            reduced = true;
            continue;
        }
        let name = match value {
            Rvalue::CallMethod { name, .. } => name.clone(),
            Rvalue::InPlace { left, right, .. } if is(left) && !is(right) => continue,
            value => match view.callee(value) {
                Some(path) => super::value::last(&path).into(),
                None => return false,
            },
        };
        if MEASURES.contains(&name.as_str()) {
            measured = true;
        } else if !IN_PLACE.contains(&name.as_str()) {
            return false;
        }
    }
    let again = |step: &usize| !matches!(view.value(*step), Some(Rvalue::InPlace { .. }));
    reduced && measured && view.defs(copy).iter().filter(|step| again(step)).count() == 1
}
