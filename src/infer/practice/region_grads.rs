//! Gradient placements of regions of local tensors that call a gradient complete of which each rank has a part. In: a function. Out: an input of `local_map` that is
//! replicated along a dim of the mesh, and its gradient too, where another input and every output are split along that dim, or every output
//! is a pending sum there. Never: an input that learns nothing by its name or is detached, a region with an output that is the same on all ranks, an input without a gradient, or placements that are not written down. Source:
//! torch.distributed.tensor `local_map`, `in_grad_placements`; autoparallel, issue 515. Next: `local_map.rs`, where none are given.

use super::Found;
use super::expr::Expr;
use super::found::{Placements, Practice};
use super::local_map::{DIFFERENTIABLE, Placed, by_dim};
use super::near;
use super::view::View;
use crate::ir::{Item, Operand, Rvalue};
use crate::source::{Name, Place};

/// Placements of one tensor by dim of the mesh; `None`: no tensor, or not known.
type Each = Vec<Option<Vec<Placed>>>;

/// `local_map(f, [Shard(0)], in_placements=([Shard(0)], [Replicate()]), in_grad_placements=([Shard(0)], [Replicate()]))`
pub fn complete(view: &View<'_>, out: &mut Found) {
    for i in 0..view.steps.len() {
        let Some(Rvalue::Call { callee, args }) = view.value(i) else { continue };
        let Some(path) = view.through(callee).path().cloned() else { continue };
        if !path.ends_with(".local_map") || !path.starts_with("torch") {
            continue;
        }
        let first = usize::from(!args.is_empty());
        let given = |name: &str, position: usize| view.argument(args, position, name);
        let (Some(outputs), Some(inputs), Some(gradients)) =
            (given("out_placements", first), given("in_placements", 1 + first), given("in_grad_placements", 2 + first))
        else {
            continue;
        };
        let (outs, ins, grads) = (tensors(view, outputs), tensors(view, inputs), tensors(view, gradients));
        let Some((names, code)) = args.first().and_then(|f| near::function(view, &f.value)).map(|at| {
            let inner = near::shared(view, at);
            let names: Vec<Name> = inner.func.params.iter().map(|p| p.name.clone()).collect();
            (names, inner.code().to_owned())
        }) else {
            continue;
        };
        let learns = |at: usize| {
            let learned = |n: &Name| DIFFERENTIABLE.contains(&n.as_str()) || n.ends_with("weight");
            let apart = |n: &Name| code.contains(&format!("{}.detach", n.to_lowercase()));
            names.get(at).is_some_and(|n| learned(n) && !apart(n)) && !near::has_any(&code, &["no_grad", "reduce"])
        };
        let Some(outs) = outs.into_iter().collect::<Option<Vec<_>>>().filter(|outs| !outs.is_empty()) else { continue };
        for (at, (given, gradient)) in ins.iter().zip(&grads).enumerate() {
            let (Some(given), Some(gradient)) = (given, gradient) else { continue };
            let whole = |dim: usize| given[dim] == Placed::Replicate && gradient.get(dim) == Some(&Placed::Replicate);
            let other = |dim: usize| ins.iter().flatten().any(|o| o.get(dim) == Some(&Placed::Shard));
            let works = |dim: usize| {
                outs.iter().all(|o| o.get(dim) == Some(&Placed::Partial))
                    || other(dim) && outs.iter().all(|o| o.get(dim) == Some(&Placed::Shard))
            };
            if let Some(dim) = (0..given.len()).find(|dim| learns(at) && whole(*dim) && works(*dim)) {
                let mistake = Placements::CompleteGradient { dim };
                out.push((place(view, gradients, at, i), Practice::Placements(mistake)));
                break;
            }
        }
    }
}

/// The placements of each tensor that are written down.
fn tensors(view: &View<'_>, of: &Operand) -> Each {
    let Expr::Build(items) = near::deep(view, &view.expr(of)) else { return Vec::new() };
    let list = |e: &Expr| match near::deep(view, e) {
        Expr::Build(items) => {
            let kinds = by_dim(view, &items);
            (!kinds.is_empty() && !kinds.contains(&Placed::Other)).then_some(kinds)
        }
        _ => None,
    };
    // One list of placements for the only output.
    let flat = by_dim(view, &items);
    match !flat.is_empty() && !flat.contains(&Placed::Other) {
        true => vec![Some(flat)],
        false => items.iter().map(list).collect(),
    }
}

/// Where the placements of one gradient are written.
fn place(view: &View<'_>, gradients: &Operand, at: usize, call: usize) -> Place {
    let items = match view.source(gradients) {
        Some((_, Rvalue::Build { items, .. })) => items,
        _ => return view.place(view.steps[call].id),
    };
    let made = match items.get(at) {
        Some(Item::One(Operand::Local(local))) if !view.is_temp(*local) => view.last_def(*local, call),
        _ => None,
    };
    view.place(view.steps[made.unwrap_or(call)].id)
}
