//! Gradients that are flattened for a collective which nobody calls. In: a function. Out: the call that flattens them, where the flat tensor is
//! only taken apart again and copied back: it holds what it held before. Never: a flat tensor that anything else reads, writes or is given, or a function that
//! communicates anything.
//! Source: torch `_flatten_dense_tensors`, `_unflatten_dense_tensors`: one is the inverse of the other. Next: `flat_parameters.rs`.

use super::Found;
use super::found::Practice;
use super::lost::last;
use super::near;
use super::omissions::Omission;
use super::view::View;
use crate::ir::{Arg, LocalId, LocalKind, Rvalue, Stmt};

const FLATTENS: &str = "_flatten_dense_tensors";
const UNFLATTENS: &str = "_unflatten_dense_tensors";

/// `flat = _flatten_dense_tensors(grads)`, and `for g, new in zip(grads, _unflatten_dense_tensors(flat, grads)): g.copy_(new)`.
pub fn copied_back(view: &View<'_>, out: &mut Found) {
    // What is reduced otherwise, or packs tensors to see that they stay as they are, has no need of it.
    let file = view.file();
    let trial =
        near::has_any(&view.func.name.to_lowercase(), &["test", "bench"]) || file.contains("not torch.distributed.is_");
    if trial || !view.collectives().is_empty() || view.code().contains("_coalesced(") {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst: flat, value } = step.stmt else { continue };
        let Some(list) = called(view, value, FLATTENS).and_then(|args| near::local(&args.first()?.value)) else {
            continue;
        };
        let once = view.defs(*flat).len() == 1 && view.func.locals()[*flat].kind != LocalKind::Cell;
        if !once || view.is_temp(*flat) {
            continue;
        }
        let readers = view.readers(*flat);
        let back = |at: &usize| view.value(*at).is_some_and(|value| takes_apart(view, value, *flat, list));
        if !readers.is_empty() && readers.iter().all(back) && readers.iter().any(|at| is_copied(view, *at)) {
            let back = view.place(view.steps[readers[0]].id);
            let (flat, list) = (view.local_name(*flat).clone(), view.local_name(list).clone());
            out.push((view.place(view.steps[i].id), Practice::Omission(Omission::FlatUnchanged { flat, list, back })));
        }
    }
}

/// The arguments of a call of one of the two.
fn called<'a>(view: &View<'a>, value: &'a Rvalue, name: &str) -> Option<&'a [Arg]> {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let path = view.callee(value)?;
    (last(&path) == name).then_some(&args[..])
}

fn takes_apart<'a>(view: &View<'a>, value: &'a Rvalue, flat: LocalId, list: LocalId) -> bool {
    let Some([first, second]) = called(view, value, UNFLATTENS) else { return false };
    near::local(&first.value) == Some(flat) && near::local(&second.value) == Some(list)
}

/// Whether what was taken apart goes through a `zip`, and is copied in the loop over it.
fn is_copied(view: &View<'_>, step: usize) -> bool {
    let Stmt::Assign { dst, .. } = view.steps[step].stmt else { return false };
    let zipped = view.readers(*dst).iter().any(|at| view.value(*at).is_some_and(|v| called(view, v, "zip").is_some()));
    let copies = |at: usize| matches!(view.value(at), Some(Rvalue::CallMethod { name, .. }) if name == "copy_");
    zipped && (step..view.steps.len()).any(copies)
}
