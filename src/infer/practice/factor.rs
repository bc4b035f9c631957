//! Factors of losses and gradients. In: a function. Out: experts sharded over fewer ranks than the rest, with their own divisor; a sum
//! over tokens divided by their number where a wrapper has taken the mean already; an auxiliary loss without the factor of the main one;
//! a factor that undoes a mean where a flag turns the mean off. Never: a function that mentions what would put it right. Source:
//! DESIGN.md section 7; torch.distributed.fsdp: gradients are divided by the size of the mesh. Next: `near.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::near;
use super::view::View;
use crate::ir::{Arg, ArgKind, BinOp, BuildKind, Const, Item, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};

/// How gradients are scaled by hand.
const SCALED: &[&str] =
    &[".grad.div_(", ".grad.mul_(", ".grad /=", ".grad *=", "_foreach_mul_(", "_foreach_div_(", ".grad.data.div_("];

/// `fully_shard(block.moe.experts, mesh=edp)` inside `fully_shard(block, mesh=dp)`.
pub fn inner_mesh(view: &View<'_>, out: &mut Found) {
    let code = view.code();
    let frozen = ["requires_grad_(false)", ".eval()"].iter().any(|w| code.contains(w));
    // A step without a backward pass takes gradients that somebody wrote by hand.
    let by_hand = code.contains(".grad =") && !code.contains("backward(");
    if by_hand || !code.contains("fully_shard") || sets_divisor(code) || code.contains("register_") || frozen {
        return;
    }
    // Another function of the file may make up for it.
    if near::has_any(view.file(), SCALED) {
        return;
    }
    let mut wrapped: Vec<(usize, String, String)> = Vec::new();
    for i in 0..view.steps.len() {
        let Some(Rvalue::Call { callee, args }) = view.value(i) else { continue };
        if view.through(callee).last_name() != Some("fully_shard") {
            continue;
        }
        let Some(module) = args.first().and_then(|a| chain(view, &view.expr(&a.value), 0)) else { continue };
        // The call itself says what is divided by.
        let divides = |a: &Arg| matches!(&a.kind, ArgKind::Keyword(k) if k.contains("divi"));
        let Some(mesh) = mesh_of(view, args).filter(|_| !args.iter().any(divides)) else { continue };
        wrapped.push((i, module, mesh));
    }
    for (i, module, mesh) in &wrapped {
        let outer =
            wrapped.iter().find(|(_, m, _)| module.strip_prefix(m.as_str()).is_some_and(|r| r.starts_with('.')));
        let Some((at, _, whole)) = outer.filter(|(_, _, whole)| whole != mesh && is_of_experts(mesh)) else { continue };
        if is_of_experts(whole)
            || calls_divisor(view)
            || super::called::callers(view).iter().any(|(v, _)| calls_divisor(v))
        {
            continue;
        }
        let mistake = Scales::InnerDivisor {
            module: Name::from(module.as_str()),
            mesh: Name::from(mesh.as_str()),
            whole: Name::from(whole.as_str()),
            outer: view.place(view.steps[*at].id),
        };
        out.push((view.place(view.steps[*i].id), Practice::Scales(mistake)));
    }
}

/// Whether code sets what a wrapper divides by.
fn sets_divisor(code: &str) -> bool {
    code.contains(".set_gradient") || code.contains(".set_reduce")
}

/// Whether a function calls one that does, by itself or in its own code.
fn calls_divisor(view: &View<'_>) -> bool {
    let calls = |step: usize| match view.value(step) {
        Some(Rvalue::Call { callee, .. }) => near::function(view, callee),
        _ => None,
    };
    sets_divisor(view.code())
        || (0..view.steps.len()).filter_map(calls).any(|at| sets_divisor(near::other(view, at).code()))
}

/// `block.moe.experts`
fn chain(view: &View<'_>, expr: &Expr, depth: usize) -> Option<String> {
    match expr {
        Expr::Local(l) => Some(view.local_name(*l).to_string()),
        Expr::Attr(base, name) if depth < 8 => Some(format!("{}.{name}", chain(view, base, depth + 1)?)),
        _ => None,
    }
}

/// The name of the mesh of a call, also where it is in a dict of arguments.
fn mesh_of(view: &View<'_>, args: &[Arg]) -> Option<String> {
    let named = args.iter().find(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == "mesh"));
    if let Some(arg) = named {
        return chain(view, &view.expr(&arg.value), 0).or_else(|| slice(&view.through(&arg.value)));
    }
    let star = args.iter().find(|a| a.kind == ArgKind::DoubleStar)?;
    let Expr::Local(local) = view.expr(&star.value) else { return None };
    // `config["mesh"] = mesh` replaces what the literal says.
    let set = view.steps.iter().rev().find_map(|step| match step.stmt {
        Stmt::SetItem { base, index, value } if near::local(base) == Some(local) => {
            (view.expr(index).string().map(Name::as_str) == Some("mesh")).then_some(value)
        }
        _ => None,
    });
    let value = set.or_else(|| {
        let [def] = view.defs(local) else { return None };
        match view.value(*def)? {
            Rvalue::Build { kind: BuildKind::Dict, items } => items.chunks(2).find_map(|pair| match pair {
                [Item::One(key), Item::One(value)] if view.expr(key).string().map(Name::as_str) == Some("mesh") => {
                    Some(value)
                }
                _ => None,
            }),
            Rvalue::Use(o) => match view.source(o)?.1 {
                Rvalue::Build { kind: BuildKind::Dict, items } => items.chunks(2).find_map(|pair| match pair {
                    [Item::One(key), Item::One(value)] if view.expr(key).string().map(Name::as_str) == Some("mesh") => {
                        Some(value)
                    }
                    _ => None,
                }),
                _ => None,
            },
            _ => None,
        }
    })?;
    chain(view, &view.expr(value), 0).or_else(|| slice(&view.through(value)))
}

fn slice(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Item(_, index) => index.string().map(ToString::to_string),
        _ => None,
    }
}

/// Whether a mesh is one of experts, by name.
fn is_of_experts(mesh: &str) -> bool {
    ["ep", "edp", "efsdp", "expert", "experts", "moe"].iter().any(|p| near::has_part(mesh, p))
}

/// A wrapper that averages gradients, in code.
pub(super) const AVERAGES: &[&str] =
    &["fully_shard(", "distributeddataparallel(", "ddp(", "fullyshardeddataparallel(", "fsdp("];

/// Words for a factor that undoes the average.
const UNDOES: &[&str] = &[
    "dp_degree",
    "dp_size",
    "dp_world",
    "data_parallel_size",
    "divide_factor",
    "reduce_op",
    "num_processes",
    "dp_group_size",
    "comm_hook",
    "get_world_size(",
    ".size()",
    "_hook",
];

/// Gradients of a sum that a wrapper averages, divided by the number of all tokens.
pub fn mean_not_undone(view: &View<'_>, out: &mut Found) {
    let code = view.code();
    let sums = code.contains("reduction=\"sum\"") || code.contains("reduction='sum'");
    if !sums
        || !AVERAGES.iter().any(|w| code.contains(w))
        || UNDOES.iter().any(|w| code.contains(w))
        || scales_by_world(view)
    {
        return;
    }
    let wrapped = (0..view.steps.len()).find_map(|i| match view.value(i)? {
        Rvalue::Call { callee, args } => {
            let name = format!("{}(", view.through(callee).last_name()?.to_lowercase());
            let group = args.iter().find(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == "process_group"));
            let over = group.map(|a| near::deep(view, &view.expr(&a.value)));
            AVERAGES.contains(&name.as_str()).then(|| (view.place(view.steps[i].id), over))
        }
        _ => None,
    });
    let Some((wrapped, over)) = wrapped else { return };
    let mut counts: Vec<(Expr, usize)> = Vec::new();
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value) = view.value(i) else { continue };
        if let Some(call) = view.collective(value)
            && call.rule.op == "all_reduce"
            && let Some(input) = call.input
            // Counted over other ranks than those that the wrapper averages over, this is another mean.
            && over.as_ref().is_none_or(|over| call.group.is_some_and(|g| near::deep(view, &view.expr(g)) == *over))
        {
            let input = view.expr(input);
            let name = match &input {
                Expr::Local(l) => view.local_name(*l).as_str().to_lowercase(),
                other => other.last_name().unwrap_or_default().to_lowercase(),
            };
            if ["token", "count", "num", "denom", "n_", "total"].iter().any(|w| name.contains(w))
                && !name.contains("loss")
            {
                counts.push((input, i));
            }
        }
        let divisor = match value {
            Rvalue::Binary { op: BinOp::Div, right, left } if is_one(view, left) || is_loss(view, left) => right,
            Rvalue::InPlace { op: BinOp::Div, left, right } if is_gradient(view, left) => right,
            Rvalue::CallMethod { base, name, args }
                if name == "div_" && is_gradient(view, base) && !args.is_empty() =>
            {
                &args[0].value
            }
            _ => continue,
        };
        let divisor = view.expr(divisor);
        if counts.iter().any(|(c, at)| *c == divisor && *at < i) && feeds_gradient(view, i) {
            out.push((view.place(step.id), Practice::Scales(Scales::MeanTwice { wrapped })));
            return;
        }
    }
}

/// Whether `world_size` scales something.
fn scales_by_world(view: &View<'_>) -> bool {
    let world = |o: &Operand| match view.expr(o) {
        Expr::Local(l) => view.local_name(l).to_lowercase().contains("world"),
        other => other.last_name().is_some_and(|n| n.to_lowercase().contains("world")),
    };
    view.steps.iter().any(|s| match s.stmt {
        Stmt::Assign { value: Rvalue::Binary { left, right, .. } | Rvalue::InPlace { left, right, .. }, .. } => {
            world(left) || world(right)
        }
        Stmt::Assign { value: Rvalue::CallMethod { args, .. }, .. } => args.iter().any(|a| world(&a.value)),
        _ => false,
    })
}

fn is_one(view: &View<'_>, operand: &Operand) -> bool {
    matches!(view.expr(operand), Expr::Const(number) if number.is_number(1.0))
}

fn is_loss(view: &View<'_>, operand: &Operand) -> bool {
    matches!(view.expr(operand), Expr::Local(l) if view.local_name(l).to_lowercase().contains("loss"))
}

fn is_gradient(view: &View<'_>, operand: &Operand) -> bool {
    view.expr(operand).last_name().is_some_and(|n| n == "grad" || n == "main_grad")
}

/// Whether what a step computes scales gradients, or is a loss that is differentiated.
fn feeds_gradient(view: &View<'_>, step: usize) -> bool {
    let Stmt::Assign { dst, value } = view.steps[step].stmt else { return false };
    if matches!(value, Rvalue::InPlace { .. } | Rvalue::CallMethod { .. }) {
        return true;
    }
    let mut held = vec![*dst];
    for later in step + 1..view.steps.len() {
        let uses = |o: &Operand| near::local(o).is_some_and(|l| held.contains(&l));
        match (view.steps[later].stmt, view.value(later)) {
            (Stmt::Assign { dst, .. }, Some(Rvalue::Use(o))) if uses(o) => held.push(*dst),
            (_, Some(Rvalue::InPlace { op: BinOp::Mul, left, right })) if uses(right) && is_gradient(view, left) => {
                return true;
            }
            (_, Some(Rvalue::CallMethod { base, name, args })) => {
                if name == "backward" && uses(base) {
                    return true;
                }
                if name == "mul_" && is_gradient(view, base) && args.iter().any(|a| uses(&a.value)) {
                    return true;
                }
                if name.contains("scale_grad") && args.iter().any(|a| uses(&a.value)) {
                    return true;
                }
            }
            (_, Some(Rvalue::Call { callee, args }))
                if args.iter().any(|a| uses(&a.value))
                    && view.through(callee).last_name().is_some_and(|n| n.contains("scale_grad")) =>
            {
                return true;
            }
            _ => {}
        }
    }
    false
}

/// Whether an expression contains the size of the context-parallel group, by name.
fn has_cp(view: &View<'_>, expr: &Expr) -> bool {
    let sized = |n: &str| {
        let context = near::has_part(n, "cp") || n.to_lowercase().contains("context_parallel");
        context && ["size", "degree", "world"].iter().any(|w| n.to_lowercase().contains(w))
    };
    let direct = |e: &Expr| view.name_of(e).is_some_and(sized);
    expr.any(&mut |e| {
        direct(e)
            || matches!(e, Expr::Local(_)) && {
                let behind = near::deep(view, e);
                !matches!(behind, Expr::Local(_)) && behind.any(&mut |inner| direct(inner))
            }
    })
}

/// The conditions around a step, as the source text and whether each holds.
fn conditions<'a>(view: &View<'a>, step: usize) -> Vec<(&'a str, bool)> {
    view.steps[step]
        .guards
        .iter()
        .map(|g| {
            let text = view.text(view.part(g.at, 0)).trim();
            match text.strip_prefix("not ") {
                Some(rest) => (rest.trim(), !g.holds),
                None => (text, g.holds),
            }
        })
        .collect()
}

/// An auxiliary loss scaled without the factor that the main loss has under the same condition.
pub fn auxiliary(view: &View<'_>, out: &mut Found) {
    let mut main: Option<(usize, Vec<(&str, bool)>)> = None;
    for (i, step) in view.steps.iter().enumerate() {
        let product = match view.value(i) {
            Some(Rvalue::InPlace { op: BinOp::Mul, left, right } | Rvalue::Binary { op: BinOp::Mul, left, right }) => {
                Some((left, right))
            }
            _ => None,
        };
        if let Some((left, right)) = product
            && has_cp(view, &view.expr(right))
            && is_tensor_of_loss(view, left)
        {
            main = main.or_else(|| Some((i, conditions(view, i))));
        }
        let Some((at, under)) = &main else { continue };
        let Some((name, args)) = scaler(view, i) else { continue };
        let here = conditions(view, i);
        if under.is_empty() || !under.iter().all(|c| here.contains(c)) {
            continue;
        }
        let Some(scale) = args.first().map(|a| view.through(&a.value)) else { continue };
        let divides = matches!(scale, Expr::Binary(BinOp::Div | BinOp::Mul, ..));
        if divides && !has_cp(view, &scale) {
            let mistake = Scales::Auxiliary { scaler: name, main: view.place(view.steps[*at].id) };
            out.push((view.place(step.id), Practice::Scales(mistake)));
        }
    }
}

/// Words in names of losses, and of what a model gives for one.
pub const RESULTS: &[&str] = &["loss", "output"];

/// Whether a value is a loss or the output that the loss function gave.
fn is_tensor_of_loss(view: &View<'_>, operand: &Operand) -> bool {
    let mut found = false;
    view.expr(operand).any(&mut |e| {
        if let Expr::Local(l) = e {
            let name = view.local_name(*l).to_lowercase();
            found |= RESULTS.iter().any(|word| name.contains(word));
        }
        found
    });
    found
}

/// `AuxLossScaler.set_loss_scale(..)`
fn scaler<'a>(view: &View<'a>, step: usize) -> Option<(Name, &'a [Arg])> {
    let value = view.value(step)?;
    let path = view.callee(value)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let lower = path.to_lowercase();
    let sets =
        lower.ends_with("set_loss_scale") || lower.ends_with("set_scale") || lower.ends_with("set_aux_loss_scale");
    let mut parts = path.rsplit('.');
    let (method, owner) = (parts.next()?, parts.next().unwrap_or(""));
    sets.then(|| (Name::from(format!("{owner}.{method}").trim_start_matches('.')), &args[..]))
}

/// A loss multiplied by the context-parallel size, whatever the flag says that turns the mean off.
pub fn whatever_the_flag(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(Rvalue::Binary { op: BinOp::Mul, left, right }) = view.value(i) else { continue };
        if !step.guards.is_empty() || !is_tensor_of_loss(view, left) || !has_cp(view, &view.expr(right)) {
            continue;
        }
        let code = view.code();
        let module = near::functions(view, view.at.module);
        let Some((flag, mean)) =
            module.iter().filter(|f| **f != view.at).find_map(|f| conditional_mean(&near::other(view, *f)))
        else {
            continue;
        };
        if !code.contains(&flag.as_str().to_lowercase()) {
            out.push((view.place(step.id), Practice::Scales(Scales::WhateverFlag { flag, mean })));
        }
    }
}

/// `factor = 1.0 if config.flag else 1.0 / size`, also as two branches: the flag and the place.
fn conditional_mean(view: &View<'_>) -> Option<(Name, Place)> {
    let one = |e: &Expr| match e {
        Expr::Const(Const::Int(n)) => *n == 1,
        Expr::Const(Const::Float(bits)) => *bits == 1.0f64.to_bits(),
        _ => false,
    };
    let size = |e: &Expr| e.clone().any(&mut |x| x.last_name().is_some_and(|n| n.contains("size")));
    let inverse = |e: &Expr| matches!(e, Expr::Binary(BinOp::Div, n, d) if one(n) && size(d));
    for local in view.func.locals().ids() {
        let [first, second] = view.defs(local) else { continue };
        let (Some(x), Some(y)) = (view.steps[*first].guards.last(), view.steps[*second].guards.last()) else {
            continue;
        };
        if x.at != y.at || x.holds == y.holds {
            continue;
        }
        let flag = match view.expr(x.test) {
            Expr::Attr(_, name) => name,
            Expr::Unary(crate::ir::UnOp::Not, inner) => match *inner {
                Expr::Attr(_, name) => name,
                _ => continue,
            },
            _ => continue,
        };
        let (a, b) = (bound(view, *first), bound(view, *second));
        if one(&a) && inverse(&b) || one(&b) && inverse(&a) {
            return Some((flag, view.place(view.steps[*second].id)));
        }
    }
    None
}

/// What a step binds.
fn bound(view: &View<'_>, step: usize) -> Expr {
    match view.value(step) {
        Some(Rvalue::Use(o)) => view.expr(o),
        Some(Rvalue::Binary { op, left, right }) => {
            Expr::Binary(*op, Box::new(view.expr(left)), Box::new(view.expr(right)))
        }
        _ => Expr::Unknown,
    }
}
