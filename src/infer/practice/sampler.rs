//! Samplers that split the data over ranks which are to have the same. In: a function. Out: a sampler with as many replicas as there are
//! ranks, in a file that cuts its model over one dim of a mesh with several. Never: a sampler that is given another number, or a file that
//! makes more than one. Next: `unreduced_step.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::mesh_dims;
use super::near;
use super::view::View;
use crate::ir::{ArgKind, Const, Rvalue};
use crate::rules::Entry;
use crate::source::{Name, Place};

/// What splits the data, by the last part of its name.
const SAMPLER: &str = "DistributedSampler";

/// Styles of plans that leave each rank a part of what one sample goes through.
const STYLES: &[&str] = &["ColwiseParallel(", "RowwiseParallel(", "SequenceParallel("];

/// `DistributedSampler(data, num_replicas=dist.get_world_size())` beside `parallelize_module(layer, mesh["tp"], plan)`
pub fn replicas(view: &View<'_>, out: &mut Found) {
    let file = view.file();
    if file.matches("DistributedSampler(").count() != 1
        || ["num_workers_per", "broadcast", "Shard(0)", "all_gather"].iter().any(|w| file.contains(w))
        || !STYLES.iter().any(|w| file.contains(w))
    {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            continue;
        };
        if !step.guards.is_empty() || view.callee(value).is_none_or(|p| super::lost::last(&p) != SAMPLER) {
            continue;
        }
        let Some(replicas) = view.argument(args, 1, "num_replicas") else { continue };
        if view.without_gradient(i) || is_for_reading(view, args) {
            continue;
        }
        let Some(asked) = world_size(view, &view.expr(replicas)) else { continue };
        let Some((dim, cut)) = cut_over(view) else { continue };
        let mistake = Scales::SplitOverModel { dim, cut, sampler: view.place(step.id) };
        out.push((asked.unwrap_or(view.place(step.id)), Practice::Scales(mistake)));
    }
}

/// Words of files that cut models over other ranks than those that the wrapper averages over.
const CUTS: &[&str] = &["model_parallel", "mpu", "tensor_parallel", "pipeline_parallel", "tp_group", "mp_group"];

/// `DistributedSampler(data)` beside `DistributedDataParallel(model, process_group=mpu.get_data_parallel_group())`
pub fn of_all(view: &View<'_>, out: &mut Found) {
    let text = near::bare(view.file());
    let others = [
        "num_replicas",
        "broadcast",
        "scatter",
        "all_gather",
        "batch_sampler",
        "assert",
        "initialize_model_parallel",
        "get_batch",
        "from_source",
        "expert",
        "def get_data_parallel_group",
        "class distributedsampler",
    ];
    let cuts = CUTS.iter().any(|word| near::has_word(&text, word)) || text.contains("tensor_parallel");
    if text.matches("distributedsampler(").count() != 1 || near::has_any(&text, &others) || !cuts {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            continue;
        };
        let named = |a: &crate::ir::Arg| matches!(&a.kind, ArgKind::Keyword(name) if name != "rank");
        let of_data = args.iter().filter(|a| a.kind == ArgKind::Positional).count() <= 1
            && args.iter().all(|a| a.kind == ArgKind::Positional || named(a));
        if !of_data
            || !step.guards.is_empty()
            || view.callee(value).is_none_or(|p| super::lost::last(&p) != SAMPLER || !p.starts_with("torch."))
        {
            continue;
        }
        let Some(wrapped) = wrapped_over_data(view).filter(|_| !is_for_reading(view, args)) else { return };
        out.push((view.place(step.id), Practice::Scales(Scales::SampledByAll { wrapped })));
    }
}

/// Where the file wraps a model so that gradients are averaged over data-parallel ranks.
fn wrapped_over_data(view: &View<'_>) -> Option<Place> {
    near::functions(view, view.at.module).into_iter().find_map(|at| {
        let other = near::shared(view, at);
        (0..other.steps.len()).find_map(|step| {
            let value = other.value(step)?;
            let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
            if other.callee(value)? != "torch.nn.parallel.DistributedDataParallel" {
                return None;
            }
            let group = other.expr(other.argument(args, 5, "process_group")?);
            let of_data = other.name_or_callee(&group).is_some_and(|name| name.contains("data_parallel_group"));
            of_data.then(|| other.place(other.steps[step].id))
        })
    })
}

/// Where the number of all ranks is asked for, if that is what an expression is; nothing within if it is asked for in place.
fn world_size(view: &View<'_>, expr: &Expr) -> Option<Option<Place>> {
    let Expr::Call { callee, args, .. } = near::deep(view, expr) else { return None };
    let all = args.is_empty() && near::path(view, &callee).is_some_and(|p| p == "torch.distributed.get_world_size");
    let def = match expr {
        Expr::Local(local) => view.defs(*local).first(),
        _ => None,
    };
    all.then(|| def.map(|d| view.place(view.steps[*d].id)))
}

/// The dim of a mesh with several over which a function of the file cuts a model, and where.
fn cut_over(view: &View<'_>) -> Option<(Name, Place)> {
    let mut dims: Vec<Name> = Vec::new();
    let mut cut: Option<(Name, Place)> = None;
    for at in near::functions(view, view.at.module) {
        let other = near::other(view, at);
        for i in 0..other.steps.len() {
            let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = other.value(i) else {
                continue;
            };
            let Some(path) = other.callee(value) else { continue };
            if let Some((_, names)) = mesh_dims::made_by(&other, i) {
                dims.extend(names?.iter().filter_map(|e| e.string().cloned()));
            }
            let plans = matches!(view.rules.get(&path), Some(Entry::Intrinsic(r)) if r.does == "dtensor-parallelize");
            let mesh = other.argument(args, 1, "device_mesh").filter(|_| plans);
            let Some(Expr::Item(_, index)) = mesh.map(|o| near::deep(&other, &other.expr(o))) else { continue };
            if let Expr::Const(Const::Str(dim)) = &*index {
                cut = cut.or_else(|| Some((dim.clone(), other.place(other.steps[i].id))));
            }
        }
    }
    // Ranks with other experts have tokens of their own, and exchange them.
    let of_experts = |dim: &Name| near::has_part(dim, "ep") || near::has_part(dim, "expert");
    cut.filter(|(dim, _)| dims.len() > 1 && dims.contains(dim) && !of_experts(dim))
}

/// Whether a sampler is not for training: it keeps the order, or its function runs without gradients.
fn is_for_reading(view: &View<'_>, args: &[crate::ir::Arg]) -> bool {
    let off = |a: &crate::ir::Arg| {
        matches!(&a.kind, ArgKind::Keyword(name) if name == "shuffle")
            && view.expr(&a.value) == Expr::Const(Const::Bool(false))
    };
    let code = view.code();
    args.iter().any(off) || ["no_grad", "inference_mode", "eval()"].iter().any(|word| code.contains(word))
}
