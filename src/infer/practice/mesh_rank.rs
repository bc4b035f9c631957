//! The rank among all ranks, given out beside the size of one dim of a mesh. In: a function. Out: a call that splits data and is given
//! `mesh["dp"].size()` and the rank among all: that of torch, or what `get_rank` of a mesh gives, whatever its dims. Never: a mesh of which
//! nothing says that it has another dim. Source: torch.distributed.device_mesh, `DeviceMesh.get_rank`: the global rank; `get_local_rank` is
//! that in a dim. Next: `world_rank.rs`.

use super::Found;
use super::all_ranks::may_be_all;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::mesh_dims;
use super::near;
use super::own_group::asks_world_rank;
use super::view::View;
use super::world_rank::asks_mesh;
use super::wrapped::call;
use crate::ir::{Arg, ArgKind, Const, Operand, Rvalue};
use crate::project::Resolved;
use crate::source::{Name, Place};

/// Words of what splits data over ranks, or trains on a part of it.
const SPLITS: &[&str] = &["split", "sampler", "shard", "loader", "dataset", "partition"];

/// Names of arguments that say how many ranks there are, and which this is.
const SIZES: &[&str] = &["num_replicas", "world_size", "num_shards", "size", "degree", "num_parts"];
const RANKS: &[&str] = &["rank", "index", "shard_id"];

/// How often a variable is seen through.
const MOST_DEPTH: usize = 4;

/// `DistributedSampler(data, num_replicas=mesh["dp"].size(), rank=dist.get_rank())`
pub fn given_out(view: &View<'_>, out: &mut Found) {
    for i in 0..view.steps.len() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            continue;
        };
        let name = near::name_of_call(view, i).unwrap_or_default();
        // What a function of the project makes of a rank it may compute first.
        let own = call(view, value).is_some_and(|(callee, _)| is_of_project(view, &callee));
        if !near::has_any(&name, SPLITS) || own {
            continue;
        }
        let Some((rank, size)) = pair(view, args) else { continue };
        let (Some(place), Some((dim, group))) = (rank_of_all(view, rank, 0), size_of_dim(view, size, 0)) else {
            continue;
        };
        if !has_other(view, &dim) || may_be_all(view) || out.iter().any(|(at, _)| *at == place) {
            continue;
        }
        out.push((place, Practice::Scales(Scales::WorldRank { group, named: None })));
    }
}

/// Whether a callee is one of the project, or a method of something that is not seen.
fn is_of_project(view: &View<'_>, callee: &Expr) -> bool {
    match near::path(view, callee).map(|path| view.project.path(&path)) {
        Some(Resolved::External(_) | Resolved::Package(_)) => false,
        Some(_) | None => true,
    }
}

/// The arguments that say which rank this is and how many there are: by their names, or side by side behind the data.
fn pair<'a>(view: &View<'a>, args: &'a [Arg]) -> Option<(&'a Operand, &'a Operand)> {
    let named = |words: &[&str]| {
        let is = |a: &&Arg| {
            matches!(&a.kind, ArgKind::Keyword(name)
                if words.iter().any(|w| name == w || name.strip_suffix(w).is_some_and(|rest| rest.ends_with('_'))))
        };
        args.iter().find(is).map(|a| &a.value)
    };
    match (named(RANKS), named(SIZES)) {
        (Some(rank), Some(size)) => Some((rank, size)),
        (None, None) => {
            let positional: Vec<&Operand> =
                args.iter().filter(|a| a.kind == ArgKind::Positional).map(|a| &a.value).collect();
            let both = |rank: &Operand, size: &Operand| {
                rank_of_all(view, rank, 0).is_some() && size_of_dim(view, size, 0).is_some()
            };
            positional.windows(2).find_map(|two| match two {
                [a, b] if both(a, b) => Some((*a, *b)),
                [a, b] if both(b, a) => Some((*b, *a)),
                _ => None,
            })
        }
        _ => None,
    }
}

/// What a value is: what each of its definitions gives, but for numbers that stand in the code.
fn meanings(view: &View<'_>, value: &Operand) -> Vec<Expr> {
    match view.expr(value) {
        Expr::Local(local) if !view.is_param(local) => {
            let all = view.defs(local).iter().map(|def| view.bound(*def, local));
            all.filter(|e| !matches!(e, Expr::Const(_))).collect()
        }
        other => vec![other],
    }
}

/// Where a value that is the rank among all ranks is asked for.
fn rank_of_all(view: &View<'_>, value: &Operand, depth: usize) -> Option<Place> {
    let meanings = meanings(view, value);
    let [one] = &meanings[..] else { return None };
    match one {
        Expr::Call { step, .. } => {
            let asked = view.value(*step)?;
            (asks_world_rank(view, asked) || asks_mesh(view, asked)).then(|| view.place(view.steps[*step].id))
        }
        Expr::Local(local) if depth < MOST_DEPTH => rank_of_all(view, &Operand::Local(*local), depth + 1),
        _ => None,
    }
}

/// The dim of a mesh whose size a value is, and where it is asked for.
fn size_of_dim(view: &View<'_>, value: &Operand, depth: usize) -> Option<(Name, Place)> {
    let meanings = meanings(view, value);
    let [one] = &meanings[..] else { return None };
    match one {
        Expr::Call { callee, args, step } => {
            let Expr::Attr(mesh, name) = &**callee else { return None };
            let Expr::Item(_, dim) = near::deep(view, mesh) else { return None };
            let dim = dim.string().filter(|_| name == "size" && args.is_empty())?;
            Some((dim.clone(), view.place(view.steps[*step].id)))
        }
        Expr::Local(local) if depth < MOST_DEPTH => size_of_dim(view, &Operand::Local(*local), depth + 1),
        _ => None,
    }
}

/// Whether the file shows that a mesh with a dim has another one: their names where it is made, with sizes that are not one.
fn has_other(view: &View<'_>, dim: &str) -> bool {
    near::functions(view, view.at.module).into_iter().any(|at| {
        let other = near::shared(view, at);
        (0..other.steps.len()).any(|i| {
            let Some((sizes, Some(names))) = mesh_dims::made_by(&other, i) else { return false };
            let is_dim = |e: &Expr| e.string().is_some_and(|name| name == dim);
            let one = |n: usize| sizes.get(n) == Some(&Expr::Const(Const::Int(1)));
            names.iter().any(is_dim)
                && names.iter().enumerate().any(|(n, e)| e.string().is_some() && !is_dim(e) && !one(n))
        })
    })
}
