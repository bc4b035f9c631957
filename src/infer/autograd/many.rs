//! Calls of `apply` with several tensors. In: the signatures that a derivation leaves, and the arguments. Out: the type of the result; a finding where an
//! argument is equal on all ranks and every signature sums it or takes it for different parts. Never: a finding where only two arguments
//! together fit none, or where the two types of equal values are told apart. Source: DESIGN.md section 6. Next: `apply.rs`.

use super::super::collective::is_constant;
use super::super::expr::CallArgs;
use super::super::finding::{FindingKind, OperandAt};
use super::super::machine::Machine;
use super::super::practice::near;
use super::super::value::Value;
use super::derive::{Case, Signature};
use crate::ir::StmtId;
use crate::project::ClassRef;
use crate::rules::{Arg, Kind, Role, Violation, apply};
use crate::types::{Axis, AxisState, AxisType, LocalType, Origin, Reason, Spmd, TensorType, Tri};
use std::sync::Arc;

/// What shows that only one rank, or a part of what is given, goes into a sum.
const APART: &[&str] = &["rank", "alpha", "where(", "mask", "scale"];

/// The other results that some signature types.
fn other_outputs(case: &Case) -> Vec<usize> {
    let mut out: Vec<usize> = case.legal.iter().flat_map(|s| s.others.iter().map(|(at, _)| *at)).collect();
    out.sort_unstable();
    out.dedup();
    out
}

/// The types of a result on one axis that are left by what the arguments may be there.
fn result_on(case: &Case, output: usize, given: &dyn Fn(usize) -> AxisType) -> AxisType {
    let fits_as = |s: &Signature, lenient: bool| {
        s.sources.iter().enumerate().all(|(k, (t, _))| {
            let set = given(k);
            // What differs is taken for a sum only where nothing else fits.
            set.contains(*t) || lenient && *t == Spmd::Partial && set.contains(Spmd::Varying)
        })
    };
    let lenient = !case.legal.iter().any(|s| fits_as(s, false));
    // Of results that differ only in how they are taken, the one that tells most.
    let first = |s: &&Signature| {
        let alike = |o: &&Signature| o.sources == s.sources;
        case.legal.iter().find(alike).is_some_and(|o| o.result == s.result)
    };
    let of_output = |s: &Signature| match output == case.output {
        true => Some(s.result.0),
        false => s.others.iter().find(|(at, _)| *at == output).map(|(_, t)| *t),
    };
    let matching = case.legal.iter().filter(|s| fits_as(s, lenient)).filter(first);
    let set = matching.fold(AxisType::EMPTY, |set, s| set.join(of_output(s).map_or(AxisType::ALL, AxisType::from)));
    if set.is_empty() { AxisType::ALL } else { set }
}

impl Machine<'_> {
    /// A function of several tensors: the results that the signatures which the arguments leave give, by their place.
    pub(super) fn many_inputs(
        &mut self,
        id: StmtId,
        class: ClassRef,
        case: &Case,
        args: &CallArgs,
    ) -> Vec<(usize, Value)> {
        let inputs: Vec<Option<TensorType>> = case
            .inputs
            .iter()
            .map(|i| {
                let id = args.args.get(*i).and_then(|a| self.as_tensor(&a.value))?;
                self.w.heap.tensor(id).cloned()
            })
            .collect();
        let unknown = TensorType::unknown();
        let state = |k: usize, axis: &Axis| inputs[k].as_ref().unwrap_or(&unknown).local.get(axis).clone();
        let mut local = LocalType::unknown();
        let types: Vec<&LocalType> = inputs.iter().flatten().map(|t| &t.local).collect();
        for axis in LocalType::axes_of(types) {
            // On other axes it is local mathematics.
            let operands: Vec<Arg> = (0..inputs.len())
                .map(|k| Arg { set: state(k, &axis).set, grad: Tri::Unknown, role: Role::Term })
                .collect();
            let made = apply(Kind::Multilinear, &operands);
            if matches!(made, Err(Violation::InvariantMixed)) && !case.axes.iter().any(|a| *a == axis) {
                self.mixed_by(id, class, args, &axis);
            }
            local.set(&axis, AxisState::new(made.map_or(AxisType::ALL, |a| a.result)));
        }
        let parted = |k: usize| inputs[k].as_ref().is_some_and(|t| t.divided.is_some());
        if let Some((k, axis)) = self.contradicted(case, args, &inputs)
            && (parted(k) || self.adds_plainly(class, case, k))
        {
            self.refuse_argument(
                id,
                class,
                (case, k, &axis),
                args,
                inputs[k].as_ref().map(|t| t.local.get(&axis).clone()),
            );
            return vec![(case.output, self.new_tensor(TensorType::unknown()))];
        }
        let each = std::iter::once(case.output).chain(other_outputs(case));
        let typed = each.map(|output| {
            let mut local = local.clone();
            for axis in case.axes.iter() {
                let set = result_on(case, output, &|k| state(k, axis).set);
                let reason = Reason::Collective(self.project.class(class).name.clone());
                let origin = Origin::new(self.place(id), reason, set.known());
                local.set(axis, AxisState { set, shard: None, nest: 0, origin: Some(origin) });
            }
            (output, TensorType { untracked: true, ..TensorType::of(local, Tri::Unknown) })
        });
        let typed: Vec<(usize, TensorType)> = typed.collect();
        typed.into_iter().map(|(output, tensor)| (output, self.new_tensor(tensor))).collect()
    }

    /// The first argument that is equal on all ranks, or by its size a part, where no signature takes such a one, and the axis.
    fn contradicted(&self, case: &Case, args: &CallArgs, inputs: &[Option<TensorType>]) -> Option<(usize, Axis)> {
        if self.w.modes.typecheck.is_some() || args.open || !case.communicates() {
            return None;
        }
        let takes = |k: usize, t: Spmd| {
            case.legal.iter().any(|s| {
                let (due, _) = s.sources[k];
                // What differs is taken for a pending sum.
                due == t || due == Spmd::Partial && t == Spmd::Varying
            })
        };
        let refused = |k: usize, tensor: &TensorType, axis: &Axis| {
            let state = tensor.local.get(axis);
            let apart = self.is_restricted(axis) || Self::has_twin(axis, std::iter::once(&tensor.local));
            // Which of the two types of equal values is due hangs on flags that a function by itself does not know; that they are summed or put
            // side by side as if they differed does not.
            let equal = |set: AxisType| set.leq(AxisType::EQUAL);
            let due_equal = Spmd::ALL.iter().any(|t| equal((*t).into()) && takes(k, *t));
            let is_part = state.set == AxisType::V && tensor.divided.is_some();
            if is_part && !apart {
                // What is wrong in the function itself is told there.
                return case.trouble.is_none() && !case.legal.is_empty() && !takes(k, Spmd::Varying);
            }
            equal(state.set) && !state.set.is_empty() && !due_equal && !apart && !tensor.zero && !is_constant(state)
        };
        let each = inputs.iter().enumerate().filter_map(|(k, tensor)| Some((k, tensor.as_ref()?)));
        each.flat_map(|(k, tensor)| case.axes.iter().map(move |axis| (k, tensor, axis)))
            .find(|(k, tensor, axis)| refused(*k, tensor, axis))
            .map(|(k, _, axis)| (k, axis.clone()))
    }

    /// Whether the forward takes an argument as it is: on no rank alone, and divided by nothing, of which terms say too little.
    fn adds_plainly(&self, class: ClassRef, case: &Case, k: usize) -> bool {
        let Some((forward, input)) = self.project.own_method(class, "forward").zip(case.inputs.get(k)) else {
            return false;
        };
        let func = self.project.func(forward);
        let text = near::bare(self.files[self.project.file(forward.module)].slice(func.span));
        let Some(name) = func.params.get(input + 1).map(|p| p.name.to_lowercase()) else { return false };
        let factors = [
            format!("{name} *"),
            format!("* {name}"),
            format!("{name} /"),
            format!("{name}.div"),
            format!("{name}.mul"),
        ];
        !near::has_any(&text, APART) && !near::has_any(&text, &factors)
    }

    /// Reports an argument that no signature takes.
    fn refuse_argument(
        &mut self,
        id: StmtId,
        class: ClassRef,
        (case, k, axis): (&Case, usize, &Axis),
        args: &CallArgs,
        state: Option<AxisState>,
    ) {
        let Some((arg, state)) = case.inputs.get(k).and_then(|i| args.args.get(*i)).zip(state) else { return };
        let part = self.part(id, arg.part);
        let mut state = state;
        if let (Some(at), Some(origin)) = (case.kept_part(), &mut state.origin) {
            Arc::make_mut(origin).keeps_part = Some(at);
        }
        let operand = OperandAt { place: Some(part), state, is_number: false, is_divisor: false };
        let expected = case.legal.iter().fold(AxisType::EMPTY, |set, s| set.join(s.sources[k].0.into()));
        let name = self.project.class(class).name.clone();
        let kind = FindingKind::CollectiveSource {
            op: "layer".into(),
            name,
            axis: axis.clone(),
            expected,
            dim: None,
            operand,
        };
        self.report(self.place(id), kind);
    }
}
