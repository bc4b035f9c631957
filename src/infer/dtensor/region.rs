//! Regions of local tensors: a function that is run on the parts of distributed tensors, and whose results are wrapped again. In: the
//! function with the placements of what it takes and gives. Out: a finding where a result is not what its placements say. Never: a region
//! of which some placement, or the mesh, is not known; what distributed tensors it is called with. Source: torch 2.15
//! `torch/distributed/tensor/experimental/_func_map.py`. Next: `make.rs`.

use super::Call;
use super::found::Distributed;
use crate::infer::expr::CallArgs;
use crate::infer::finding::{FindingKind, OperandAt};
use crate::infer::machine::{Eval, Machine};
use crate::infer::value::{Method, PartialApp, Value};
use crate::ir::{FuncId, Operand, StmtId};
use crate::plan::{Placement, ReduceOp, Written};
use crate::rules::Entry;
use crate::source::{Name, Place};
use crate::types::{Axis, AxisState, AxisType, Dist, LocalType, TensorType};
use std::sync::Arc;

/// The rule of functions that make regions.
const REGION: &str = "dtensor-local-map";

/// A mesh of one dim that has no name.
const MESH: &str = "mesh";

/// The placements of one tensor; `None`: it is no tensor.
type Placed = Option<Vec<Written>>;

impl Machine<'_> {
    /// `local_map(function, out_placements, in_placements, ...)`; without the function, what a decorator is.
    pub(super) fn local_region(&mut self, call: &Call<'_>) -> Value {
        let Some(function) = call.value("func").filter(|f| !f.is_none()).cloned() else {
            let keywords: Option<Vec<(Name, Value)>> =
                call.args.args.iter().map(|a| Some((a.keyword.clone()?, a.value.clone()))).collect();
            let callee = Value::Path(call.rule.name.clone());
            let made = keywords.map(|keywords| PartialApp { callee, args: Vec::new(), keywords });
            return made.map_or(Value::Unknown, |made| Value::Partial(Arc::new(made)));
        };
        let part = call.arg("out_placements").map_or(0, |(_, part)| part);
        let at = if part == 0 { self.place(call.id) } else { self.part(call.id, part) };
        self.check_region(call, &function, at);
        self.forget(call.args);
        Value::Unknown
    }

    /// A function under a decorator that makes a region of it.
    pub(in crate::infer) fn decorated_region(
        &mut self,
        id: StmtId,
        func: FuncId,
        defaults: &[(u32, Operand)],
        decorators: &[Operand],
    ) {
        let [decorator] = decorators else { return };
        let Value::Partial(made) = self.operand(decorator) else { return };
        let Value::Path(path) = &made.callee else { return };
        let Some(Entry::Intrinsic(rule)) = self.rules.get(path) else { return };
        if rule.does != REGION || !made.args.is_empty() {
            return;
        }
        let function = self.closure(func, defaults, crate::infer::value::Flavour::Plain, None);
        self.call(id, &Value::Partial(made.clone()), &CallArgs::of(vec![function]));
    }

    fn check_region(&mut self, call: &Call<'_>, function: &Value, at: Place) {
        let runs = match function {
            Value::Closure(_) => true,
            Value::Bound(bound) => matches!(bound.method, Method::Closure(_)),
            _ => false,
        };
        let (Some(given), Some(due)) = (
            self.each_placed(call.value("in_placements")),
            call.value("out_placements").and_then(|v| self.all_placed(v)),
        ) else {
            return;
        };
        let dims = given.iter().chain(&due).flatten().map(Vec::len).next().unwrap_or(0);
        let uniform = given.iter().chain(&due).flatten().all(|p| p.len() == dims);
        let axes = self.axes_of_region(call.value("device_mesh"), dims).filter(|_| runs && uniform && dims > 0);
        let Some(axes) = axes else { return };
        let before = (self.w.clone(), std::mem::replace(&mut self.quiet, true));
        let mut arguments = Vec::new();
        for placed in &given {
            arguments.push(match placed.as_ref().map(|placed| local_type(&axes, placed)) {
                Some(Some(local)) => self.new_tensor(TensorType { local, dist: Dist::Plain, ..TensorType::unknown() }),
                _ => Value::Unknown,
            });
        }
        let outcomes = match self.call(call.id, function, &CallArgs::of(arguments)) {
            Eval::One(value) => vec![(self.w.clone(), value)],
            Eval::Many(outcomes) => outcomes,
        };
        // A way that nobody takes with this mesh, such as that of a single rank, says nothing: all have to be wrong.
        let mut wrong = Vec::new();
        for (world, value) in outcomes {
            self.w = world;
            wrong.push(self.differing_from(call, &value, &due, &axes));
        }
        (self.w, self.quiet) = before;
        if let Some(Some(first)) = wrong.iter().all(Option::is_some).then(|| wrong.into_iter().next().flatten()) {
            self.report(at, FindingKind::Distributed(first));
        }
    }

    /// A result that is something else than its placements say.
    fn differing_from(&self, call: &Call<'_>, value: &Value, due: &[Placed], axes: &[Axis]) -> Option<Distributed> {
        let results = match value {
            Value::Tuple(items) => items.to_vec(),
            one => vec![one.clone()],
        };
        for (result, placed) in results.iter().zip(due).filter(|_| results.len() == due.len()) {
            let (Some(t), Some(placed)) = (self.tensor(result), placed) else { continue };
            for (axis, written) in axes.iter().zip(placed) {
                let state = t.local.get(axis).clone();
                let (allowed, placement) = match written {
                    Written::Replicate => (AxisType::EQUAL, Placement::Replicate),
                    Written::Shard { dim, .. } => {
                        let Ok(dim) = usize::try_from(*dim) else { continue };
                        (AxisType::EQUAL.join(AxisType::V), Placement::Shard(dim))
                    }
                    Written::Partial(_) | Written::Strided { .. } => continue,
                };
                if state.set.known().is_some() && state.set.meet(allowed).is_empty() {
                    let place = state.origin.as_ref().map(|o| o.place);
                    let operand = OperandAt { place, state, is_number: false, is_divisor: false };
                    return Some(Distributed::Claim { api: call.name(), axis: axis.clone(), placement, operand });
                }
            }
        }
        None
    }

    /// The axes of the mesh of a region. One of which nothing is known has one dim if the placements say so.
    fn axes_of_region(&self, mesh: Option<&Value>, dims: usize) -> Option<Vec<Axis>> {
        let own = || Axis::of_mesh(MESH);
        match mesh {
            Some(Value::Mesh(mesh)) if mesh.ndim() == dims => {
                let axes: Vec<Axis> = mesh.axes.iter().map(|(axis, _)| axis.clone()).collect();
                match axes.iter().any(Axis::is_position) {
                    true => (dims == 1).then(|| vec![own()]),
                    false => Some(axes),
                }
            }
            Some(Value::Mesh(_)) => None,
            Some(Value::Sym(path)) if dims == 1 => self.axis_of_unknown(path).map(|axis| vec![axis]),
            _ => (dims == 1).then(|| vec![own()]),
        }
    }

    /// The placements of each tensor, or of the only one.
    fn all_placed(&self, value: &Value) -> Option<Vec<Placed>> {
        match self.placed(value) {
            Some(one) => Some(vec![one]),
            None => self.each_placed(Some(value)),
        }
    }

    fn each_placed(&self, value: Option<&Value>) -> Option<Vec<Placed>> {
        self.literal_items(value?)?.iter().map(|item| self.placed(item)).collect()
    }

    /// The placements of one tensor, if they are all known.
    fn placed(&self, value: &Value) -> Option<Placed> {
        if value.is_none() {
            return Some(None);
        }
        let items = self.literal_items(value).filter(|items| !items.is_empty())?;
        let each: Option<Vec<Written>> = items
            .iter()
            .map(|item| match item {
                Value::Placement(written) => Some(**written),
                _ => None,
            })
            .collect();
        each.map(Some)
    }
}

/// What the parts of a tensor are to each other; `None` where that has no type.
fn local_type(axes: &[Axis], placed: &[Written]) -> Option<LocalType> {
    let mut local = LocalType::unknown();
    for (axis, written) in axes.iter().zip(placed) {
        let state = match written {
            Written::Replicate => AxisState::new(AxisType::EQUAL),
            Written::Shard { dim, .. } => AxisState { shard: i8::try_from(*dim).ok(), ..AxisState::new(AxisType::V) },
            Written::Partial(ReduceOp::Sum) => AxisState::new(AxisType::P),
            Written::Partial(_) | Written::Strided { .. } => return None,
        };
        local.set(axis, state);
    }
    Some(local)
}
