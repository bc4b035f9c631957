//! Replicas that are asked for and left out of the mesh over which a model is sharded. In: a function. Out: `fully_shard`, or a function of the
//! project that is given the mesh for it, over a dim of shards where the test around it asks whether the mesh has replicas as well: with
//! replicas alone nothing is left to sum their gradients. Never: a mesh that is bound again, a dim that the file makes of one of replicas, or a file
//! that says anything else of replicas, wraps them or sums gradients. Source: NeMo Automodel, pull request 3135. Next: `narrow.rs`.

use super::expr::Expr;
use super::found::{Practice, Scales};
use super::view::View;
use super::{Found, narrow, near};
use crate::ir::{Arg, ArgKind, CmpOp, Operand, Rvalue};
use crate::project::Resolved;
use crate::source::Name;

/// `if shards.size() > 1 or mesh["dp_replicate"].size() > 1: fully_shard(model, mesh=shards)`
pub fn meshes(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(mesh) = sharded_over(view, i) else { continue };
        let Expr::Item(whole, dim) = near::deep(view, &view.expr(mesh)) else { continue };
        let Some(shards) = dim.string().filter(|dim| dim.contains("shard") && !dim.contains("replic")) else {
            continue;
        };
        let asked = step.guards.iter().filter(|guard| guard.holds).find_map(|guard| {
            let Expr::Bool { and: false, of } = view.expr(guard.test) else { return None };
            of.iter().find_map(|e| replicas(view, e, &whole)).map(|axis| (axis, view.part(guard.at, 0)))
        });
        let Some((axis, asked)) = asked.filter(|(axis, _)| !is_made_up_for(view, axis, shards)) else { continue };
        let made = view.source(mesh).map_or_else(|| view.place(step.id), |(at, _)| view.place(view.steps[at].id));
        let mistake = Scales::ReplicasAsked { axis, asked, sharded: view.place(step.id) };
        out.push((made, Practice::Scales(mistake)));
    }
}

/// The mesh over which a step shards, itself or by a function of the project that it gives it to.
fn sharded_over<'a>(view: &View<'a>, step: usize) -> Option<&'a Operand> {
    let value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step)? else { return None };
    let path = view.callee(value)?;
    if super::lost::last(&path) == "fully_shard" {
        return narrow::given(view, step, args, "mesh").map(|(mesh, _)| mesh);
    }
    let Resolved::Func(at) = view.project.path(&path) else { return None };
    let inner = near::shared(view, at);
    let shards = |param: usize| {
        let local = inner.func.params[param].local;
        inner.defs(local).is_empty()
            && (0..inner.steps.len()).any(|i| {
                let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = inner.value(i) else {
                    return false;
                };
                let calls = inner.callee(value).is_some_and(|path| super::lost::last(&path) == "fully_shard");
                calls
                    && narrow::given(&inner, i, args, "mesh").is_some_and(|(mesh, _)| near::local(mesh) == Some(local))
            })
    };
    let at = args.iter().enumerate().find_map(|(at, arg): (usize, &Arg)| {
        let param = match &arg.kind {
            ArgKind::Keyword(name) => inner.func.params.iter().position(|p| p.name == *name)?,
            ArgKind::Positional => (at < inner.func.params.len()).then_some(at)?,
            _ => return None,
        };
        shards(param).then_some(at)
    })?;
    Some(&args[at].value)
}

/// The dim of replicas of the same mesh that an expression asks whether there are several of.
fn replicas(view: &View<'_>, asked: &Expr, whole: &Expr) -> Option<Name> {
    let Expr::Compare(CmpOp::Gt | CmpOp::Ne, size, _) = near::deep(view, asked) else { return None };
    let Expr::Call { callee, args, .. } = near::deep(view, &size) else { return None };
    let Expr::Attr(of, name) = &*callee else { return None };
    match (&**of, args.as_slice()) {
        (Expr::Item(mesh, dim), []) if name == "size" && **mesh == *whole => {
            dim.string().filter(|dim| dim.contains("replic")).cloned()
        }
        _ => None,
    }
}

/// Whether anything else may sum over replicas, or the dim of shards has them too.
fn is_made_up_for(view: &View<'_>, axis: &Name, shards: &Name) -> bool {
    let own = view.project.file(view.at.module);
    let text = view.files[own].whole();
    let code = near::bare(text);
    let flattened = code.lines().any(|line| {
        line.contains("_flatten(")
            && near::has_word(line, &shards.to_lowercase())
            && line.contains(axis.to_lowercase().as_str())
    });
    // A second mesh with replicas is given where this one is not.
    let pairs = code.matches(&format!("(\"{axis}\", \"{shards}\")")).count()
        + code.matches(&format!("['{axis}', '{shards}']")).count();
    let others = [
        "_hook",
        "replicate(",
        "distributeddataparallel",
        "ddp(",
        "all_reduce",
        "reduce_scatter",
        "requires_grad_(false)",
        ".eval()",
        "inference_mode",
    ];
    // The replicas are given to something that may sum over them.
    let dim = axis.to_lowercase();
    let handed = [")", ","].iter().any(|end| code.contains(&format!("[\"{dim}\"]{end}")));
    let refused = near::refusals(&code).any(|line| line.contains("replic"));
    let said = |word: &&str| view.files.saying(word).any(|file| file != own);
    flattened
        || handed
        || pairs > 0
        || refused
        || near::has_any(&code, &others)
        || said(&"all_reduce(") && said(&"replicate")
}
