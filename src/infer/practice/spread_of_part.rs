//! Random starts whose spread follows from the length of a part. In: a method of a class. Out: a draw into a weight of which a dim is divided by the number of tensor-parallel ranks,
//! with a spread that is computed from that dim of the weight, so that it changes with the number of ranks. Never: a spread into which the number of ranks goes, or
//! one of a dim that is whole. Source: NVIDIA-NeMo/Megatron-Bridge issue 5840; torch.nn.init, whose fans are those of the whole layer. Next: `divided.rs`.

use super::Found;
use super::divided;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::rank_tests::{is_number_of_ranks, whole};
use super::unshared::Unshared;
use super::view::View;
use super::wrapped;
use crate::ir::{ArgKind, Const, Operand, Rvalue};
use crate::source::{Name, Place};

/// What draws, and where it is given the spread: behind the weight.
const DRAWS: &[(&str, &str, usize)] = &[("normal_", "std", 1), ("trunc_normal_", "std", 1), ("uniform_", "b", 1)];
/// What makes a tensor of its sizes.
const MAKES: &[&str] = &["empty", "zeros", "ones", "rand", "randn"];
/// What gives the fans of a weight, that of its inputs first.
const FANS: &str = "_calculate_fan_in_and_fan_out";
/// Words of what knows the number of ranks.
const RANKS: &[&str] = &["world", "tp_", "_tp", "ranks", "partitions", "parallel"];
/// How far a spread is followed.
const MOST: usize = 8;

/// A weight of which one dim is split, and where it is made.
struct Split {
    weight: Name,
    dim: i64,
    dims: i64,
    made: Place,
}

/// `nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5)`, of `torch.empty(n, k // tp_size)`
pub fn drawn(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some((weight, spread)) = draw(view, i) else { continue };
        let Some(split) = split(view, &weight) else { continue };
        let Some(seen) = follows(view, &spread, &split, 0).filter(|_| !knows_ranks(view, &spread, 0)) else { continue };
        // What computes the spread stands where it is asked for.
        let length = seen.map(|at| view.place(view.steps[at].id));
        let mistake = Unshared::SpreadOfPart { weight: split.weight, made: split.made, drawn: view.place(step.id) };
        out.push((length.unwrap_or(view.place(step.id)), Practice::Unshared(mistake)));
        return;
    }
}

/// The attribute into which a step draws, and the spread.
fn draw(view: &View<'_>, step: usize) -> Option<(Name, Expr)> {
    let (weight, args, name, first) = match view.value(step)? {
        Rvalue::CallMethod { base, name, args } if view.through(base).path().is_none() => {
            (view.through(base), args, name.clone(), 0)
        }
        value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => {
            let path = view.callee(value).filter(|path| path.starts_with("torch.nn.init."))?;
            (view.through(&args.first()?.value), args, super::lost::last(&path), 1)
        }
        _ => return None,
    };
    let (_, keyword, at) = DRAWS.iter().find(|(draws, ..)| *draws == name)?;
    let spread = view.argument(args, first + at, keyword)?;
    let weight = match &weight {
        Expr::Attr(of, data) if data == "data" => (**of).clone(),
        other => other.clone(),
    };
    Some((near::own_attribute(view, &weight)?.clone(), view.expr(spread)))
}

/// The dim of a weight of the class that is divided by the number of tensor-parallel ranks, if it is one.
fn split(view: &View<'_>, weight: &Name) -> Option<Split> {
    let class = near::class_of(view)?;
    let set = near::assigned(view, class, weight);
    let [(by, at, value)] = set.as_slice() else { return None };
    let made = by.expr(value);
    let tensor = match made.call_of("Parameter") {
        Some(args) => near::deep(by, &args.first()?.1),
        None => made,
    };
    let Expr::Call { callee, args, .. } = &tensor else { return None };
    if !callee.path().is_some_and(|path| path.starts_with("torch.")) || !MAKES.contains(&callee.last_name()?) {
        return None;
    }
    let sizes: Vec<&Expr> = match args.first() {
        Some((ArgKind::Positional, Expr::Build(sizes))) => sizes.iter().collect(),
        _ => args.iter().filter(|(kind, _)| *kind == ArgKind::Positional).map(|(_, size)| size).collect(),
    };
    let is_part = |size: &Expr| divided::size(by, size, 0).is_some_and(|axes| axes.iter().any(|axis| axis == "tp"));
    let parts: Vec<usize> = (0..sizes.len()).filter(|n| is_part(sizes[*n])).collect();
    match (parts.as_slice(), sizes.len()) {
        ([dim], 2) => {
            Some(Split { weight: weight.clone(), dim: *dim as i64, dims: 2, made: by.place(by.steps[*at].id) })
        }
        _ => None,
    }
}

/// Whether a spread follows from the length of the split dim; the call that computes it, if it is another step.
fn follows(view: &View<'_>, spread: &Expr, split: &Split, depth: usize) -> Option<Option<usize>> {
    if depth > MOST {
        return None;
    }
    let is_weight = |e: &Expr| match e {
        Expr::Attr(of, data) if data == "data" => near::own_attribute(view, of) == Some(&split.weight),
        other => near::own_attribute(view, other) == Some(&split.weight),
    };
    let at = |e: &Expr| whole(e).is_some_and(|n| n.rem_euclid(split.dims) == split.dim);
    let length = |e: &Expr| match e {
        Expr::Item(shape, n) => match &**shape {
            Expr::Attr(of, name) => name == "shape" && is_weight(of) && at(n),
            // The inputs of a layer are its last dim.
            Expr::Call { args, .. } if shape.call_of(FANS).is_some() => {
                args.first().is_some_and(|(_, of)| is_weight(of))
                    && whole(n).is_some_and(|n| split.dims - 1 - n == split.dim)
            }
            _ => false,
        },
        Expr::Call { callee, args, .. } => match (&**callee, args.as_slice()) {
            (Expr::Attr(of, name), [(_, n)]) => name == "size" && is_weight(of) && at(n),
            _ => false,
        },
        _ => false,
    };
    let mut seen = None;
    let found = spread.any(&mut |e| match e {
        Expr::Local(local) => match view.defs(*local) {
            [one] if !view.is_param(*local) => {
                let inner = follows(view, &view.bound(*one, *local), split, depth + 1);
                seen = seen.or(inner.map(|deeper| deeper.unwrap_or(*one)));
                inner.is_some()
            }
            _ => false,
        },
        other => length(other),
    });
    found.then_some(seen)
}

/// Whether the number of ranks goes into a spread, or may inside of a function that computes it.
fn knows_ranks(view: &View<'_>, spread: &Expr, depth: usize) -> bool {
    depth > MOST
        || spread.any(&mut |e| match e {
            Expr::Local(local) if near::is_self(view, &Operand::Local(*local)) => false,
            Expr::Local(local) => {
                let named = near::has_any(&view.local_name(*local).to_lowercase(), RANKS);
                let defs = view.defs(*local);
                named
                    || is_number_of_ranks(view, e)
                    || view.is_param(*local)
                    || defs.iter().any(|def| knows_ranks(view, &view.bound(*def, *local), depth + 1))
            }
            Expr::Attr(_, name) => near::has_any(&name.to_lowercase(), RANKS),
            Expr::Call { callee, .. } => match wrapped::function(view, callee) {
                Some(at) => {
                    let code = near::shared(view, at).code().to_owned();
                    near::has_any(&code, RANKS) || near::has_any(&code, &["size("])
                }
                None => callee.last_name().is_some_and(|name| near::has_any(&name.to_lowercase(), RANKS)),
            },
            Expr::Const(Const::Str(_)) | Expr::Unknown => true,
            _ => false,
        })
}
