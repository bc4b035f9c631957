//! Norms of parts that are summed over ranks with the same parts. In: a function. Out: a sum of squares of the local parts of distributed gradients over the
//! first dim of the mesh that they are sharded over, or over both: along the first of two dims there are replicas, along the last one other parts.
//! Never: a group or mesh that is not followed to its dims, or code that speaks of replicas or divides by a number of ranks.
//! Source: torch `fully_shard`: "If 2D, ... replicates on the 0th dim"; RLinf pull request 1558, VeOmni pull request 862. Next: `mesh_ranks.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::mesh_ranks::{Ranks, calls_of, ranks};
use super::near;
use super::view::{CollectiveCall, View};
use super::wrapped::called_function;
use crate::ir::{BinOp, LocalId, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};

/// Words of code that knows of replicas, or divides by a number of ranks.
const KNOWS: &[&str] =
    &["replic", "duplic", "placement", "full_tensor", "redistribute", "world_size", ".size()", "_size", "rank"];
/// What makes a sum of powers.
const POWERS: &[&str] = &["pow", "square", "norm", "vector_norm", "_foreach_norm", "get_total_norm"];
/// Parts of names of dims along which ranks have other parts of a model.
const MODEL: &[&str] = &["tp", "pp", "cp", "sp", "ep", "tensor", "pipeline", "context", "sequence", "expert"];

/// `all_reduce(total, group=mesh.get_group("replicate"))` of squares of `p.grad.to_local()`.
pub fn sums(view: &View<'_>, out: &mut Found) {
    if near::has_any(view.code(), KNOWS) {
        return;
    }
    for (i, call) in view.collectives() {
        let (Some(group), Some(total)) = (call.group, call.input.and_then(near::local)) else { continue };
        if call.rule.op != "all_reduce" || is_other(view, call) {
            continue;
        }
        let Some(taken) = of_parts(view, total, *i) else { continue };
        let Some(over) = ranks(view, &view.expr(group)) else { continue };
        let Some((replicas, shards)) = sharded(view) else { continue };
        let counts =
            |r: &Ranks| r.dims.contains(&replicas) && r.dims.iter().all(|dim| *dim == replicas || *dim == shards);
        if !over.iter().all(counts) || is_scaled(view, total, *i) {
            continue;
        }
        let alone = over.iter().all(|r| r.dims.len() == 1);
        let here = view.source(group).map(|(at, _)| view.place(view.steps[at].id));
        let (kept, asked) = over.iter().find_map(|r| r.picked).unzip();
        let group = here.filter(|_| near::local(group).is_some_and(|l| !view.is_temp(l))).or(kept);
        let asked = asked.flatten().filter(|at| view.text(*at).contains(replicas.as_str()));
        let mistake = Membership::NormOfReplicas { replicas, shards, alone, taken, group, asked };
        out.push((view.place(view.steps[*i].id), Practice::Membership(mistake)));
        return;
    }
}

/// Whether a reduction is never a sum, or another one completes it.
fn is_other<'a>(view: &View<'a>, call: &CollectiveCall<'a>) -> bool {
    // A variable is set by the order of the norm.
    let sums = |op: &Expr| matches!(op, Expr::Local(_)) || op.last_name() == Some("SUM");
    let other = view.operator(call).is_some_and(|op| !sums(&view.expr(op)));
    other || view.collectives().iter().filter(|(_, c)| c.input == call.input).count() > 1
}

/// Whether a sum, or what it is made of, is divided or multiplied: by a number of ranks, perhaps.
fn is_scaled(view: &View<'_>, total: LocalId, at: usize) -> bool {
    let made = near::reached(view, &Operand::Local(total), |def| def <= at);
    let own = |operand: &Operand| {
        near::local(operand).is_some_and(|l| made.contains(&l) || near::comes_from(view, operand, total, 0))
    };
    (0..view.steps.len()).any(|step| match view.value(step) {
        Some(
            Rvalue::Binary { op: BinOp::Div, left, .. } | Rvalue::InPlace { op: BinOp::Div | BinOp::Mul, left, .. },
        ) => own(left),
        Some(Rvalue::Binary { op: BinOp::Mul, left, right }) => {
            [left, right].iter().any(|o| near::local(o).is_some_and(|l| made.contains(&l)))
        }
        Some(Rvalue::CallMethod { base, name, .. }) => {
            matches!(name.as_str(), "div" | "div_" | "true_divide") && own(base)
        }
        _ => false,
    })
}

/// Where the sum of squares that a value is was taken of the local parts of gradients: here, or in a function of the file.
fn of_parts(view: &View<'_>, total: LocalId, before: usize) -> Option<Place> {
    let made = near::reached(view, &Operand::Local(total), |def| def < before);
    let powers = |code: &str| POWERS.iter().any(|word| code.contains(&format!("{word}(")) || code.contains("** 2"));
    let parts = |code: &str| code.contains("to_local") && code.contains(".grad");
    (0..before)
        .find(|step| {
            let listed = view.steps[*step..before].iter().any(|s| match s.stmt {
                Stmt::Append { collection, value, .. } => {
                    made.contains(collection)
                        && near::reached(view, value, |_| true).iter().any(|l| view.binds(*step).contains(l))
                }
                _ => false,
            });
            if !listed && !view.binds(*step).iter().any(|l| made.contains(l)) {
                return false;
            }
            let named = near::name_of_call(view, *step).is_some_and(|name| POWERS.contains(&name.as_str()));
            if named && parts(view.code()) {
                return true;
            }
            let inner = view
                .value(*step)
                .and_then(|value| called_function(view, value))
                .filter(|at| at.module == view.at.module);
            inner.is_some_and(|at| {
                let inner = near::shared(view, at);
                let code = inner.code();
                parts(code) && powers(code) && inner.collectives().is_empty() && !near::has_any(code, KNOWS)
            })
        })
        .map(|step| view.place(view.steps[step].id))
}

/// The dims of the one mesh of two dims that everything in the file is sharded over, where it has both: that of replicas, and that of shards.
fn sharded(view: &View<'_>) -> Option<(Name, Name)> {
    let mut found: Option<(Name, Name)> = None;
    // One replica is as good as none.
    let one = |line: &str| line.contains("mesh(") && near::has_any(line, &["(1,", "[1,"]);
    let refused = near::refusals(view.file()).any(|line| near::has_any(line, &["== 1", "> 1", "!= 1"]));
    if refused || view.file().lines().any(one) {
        return None;
    }
    for (inner, step) in calls_of(view, "fully_shard") {
        let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = inner.value(step) else { return None };
        let mesh = inner.argument(args, usize::MAX, "mesh")?;
        let over = ranks(&inner, &inner.expr(mesh))?;
        if over.iter().any(|r| r.flat) {
            return None;
        }
        let both = over.iter().find_map(|r| match r.dims.as_slice() {
            [first, last] => Some((first.clone(), last.clone())),
            _ => None,
        })?;
        let alone = over.iter().all(|r| r.dims.len() == 2 || r.dims == [both.1.clone()]);
        if !alone || found.as_ref().is_some_and(|known| *known != both) {
            return None;
        }
        found = Some(both);
    }
    found.filter(|(a, b)| ![a, b].iter().any(|dim| MODEL.iter().any(|part| near::has_part(dim, part))))
}
