//! Which use of a parameter is wrong where two contradict each other: a product with a split weight that takes it for Replicate or Varying, and a
//! sum with an Invariant value behind it, as around a residual connection. It is the first: the caller of nothing known has one stream of
//! activations for all ranks, and a reduction gives it back as such. In: a sum of both. Out: the parameter as Invariant, with which the
//! root is executed again, and the findings of both executions. Never: a finding that is in neither. Source: DESIGN.md section 5. Next: `root.rs`.

use super::finding::{Finding, FindingKind, OperandAt};
use super::machine::Machine;
use super::ops::Operand;
use super::output::Output;
use crate::rules::Violation;
use crate::source::Place;
use crate::types::{Axis, AxisState, AxisType, Origin, Reason, Spmd};
use std::sync::Arc;

impl Machine<'_> {
    /// Notes a parameter of the root that meets an Invariant value, and that a use before took for something else.
    pub fn note_residual(&mut self, axis: &Axis, operands: &[Operand], at: &[OperandAt]) {
        let Some(place) = at.iter().zip(operands).find(|(_, o)| is_taken(o.ty.get(axis))).and_then(|(at, _)| at.place)
        else {
            return;
        };
        if !operands.iter().any(|o| o.ty.get(axis).set == AxisType::I) {
            return;
        }
        let Some(root) = self.stack.first() else { return };
        let params = &self.project.func(root.func).params;
        let taken = operands.iter().filter(|o| is_taken(o.ty.get(axis)));
        let found = taken.filter_map(|o| o.id).find_map(|id| params.iter().find(|p| self.symbol(&p.name) == Some(id)));
        let Some(param) = found.filter(|p| !self.residual.iter().any(|(name, a, _)| *name == p.name && a == axis))
        else {
            return;
        };
        let origin = Origin::new(place, Reason::Narrowed("add".into()), Some(Spmd::Invariant));
        let state = AxisState { set: AxisType::I, shard: None, nest: 0, origin: Some(origin) };
        self.residual.push((param.name.clone(), axis.clone(), state));
    }

    /// Whether an operand is a parameter that a residual connection takes for something else than what came before.
    pub fn is_residual(&self, operands: &[Operand]) -> bool {
        let noted = |id| self.residual.iter().any(|(name, _, _)| self.symbol(name) == Some(id));
        operands.iter().filter_map(|o| o.id).any(noted)
    }
}

/// Whether a use took a value for something else than Invariant.
fn is_taken(state: &AxisState) -> bool {
    let narrowed = |origin: &Arc<Origin>| matches!(origin.reason, Reason::Narrowed(_));
    !state.set.is_unknown() && !state.set.contains(Spmd::Invariant) && state.origin.as_ref().is_some_and(narrowed)
}

impl FindingKind {
    /// The use that took an operand for something else than what it meets here.
    fn taken(&self) -> Option<Place> {
        let FindingKind::Operator { violation: Violation::InvariantMixed, operands, .. } = self else { return None };
        let invariant = operands.iter().any(|o| o.state.set == AxisType::I);
        let taken = operands.iter().find(|o| is_taken(&o.state)).filter(|_| invariant)?;
        taken.state.origin.as_ref().map(|origin| origin.place)
    }

    fn is_mixed_at(&self, uses: &[Place]) -> bool {
        let FindingKind::Operator { violation: Violation::InvariantMixed, operands, .. } = self else { return false };
        operands.iter().any(|o| o.place.is_some_and(|place| uses.contains(&place)))
    }
}

impl Output {
    /// Where the execution with these parameters as Invariant says that the use before is wrong, it is that and not the sum behind it.
    pub fn blame_uses(&mut self, other: Output) {
        let uses: Vec<Place> = self.findings.iter().filter_map(|f| f.kind.taken()).collect();
        let (wrong, others): (Vec<Finding>, Vec<Finding>) =
            other.findings.into_iter().partition(|finding| finding.kind.is_mixed_at(&uses));
        if wrong.is_empty() {
            return;
        }
        let stands = |place: Place| others.iter().any(|other| other.place == place && other.kind.taken().is_some());
        self.settle(|findings| findings.retain(|f| f.kind.taken().is_none() || stands(f.place)));
        wrong.into_iter().for_each(|finding| self.report(finding));
    }
}
