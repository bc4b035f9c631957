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
use crate::ir::{ArgKind, BinOp, Const, FuncKind, LocalId, Operand, Rvalue, Stmt};
use crate::source::Name;

/// How numbers of nodes are called.
pub const NODES: &[&str] = &["num_nodes", "n_nodes", "nnodes", "nodes", "number_of_nodes"];

/// Words of names of what one node has.
pub const DEVICES: &[&str] = &["device", "gpu", "per_node", "local_size", "local_world"];

/// `rounds(devices)` in a function with `num_nodes`, which nothing reads, where `rounds(devices, num_nodes=1)` divides by both
pub fn called(view: &View<'_>, out: &mut Found) {
    if view.func.kind != FuncKind::Function
        || near::has_any(view.code(), &["locals()", "world_size /", "WORLD_SIZE", "del "])
    {
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
            if given.is_some() || !one || !counts(&inner, func.params[position].local) {
                continue;
            }
            // What is computed may be meant for one node, and the devices those of all of them.
            let names: Vec<Name> = view.binds(i).iter().map(|l| view.local_name(*l).to_lowercase()).collect();
            let stored = names.iter().any(|name| name.contains("node")) || names.iter().all(|name| !is_name(name));
            let refused =
                || near::refusals(view.code()).any(|line| near::has_any(line, DEVICES) || line.contains("world"));
            if stored || refused() || given_product(view) || view.code().to_lowercase().contains("hybrid") {
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

/// Whether a function multiplies or divides by a number that it is given, or hands it on to one that may.
fn counts(inner: &View<'_>, number: LocalId) -> bool {
    let is = |o: &Operand| inner.expr(o).any(&mut |e| *e == Expr::Local(number));
    inner.steps.iter().any(|step| match step.stmt {
        Stmt::Assign {
            value: Rvalue::Binary { op: BinOp::Mul | BinOp::Div | BinOp::FloorDiv, left, right }, ..
        } => is(left) || is(right),
        Stmt::Assign { value: Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }, .. } => {
            args.iter().any(|arg| matches!(arg.value, Operand::Local(l) if l == number))
        }
        _ => false,
    })
}

/// Whether a variable has a name of its own.
fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Whether anything gives the function at hand a product, as what makes the number of all devices of that of a node, or one node.
fn given_product(view: &View<'_>) -> bool {
    let called = format!("{}(", view.func.name);
    let product = |line: &str| {
        line.split_once(called.as_str())
            .is_some_and(|(_, args)| [" * ", " // ", " / ", "world", "=1"].iter().any(|op| args.contains(op)))
    };
    view.files.saying(&called).any(|file| view.files[file].whole().lines().any(product))
}

/// Whether a number is that of the devices of one node, by its name.
fn counts_devices(view: &View<'_>, number: &Operand) -> bool {
    let named = |e: &Expr| view.name_of(e).is_some_and(|name| near::has_any(&name.to_lowercase(), DEVICES));
    let all =
        |e: &Expr| view.name_or_callee(e).is_some_and(|name| near::has_any(&name.to_lowercase(), &["world", "total"]));
    let written = view.expr(number);
    named(&written) && !all(&written) && !near::deep(view, &written).any(&mut |e| all(e))
}
