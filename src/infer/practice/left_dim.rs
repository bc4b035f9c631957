//! Wrappers that are given one dim of a mesh. In: a function. Out: a mesh with two dims of replicas that is made here, of which a wrapper
//! gets one, and nothing in the file names the other one again. Never: a mesh that is kept, returned or handed on. Next: `wrapped.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::narrow::is_frozen;
use super::near;
use super::view::View;
use crate::ir::{ArgKind, LocalId, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::Name;

/// Dims whose ranks have different samples and the same parameters, or parts of them.
const REPLICAS: &[&str] = &["dp", "ddp", "data", "replicate", "dp_replicate", "replica", "data_parallel"];
const SHARDS: &[&str] = &["fsdp", "shard", "dp_shard", "zero"];

/// `fully_shard(model, mesh=mesh["dp_shard"])`
pub fn wrappers(view: &View<'_>, out: &mut Found) {
    if !view.code().contains("mesh") {
        return;
    }
    for i in 0..view.steps.len() {
        let Some(value) = view.value(i) else { continue };
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { continue };
        let Some(path) = view.callee(value) else { continue };
        if view.rules.wrappers().get(&path).is_none() {
            continue;
        }
        let keyword = |k: &ArgKind| matches!(k, ArgKind::Keyword(n) if matches!(n.as_str(), "mesh" | "device_mesh"));
        let Some(given) = args.iter().find(|a| keyword(&a.kind)) else { continue };
        let Expr::Item(mesh, dim) = near::deep(view, &view.through(&given.value)) else { continue };
        let (Expr::Local(local), Some(used)) = (&*mesh, dim.string()) else { continue };
        let Some((dims, place)) = made(view, *local) else { continue };
        let Some(left) = left_out(view, &dims, used) else { continue };
        if !only_sliced(view, *local, used) || args.first().is_some_and(|model| is_frozen(view, &model.value)) {
            continue;
        }
        let wrapper = super::lost::last(&path);
        let found = Membership::LeftDim { wrapper, dim: left, mesh: place };
        out.push((view.place(view.steps[i].id), Practice::Membership(found)));
    }
}

/// The dims of the mesh in a variable, made here or by a function of the project that returns it.
fn made(view: &View<'_>, local: LocalId) -> Option<(Vec<Name>, crate::source::Place)> {
    let [one] = view.defs(local) else { return None };
    if view.is_param(local) {
        return None;
    }
    let value = view.value(*one)?;
    if let Some(dims) = dims_of(view, value) {
        return Some((dims, view.place(view.steps[*one].id)));
    }
    let Rvalue::Call { callee, .. } = value else { return None };
    let at: FuncRef = near::function(view, callee)?;
    let inner = near::other(view, at);
    let all = (0..inner.steps.len()).filter_map(|i| Some((dims_of(&inner, inner.value(i)?)?, i)));
    let (dims, i) = all.max_by_key(|(dims, _)| dims.len())?;
    Some((dims, inner.place(inner.steps[i].id)))
}

/// The names of the dims of the mesh that a call makes.
fn dims_of(view: &View<'_>, value: &Rvalue) -> Option<Vec<Name>> {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let keyword = |k: &ArgKind| matches!(k, ArgKind::Keyword(n) if n == "mesh_dim_names");
    let names = args.iter().find(|a| keyword(&a.kind)).or_else(|| args.get(2))?;
    match view.through(&names.value) {
        Expr::Build(items) => items.iter().map(|e| e.string().cloned()).collect(),
        _ => None,
    }
}

/// The dim of replicas beside the one that is used, if nothing else of the file names it.
fn left_out(view: &View<'_>, dims: &[Name], used: &Name) -> Option<Name> {
    let [a, b] = dims else { return None };
    let other = if a == used { b } else { a };
    let known = dims.contains(used) && SHARDS.contains(&used.as_str()) && REPLICAS.contains(&other.as_str());
    let text = view.file();
    let count = text.matches(&format!("\"{other}\"")).count() + text.matches(&format!("'{other}'")).count();
    (known && count == 1).then(|| other.clone())
}

/// Whether a mesh is only ever cut to one dim.
fn only_sliced(view: &View<'_>, local: LocalId, used: &Name) -> bool {
    let captured = view.func.locals()[local].kind == crate::ir::LocalKind::Cell;
    let slices = |i: &usize| match view.value(*i) {
        Some(Rvalue::Item { base: Operand::Local(l), index }) => *l == local && view.expr(index).string() == Some(used),
        _ => matches!(view.steps[*i].stmt, Stmt::If { .. }),
    };
    !captured && view.readers(local).iter().all(slices)
}
