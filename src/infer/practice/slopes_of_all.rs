//! Biases by head that every rank takes from the first head on. In: a method that makes the slopes of ALiBi. Out: what it returns, in a class whose
//! heads are split over tensor-parallel ranks and that never asks for its rank: each rank has the slopes of the first heads, and heads of its own.
//! Never: a class or builder that knows its rank, or one whose heads are not split. Source: bigscience Megatron-DeepSpeed pull request 244.
//! Next: `other_part.rs`.

use super::Found;
use super::found::Practice;
use super::near;
use super::omissions::Omission;
use super::view::View;
use crate::ir::{Rvalue, Stmt};

/// What says that the heads of a class are split.
const SPLIT: &[&str] = &[
    "columnparallellinear",
    "_per_partition",
    "tensor_model_parallel_world_size",
    "model_parallel_world_size",
    "tp_size",
    "tp_world_size",
];

/// `alibi = slopes[:, None, None] * positions; return alibi.repeat(batch, 1, 1)`
pub fn made(view: &View<'_>, out: &mut Found) {
    let Some(class) = near::class_of(view) else { return };
    if !view.func.name.contains("alibi") || view.func.name.starts_with("__") {
        return;
    }
    let file = &view.files[view.project.file(view.at.module)];
    let text = near::bare(file.slice(view.project.modules[view.at.module].ir.classes[class].span));
    // Whoever knows the rank, here or where the class is used, takes the part of it.
    let beside = |line: &str| line.contains("alibi") && near::has_any(line, &["rank", "index", "chunk"]);
    let knows = text.contains("rank") || near::bare(file.whole()).lines().any(beside);
    // What is taken from the first head on is a part of all of them.
    let first = ["alibi[:", "alibi[: "].iter().any(|cut| text.contains(cut));
    let apart = |line: &str| {
        let of_rank = line.contains("alibi") && near::has_any(line, &["scatter", "gather", "chunk(", "shard"]);
        of_rank || near::has_any(line, &["dtensor", "== 1", "gather_"])
    };
    let others = text.lines().any(apart);
    if !first || others {
        return;
    }
    let slopes = ["slopes", "** ", "**-", "log2"].iter().any(|word| view.code().contains(word));
    if knows || !slopes || !near::has_any(&text, SPLIT) {
        return;
    }
    let name = view.func.name.as_str();
    let used = text.contains(&format!(".{name}("));
    let returned = view.steps.iter().rfind(|s| matches!(s.stmt, Stmt::Return { .. }));
    let makes = |at: usize| matches!(view.value(at), Some(Rvalue::Call { .. } | Rvalue::CallMethod { .. }));
    if let Some(step) = returned.filter(|_| used && (0..view.steps.len()).any(makes)) {
        let builder = view.func.name.clone();
        out.push((view.place(step.id), Practice::Omission(Omission::SlopesOfFirst { builder })));
    }
}
