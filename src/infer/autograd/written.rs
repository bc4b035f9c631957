//! Autograd functions of several tensors without collectives, where they are applied: mathematics of each rank by itself. In: a class whose
//! backward is found to be the adjoint of its forward, and arguments. Out: what the forward makes of them, as autograd would type it; a mix
//! that leaves a gradient without its sum is reported where the function is applied. Never: functions that communicate. Source: DESIGN.md
//! section 4, operators. Next: `apply.rs`.

use super::super::expr::CallArgs;
use super::super::finding::{FindingKind, OperandAt};
use super::super::machine::Machine;
use super::super::value::Value;
use super::super::world::World;
use super::derive::Case;
use crate::ir::StmtId;
use crate::project::ClassRef;
use crate::rules::operator::Violation;
use crate::source::{Name, Place};
use crate::types::{Axis, AxisType, TensorType, Tri};
use std::sync::Arc;

/// Where a function is applied, and to which tensors.
#[derive(Clone, Debug)]
pub struct Written {
    name: Name,
    at: Place,
    tensors: Vec<(Place, TensorType)>,
}

/// Whether a case is mathematics on each rank by itself, of several tensors, and found to be right.
pub fn is_local(case: &Case) -> bool {
    case.axes.is_empty()
        && case.inputs.len() > 1
        && case.further.is_empty()
        && !case.ambiguous
        && case.trouble.is_none()
        && !case.legal.is_empty()
}

impl Machine<'_> {
    /// What the forward of such a function makes of its arguments, by world; `None` if it is not followed from here.
    pub fn as_written(&mut self, id: StmtId, class: ClassRef, args: &CallArgs) -> Option<Vec<(World, Value)>> {
        let follows = self.stack.len() < super::super::limits::MAX_CALL_DEPTH
            && !args.open
            && self.applied.is_none()
            && args.args.iter().all(|a| a.keyword.is_none());
        let methods = self.methods_of(class).filter(|_| follows)?;
        let written = self.applied_to(id, class, args);
        // A number beside one tensor may be a factor that somebody else makes up for.
        if written.tensors.len() < 2 {
            return None;
        }
        let mut given: Vec<Value> = args.args.iter().map(|a| a.value.clone()).collect();
        if methods.setup.is_none() {
            given.insert(0, self.context(args.args.len()));
        }
        let at = written.at;
        self.applied = Some(Arc::new(written));
        let outcomes = self.body_called(methods.forward, &given, Some(at));
        self.applied = None;
        Some(outcomes)
    }

    fn applied_to(&self, id: StmtId, class: ClassRef, args: &CallArgs) -> Written {
        let at = self.place(id);
        let mut tensors = Vec::new();
        // Of arguments that come in one list the parameters of the forward say which is which.
        let parameter = |i: usize| {
            let methods = self.methods_of(class)?;
            let own = usize::from(methods.setup.is_none());
            let param = self.project.func(methods.forward).params.get(own + i)?;
            Some(Place { file: self.project.file(methods.forward.module), span: param.span })
        };
        for (i, arg) in args.args.iter().enumerate() {
            let tensor = match &arg.value {
                Value::Tensor(id) => Some(*id),
                Value::Sym(path) => self.w.symbols.get(path).copied(),
                _ => None,
            };
            if let Some(t) = tensor.and_then(|id| self.w.heap.tensor(id)) {
                let in_list = args.args.iter().filter(|other| other.part == arg.part).count() > 1;
                let place = if in_list { parameter(i) } else { None };
                tensors.push((place.unwrap_or_else(|| self.part(id, arg.part)), t.clone()));
            }
        }
        Written { name: self.project.class(class).name.clone(), at, tensors }
    }

    /// Whether a mix of Invariant and Varying happens in a forward that is followed from where it is applied: it is the application that
    /// leaves the gradient without its sum, and the arguments that differ.
    pub fn mixed_where_applied(&mut self, axis: &Axis) -> bool {
        let Some(applied) = self.applied.clone() else { return false };
        self.mixed(&applied, axis);
        true
    }

    /// Reports that a function mixes Invariant and Varying on an axis over which it does not communicate.
    pub fn mixed_by(&mut self, id: StmtId, class: ClassRef, args: &CallArgs, axis: &Axis) {
        let applied = self.applied_to(id, class, args);
        self.mixed(&applied, axis);
    }

    fn mixed(&mut self, applied: &Written, axis: &Axis) {
        let operands: Vec<OperandAt> = applied
            .tensors
            .iter()
            .map(|(place, t)| {
                let state = t.local.get(axis).clone();
                OperandAt { place: Some(*place), state, is_number: false, is_divisor: false }
            })
            .collect();
        let tracked = |t: &TensorType| t.grad != Tri::No;
        let has_invariant = applied.tensors.iter().any(|(_, t)| t.local.get(axis).set == AxisType::I && tracked(t));
        let has_varying = operands.iter().any(|o| o.state.set == AxisType::V);
        if has_invariant && has_varying && self.w.modes.grad && !self.is_restricted(axis) {
            let (violation, op) = (Violation::InvariantMixed, applied.name.clone());
            let kind = FindingKind::Operator { violation, axis: axis.clone(), op, operands, symbol: false };
            self.report(applied.at, kind);
        }
    }
}
