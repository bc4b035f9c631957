//! Parts for the ranks of one axis, of which the rank of another axis takes one. In: a function. Out: an index, or the start of a slice,
//! by the rank in one group, where the size of another group says how many parts there are. Never: axes that share ranks by their
//! names, those of experts, which lie across the others, or a file that compares sizes. Next: `world_rank.rs`, for the rank of all ranks.

use super::Found;
use super::all_ranks::may_be_all;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::named_axes::{of_rank, of_size};
use super::near;
use super::view::View;
use crate::infer::scale::groups::WORLD;
use crate::ir::{Arg, BinOp, BuildKind, Item, Operand, Rvalue};
use crate::source::{Name, Place};

/// Methods and functions that cut a value into as many parts as they are told.
const COUNTED: &[&str] = &["chunk", "tensor_split"];

/// How many parts, or the length of each: where that is said, and the axes of as many ranks.
type Parts = (Place, Vec<Name>);

/// `x.chunk(tp_size, dim=-1)[dp_rank]`
pub fn picked(view: &View<'_>, out: &mut Found) {
    for i in 0..view.steps.len() {
        let found = match view.value(i) {
            Some(Rvalue::Item { base, index }) => indexed(view, base, index).or_else(|| sliced(view, index)),
            Some(Rvalue::CallMethod { name, args, .. }) if name == "narrow" => started(view, args, 1),
            Some(value @ Rvalue::Call { args, .. }) if view.callee(value).is_some_and(|p| p == "torch.narrow") => {
                started(view, args, 2)
            }
            _ => None,
        };
        let Some(((parts, size), rank)) = found else { continue };
        if apart(&size, &rank) && !may_be_all(view) {
            let mistake = Scales::OtherPart { size, rank, parts };
            out.push((view.place(view.steps[i].id), Practice::Scales(mistake)));
        }
    }
}

/// Whether two lists of axes have surely no rank but the own one in common.
pub(super) fn apart(one: &[Name], other: &[Name]) -> bool {
    let plain = |axes: &[Name]| !axes.is_empty() && axes.iter().all(|a| !a.starts_with('e') && a != WORLD);
    // A sequence may be cut over the ranks of tensor or context parallelism, under either name.
    let sequence =
        |a: &[Name], b: &[Name]| a.iter().any(|a| a == "sp") && b.iter().any(|b| matches!(b.as_str(), "tp" | "cp"));
    let shared = one.iter().any(|a| other.contains(a)) || sequence(one, other) || sequence(other, one);
    plain(one) && plain(other) && !shared
}

fn indexed<'a>(view: &View<'a>, base: &'a Operand, index: &Operand) -> Option<(Parts, Vec<Name>)> {
    let (step, made) = view.source(base)?;
    let (name, args) = match made {
        Rvalue::Call { callee, args } => {
            (view.through(callee).path()?.strip_prefix("torch.")?.to_owned(), args.get(1..)?)
        }
        Rvalue::CallMethod { name, args, .. } => (name.to_string(), &args[..]),
        _ => return None,
    };
    let count = view.expr(&args.first()?.value);
    let size = match name.as_str() {
        cut if COUNTED.contains(&cut) => of_size(view, &count)?,
        "split" => share(view, &count)?,
        _ => return None,
    };
    Some(((view.place(view.steps[step].id), size), of_rank(view, &near::deep(view, &view.expr(index)))?))
}

/// `x[..., rank * n : (rank + 1) * n]`
fn sliced<'a>(view: &View<'a>, index: &'a Operand) -> Option<(Parts, Vec<Name>)> {
    let (_, made) = view.source(index)?;
    let start = |slice: &Rvalue| match slice {
        Rvalue::Build { kind: BuildKind::Slice, items } => match &items[..] {
            [Item::One(start), Item::One(stop), ..] if !view.expr(stop).is_none() => start_of(view, start),
            _ => None,
        },
        _ => None,
    };
    match made {
        Rvalue::Build { kind: BuildKind::Tuple, items } => items.iter().find_map(|i| match i {
            Item::One(o) => start(view.source(o)?.1),
            Item::Star(_) => None,
        }),
        slice => start(slice),
    }
}

/// `x.narrow(dim, rank * n, n)`
fn started<'a>(view: &View<'a>, args: &'a [Arg], position: usize) -> Option<(Parts, Vec<Name>)> {
    start_of(view, view.argument(args, position, "start")?)
}

fn start_of(view: &View<'_>, start: &Operand) -> Option<(Parts, Vec<Name>)> {
    let Expr::Binary(BinOp::Mul, a, b) = near::deep(view, &view.expr(start)) else { return None };
    let of = |rank: &Expr, n: &Expr| {
        let rank = of_rank(view, &near::deep(view, rank))?;
        let place = match n {
            Expr::Local(local) => view.place(view.steps[*view.defs(*local).first()?].id),
            _ => return None,
        };
        Some(((place, share(view, n)?), rank))
    };
    of(&a, &b).or_else(|| of(&b, &a))
}

/// The axes whose size divides a length: each of their ranks has such a part.
fn share(view: &View<'_>, length: &Expr) -> Option<Vec<Name>> {
    match near::deep(view, length) {
        Expr::Binary(BinOp::FloorDiv, _, by) => of_size(view, &by),
        _ => None,
    }
}
