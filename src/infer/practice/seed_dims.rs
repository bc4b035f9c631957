//! Seeds that differ along one of two dims whose ranks have other samples. In: a function. Out: a call of a function that seeds by the ranks along the dims that it
//! is given, where these are the replicas of a mesh and not its shards, or the other way around, in a file that shards a model over the mesh and draws noise: ranks with other
//! samples draw the same numbers. Never: a file with several meshes or that draws nothing, or a function that is not of the project. Source: mlcommons training pull request 844.
//! Next: `sample_seed.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::only_some::callee;
use super::unshared::Unshared;
use super::view::View;
use crate::ir::{ArgKind, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::{Name, Place};

/// What draws numbers for samples.
const DRAWS: &[&str] = &["randn(", "randn_like(", "torch.rand(", "rand_like("];
/// What cuts the samples of a mesh along both dims.
const SHARDS: &[&str] = &["fully_shard(", "fsdp(", "fullyshardeddataparallel("];
/// Parts of names of dims with replicas, and of those with shards.
const REPLICAS: &[&str] = &["replicate", "replicas"];
const PIECES: &[&str] = &["shard", "fsdp"];

/// `set_seeds(mesh, seed, dims=("dp_replicate",))` with a mesh of `("dp_replicate", "dp_shard")`
pub fn given(view: &View<'_>, out: &mut Found) {
    let file = near::bare(view.file());
    if !near::has_any(&file, DRAWS) || !near::has_any(&file, SHARDS) || file.matches("init_device_mesh(").count() != 1 {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            continue;
        };
        if args.iter().any(|arg| matches!(arg.kind, ArgKind::Star | ArgKind::DoubleStar)) {
            continue;
        }
        let Some(at) = callee(view, value) else { continue };
        for (n, arg) in args.iter().enumerate() {
            let Some(dims) = names(view, &arg.value) else { continue };
            if !seeds_by(view, at, &arg.kind, n) {
                continue;
            }
            let Some((mesh, all)) = mesh_of(view) else { return };
            let along = |words: &[&str]| all.iter().find(|dim| words.iter().any(|word| near::has_part(dim, word)));
            let (Some(replicas), Some(shards)) = (along(REPLICAS), along(PIECES)) else { return };
            let (given, missing) = match (dims.contains(replicas), dims.contains(shards)) {
                (true, false) => (replicas, shards),
                (false, true) => (shards, replicas),
                _ => continue,
            };
            // Another seed may follow, and there may be one rank along the other dim.
            let called = format!("{}(", view.project.func(at).name);
            let alone = ["== 1", "> 1", "(1,", ", 1)", "=1,", "=1)"];
            if !step.guards.is_empty()
                || file.matches("seed(").count() > 3
                || file.matches(&called.to_lowercase()).count() != 2
                || file.matches("manual_seed(").count() != 1
                || file
                    .lines()
                    .any(|line| near::has_any(line, &["mesh", "replica", "shard"]) && near::has_any(line, &alone))
            {
                continue;
            }
            // The seed may have the other number in it already.
            let counted = |line: &str| line.contains(missing.as_str()) && line.contains("rank");
            if view.code().lines().any(counted) || may_grow(view, &arg.value) {
                continue;
            }
            let mistake = Unshared::DimNotSeeded { given: given.clone(), missing: missing.clone(), mesh };
            out.push((view.part(step.id, 1 + n), Practice::Unshared(mistake)));
            return;
        }
    }
}

/// Whether a list of dims may have more of them later.
fn may_grow(view: &View<'_>, given: &Operand) -> bool {
    let Some(name) = near::local(given).map(|local| view.local_name(local)) else { return false };
    let code = view.code();
    [".append(", ".extend(", ".insert(", " +="].iter().any(|change| code.contains(&format!("{name}{change}")))
}

/// The names that a tuple or list is made of.
fn names(view: &View<'_>, given: &Operand) -> Option<Vec<Name>> {
    let Expr::Build(items) = near::deep(view, &view.expr(given)) else { return None };
    let all: Option<Vec<Name>> = items.iter().map(|item| item.string().cloned()).collect();
    all.filter(|all| !all.is_empty())
}

/// Whether a function seeds all that is drawn by the ranks along the dims that an argument names.
fn seeds_by(view: &View<'_>, at: FuncRef, kind: &ArgKind, position: usize) -> bool {
    let inner = near::shared(view, at);
    let code = inner.code();
    if !code.contains("manual_seed(") || !code.contains("get_local_rank(") {
        return false;
    }
    let bound = usize::from(inner.func.class.is_some());
    let param = match kind {
        ArgKind::Keyword(name) => inner.func.params.iter().find(|p| p.name == *name),
        _ => inner.func.params.get(position + bound),
    };
    param.is_some_and(|param| {
        inner
            .steps
            .iter()
            .any(|step| matches!(step.stmt, Stmt::For { iter: Operand::Local(l), .. } if *l == param.local))
    })
}

/// The mesh that a file makes, with the names of its dims.
fn mesh_of(view: &View<'_>) -> Option<(Place, Vec<Name>)> {
    near::functions(view, view.at.module).into_iter().find_map(|at| {
        let maker = near::shared(view, at);
        (0..maker.steps.len()).find_map(|step| {
            let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = maker.value(step)? else { return None };
            near::name_of_call(&maker, step).filter(|name| name == "init_device_mesh")?;
            let dims = names(&maker, maker.argument(args, 2, "mesh_dim_names")?)?;
            Some((maker.place(maker.steps[step].id), dims))
        })
    })
}
