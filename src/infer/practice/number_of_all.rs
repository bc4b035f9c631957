//! Losses that are divided by the number of objects of all ranks. In: a module that makes losses of detections. Out: a count of boxes, masks or points that is summed
//! over all ranks and used as it is, in a file that never asks how many ranks there are: gradients are averaged over ranks
//! besides, and come out too small by their number. Never: counts over a group, or files that scale, average or sum gradients themselves.
//! Source: DETR, `SetCriterion.forward`, whose count is one for each rank. Next: `counts.rs`.

use super::Found;
use super::found::Practice;
use super::near;
use super::raw::raw;
use super::unshared::Unshared;
use super::view::View;
use crate::ir::Stmt;

/// Parts of names of what is counted.
const COUNTED: &[&str] = &[
    "boxes",
    "box",
    "masks",
    "pos",
    "positives",
    "instances",
    "objects",
    "fg",
    "foreground",
    "gts",
    "points",
    "queries",
    "matched",
];

/// What shows that the number of ranks is known, or that gradients are summed here.
const RANKS: &[&str] = &[
    "world",
    "num_gpu",
    "n_gpu",
    "ngpu",
    "num_ranks",
    "nprocs",
    "avg",
    "average",
    "reduce_mean",
    ".grad",
    "comm_hook",
    "divide_factor",
    "no_grad",
    "inference_mode",
    "backward(",
    "get_size",
    "num_processes",
    "num_workers",
    "replicas",
];

/// `dist.all_reduce(num_boxes)`, `num_boxes = num_boxes.clamp(min=1)` and `loss.sum() / num_boxes`
pub fn losses(view: &View<'_>, out: &mut Found) {
    if near::class_of(view).is_none() {
        return;
    }
    let text = near::bare(view.file());
    if near::has_any(&text, RANKS) {
        return;
    }
    for at in 0..view.steps.len() {
        let Some(call) = view.value(at).and_then(|value| raw(view, value)) else { continue };
        let Some(count) = call.buffer.and_then(near::local).filter(|_| call.name == "all_reduce") else { continue };
        let name = view.local_name(count).to_lowercase();
        let counts = near::has_part(&name, "num") && COUNTED.iter().any(|part| near::has_part(&name, part));
        // The operator or a group may stand among the arguments.
        if !counts || call.args.len() != 1 {
            continue;
        }
        let divides = |line: &str| {
            line.contains("loss") && [format!("/ {name}"), format!("/{name}")].iter().any(|d| line.contains(d))
        };
        if !text.lines().any(divides) {
            continue;
        }
        let used = view.readers(count).iter().copied().find(|r| *r > at);
        let Some(used) = used.filter(|u| matches!(view.steps[*u].stmt, Stmt::Assign { .. })) else { continue };
        let reduced = view.place(view.steps[at].id);
        let mistake = Unshared::NumberOfAll { count: view.local_name(count).clone(), reduced };
        out.push((view.place(view.steps[used].id), Practice::Unshared(mistake)));
        return;
    }
}
