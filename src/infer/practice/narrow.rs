//! Wrappers over data-parallel ranks where tokens are cut over other ranks too. In: a function. Out: a wrapper over the data-parallel group
//! alone, in a file that cuts the sequence of its batches by the rank of another axis: nothing sums gradients over that.
//! Never: a file that sums by itself. Source: DESIGN.md section 7. Next: `unreduced_step.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::mesh_dims;
use super::named_axes::of_rank;
use super::near;
use super::reducers;
use super::view::View;
use crate::ir::{Arg, ArgKind, BuildKind, Const, Item, LocalId, Operand, Rvalue, Stmt};
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
    told(view, found, None, out);
}

/// Gradients that code sums over data-parallel ranks itself, where the batch is cut by the rank of another axis.
pub fn sums(view: &View<'_>, out: &mut Found) {
    let text = view.file();
    let mut found: Vec<(Place, Option<Place>)> = Vec::new();
    let mut collective = None;
    for (step, call) in view.collectives() {
        let of_gradient = call.input.is_some_and(|input| reducers::is_gradient(&view.expr(input)));
        let group = call.group.map(|group| near::deep(view, &view.expr(group)));
        if of_gradient && group.is_some_and(|group| is_data(view, &group) && !is_flattened(text, &group)) {
            found.push((view.place(view.steps[*step].id), None));
            collective = collective.or_else(|| Some(Name::from(super::lost::last(&call.rule.name))));
        }
    }
    if !["dp_cp", "dp_sp", "shard_cp"].iter().any(|word| text.contains(word)) {
        told(view, found, collective, out);
    }
}

fn told(view: &View<'_>, found: Vec<(Place, Option<Place>)>, collective: Option<Name>, out: &mut Found) {
    let Some((first, made)) = found.first().copied() else { return };
    let module = near::functions(view, view.at.module);
    // What is cut for an evaluation, or for a model that is not trained, has no gradients.
    let trained = |at: &View<'_>| !near::is_unrecorded(at) && !near::has_any(at.code(), &["no_grad", "inference_mode"]);
    let cut = |at: FuncRef| Some(near::shared(view, at)).filter(|at| trained(at)).and_then(|at| sliced(&at));
    let Some((axis, sliced)) = module.iter().find_map(|f| cut(*f)) else { return };
    let hands_over = |at: &FuncRef| hands_over(&near::shared(view, *at));
    if module.iter().any(hands_over) {
        return;
    }
    let file = view.file().to_lowercase();
    if ["register_hook", "comm_hook", "reduce_scatter", "redistribute(", "dist.reduce("]
        .iter()
        .any(|w| file.contains(w))
        || file.contains("all_reduce(") && sums_otherwise(view, &found)
    {
        return;
    }
    let also = found[1..].iter().map(|(place, _)| *place).collect();
    out.push((first, Practice::Scales(Scales::NarrowWrapper { axis, sliced, made, also, collective })));
}

/// Parts of names of calls that may sum gradients.
const SUMMING: &[&str] = &["sync", "reduc", "average", "grad", "finali"];

/// Whether something that is not seen gets the group of those who share a sequence, or a model to sum its gradients.
fn hands_over(view: &View<'_>) -> bool {
    (0..view.steps.len()).any(|step| {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
            return false;
        };
        let name = near::name_of_call(view, step).unwrap_or_default();
        let seen = match value {
            Rvalue::Call { callee, .. } => near::function(view, callee).is_some(),
            _ => false,
        };
        let of_library = view.callee(value).is_some_and(|path| {
            ["torch.", "builtins."].iter().any(|start| path.starts_with(start)) && !path.contains(".optim")
        });
        if seen || of_library || args.iter().any(|a| is_batch(view, &a.value)) {
            return false;
        }
        let said = |a: &Arg| {
            let given = view.expr(&a.value);
            view.name_of(&given).or(given.last_name()).unwrap_or_default().to_lowercase()
        };
        let of_sequence = |name: &str| {
            let group = ["group", "pg", "mesh"].iter().any(|w| near::has_part(name, w));
            group && SEQUENCE.iter().any(|w| near::has_part(name, w))
        };
        let given =
            matches!(value, Rvalue::Call { callee, .. } if near::local(callee).is_some_and(|l| view.is_param(l)));
        let is_model = |name: &str| near::has_part(name, "model") || name == "parameters";
        let sums = SUMMING.iter().any(|w| name.contains(w));
        let asks = name.contains("world_size") || name.contains("rank") || name == "size";
        args.iter().any(|a| !asks && of_sequence(&said(a)) || (sums || given) && is_model(&said(a)))
            || sums && near::has_any(&name, &["model", "param"])
            || name.starts_with("before_step")
    })
}

/// Words of names of what is summed to be shown, or to divide by.
const SHOWN: &[&str] = &["loss", "metric", "count", "num", "token", "correct", "total", "log"];

/// Whether the file sums anything but these gradients and numbers that are shown: over whatever ranks, that may be the sum that is missing.
fn sums_otherwise(view: &View<'_>, found: &[(Place, Option<Place>)]) -> bool {
    let mut known = 0;
    for at in near::functions(view, view.at.module) {
        let other = near::shared(view, at);
        for (step, call) in other.collectives() {
            let here = other.place(other.steps[*step].id);
            let name = call.input.and_then(near::local).map(|l| other.local_name(l).to_lowercase());
            let shown = name.is_some_and(|name| near::has_any(&name, SHOWN) || matches!(&*name, "n" | "nll"));
            let of_loss = call.input.is_some_and(|input| {
                let said = |e: &Expr| matches!(e, Expr::Local(l) if near::has_any(&other.local_name(*l).to_lowercase(), SHOWN));
                other.through(input).call_of("detach").is_some() && other.through(input).any(&mut |e| said(e))
            });
            if !shown && !of_loss && !found.iter().any(|(place, _)| *place == here) {
                return true;
            }
            known += 1;
        }
    }
    // What is no collective that is known may be one of any kind.
    view.file().matches("all_reduce(").count() > known
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
    out.push((
        first,
        Practice::Scales(Scales::NarrowWrapper { axis, sliced: made, made: None, also, collective: None }),
    ));
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
    let items = match view.source(&options.value)? {
        (_, Rvalue::Build { kind: BuildKind::Dict, items }) => items,
        (_, value @ Rvalue::Call { args, .. }) if view.callee(value).is_some_and(|path| path == "builtins.dict") => {
            let given = args.iter().find(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == name))?;
            return Some((&given.value, view.place(id)));
        }
        _ => return None,
    };
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
            (Some("get_group"), None) => match &**callee {
                Expr::Attr(mesh, _) => return is_data(view, mesh),
                _ => return false,
            },
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
    let evaluates = |text: &str| near::has_any(&text.to_lowercase(), &["train", "eval"]);
    for (i, step) in view.steps.iter().enumerate() {
        if step.guards.iter().any(|guard| evaluates(view.text(view.part(guard.at, 0)))) {
            continue;
        }
        if let Some(axis) = parted(view, i).or_else(|| by_helper(view, i)) {
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

/// The axis by whose rank a function cuts a part of a batch that it is given: `shard(batch["labels"], cp_group)`, where it takes a slice by the
/// rank in the group that it is given, or by the rank; also one of a library that is called so: `get_batch_on_this_cp_rank(batch)`.
fn by_helper(view: &View<'_>, step: usize) -> Option<Name> {
    let value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step)? else { return None };
    args.iter().find(|a| is_batch(view, &a.value))?;
    let name = near::name_of_call(view, step)?;
    let named = |name: &str| SEQUENCE.iter().find(|w| near::has_part(name, w)).map(|w| Name::from(*w));
    if near::has_part(&name, "batch") && near::has_part(&name, "rank") {
        return named(&name);
    }
    let inner = match value {
        Rvalue::Call { callee, .. } => near::shared(view, near::function(view, callee)?),
        _ => return None,
    };
    let cuts = (0..inner.steps.len()).any(|i| match inner.value(i) {
        Some(Rvalue::Item { base, .. }) => near::local(base).is_some_and(|l| inner.is_param(l)),
        Some(Rvalue::CallMethod { base, name, .. }) => {
            matches!(name.as_str(), "narrow" | "chunk" | "tensor_split")
                && near::local(base).is_some_and(|l| inner.is_param(l))
        }
        _ => false,
    });
    let of_group = |a: &&Arg| {
        let given = view.expr(&a.value);
        let name = view.name_of(&given).or(given.last_name())?;
        let tells = ["group", "rank", "pg", "mesh"].iter().any(|w| near::has_part(name, w));
        named(name).filter(|_| tells)
    };
    let code = inner.code();
    args.iter().find_map(|a| of_group(&a)).filter(|_| cuts && code.contains("rank") && !code.contains("all_"))
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
    let named = |l: LocalId| words.contains(&view.local_name(l).to_lowercase().as_str());
    let expr = view.expr(base);
    expr.any(&mut |e| match e {
        Expr::Local(l) => named(*l) || is_entry(view, *l, &named),
        Expr::Const(Const::Str(s)) => words.contains(&s.to_lowercase().as_str()),
        _ => false,
    })
}

/// Whether a variable is each entry of a batch in turn: `{k: v[:, a:b] for k, v in batch.items()}`.
fn is_entry(view: &View<'_>, local: LocalId, is_batch: &dyn Fn(LocalId) -> bool) -> bool {
    let [def] = view.defs(local) else { return false };
    let given = match view.steps[*def].stmt {
        Stmt::For { iter, .. } => Some(iter),
        Stmt::Unpack { value, .. } => near::local(value).and_then(|pair| match view.defs(pair) {
            [of] => match view.steps[*of].stmt {
                Stmt::For { iter, .. } => Some(iter),
                _ => None,
            },
            _ => None,
        }),
        _ => None,
    };
    let entries = |e: Expr| match e {
        Expr::Call { callee, .. } => match *callee {
            Expr::Attr(base, method) if matches!(method.as_str(), "items" | "values") => Some(*base),
            _ => None,
        },
        _ => None,
    };
    let of = given.and_then(|iter| entries(view.through(iter)));
    matches!(of, Some(Expr::Local(batch)) if is_batch(batch))
}
