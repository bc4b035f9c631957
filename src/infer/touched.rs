//! Tensors that may hold other values by now than those that a collective left on all ranks. In: an operation and its arguments, or a call of
//! which nothing is known. Out: [`TensorType::touched`], which a second collective asks before it is called one too many. Never: a type.
//! Next: `collective.rs`, which asks.

use super::expr::CallArgs;
use super::machine::Machine;
use super::ops::OpCall;
use super::scale::groups::of_size_name;
use super::value::{ObjId, Value};
use crate::rules::OpClass;
use crate::rules::shapes::ShapeRule;
use crate::types::TensorType;

/// Products of a tensor and a number.
const PRODUCTS: &[&str] = &["mul", "rmul", "imul", "multiply"];

impl Machine<'_> {
    /// Something that is not followed may write into a tensor.
    pub fn touch(&mut self, id: ObjId) {
        if let Some(t) = self.w.heap.tensor_mut(id) {
            t.touched = true;
        }
    }

    /// The same of a value, if it is a tensor.
    pub fn touch_value(&mut self, value: &Value) {
        if let Value::Tensor(id) = value {
            self.touch(*id);
        }
    }

    /// Whether an operation makes something of a tensor that was touched, or something that nobody knows decides what it makes:
    /// `x[start:stop]`, `x.fill_(seconds)`, `x.normal_()`; or divides it by a number of ranks.
    pub(super) fn is_touched(&self, call: &OpCall<'_>, args: &CallArgs) -> bool {
        // Of a value of which nothing is known nothing is held against a collective either.
        let known = || call.operands.iter().filter(|o| !o.ty.is_unknown());
        if known().next().is_none() {
            return false;
        }
        let was = |t: &TensorType| t.touched;
        let of_touched = known().any(|o| o.id.and_then(|id| self.w.heap.tensor(id)).is_some_and(was));
        // A number by which it is multiplied is one for all ranks, as far as anybody sees.
        let decides = matches!(call.rule.shape, ShapeRule::Getitem) || call.rule.class == OpClass::Fill;
        of_touched
            || self.is_averaged(call, args)
            || matches!(call.rule.class, OpClass::UnknownValues | OpClass::Opaque)
            || decides && args.args.iter().any(|arg| self.is_open(&arg.value))
    }

    /// Whether an operation divides by what is called a number of ranks, or multiplies by a number of which nothing is known, as each term of a
    /// sum of equal values is that gives their average: `x / config.tensor_model_parallel_size`, `x * (1.0 / size)`.
    fn is_averaged(&self, call: &OpCall<'_>, args: &CallArgs) -> bool {
        let open = |value: &Value| matches!(value, Value::Number(None));
        let counts = |value: &Value| match value {
            Value::Sym(path) => of_size_name(path).is_some(),
            value => open(value),
        };
        let mut divisors = call.rule.divisor.iter().flat_map(|param| call.bound.all(*param));
        let is_product = || {
            let last = call.rule.name.rsplit('.').next().unwrap_or_default();
            PRODUCTS.contains(&last.trim_matches('_'))
        };
        divisors.any(|at| counts(&args.args[*at].value)) || args.args.iter().any(|arg| open(&arg.value)) && is_product()
    }

    /// Whether a value is a number, or has one, of which nothing is known.
    fn is_open(&self, value: &Value) -> bool {
        match value {
            Value::Unknown | Value::Number(None) => true,
            Value::Sym(path) => {
                self.symbol(path).and_then(|id| self.w.heap.tensor(id)).is_none_or(|t| t.local.is_unknown())
            }
            Value::Slice(parts) => parts.iter().any(|part| self.is_open(part)),
            Value::Tuple(items) => items.iter().any(|item| self.is_open(item)),
            _ => false,
        }
    }
}
