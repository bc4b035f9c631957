//! Regions of local tensors whose output is said to be whole, though each rank has one term of a sum. In: a function. Out: `local_map` with
//! a function that returns a product over a dim of which each rank has a part, and an output that is not `Partial`. Never: a function that
//! communicates, or a product of which the dims are not sure. Source: torch.distributed.tensor `local_map`: `out_placements` is taken as
//! given. Next: `local_map.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Placements, Practice};
use super::near;
use super::view::View;
use crate::ir::{ArgKind, BinOp, Const, Rvalue, Stmt, UnOp};
use crate::source::Name;

/// Words of a function that may sum what it returns.
const SUMS: &[&str] = &["reduce", "gather", "scatter", "all_to_all", "wait_tensor"];

/// A product that is returned: which parameters it is of, by number, and whether the second one is laid out as `[out, in]`.
struct Product {
    left: usize,
    right: usize,
    turned: bool,
}

pub fn outputs(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value @ Rvalue::Call { args, .. }) = view.value(i) else { continue };
        let maps = view.callee(value).is_some_and(|p| p.starts_with("torch.distributed.") && p.ends_with(".local_map"));
        if !maps || args.iter().any(|a| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar)) {
            continue;
        }
        let Some(function) = args.first().filter(|a| a.kind == ArgKind::Positional) else { continue };
        let Some(at) = near::function(view, &function.value) else { continue };
        let inner = near::other(view, at);
        let Some(product) = product(&inner) else { continue };
        let listed =
            |name: &str, position: usize| match near::deep(view, &view.expr(view.argument(args, position, name)?)) {
                Expr::Build(items) => Some(items.iter().map(|e| near::deep(view, e)).collect::<Vec<Expr>>()),
                _ => None,
            };
        let (Some(outputs), Some(inputs)) = (listed("out_placements", 1), listed("in_placements", 2)) else { continue };
        let dims = |n: usize| match inputs.get(n) {
            Some(Expr::Build(items)) => Some(items.iter().map(|e| near::deep(view, e)).collect::<Vec<Expr>>()),
            _ => None,
        };
        let (Some(left), Some(right)) = (dims(product.left), dims(product.right)) else { continue };
        let contracted = left.iter().zip(&right).position(|(l, r)| {
            let along: &[i64] = if product.turned { &[1, -1] } else { &[0, -2] };
            shard(l).is_some_and(|d| d != 0 && d != -2) && shard(r).is_some_and(|d| along.contains(&d))
        });
        let Some(dim) = contracted.filter(|_| left.len() == right.len() && left.len() == outputs.len()) else {
            continue;
        };
        let whole = outputs[dim].call_of("Replicate").is_some() || outputs[dim].call_of("Shard").is_some();
        if whole {
            let place = args.iter().position(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == "out_placements"));
            let place = view.part(step.id, place.unwrap_or(1) + 1);
            let returned = inner.steps.iter().find(|s| matches!(s.stmt, Stmt::Return { .. }));
            let returned = returned.map_or(place, |s| inner.place(s.id));
            let function = inner.func.name.clone();
            out.push((
                place,
                Practice::Placements(Placements::RegionOut { function: Name::from(&*function), returned }),
            ));
        }
    }
}

/// The dim of `Shard(dim)`.
fn shard(placement: &Expr) -> Option<i64> {
    let [(_, dim)] = placement.call_of("Shard")? else { return None };
    match dim {
        Expr::Const(Const::Int(n)) => Some(*n),
        Expr::Unary(UnOp::Neg, n) => match **n {
            Expr::Const(Const::Int(n)) => Some(-n),
            _ => None,
        },
        _ => None,
    }
}

/// The product of two of its parameters that a function returns and nothing else.
fn product(inner: &View<'_>) -> Option<Product> {
    let code = inner.code();
    if SUMS.iter().any(|w| code.contains(w)) {
        return None;
    }
    let mut returned = inner.steps.iter().filter_map(|s| match s.stmt {
        Stmt::Return { value } => Some(inner.through(value)),
        _ => None,
    });
    let (Some(value), None) = (returned.next(), returned.next()) else { return None };
    let number = |e: &Expr| match e {
        Expr::Local(local) if inner.defs(*local).is_empty() => inner.func.params.iter().position(|p| p.local == *local),
        _ => None,
    };
    match &value {
        Expr::Binary(BinOp::MatMul, a, b) => Some(Product { left: number(a)?, right: number(b)?, turned: false }),
        Expr::Call { callee, args, .. } => {
            let [(ArgKind::Positional, a), (ArgKind::Positional, b), ..] = args.as_slice() else { return None };
            let turned = match callee.path()?.as_str() {
                "torch.matmul" | "torch.mm" => false,
                "torch.nn.functional.linear" => true,
                _ => return None,
            };
            Some(Product { left: number(a)?, right: number(b)?, turned })
        }
        _ => None,
    }
}
