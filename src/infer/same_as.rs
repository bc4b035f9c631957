//! Values that are others in another precision or place: `x.float()`. In: results of conversions, and what their uses tell. Out: the same of
//! what was converted. Never: across a cut of the gradient. Source: DESIGN.md section 5. Next: `ops.rs`, which narrows.

use super::machine::Machine;
use super::ops::{AxisRef, OpCall};
use super::value::{ObjId, Value};
use crate::types::{AxisState, Tri};

/// How many conversions one after the other are followed.
const MOST: usize = 4;

impl Machine<'_> {
    /// Notes that a result is its operand.
    pub fn note_same(&mut self, call: &OpCall<'_>, value: &Value) {
        let [operand] = call.operands.as_slice() else { return };
        let (Value::Tensor(of), Some(from)) = (value, operand.id) else { return };
        let rule = call.rule;
        let is_same = rule.identity && !rule.nondiff && !rule.in_place && self.deriving.is_none();
        let keeps_gradient = || self.w.heap.tensor(*of).is_some_and(|t| t.grad != Tri::No);
        if is_same && *of != from && keeps_gradient() {
            self.same_as.insert(*of, from);
        }
    }

    /// What a use tells of a value, it tells of what was converted into it, where nothing is known of that.
    pub fn narrow_same(&mut self, of: ObjId, axis: &AxisRef, state: &AxisState) {
        let mut at = of;
        for _ in 0..MOST {
            let Some(from) = self.same_as.get(&at).copied() else { return };
            let Some(mut t) = self.w.heap.tensor(from).cloned() else { return };
            let known = match axis {
                AxisRef::Named(axis) => t.local.get(axis),
                AxisRef::Rest => &t.local.rest,
            };
            if !known.set.is_unknown() || t.touched {
                return;
            }
            match axis {
                AxisRef::Named(axis) => t.local.set(axis, state.clone()),
                AxisRef::Rest => t.local.rest = state.clone(),
            }
            self.retype_quietly(from, t);
            at = from;
        }
    }
}
