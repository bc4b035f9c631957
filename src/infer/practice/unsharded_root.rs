//! Parameters that no wrapper has. In: a function that shards parts of a model. Out: one that shards the blocks and never the model, whose class has parameters outside of them, in a file
//! that steps with the parameters of the model: gradients of these are summed nowhere. Never: a file that reduces gradients, wraps in another way, or freezes. Source:
//! torch.distributed.fsdp, `fully_shard`: the parameters of a call are those that no call on a submodule has taken. Next: `narrow.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::unshared::Unshared;
use super::view::View;
use crate::ir::{LocalId, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::{Name, Place};

/// What shows that gradients are summed in another way, or that some have none.
const OTHERWISE: &[&str] = &[
    "all_reduce",
    "reduce_scatter",
    "distributeddataparallel",
    "ddp(",
    "replicate(",
    "parallelize_module",
    "distribute_",
    "requires_grad",
    "freeze",
    "lora",
    "hook",
    "ignored_params",
    "accelerat",
    "no_grad",
    "apply_fsdp",
];

/// Layers with parameters.
const LAYERS: &[&str] = &["Linear", "Embedding", "LayerNorm", "RMSNorm", "Parameter", "Conv2d", "Conv1d"];

/// `for block in model.layers: fully_shard(block, mesh=mesh)`, and `return model`
pub fn left(view: &View<'_>, out: &mut Found) {
    let mut sharded: Vec<(usize, LocalId, Name)> = Vec::new();
    for step in 0..view.steps.len() {
        let Some(given) = shards(view, step) else { continue };
        let Some((model, blocks)) = element_of(view, &given) else { return };
        sharded.push((step, model, blocks));
    }
    let [(step, model, _), ..] = sharded.as_slice() else { return };
    let text = near::bare(view.file());
    let others = text.matches("fully_shard(").count() > sharded.len();
    if others || near::has_any(&text, OTHERWISE) || !text.contains(".step()") || !text.contains("backward()") {
        return;
    }
    if sharded.iter().any(|(_, of, _)| of != model) {
        return;
    }
    let Some((outside, made)) = parameter_outside(view, &sharded) else { return };
    let returned =
        view.steps.iter().find(|s| matches!(s.stmt, Stmt::Return { value } if near::local(value) == Some(*model)));
    let at = returned.map_or(view.place(view.steps[*step].id), |s| view.place(s.id));
    let mistake = Unshared::RootNotSharded {
        model: view.local_name(*model).clone(),
        outside,
        made,
        sharded: view.place(view.steps[*step].id),
    };
    out.push((at, Practice::Unshared(mistake)));
}

/// What a call shards.
fn shards(view: &View<'_>, step: usize) -> Option<Expr> {
    let value @ Rvalue::Call { args, .. } = view.value(step)? else { return None };
    let path = view.callee(value).filter(|path| path.starts_with("torch.") && path.ends_with(".fully_shard"));
    path.and(args.first()).map(|given| view.expr(&given.value))
}

/// The model and the name of its blocks, of what a loop goes through: `block` in `for block in model.layers`.
fn element_of(view: &View<'_>, given: &Expr) -> Option<(LocalId, Name)> {
    let Expr::Local(block) = given else { return None };
    let mut found = None;
    for def in view.defs(*block) {
        view.bound(*def, *block).any(&mut |e| {
            if let Expr::Attr(base, name) = e
                && let Expr::Local(model) = **base
            {
                found = found.take().or(Some((model, name.clone())));
            }
            found.is_some()
        });
    }
    found.filter(|(model, name)| {
        !matches!(name.as_str(), "modules" | "children" | "named_modules") && view.is_param(*model)
    })
}

/// A parameter, or a layer with parameters, that the only class of the file with these blocks makes outside of them, and where.
fn parameter_outside(view: &View<'_>, sharded: &[(usize, LocalId, Name)]) -> Option<(Name, Place)> {
    let ids = view.project.modules[view.at.module].ir.classes.ids();
    let mut found = None;
    for class in ids {
        let methods = &view.project.modules[view.at.module].ir.classes[class].methods;
        let Some((_, func)) = methods.iter().find(|(name, _)| name == "__init__") else { continue };
        let init = near::shared(view, FuncRef { module: view.at.module, func: *func });
        let set = |wanted: &str| {
            init.steps.iter().find(
                |s| matches!(s.stmt, Stmt::SetAttr { base, name, .. } if name == wanted && near::is_self(&init, base)),
            )
        };
        if !sharded.iter().all(|(_, _, blocks)| set(blocks).is_some()) {
            continue;
        }
        for step in &init.steps {
            let Stmt::SetAttr { base, name, value } = step.stmt else { continue };
            let own = near::is_self(&init, base) && !sharded.iter().any(|(_, _, blocks)| blocks == name);
            let Expr::Call { callee, .. } = init.through(value) else { continue };
            let layer = callee.path().is_some_and(|path| path.starts_with("torch.nn."));
            if own && layer && callee.last_name().is_some_and(|last| LAYERS.contains(&last)) && found.is_none() {
                found = Some((name.clone(), init.place(step.id)));
            }
        }
    }
    found
}
