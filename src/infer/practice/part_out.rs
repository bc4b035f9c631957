//! Activations that leave a distributed tensor as whole ones and come back as parts of a sum. In: a function. Out: `to_local()` of a
//! replicated value, or `full_tensor()`, without gradient placements, whose result is made `Partial`. Never: weights
//! (`local_gradient.rs`), and values that have no gradient. Source: torch.distributed.tensor, `DTensor.to_local`: the gradient is taken
//! for placed as the tensor is; where every rank's output is one part of a sum, so is every rank's gradient. Next: `near.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Placements, Practice};
use super::local_gradient::is_apart;
use super::local_map::{Placed, by_dim};
use super::near;
use super::view::View;
use crate::ir::{Arg, ArgKind, LocalId, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};
use rustc_hash::FxHashMap;

/// Parts of names of values that have no gradient.
const WITHOUT_GRADIENT: &[&str] = &[
    "ids",
    "id",
    "mask",
    "masks",
    "index",
    "indices",
    "idx",
    "labels",
    "label",
    "target",
    "targets",
    "positions",
    "counts",
    "num",
    "lengths",
    "g",
    "grad",
    "grads",
    "gradient",
    "preds",
    "pixel",
    "pixels",
    "image",
    "images",
    "audio",
    "batch",
    "data",
    "momentum",
];

/// Functions whose first argument has no gradient, and those whose results have none.
const OF_INDICES: &[&str] = &[
    "embedding",
    "one_hot",
    "bincount",
    "histc",
    "argmax",
    "argsort",
    "searchsorted",
    "zeros_like",
    "empty_like",
    "ones_like",
];

/// Words of functions in which an argument may be a part, or its gradient is summed.
const SUMMED: &[&str] = &[
    "redistribute",
    "grad_placements",
    "copy_to",
    "reduce",
    ".apply(",
    "hook",
    "assert",
    "index_add",
    "scatter",
    "mask",
    "unflatten",
    "heads",
    "is_shard",
    "raise",
];

pub fn parts(view: &View<'_>, out: &mut Found) {
    for step in 0..view.steps.len() {
        let Some(Rvalue::CallMethod { base, name, args }) = view.value(step) else { continue };
        let Stmt::Assign { dst, .. } = view.steps[step].stmt else { continue };
        if !args.is_empty() || !matches!(name.as_str(), "full_tensor" | "to_local") || is_apart(view, step) {
            continue;
        }
        if view.expr(base).any(&mut |e| e.call_of("detach").is_some()) || view.code().contains(".item()") {
            continue;
        }
        let whole = match name.as_str() {
            "full_tensor" => Whole::Everywhere,
            "to_local" => match placements_before(view, base, step) {
                Some(placed) => Whole::Where(placed),
                // What two split weights one after the other make parts of a sum is whole.
                None if is_given_whole(view, base, *dst, step) => Whole::Everywhere,
                None => continue,
            },
            _ => continue,
        };
        let Some(value) = value_name(view, base, *dst, step) else { continue };
        if let Some(place) = made_partial(view, step, *dst, &whole) {
            let mistake = Placements::PartOut { method: name.clone(), value, out: place };
            out.push((view.place(view.steps[step].id), Practice::Placements(mistake)));
        }
    }
}

/// On which dims of the mesh a value is whole.
enum Whole {
    Everywhere,
    Where(Vec<Placed>),
}

impl Whole {
    /// Whether some dim on which the value was whole has parts of a sum now.
    fn meets(&self, out: &[Placed]) -> bool {
        match self {
            Whole::Everywhere => out.contains(&Placed::Partial),
            Whole::Where(placed) => {
                placed.len() == out.len()
                    && placed.iter().zip(out).any(|(p, o)| (*p, *o) == (Placed::Replicate, Placed::Partial))
            }
        }
    }
}

/// The name of a value that may have a gradient: what is unwrapped, or what that is called afterwards. A parameter of the module is none.
fn value_name(view: &View<'_>, base: &Operand, dst: LocalId, step: usize) -> Option<Name> {
    let named = |local: LocalId| Some(view.local_name(local).clone()).filter(|_| !view.is_temp(local));
    let after = || match view.readers(dst) {
        [one] if view.is_temp(dst) && *one > step => match view.steps[*one].stmt {
            Stmt::Assign { dst, value: Rvalue::Use(_) } => named(*dst),
            _ => None,
        },
        _ => named(dst),
    };
    let name = match view.expr(base) {
        Expr::Local(local) => named(local).or_else(after)?,
        Expr::Call { .. } => after()?,
        _ => return None,
    };
    let differentiable = !WITHOUT_GRADIENT.iter().any(|w| near::has_part(&name, w));
    differentiable.then_some(name)
}

/// The placements that a value was given last.
fn placements_before(view: &View<'_>, base: &Operand, step: usize) -> Option<Vec<Placed>> {
    let made = match view.expr(base) {
        Expr::Local(local) => view.bound(view.last_def(local, step)?, local),
        other => other,
    };
    let Expr::Call { callee, args, .. } = &made else { return None };
    let position = match callee.last_name()? {
        "redistribute" => 1,
        "from_local" | "distribute_tensor" => 2,
        _ => return None,
    };
    let of = |(i, (kind, value)): (usize, &(ArgKind, Expr))| match kind {
        ArgKind::Keyword(k) => (k == "placements").then(|| value.clone()),
        ArgKind::Positional => (i == position).then(|| value.clone()),
        ArgKind::Star | ArgKind::DoubleStar => None,
    };
    listed(view, &args.iter().enumerate().find_map(of)?)
}

/// The placements that a call is given.
fn given<'a>(view: &View<'a>, args: &'a [Arg], position: usize) -> Option<Vec<Placed>> {
    listed(view, &view.expr(view.argument(args, position, "placements")?))
}

fn listed(view: &View<'_>, placements: &Expr) -> Option<Vec<Placed>> {
    let Expr::Build(items) = near::deep(view, placements) else { return None };
    // Of a mean or a largest value each rank has no term.
    let other = |e: &Expr| e.call_of("Partial").is_some_and(|args| !args.is_empty() && !is_sum(args));
    if items.iter().any(other) {
        return None;
    }
    Some(by_dim(view, &items))
}

fn is_sum(args: &[(ArgKind, Expr)]) -> bool {
    args.iter().all(|(_, e)| e.string().is_none_or(|s| s.as_str() == "sum"))
}

/// Where something that is computed from a value is wrapped as one part of a sum.
fn made_partial(view: &View<'_>, step: usize, dst: LocalId, whole: &Whole) -> Option<Place> {
    wrapped_as(view, step, dst, &|out, _| whole.meets(out))
}

/// Where something that is computed from a value is wrapped with placements as asked for; told is also how many products with local parts of weights
/// lie between.
fn wrapped_as(view: &View<'_>, step: usize, dst: LocalId, wanted: &dyn Fn(&[Placed], usize) -> bool) -> Option<Place> {
    let mut held: FxHashMap<LocalId, usize> = [(dst, 0)].into_iter().collect();
    for later in step + 1..view.steps.len() {
        let count = |o: &Operand| near::local(o).and_then(|l| held.get(&l).copied());
        let is_held = |o: &Operand| count(o).is_some();
        let stmt = view.steps[later].stmt;
        let most = stmt.operands().into_iter().filter_map(count).max().unwrap_or_default();
        let mut more: Vec<(LocalId, usize)> = handed(stmt, &is_held).into_iter().map(|l| (l, most)).collect();
        if let Stmt::Assign { dst, value } = stmt {
            if let Some((wrapped, args)) = wrapping(view, value) {
                let out = given(view, args, 2);
                if out.zip(count(wrapped)).is_some_and(|(out, products)| wanted(&out, products)) {
                    return Some(view.place(view.steps[later].id));
                }
                continue;
            }
            let product = super::unsummed_input::multiplied(view, later)
                .is_some_and(|(left, right, _)| is_held(left) && !is_held(right) && is_local_part(view, right));
            if carries(view, value, &is_held) {
                more.push((*dst, most + usize::from(product)));
            }
        }
        for (local, products) in more {
            let known = held.entry(local).or_default();
            *known = products.max(*known);
        }
    }
    None
}

/// What a statement puts something held into, other than the variable that it binds.
fn handed(stmt: &Stmt, is_held: &dyn Fn(&Operand) -> bool) -> Vec<LocalId> {
    match stmt {
        Stmt::For { dst, iter, .. } if is_held(iter) => vec![*dst],
        Stmt::Unpack { value, before, star, after } if is_held(value) => {
            before.iter().chain(star).chain(after).copied().collect()
        }
        Stmt::Append { collection, value, .. } if is_held(value) => vec![*collection],
        Stmt::Assign { value: Rvalue::CallMethod { base: Operand::Local(list), name, args }, .. }
            if name == "append" && args.iter().any(|a| is_held(&a.value)) =>
        {
            vec![*list]
        }
        _ => Vec::new(),
    }
}

/// Whether an argument is multiplied by the local parts of two weights one after the other, and the result is wrapped as parts of a sum over
/// the only dim of a mesh: of the first weight each rank has columns, of the second one rows, and all have the same argument.
fn is_given_whole(view: &View<'_>, base: &Operand, dst: LocalId, step: usize) -> bool {
    let given = matches!(view.expr(base), Expr::Local(local) if view.is_param(local));
    let code = view.code();
    if !given || view.file().contains("autograd.Function") || near::has_any(code, SUMMED) {
        return false;
    }
    wrapped_as(view, step, dst, &|out, products| products >= 2 && out == [Placed::Partial]).is_some()
}

/// Whether a value is made of the local part of something that the object keeps.
fn is_local_part(view: &View<'_>, value: &Operand) -> bool {
    let reached = near::reached(view, value, |_| true);
    (0..view.steps.len()).any(|step| match view.value(step) {
        Some(Rvalue::CallMethod { base, name, .. }) if name == "to_local" => {
            let kept = view.expr(base);
            near::own_attribute(view, &kept).is_some() && view.binds(step).iter().any(|l| reached.contains(l))
        }
        _ => false,
    })
}

/// `DTensor.from_local(x, ...)`: what is wrapped, and the arguments.
fn wrapping<'a>(view: &View<'a>, value: &'a Rvalue) -> Option<(&'a Operand, &'a [Arg])> {
    let (name, args) = match value {
        Rvalue::CallMethod { name, args, .. } => (Some(name.as_str().to_owned()), args),
        Rvalue::Call { callee, args } => (view.through(callee).last_name().map(str::to_owned), args),
        _ => return None,
    };
    (name.as_deref() == Some("from_local")).then_some(())?;
    Some((&args.first().filter(|a| a.kind == ArgKind::Positional)?.value, args))
}

/// Whether the gradient of a result goes back to what is held.
fn carries(view: &View<'_>, value: &Rvalue, is_held: &dyn Fn(&Operand) -> bool) -> bool {
    match value {
        Rvalue::Compare { .. } => false,
        Rvalue::Attr { base, name } => is_held(base) && matches!(name.as_str(), "T" | "mT"),
        Rvalue::Item { base, .. } => is_held(base),
        Rvalue::Call { callee, args } => {
            let indices = view.through(callee).last_name().is_some_and(|n| OF_INDICES.contains(&n));
            !indices && args.iter().any(|a| is_held(&a.value))
        }
        Rvalue::CallMethod { base, name, args } => {
            let none =
                matches!(name.as_str(), "detach" | "size" | "dim" | "numel" | "new_zeros" | "new_empty" | "item")
                    || OF_INDICES.contains(&name.as_str());
            !none && (is_held(base) || args.iter().any(|a| is_held(&a.value)))
        }
        other => other.operands().into_iter().any(is_held),
    }
}
