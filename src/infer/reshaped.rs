//! Tensors computed from divided ones on the way to a parameter: scaled, normalised, turned, viewed. In: an operation in a constructor.
//! Out: how its result is divided. Never: activations, whose types tell more than their sizes. Next: `whole.rs`.

use super::expr::CallArgs;
use super::machine::Machine;
use super::ops::OpCall;
use crate::rules::shapes::ShapeRule;
use crate::types::{Divided, Shape, TensorType, Tri};
use std::sync::Arc;

impl Machine<'_> {
    /// How the result of an operation on divided values is divided: its size follows theirs.
    pub fn still_divided(&self, call: &OpCall<'_>, args: &CallArgs) -> Option<Arc<Divided>> {
        let alike = call.rule.shape == ShapeRule::Like;
        let tensors = || args.args.iter().filter_map(|a| self.tensor(&a.value));
        let whole = tensors().find(|t| t.divided.is_some())?;
        // A parameter that is computed with is an activation from there on; what has just its size is not.
        if !self.in_constructor() || !alike && tensors().any(|t| t.grad != Tri::No) {
            return None;
        }
        let of = whole.divided.as_ref()?;
        let moved = |dim: Option<i8>| Some(Arc::new(Divided { axes: of.axes.clone(), dim }));
        let given = |name: &str| {
            let at = call.rule.args.index(name).and_then(|param| call.bound.first(param))?;
            args.args[at].value.as_int()
        };
        match call.rule.shape {
            ShapeRule::Like => Some(of.clone()),
            ShapeRule::Same | ShapeRule::Broadcast => elementwise(of, whole, tensors()),
            ShapeRule::T | ShapeRule::Mt => {
                let rank = i64::try_from(whole.rank()?).ok()?;
                let one = call.rule.shape == ShapeRule::T && rank < 2;
                moved(if one { of.dim } else { swapped(of.dim, whole, rank - 2, rank - 1) })
            }
            ShapeRule::Transpose => {
                let dims = given("dim0").zip(given("dim1"));
                moved(dims.and_then(|(a, b)| swapped(of.dim, whole, a, b)))
            }
            ShapeRule::Unsqueeze => {
                let at = given("dim").filter(|at| *at >= 0);
                moved(of.dim.zip(at).map(|(dim, at)| if i64::from(dim) >= at { dim + 1 } else { dim }))
            }
            ShapeRule::View | ShapeRule::ViewAs | ShapeRule::Flatten | ShapeRule::Unflatten => {
                let sizes = self.divided_sizes(&args.skip_first());
                sizes.filter(|sizes| sizes.axes == of.axes).or_else(|| moved(None))
            }
            ShapeRule::Permute | ShapeRule::Movedim | ShapeRule::Reversed | ShapeRule::Squeeze => moved(None),
            _ => None,
        }
    }
}

/// Of an operation on each element of several tensors.
fn elementwise<'t>(
    of: &Arc<Divided>,
    whole: &TensorType,
    mut all: impl Iterator<Item = &'t TensorType>,
) -> Option<Arc<Divided>> {
    let rank = whole.rank();
    // Beside a tensor of more dims, the dims of this one are counted from the end.
    let dims_stay = |t: &TensorType| t.rank() == Some(0) || rank.is_some() && t.rank() == rank;
    let (mut same, mut stay, mut count) = (true, true, 0);
    all.by_ref().for_each(|t| {
        same &= t.divided.as_ref().is_none_or(|d| d == of);
        stay &= dims_stay(t);
        count += 1;
    });
    match (same, stay || count == 1) {
        (false, _) => None,
        (true, true) => Some(of.clone()),
        (true, false) => Some(Arc::new(Divided { axes: of.axes.clone(), dim: None })),
    }
}

/// Where a dim is after two of a tensor are swapped.
fn swapped(dim: Option<i8>, of: &TensorType, a: i64, b: i64) -> Option<i8> {
    let from_start = |at: i64| match &of.shape {
        Some(shape) => Shape::dim(shape, at).and_then(|at| i8::try_from(at).ok()),
        None => i8::try_from(at).ok().filter(|at| *at >= 0),
    };
    let (dim, a, b) = (dim?, from_start(a)?, from_start(b)?);
    Some(match dim {
        _ if dim == a => b,
        _ if dim == b => a,
        other => other,
    })
}
