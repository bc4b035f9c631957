//! Norms that leave out the ranks that they are given. In: a function that scales gradients by their total norm. Out: the scaling, where the function
//! is given a group or mesh of ranks with other parts of the model, and never reads it. Never: a function that communicates over anything
//! itself, one that nobody in the file gives such ranks, or a method, which may have its parameters from a base.
//! Source: torchtitan issue 596. Next: `unread_group.rs`, `local_norm.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::omissions::Omission;
use super::view::View;
use super::wrapped::given;
use crate::ir::Param;
use std::rc::Rc;

/// Parts of names of axes over which ranks have other parts of a model, and of what names ranks.
const AXES: &[&str] = &["pp", "pipe", "pipeline", "mp", "model", "tp", "tensor"];
const RANKS: &[&str] = &["group", "mesh", "pg"];
/// What takes a norm, and what scales by one.
const NORMS: &[&str] = &["get_total_norm", "vector_norm", "norm"];
const SCALES: &[&str] = &["clip_grads_with_norm_", "mul_", "_foreach_mul_"];

/// `def clip(parameters, max_norm, pp_mesh=None)`, with a norm that clips and without `pp_mesh`.
pub fn norms(view: &View<'_>, out: &mut Found) {
    if view.func.class.is_some() || view.func.is_generator || !view.collectives().is_empty() {
        return;
    }
    let Some(param) = view.func.params.iter().find(|p| is_unread(view, p)) else { return };
    let step_of = |names: &[&str], from: usize| {
        let calls = |at: &usize| near::name_of_call(view, *at).is_some_and(|name| names.contains(&name.as_str()));
        (from..view.steps.len()).find(calls)
    };
    let Some(norm) = step_of(NORMS, 0) else { return };
    let Some(scaled) = step_of(SCALES, norm) else { return };
    let communicates = view.code().contains("reduce") || view.code().contains("gather");
    // A caller that asks something first may ask whether there are such ranks.
    let is_given = || {
        let callers = given(view, param.local);
        let plain =
            |(caller, at, value): &(Rc<View<'_>>, usize, Expr)| !value.is_none() && caller.steps[*at].guards.is_empty();
        !callers.is_empty() && callers.iter().all(plain)
    };
    // Each gradient by its own norm is another matter.
    let own = view.steps[norm].loops.last().is_some_and(|round| view.steps[scaled].loops.contains(round));
    if !communicates && !own && !has_none(view, &param.name) && is_given() {
        let mistake = Omission::RanksNotAsked {
            ranks: param.name.clone(),
            given: view.spot(param.span),
            norm: view.place(view.steps[norm].id),
        };
        out.push((view.place(view.steps[scaled].id), Practice::Omission(mistake)));
    }
}

/// Whether a file refuses such ranks, has one alone, or takes norms of distributed tensors, which know of the ranks with other parts of a tensor.
fn has_none(view: &View<'_>, name: &str) -> bool {
    let file = view.file();
    let axis = AXES.iter().find(|axis| near::has_part(name, axis)).copied().unwrap_or_default();
    let refused = near::refusals(file).any(|line| line.contains(axis));
    let alone = file.lines().any(|line| line.contains("mesh(") && near::has_any(line, &["(1,", ", 1,", ", 1)"]));
    let of_tensors =
        matches!(axis, "tp" | "tensor" | "mp" | "model") && near::has_any(file, &["DTensor", "full_tensor"]);
    refused || alone || of_tensors
}

/// Whether a parameter names ranks with other parts of the model, and nothing reads it.
fn is_unread(view: &View<'_>, param: &Param) -> bool {
    let has = |parts: &[&str]| parts.iter().any(|part| near::has_part(&param.name, part));
    has(RANKS) && has(AXES) && !view.is_read(param.local) && view.defs(param.local).is_empty()
}
