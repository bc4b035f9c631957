//! Wrappers over data-parallel ranks where tokens are cut over other ranks too. In: a function. Out: a wrapper over the data-parallel group
//! alone, in a file that cuts the sequence of its batches by the rank of another axis: nothing sums gradients over that.
//! Never: a file that sums by itself. Source: DESIGN.md section 7. Next: `unreduced_step.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::mesh_dims;
use super::named_axes::of_rank;
use super::near;
use super::view::View;
use crate::ir::{Arg, ArgKind, BuildKind, Const, Item, LocalId, Operand, Rvalue};
use crate::project::FuncRef;
use crate::source::{Name, Place};

/// Names of wrappers, in lowercase.
pub const WRAPPERS: &[&str] =
    &["distributeddataparallel", "fullyshardeddataparallel", "ddp", "fsdp", "fully_shard", "replicate"];

/// Wrappers over data-parallel ranks, where the batch is cut by the rank of another axis: all of a function are one mistake.
pub fn wrappers(view: &View<'_>, out: &mut Found) {
    let mut found: Vec<(Place, Option<Place>)> = Vec::new();
    for i in 0..view.steps.len() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            continue;
        };
        // Not a method of an object.
        let Some(path) = view.callee(value).filter(|path| !path.starts_with('.')) else { continue };
        let position = match super::lost::last(&path).as_str() {
            "DistributedDataParallel" | "FullyShardedDataParallel" | "DDP" | "FSDP" => "process_group",
            "fully_shard" | "replicate" => "mesh",
            _ => continue,
        };
        let Some((group, place)) = given(view, i, args, position) else { continue };
        if args.first().is_some_and(|model| is_frozen(view, &model.value)) {
            continue;
        }
        // A mesh that holds both may be handed on under the name of the one.
        let text = view.file();
        let both = || ["shard_cp", "dp_cp", "dp_sp"].iter().any(|word| text.contains(word));
        if near::local(group).is_some_and(|l| view.is_param(l)) && both() {
            continue;
        }
        let group_made = near::deep(view, &view.expr(group));
        if is_data(view, &group_made) && !is_flattened(text, &group_made) {
            let made = view.source(group).map(|(at, _)| view.place(view.steps[at].id));
            found.push((place, made.filter(|made| *made != place)));
        }
    }
    let Some((first, made)) = found.first().copied() else { return };
    let module = near::functions(view, view.at.module);
    let Some((axis, sliced)) = module.iter().find_map(|f| sliced(&near::other(view, *f))) else { return };
    let file = view.file().to_lowercase();
    if ["all_reduce(", "register_hook", "comm_hook", "reduce_scatter"].iter().any(|w| file.contains(w)) {
        return;
    }
    let also = found[1..].iter().map(|(place, _)| *place).collect();
    out.push((first, Practice::Scales(Scales::NarrowWrapper { axis, sliced, made, also })));
}

/// Wrappers over the ranks that have parts of a model, where the mesh has a dim of replicas too that nothing else speaks of.
pub fn replicas(view: &View<'_>, out: &mut Found) {
    let found: Vec<Place> = (0..view.steps.len()).filter_map(|i| over_shards(view, i)).flatten().collect();
    let Some(first) = found.first().copied().filter(|_| !shards_otherwise(view)) else { return };
    // A mesh of this function is looked at with all that it does with it.
    let makers = near::functions(view, view.at.module).into_iter().filter(|at| *at != view.at);
    let spoken = |at: FuncRef, axis: &Name| is_spoken_of(view, at, axis);
    let made =
        makers.into_iter().find_map(|at| replicated(&near::shared(view, at)).filter(|(axis, _)| !spoken(at, axis)));
    let Some((axis, made)) = made else { return };
    let also = found[1..].to_vec();
    out.push((first, Practice::Scales(Scales::NarrowWrapper { axis, sliced: made, made: None, also })));
}

/// Whether a function says of what it wraps that it is not trained.
pub fn is_frozen(view: &View<'_>, model: &Operand) -> bool {
    let Expr::Local(model) = view.expr(model) else { return false };
    view.readers(model).iter().any(|step| near::frozen(view, *step) == Some(model))
}

/// Of a step that shards something: the place of the mesh, if it is a dim of shards.
fn over_shards(view: &View<'_>, step: usize) -> Option<Option<Place>> {
    let value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step)? else { return None };
    view.callee(value).filter(|path| super::lost::last(path) == "fully_shard")?;
    Some(given(view, step, args, "mesh").and_then(|(mesh, place)| {
        let Expr::Item(_, dim) = near::deep(view, &view.expr(mesh)) else { return None };
        dim.string().is_some_and(|dim| dim.contains("shard")).then_some(place)
    }))
}

/// Whether the file shards something over another mesh, or a whole one: what is sharded here may be frozen.
fn shards_otherwise(view: &View<'_>) -> bool {
    near::functions(view, view.at.module).into_iter().any(|at| {
        let other = near::shared(view, at);
        (0..other.steps.len()).any(|i| over_shards(&other, i) == Some(None))
    })
}

/// The dim of replicas in a mesh that a function makes with it, of a size that is not written down.
fn replicated(view: &View<'_>) -> Option<(Name, Place)> {
    (0..view.steps.len()).find_map(|i| {
        let (sizes, names) = mesh_dims::made_by(view, i)?;
        let names = names?;
        let at = names.iter().position(|e| e.string().is_some_and(|name| name.contains("replicate")))?;
        let open = sizes.get(at).is_some_and(|size| !matches!(size, Expr::Const(_)));
        open.then(|| Some((names[at].string()?.clone(), view.place(view.steps[i].id)))).flatten()
    })
}

/// Whether anything but the function that makes a mesh speaks of one of its dims, or sums gradients itself, or nothing is trained.
fn is_spoken_of(view: &View<'_>, maker: FuncRef, axis: &Name) -> bool {
    let own = view.project.file(view.at.module);
    let count = |text: &str| text.matches(axis.as_str()).count();
    let file = near::bare(view.files[own].whole());
    let made = near::bare(view.files[own].slice(view.project.func(maker).span));
    let others = ["_hook", "replicate(", "distributeddataparallel", "ddp(", "requires_grad_(false)"];
    let said = |word: &&str| view.files.saying(word).next().is_some();
    count(&file) > count(&made)
        || near::has_any(&file, &others)
        || view.files.saying(axis).any(|other| other != own)
        || ["all_reduce", "get_group(", "get_local_rank("].iter().any(said)
        || !said(&"backward(")
}

/// The group or mesh of a wrapper: by its keyword, as the second argument, or in a dict of options.
pub(super) fn given<'a>(view: &View<'a>, step: usize, args: &'a [Arg], name: &str) -> Option<(&'a Operand, Place)> {
    let id = view.steps[step].id;
    let named = args.iter().position(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == name));
    if let Some(at) = named {
        return Some((&args[at].value, view.part(id, at + 1)));
    }
    let options = args.iter().find(|a| a.kind == ArgKind::DoubleStar)?;
    let Some((_, Rvalue::Build { kind: BuildKind::Dict, items })) = view.source(&options.value) else { return None };
    items.chunks(2).find_map(|pair| match pair {
        [Item::One(Operand::Const(Const::Str(key))), Item::One(value)] if key == name => Some((value, view.place(id))),
        _ => None,
    })
}

/// Whether a dim of a mesh is one that the file makes of several.
fn is_flattened(text: &str, group: &Expr) -> bool {
    let Expr::Item(_, dim) = group else { return false };
    dim.string().is_some_and(|dim| {
        ["_flatten(\"", "_flatten(mesh_dim_name=\""].iter().any(|made| text.contains(&format!("{made}{dim}\"")))
    })
}

/// Whether a group is that of data-parallel ranks alone, by name.
fn is_data(view: &View<'_>, group: &Expr) -> bool {
    let name = match group {
        Expr::Local(l) => view.local_name(*l).as_str().to_lowercase(),
        Expr::Item(_, index) => index.string().map(|s| s.as_str().to_lowercase()).unwrap_or_default(),
        Expr::Call { callee, args, .. } => match (callee.last_name(), args.first()) {
            (Some("get_group"), Some((_, e))) if e.string().is_some() => {
                e.string().map(|s| s.as_str().to_lowercase()).unwrap_or_default()
            }
            (Some(name), None) => name.trim_start_matches("get_").to_lowercase(),
            _ => return false,
        },
        other => other.last_name().unwrap_or_default().to_lowercase(),
    };
    matches!(
        name.trim_start_matches('_'),
        "dp" | "dp_shard"
            | "dp_group"
            | "dp_mesh"
            | "data_parallel_group"
            | "dp_pg"
            | "dp_process_group"
            | "data_parallel_mesh"
            | "data_parallel"
    )
}

/// Words for ranks that share a sequence.
const SEQUENCE: &[&str] = &["ulysses", "cp", "sp", "context", "sequence"];

/// Where tokens of a batch are cut by the rank of an axis that shares sequences.
fn sliced(view: &View<'_>) -> Option<(Name, Place)> {
    for (i, step) in view.steps.iter().enumerate() {
        if let Some(axis) = parted(view, i) {
            return Some((axis, view.place(step.id)));
        }
        let index = match view.value(i) {
            Some(Rvalue::Item { base, index }) if is_batch(view, base) => index,
            Some(Rvalue::CallMethod { base, name, args }) if name == "narrow" && is_batch(view, base) => {
                &args.get(1)?.value
            }
            _ => continue,
        };
        let mut axis = None;
        let mut queue = vec![index.clone()];
        let mut seen = Vec::new();
        while let Some(operand) = queue.pop() {
            let Some(local) = near::local(&operand).filter(|l| !seen.contains(l)) else { continue };
            seen.push(local);
            axis = axis.or_else(|| ranked(view.local_name(local))).or_else(|| by_group(view, local));
            for def in view.defs(local) {
                if let Some(Rvalue::Attr { name, .. } | Rvalue::CallMethod { name, .. }) = view.value(*def) {
                    axis = axis.or_else(|| ranked(name));
                }
                queue.extend(view.reads(*def).into_iter().cloned());
            }
        }
        if let Some(axis) = axis {
            return Some((axis, view.place(step.id)));
        }
    }
    None
}

/// The dim of a mesh over which torch cuts buffers of a batch: `with context_parallel(mesh["cp"], buffers=[tokens, labels])`.
fn parted(view: &View<'_>, step: usize) -> Option<Name> {
    let value @ Rvalue::Call { args, .. } = view.value(step)? else { return None };
    let path = view.callee(value)?;
    let cuts = path.starts_with("torch.distributed.tensor.experimental") && path.ends_with(".context_parallel");
    match near::deep(view, &view.expr(&args.first().filter(|_| cuts)?.value)) {
        Expr::Item(_, dim) => dim.string().cloned(),
        _ => None,
    }
}

/// The axis of a rank that is asked of a group or a mesh.
fn by_group(view: &View<'_>, rank: LocalId) -> Option<Name> {
    let axes = of_rank(view, &view.through(&Operand::Local(rank)))?;
    axes.iter().find(|axis| SEQUENCE.contains(&axis.as_str())).filter(|_| axes.len() == 1).cloned()
}

/// The axis of a rank, by name: `cp` of `cp_rank`.
fn ranked(name: &str) -> Option<Name> {
    let is_rank = near::has_part(name, "rank");
    SEQUENCE.iter().find(|w| is_rank && near::has_part(name, w)).map(|w| Name::from(*w))
}

/// Whether a tensor is tokens or labels of a batch.
fn is_batch(view: &View<'_>, base: &Operand) -> bool {
    let words = ["input_ids", "labels", "tokens", "batch", "ids", "inputs"];
    let expr = view.expr(base);
    expr.any(&mut |e| match e {
        Expr::Local(l) => words.contains(&view.local_name(*l).to_lowercase().as_str()),
        Expr::Const(Const::Str(s)) => words.contains(&s.to_lowercase().as_str()),
        _ => false,
    })
}
