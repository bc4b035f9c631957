//! Products with parts of parameters, and where split dims go. In: operands of an operation. Out: the pending sum that a contraction
//! leaves, the split dim of a result. Never: the types of other operations, which `ops.rs` combines.
//! Source: DESIGN.md section 4, "contraction of a dim that is known to be sharded". Next: `share.rs`, which says what is split.

use super::expr::CallArgs;
use super::machine::Machine;
use super::ops::{OpCall, Operand};
use super::value::ObjId;
use crate::ir::StmtId;
use crate::rules::dims::{self, Flow, Split};
use crate::rules::shapes::ShapeRule;
use crate::rules::{Kind, Role};
use crate::source::Name;
use crate::types::{Axis, AxisState, AxisType, LocalType, Reason, TensorType, Tri};
use std::borrow::Cow;

impl Machine<'_> {
    /// A product that leaves a pending sum, as the operand of the addition that follows it.
    ///
    /// # Errors
    /// A finding was reported.
    pub fn pending_product(
        &mut self,
        id: StmtId,
        dims: &str,
        op: &Name,
        factors: &[Operand; 2],
    ) -> Result<Option<Operand>, ()> {
        let split = |o: &Operand| o.ty.listed().any(|(_, s)| s.set == AxisType::V && s.shard.is_some());
        if !factors.iter().any(split) || self.is_global() {
            return Ok(None);
        }
        let mut ty = self.combine(id, Kind::Multilinear, op, factors)?;
        self.flow_shards(id, (op, dims), false, factors, &mut ty)?;
        let pending = ty.listed().any(|(_, s)| s.set == AxisType::P);
        // It has no place of its own but that of the whole call.
        Ok(pending.then_some(Operand { id: None, ty, grad: Tri::Yes, role: Role::Term, part: usize::MAX }))
    }

    /// How the dims of the operands correspond: by the rule, or by the equation that the call is given.
    pub fn notation<'c>(&self, call: &OpCall<'c>, args: &CallArgs) -> Option<Cow<'c, str>> {
        if let Some(dims) = &call.rule.dims {
            return Some(Cow::Borrowed(dims.as_str()));
        }
        if call.rule.shape != ShapeRule::Einsum || self.is_global() {
            return None;
        }
        let equation = args.args[call.bound.first(0)?].value.as_str()?;
        let fits = equation.split("->").next().map(|inputs| inputs.split(',').count()) == Some(call.operands.len());
        if fits { dims::of_equation(equation).map(Cow::Owned) } else { None }
    }

    /// Where the notation of the operation takes split dims; a contracted one leaves a pending sum.
    ///
    /// # Errors
    /// A finding was reported.
    pub fn flow_shards(
        &mut self,
        id: StmtId,
        (op, dims): (&Name, &str),
        adds: bool,
        operands: &[Operand],
        out: &mut LocalType,
    ) -> Result<(), ()> {
        let axes: Vec<Axis> = out.listed().filter(|(_, s)| s.set == AxisType::V).map(|(a, _)| a.clone()).collect();
        for axis in axes {
            self.refuse_own_block(id, op, operands, &axis)?;
            let rank_of = |o: &Operand| o.id.and_then(|id| self.w.heap.tensor(id)).and_then(TensorType::rank);
            let mut splits: Vec<Split> = operands
                .iter()
                .map(|o| {
                    let state = o.ty.get(&axis);
                    Split { varying: state.set == AxisType::V, dim: state.shard, rank: rank_of(o) }
                })
                .collect();
            sole_dims(dims, &axis, operands, &mut splits);
            let known = operands.iter().all(|o| o.ty.get(&axis).set.is_known());
            let mut state = out.get(&axis).clone();
            state.shard = None;
            if self.contracts_part(dims, &axis, operands, &splits) {
                state = self.pending(id, state);
                out.set(&axis, state);
                continue;
            }
            match dims::flow(dims, &splits, adds) {
                Flow::Dim(dim) if known => state.shard = Some(dim),
                // What each rank adds up of its own rows is its own, as tokens in the slots of experts are.
                Flow::Contracted if known && splits.iter().any(|s| s.varying && !is_first(s)) => {
                    state = self.pending(id, state);
                }
                Flow::Dim(_) | Flow::Contracted | Flow::Unknown => {}
            }
            out.set(&axis, state);
        }
        Ok(())
    }

    /// Whether a dim that is counted from the start is the same one in the result: no operand that is whole has more dims than those
    /// that are split. A dim that is counted from the end stays where it is.
    pub fn dims_line_up(&self, operands: &[Operand], states: &[AxisState], dim: Option<i8>) -> bool {
        let rank_of = |o: &Operand| o.id.and_then(|id| self.w.heap.tensor(id)).and_then(TensorType::rank);
        let ranks = || operands.iter().filter_map(rank_of);
        let split = |o: &Operand, s: &AxisState| s.set == AxisType::V && o.role == Role::Term;
        // A parameter lines up with the last dims of what it meets, of which nobody knows how many there are.
        let is_parameter =
            |o: &Operand| o.id.and_then(|id| self.w.heap.tensor(id)).is_some_and(|t| t.divided.is_some());
        let open =
            |o: &Operand, s: &AxisState| o.role == Role::Term && o.id.is_some() && rank_of(o).is_none() && !split(o, s);
        let mut each = operands.iter().zip(states);
        if dim.is_some_and(|d| d >= 0)
            && each.clone().any(|(o, s)| split(o, s) && is_parameter(o))
            && each.any(|(o, s)| open(o, s))
        {
            return false;
        }
        if dim.is_some_and(|d| d < 0) || ranks().min() == ranks().max() {
            return true;
        }
        operands
            .iter()
            .zip(states)
            .filter(|(o, s)| split(o, s))
            .all(|(o, _)| rank_of(o).is_some_and(|r| Some(r) == ranks().max()))
    }

    /// Whether a split dim of a parameter is summed over: what it meets there has only the part that goes with it.
    pub fn contracts_part(&self, dims: &str, axis: &Axis, operands: &[Operand], splits: &[Split]) -> bool {
        let parameter = |o: &Operand| {
            if is_part(o, axis) {
                return true;
            }
            let mut at = o.id;
            // Seen through views such as its transpose.
            for _ in 0..super::limits::MAX_VALUE_DEPTH {
                let Some(t) = at.and_then(|id| self.w.heap.tensor(id)) else { return false };
                if t.divided.is_some() {
                    return true;
                }
                at = t.view_of.map(ObjId);
            }
            false
        };
        let known = operands.iter().zip(splits).enumerate().find(|(_, (o, s))| s.dim.is_some() && parameter(o));
        let Some((at, (_, split))) = known else { return false };
        operands.len() == 2
            && splits.iter().enumerate().all(|(i, s)| i == at || s.dim.is_none())
            && dims::contracts(dims, at, *split)
    }
}

/// Whether the first dim is the one that is split.
fn is_first(split: &Split) -> bool {
    let from_end = |dim: i8| split.rank.is_some_and(|rank| i64::from(dim) + rank as i64 == 0);
    split.dim.is_some_and(|dim| dim == 0 || from_end(dim))
}

/// Whether an operand is a parameter that is marked as a part, or made as one.
fn is_part(operand: &Operand, axis: &Axis) -> bool {
    let state = operand.ty.get(axis);
    state.set == AxisType::V && state.origin.as_ref().is_some_and(|o| o.reason == Reason::Parameter)
}

/// The split dims of parts of which only a mark is known, where they meet nothing but what is whole.
fn sole_dims(dims: &str, axis: &Axis, operands: &[Operand], splits: &mut [Split]) {
    let equal = |o: &Operand| !o.ty.get(axis).set.is_empty() && o.ty.get(axis).set.leq(AxisType::EQUAL);
    // What a factory makes is equal on all ranks, but may have the size of a part.
    let made = |o: &Operand| o.ty.get(axis).origin.as_ref().is_some_and(|o| o.reason == Reason::Factory);
    if !operands.iter().all(|o| is_part(o, axis) || equal(o) && !made(o)) {
        return;
    }
    let whole: Vec<bool> = operands.iter().map(equal).collect();
    for (at, split) in splits.iter_mut().enumerate().filter(|(_, s)| s.varying && s.dim.is_none()) {
        split.dim = dims::sole_dim(dims, at, split.rank, &whole);
    }
}
