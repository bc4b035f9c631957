//! Factors that are applied in two places. In: a function. Out: a loss multiplied by the number of ranks where FSDP is told to sum and not to
//! average; gradients that a hook divides by the number of some ranks and the reduction by that of all. Never: factors that a flag
//! decides. Source: torch.distributed.fsdp, `set_gradient_divide_factor`. Next: `factor.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::view::View;
use crate::ir::{BinOp, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};

/// Methods by which a wrapper is told what to divide by.
const FACTORS: &[&str] = &["set_gradient_divide_factor", "set_reduce_scatter_divide_factor"];
/// What numbers of tokens are called.
const COUNTED: &[&str] = &["token", "item", "count", "num", "denom", "valid"];

/// `set_gradient_divide_factor(1.0)`, and `loss * world_size / num_tokens`
pub fn losses(view: &View<'_>, out: &mut Found) {
    for step in &view.steps {
        let Stmt::Assign { dst, value: Rvalue::Binary { op: BinOp::Div | BinOp::Mul, .. } } = step.stmt else {
            continue;
        };
        let Some(at) = view.steps.iter().position(|s| s.id == step.id) else { continue };
        let (a, b, n) = match view.bound(at, *dst) {
            Expr::Binary(BinOp::Div, left, n) => match *left {
                Expr::Binary(BinOp::Mul, a, b) => (*a, *b, *n),
                _ => continue,
            },
            Expr::Binary(BinOp::Mul, left, b) => match *left {
                Expr::Binary(BinOp::Div, a, n) => (*a, *b, *n),
                _ => continue,
            },
            _ => continue,
        };
        let scaled = is_loss(view, &a) && is_world(view, &b) || is_loss(view, &b) && is_world(view, &a);
        let counted = name(view, &n).is_some_and(|n| COUNTED.iter().any(|w| n.contains(w)));
        if let Some(summed) = sums(view).filter(|_| scaled && counted) {
            let mistake = Membership::SummedAndScaled { summed };
            out.push((view.place(step.id), Practice::Membership(mistake)));
            return;
        }
    }
}

fn name(view: &View<'_>, expr: &Expr) -> Option<String> {
    match expr {
        Expr::Local(local) => Some(view.local_name(*local).as_str().to_lowercase()),
        other => other.last_name().map(str::to_lowercase),
    }
}

fn is_loss(view: &View<'_>, expr: &Expr) -> bool {
    name(view, expr).is_some_and(|n| n.contains("loss"))
}

fn is_world(view: &View<'_>, expr: &Expr) -> bool {
    near::deep(view, expr).call_of("get_world_size").is_some()
        || name(view, expr).is_some_and(|n| n.contains("world_size") || n == "dp_size")
}

/// Where some function of the file tells a wrapper to divide by one, whatever the flags.
fn sums(view: &View<'_>) -> Option<Place> {
    // A function that wraps a model of its own, or takes a loss of its own backward, speaks of another model.
    let wraps = (0..view.steps.len()).any(|at| {
        let path = view.value(at).and_then(|value| view.callee(value));
        path.is_some_and(|path| path.ends_with("fully_shard"))
    });
    let trains = |other: &View<'_>| {
        other.steps.iter().any(|s| match s.stmt {
            Stmt::Assign { value: Rvalue::CallMethod { name, .. }, .. } => name == "backward",
            _ => false,
        })
    };
    near::functions(view, view.at.module).into_iter().find_map(|at| {
        let other = near::other(view, at);
        if at != view.at && (wraps || trains(&other)) {
            return None;
        }
        let step = other.steps.iter().find(|step| match step.stmt {
            Stmt::Assign { value: Rvalue::CallMethod { name, args, .. }, .. } => {
                FACTORS.contains(&name.as_str())
                    && args.first().is_some_and(|a| is_one(&a.value))
                    && step.guards.iter().all(|g| other.through(g.test).call_of("isinstance").is_some())
            }
            _ => false,
        })?;
        Some(other.place(step.id))
    })
}

fn is_one(operand: &Operand) -> bool {
    matches!(operand, Operand::Const(number) if number.is_number(1.0))
}

/// `p.register_hook(lambda g: g / ep_group.size())` of marked parameters, whose gradients are divided by the number of all ranks.
pub fn hooked(view: &View<'_>, out: &mut Found) {
    let Some((mark, divided)) = (0..view.steps.len()).find_map(|i| divided(view, i)) else { return };
    let marks = format!(".{} = true", mark.to_lowercase());
    for at in near::functions(view, view.at.module) {
        let other = near::other(view, at);
        if at == view.at || !other.code().contains(&marks) {
            continue;
        }
        for (i, step) in other.steps.iter().enumerate() {
            let Some(Rvalue::CallMethod { name, args, .. }) = other.value(i) else { continue };
            let hook = args.first().and_then(|a| near::function(&other, &a.value));
            let Some(hook) = hook.filter(|_| name == "register_hook" && step.guards.is_empty()) else { continue };
            if divides(&near::other(view, hook)) {
                let mistake = Membership::HookDivides { divided };
                out.push((other.place(step.id), Practice::Membership(mistake)));
                return;
            }
        }
    }
}

/// The mark of the parameters whose gradients a step divides by the number of all ranks.
fn divided(view: &View<'_>, step: usize) -> Option<(Name, Place)> {
    let (of, by) = match view.value(step)? {
        Rvalue::CallMethod { base, name, args } if name == "div_" => (base, &args.first()?.value),
        Rvalue::InPlace { op: BinOp::Div, left, right } => (left, right),
        _ => return None,
    };
    let whole = near::deep(view, &view.expr(by)).call_of("get_world_size").is_some_and(<[_]>::is_empty);
    if !whole || view.expr(of).last_name() != Some("grad") {
        return None;
    }
    let mark = view.steps[step].guards.iter().filter(|g| g.holds).find_map(|g| {
        let test = view.through(g.test);
        test.call_of("getattr")?.get(1)?.1.string().cloned()
    })?;
    Some((mark, view.place(view.steps[step].id)))
}

/// Whether a hook divides its gradient by a number of ranks.
fn divides(hook: &View<'_>) -> bool {
    let counts = |e: &Expr| match e {
        Expr::Call { callee, .. } => callee.last_name().is_some_and(|n| matches!(n, "size" | "get_world_size")),
        Expr::Local(local) => hook.local_name(*local).ends_with("_size"),
        other => other.last_name().is_some_and(|n| n.ends_with("_size")),
    };
    hook.steps.iter().any(|s| match s.stmt {
        Stmt::Return { value } => match hook.expr(value) {
            Expr::Binary(BinOp::Div, _, by) => counts(&by),
            _ => false,
        },
        _ => false,
    })
}
