//! Numbers of nodes that are kept for a call and not given to it. In: a function. Out: a call that leaves out the number of nodes, which is one then, where the caller has
//! one of that name and nothing reads it: what is computed is right for one node. Never: a name that anything else reads, or a default that is not one. Source:
//! litgpt pull request 1947. Next: `group_argument.rs`, the same of groups.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::only_some::callee;
use super::slips::Slip;
use super::view::View;
use crate::ir::{ArgKind, Const, FuncKind, Operand, Rvalue};

/// How numbers of nodes are called.
pub const NODES: &[&str] = &["num_nodes", "n_nodes", "nnodes", "nodes", "number_of_nodes"];

/// Words of names of what one node has.
const DEVICES: &[&str] = &["device", "gpu", "per_node", "local_size", "local_world"];

/// `rounds(devices)` in a function with `num_nodes`, which nothing reads, where `rounds(devices, num_nodes=1)` divides by both
pub fn called(view: &View<'_>, out: &mut Found) {
    if view.func.kind != FuncKind::Function || view.code().contains("locals()") {
        return;
    }
    let params = view.func.params.iter().filter(|p| NODES.contains(&p.name.as_str()));
    for own in params.filter(|p| view.is_as_given(p.local) && !view.is_read(p.local)) {
        for (i, step) in view.steps.iter().enumerate() {
            let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
                continue;
            };
            // What is given all ranks counts them, and what is not seen may be given anything.
            if !args.iter().any(|a| counts_devices(view, &a.value))
                || args.iter().any(|a| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar))
            {
                continue;
            }
            let Some(at) = callee(view, value) else { continue };
            let func = view.project.func(at);
            let Some(position) = func.params.iter().position(|p| p.name == own.name && p.has_default) else { continue };
            let bound = usize::from(func.class.is_some());
            let given = position.checked_sub(bound).and_then(|at| view.argument(args, at, &own.name));
            let inner = near::shared(view, at);
            let one = near::default_of(&inner, position).is_some_and(|default| default == Const::Int(1));
            if given.is_some() || !one || !inner.is_read(func.params[position].local) {
                continue;
            }
            let (function, parameter) = (func.name.clone(), own.name.clone());
            let mistake = Slip::NodesLeftOut {
                function,
                parameter,
                own: view.spot(own.span),
                takes: inner.spot(func.params[position].span),
            };
            out.push((view.place(step.id), Practice::Slips(mistake)));
            return;
        }
    }
}

/// Whether a number is that of the devices of one node, by its name.
fn counts_devices(view: &View<'_>, number: &Operand) -> bool {
    let named = |e: &Expr| view.name_of(e).is_some_and(|name| near::has_any(&name.to_lowercase(), DEVICES));
    let all =
        |e: &Expr| view.name_or_callee(e).is_some_and(|name| near::has_any(&name.to_lowercase(), &["world", "total"]));
    let written = view.expr(number);
    named(&written) && !all(&written) && !near::deep(view, &written).any(&mut |e| all(e))
}
