//! Layers that a plan leaves whole, beside those that it splits. In: calls of layers in the forward of a planned module. Out: a layer that gets
//! a part of the dim over which it sums; results whose last dim every rank has as a whole. Never: a layer that may have a style which is not
//! followed, one whose sizes are those of a part, or one whose result has a last dim of one element. Next: `planned.rs`.

use super::found::{Distributed, PlanMistake};
use crate::infer::expr::CallArgs;
use crate::infer::finding::FindingKind;
use crate::infer::machine::{Eval, Machine};
use crate::infer::value::{ObjId, Value};
use crate::ir::StmtId;
use crate::plan::Written;
use crate::rules::Entry;
use crate::rules::shapes::ShapeRule;
use crate::source::Name;
use crate::types::{AxisType, Reason, TensorType};

impl Machine<'_> {
    /// A layer that the plan leaves whole, and that gets a part of the dim over which it sums. Whether every rank has the whole last dim of what
    /// it gives.
    pub(in crate::infer) fn whole_layer(&mut self, id: StmtId, object: ObjId, class: &Name, args: &CallArgs) -> bool {
        let Some(plan) = &self.planning else { return false };
        if self.may_be_open(plan.module) {
            return false;
        }
        let axis = plan.axis.clone();
        let sums = self.rules.entries().any(|(_, entry)| {
            matches!(entry, Entry::Intrinsic(rule) if rule.role("sums-last").is_some_and(|name| name == class))
        });
        let Some(arg) = args.args.first().filter(|a| a.keyword.is_none() && sums).cloned() else { return false };
        let Some(t) = self.as_tensor(&arg.value).and_then(|t| self.w.heap.tensor(t)) else { return false };
        let (state, local) = (t.local.get(&axis).clone(), t.dist.on().is_none());
        let last = state.shard == Some(-1)
            || t.rank().is_some_and(|rank| state.shard.is_some_and(|dim| i64::from(dim) + 1 == rank as i64));
        let decided = state.origin.as_ref().is_some_and(|o| o.root().reason == Reason::Declared);
        if state.set == AxisType::V && last && decided && self.has_whole_weight(object) {
            let value = self.part(id, arg.part);
            let layer = crate::infer::collective::short(class);
            let mistake = PlanMistake::Whole { layer, value };
            self.report(value, FindingKind::Distributed(Distributed::Plan(mistake)));
            return false;
        }
        local && self.has_whole_weight(object)
    }

    /// Whether the weight of a layer has, as far as is known, several rows, and not those of one rank.
    fn has_whole_weight(&self, layer: ObjId) -> bool {
        let Some(cell) = self.w.heap.object(layer) else { return false };
        let Some(weight) = cell.get("weight").and_then(|w| self.tensor(w)) else { return true };
        let rows = weight.shape.as_ref().and_then(|shape| shape.0.first().copied()).flatten();
        weight.divided.is_none() && weight.local.is_unknown() && rows != Some(1)
    }

    /// Keeps that every rank has the whole last dim of a result.
    pub(in crate::infer) fn note_whole(&mut self, eval: Eval) -> Eval {
        let value = match eval {
            Eval::One(Value::Unknown) => self.new_tensor(TensorType::unknown()),
            Eval::One(value) => value,
            many @ Eval::Many(_) => return many,
        };
        if let Value::Tensor(id) = &value {
            self.whole_last.insert(*id);
        }
        Eval::One(value)
    }

    /// What is computed elementwise of such results has the same last dim.
    pub(super) fn keep_whole(&mut self, shape: ShapeRule, arguments: &[ObjId], result: ObjId) {
        if matches!(shape, ShapeRule::Same | ShapeRule::Broadcast)
            && self.planning.is_some()
            && arguments.iter().any(|id| self.whole_last.contains(id))
        {
            self.whole_last.insert(result);
        }
    }

    /// Whether a style takes a value for the part of its last dim of which every rank has the whole.
    pub(super) fn is_split_of_whole(&self, value: &Value, layout: Written) -> bool {
        matches!(layout, Written::Shard { dim: -1, .. })
            && matches!(value, Value::Tensor(id) if self.whole_last.contains(id))
    }
}
