//! Global types: which tensor dim is split over which axis, through operations and collectives, where the code is checked with
//! partition specs (`typecheck(local=False)`, or `global = true` in the configuration).
//!
//! In: a typed operation and its arguments. Out: the split dims of its result, or a [`Layout`] finding. Never: how a dim moves,
//! which `rules/shards` says. Source: DESIGN.md section 8; spmd_types 0.3.1 `_checker._infer_global_output_type`,
//! `_validate_partition_spec_for_global_spmd`, `_typecheck_spmd_function`. Next: `rules/shards/mod.rs`.

use super::collective::{Call, Side, short};
use super::expr::CallArgs;
use super::finding::{FindingKind, OperandAt};
use super::machine::Machine;
use super::op_results::sliced;
use super::ops::OpCall;
use super::value::{ObjId, Value};
use crate::ir::{Const, StmtId};
use crate::rules::shapes::ShapeRule;
use crate::rules::shards::{ASSUMED_RANK, Index, Piece, Placed, Reduction, Refusal, ShardCall, propagate};
use crate::source::Name;
use crate::types::{Axis, AxisState, AxisType, Dim, LocalType, Origin, Reason as Why, Shape, Spmd, TensorType};
use std::sync::Arc;

/// What is wrong with the split dims.
#[derive(Clone, Debug, PartialEq)]
pub enum Layout {
    /// Ranks cannot compute their part of the result from their part of the operands.
    Refused { axis: Axis, op: Name, dim: usize, refusal: Refusal, operand: OperandAt, other: Option<OperandAt> },
    /// A varying value of which nothing says which dim is split.
    NoSpec { axis: Axis, operand: OperandAt },
    /// A pending sum of which a dim is said to be split over the same axis.
    SplitSum { axis: Axis, dim: i8, operand: OperandAt },
    /// A redistribution over an axis inside of which another one splits the same dim.
    NotInnermost { axis: Axis, inner: Axis, name: Name, dim: usize, operand: OperandAt },
    /// A stated spec that contradicts the one that the tensor has.
    SpecConflict { dim: usize, known: Vec<Axis>, stated_dim: usize, stated: Vec<Axis>, operand: OperandAt },
    /// Two axes split one dim of the result, and nothing says which lies outside.
    NoOrder { dim: usize, axes: [Axis; 2], op: Name },
    /// Two operands split a dim over the same axes in different order.
    OtherOrder { axes: [Axis; 2], op: Name },
}

/// A tensor argument of an operation.
pub(super) struct Argument {
    pub id: ObjId,
    pub part: usize,
    pub param: usize,
}

impl Machine<'_> {
    /// Whether partition specs are followed here.
    pub fn is_global(&self) -> bool {
        self.w.modes.global
    }

    /// Every varying value says which dim is split.
    ///
    /// # Errors
    /// A finding was reported.
    pub(super) fn check_spec(&mut self, id: StmtId, tensor: ObjId, part: usize) -> Result<(), ()> {
        // Outside of `typecheck()` what is not stated is unknown, and silent.
        let strict = self.w.modes.typecheck.is_some();
        let Some(t) = self.w.heap.tensor(tensor).filter(|t| strict && !t.untracked) else { return Ok(()) };
        let at_odds = |s: &AxisState| (s.set == AxisType::V) != s.shard.is_some() && s.set.is_known();
        let Some((axis, state)) = t.local.listed().find(|(_, s)| at_odds(s)).map(|(a, s)| (a.clone(), s.clone()))
        else {
            return Ok(());
        };
        let shard = state.shard;
        let operand = OperandAt { place: Some(self.part(id, part)), state, is_number: false, is_divisor: false };
        let kind = match shard {
            None => Layout::NoSpec { axis, operand },
            Some(dim) => Layout::SplitSum { axis, dim, operand },
        };
        self.report(self.place(id), FindingKind::Layout(kind));
        Err(())
    }

    /// The tensors among the arguments of an operation, in the order of the call.
    pub(super) fn tensor_arguments(&self, call: &OpCall<'_>, args: &CallArgs) -> Vec<Argument> {
        let mut out = Vec::new();
        for (i, arg) in args.args.iter().enumerate() {
            if arg.keyword.as_deref() == Some("out") {
                continue;
            }
            let params = 0..call.rule.args.params.len();
            let param = params.clone().find(|p| call.bound.all(*p).contains(&i)).unwrap_or(params.end);
            let mut add = |value: &Value| {
                let id = match value {
                    Value::Tensor(id) => Some(*id),
                    // A parameter that was taken for a tensor when the operation was typed.
                    Value::Sym(path) => self.w.symbols.get(path).copied(),
                    _ => None,
                };
                out.extend(id.map(|id| Argument { id, part: arg.part, param }));
            };
            match self.literal_items(&arg.value) {
                Some(items) => items.iter().for_each(&mut add),
                None => add(&arg.value),
            }
        }
        out
    }

    /// Follows split dims through an operation whose local types are right. True if some of it was not followed.
    ///
    /// # Errors
    /// A finding was reported.
    pub(super) fn follow_shards(
        &mut self,
        id: StmtId,
        call: &OpCall<'_>,
        args: &CallArgs,
        out: &mut LocalType,
    ) -> Result<bool, ()> {
        let arguments = self.tensor_arguments(call, args);
        let tensors: Vec<TensorType> = arguments.iter().filter_map(|a| self.w.heap.tensor(a.id)).cloned().collect();
        if tensors.len() != arguments.len() {
            return Ok(true);
        }
        let given = self.givens(call, args);
        let index = match call.rule.shape {
            ShapeRule::Getitem | ShapeRule::Setitem => self.subscript(args),
            _ => Vec::new(),
        };
        let mut lost = tensors.iter().any(|t| t.untracked);
        let runtime = self.w.modes.typecheck.is_some();
        let axes: Vec<Axis> = out.listed().filter(|(_, s)| s.set == AxisType::V).map(|(a, _)| a.clone()).collect();
        for axis in axes {
            let mut state = out.get(&axis).clone();
            (state.shard, state.nest) = (None, 0);
            let split = tensors.iter().any(|t| t.local.get(&axis).shard.is_some());
            if split {
                let pieces: Vec<Piece> =
                    arguments.iter().zip(&tensors).map(|(a, t)| piece(a.param, t, &axis, runtime)).collect();
                let shards = ShardCall { rule: call.rule, given: &given, pieces: &pieces, index: &index, runtime };
                match propagate(&shards) {
                    Ok(Placed::Split(dim)) => state.shard = i8::try_from(dim).ok(),
                    Ok(Placed::FromEnd(dim)) => state.shard = i8::try_from(dim).ok().map(|d: i8| -d),
                    Ok(Placed::Pending) => state = self.pending(id, state),
                    Ok(Placed::Whole) => {}
                    Ok(Placed::Unknown) => lost = true,
                    // A mean of equally large parts is pending like a sum; what else the ranks reduce is no type of ours.
                    Err(Refusal::Reduced(Reduction::Mean)) if !runtime => state = self.pending(id, state),
                    Err(Refusal::Reduced(_)) if !runtime => {}
                    Err(refusal) => return self.refused(id, call, &axis, &arguments, &pieces, refusal),
                }
            }
            out.set(&axis, state);
        }
        self.order_axes(id, call, &tensors, out)?;
        Ok(lost)
    }

    /// A state after a sum over the ranks that is still to come.
    pub(super) fn pending(&self, id: StmtId, state: AxisState) -> AxisState {
        let from = state.origin.and_then(|o| o.from.clone());
        let origin = Origin {
            place: self.place(id),
            reason: Why::Computed,
            decided: Some(Spmd::Partial),
            from,
            keeps_part: None,
        };
        AxisState::new(AxisType::P).from(&Arc::new(origin))
    }

    fn refused(
        &mut self,
        id: StmtId,
        call: &OpCall<'_>,
        axis: &Axis,
        arguments: &[Argument],
        pieces: &[Piece],
        refusal: Refusal,
    ) -> Result<bool, ()> {
        let at = |m: &Self, i: usize| {
            let a = arguments.get(i)?;
            let state = m.w.heap.tensor(a.id)?.local.get(axis).clone();
            Some(OperandAt { place: Some(m.part(id, a.part)), state, is_number: false, is_divisor: false })
        };
        let Some(first) = pieces.iter().position(|p| p.shard.is_some()) else { return Ok(true) };
        let Some(operand) = at(self, first) else { return Ok(true) };
        let other = match refusal {
            Refusal::OtherWhole(i) | Refusal::OtherSplit(i) => at(self, i),
            _ => None,
        };
        let dim = pieces[first].shard.unwrap_or(0);
        let op = call.rule.name.clone();
        let kind = FindingKind::Layout(Layout::Refused { axis: axis.clone(), op, dim, refusal, operand, other });
        self.report(self.place(id), kind);
        Err(())
    }

    /// The order of axes that split one dim of the result, from that of the operands.
    fn order_axes(
        &mut self,
        id: StmtId,
        call: &OpCall<'_>,
        operands: &[TensorType],
        out: &mut LocalType,
    ) -> Result<(), ()> {
        let mut before: Vec<(Axis, Axis)> = Vec::new();
        for t in operands {
            for (_, axes) in spec_of(&t.local) {
                for pair in axes.windows(2) {
                    if leads(&before, &pair[1], &pair[0]) {
                        let axes = [pair[0].clone(), pair[1].clone()];
                        let kind = Layout::OtherOrder { axes, op: call.rule.name.clone() };
                        self.report(self.place(id), FindingKind::Layout(kind));
                        return Err(());
                    }
                    before.push((pair[0].clone(), pair[1].clone()));
                }
            }
        }
        for (dim, mut axes) in spec_of(out) {
            if axes.len() < 2 {
                continue;
            }
            for (i, a) in axes.iter().enumerate() {
                let unordered = |b: &&Axis| !leads(&before, a, b) && !leads(&before, b, a);
                if let Some(b) = axes[i + 1..].iter().find(unordered) {
                    let kind = Layout::NoOrder { dim, axes: [a.clone(), b.clone()], op: call.rule.name.clone() };
                    self.report(self.place(id), FindingKind::Layout(kind));
                    return Err(());
                }
            }
            axes.sort_by(
                |a, b| if leads(&before, a, b) { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater },
            );
            for (nest, axis) in axes.iter().enumerate() {
                let mut state = out.get(axis).clone();
                state.nest = u8::try_from(nest).unwrap_or(u8::MAX);
                out.set(axis, state);
            }
        }
        Ok(())
    }

    /// The parts of a subscript.
    pub(super) fn subscript(&self, args: &CallArgs) -> Vec<Index> {
        let Some(index) = args.positional(1) else { return vec![Index::Other] };
        let items = match index {
            Value::Tuple(items) => items.to_vec(),
            other => vec![other.clone()],
        };
        let shape = args.positional(0).and_then(|v| self.tensor(v)).and_then(|t| self.whole_shape(t));
        let takes = |v: &Value| !v.is_none() && !matches!(v, Value::Const(Const::Ellipsis));
        // Sizes of the dims that are left.
        let mut rest = shape.as_deref().unwrap_or_default();
        let mut out = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            let size = rest.first().copied().flatten();
            out.push(match item {
                Value::Const(Const::None) => Index::New,
                Value::Const(Const::Ellipsis) => Index::Ellipsis,
                Value::Const(Const::Int(_)) | Value::Number(_) | Value::Share(_) | Value::Rank(_) | Value::Edge(_) => {
                    Index::At
                }
                Value::Slice(parts) if parts.iter().all(Value::is_none) => Index::Full,
                Value::Slice(parts) if size.is_some() && sliced(size, parts) == size => Index::Full,
                Value::Slice(_) => Index::Part,
                _ => Index::Other,
            });
            let left = items[i + 1..].iter().filter(|v| takes(v)).count();
            rest = match item {
                Value::Const(Const::Ellipsis) => &rest[rest.len().saturating_sub(left)..],
                item if takes(item) => rest.get(1..).unwrap_or_default(),
                _ => rest,
            };
        }
        out
    }

    /// The sizes of a tensor with the parts that other ranks have.
    fn whole_shape(&self, t: &TensorType) -> Option<Vec<Dim>> {
        let mut sizes = t.shape.as_ref()?.0.clone();
        for (axis, state) in t.local.listed() {
            let Some(dim) = state.shard else { continue };
            let ranks = self.axis_size(axis).and_then(|n| i64::try_from(n).ok());
            if let Some(size) =
                crate::types::normalize_dim(i64::from(dim), sizes.len()).and_then(|at| sizes.get_mut(at))
            {
                *size = size.zip(ranks).and_then(|(size, n)| size.checked_mul(n));
            }
        }
        Some(sizes)
    }

    /// What a collective with types as arguments asks of the split dims of its input.
    ///
    /// # Errors
    /// A finding was reported.
    pub(super) fn check_redistribution(
        &mut self,
        id: StmtId,
        call: &Call<'_>,
        axis: &Axis,
        input: &TensorType,
        source: Side,
    ) -> Result<(), ()> {
        let state = input.local.get(axis);
        let Some(dim) = state.shard.and_then(|d| usize::try_from(d).ok()) else { return Ok(()) };
        let inner = input.local.listed().find(|(_, s)| s.shard == state.shard && s.nest > state.nest);
        let name = short(&call.rule.name);
        if let Some((inner, _)) = inner {
            let (axis, inner, operand) = (axis.clone(), inner.clone(), self.input_at(id, call, Some(axis)));
            let kind = Layout::NotInnermost { axis, inner, name, dim, operand };
            self.report(self.place(id), FindingKind::Layout(kind));
            return Err(());
        }
        if source.shard.is_some_and(|d| usize::try_from(d) != Ok(dim)) {
            let kind = FindingKind::CollectiveSource {
                op: call.rule.op.clone(),
                name,
                axis: axis.clone(),
                expected: source.set,
                dim: source.shard,
                operand: self.input_at(id, call, Some(axis)),
            };
            self.report(self.place(id), kind);
            return Err(());
        }
        Ok(())
    }

    /// A stated spec against the one that a tensor has: each dim is either not yet split, or split over the same axes in the same order.
    ///
    /// # Errors
    /// A finding was reported.
    pub(super) fn check_stated_spec(
        &mut self,
        t: &TensorType,
        stated: &[(usize, Vec<Axis>)],
        operand: OperandAt,
        at: crate::source::Place,
    ) -> Result<(), ()> {
        let known = spec_of(&t.local);
        for (dim, axes) in stated {
            let at_dim = known.iter().find(|(d, _)| d == dim).map(|(_, a)| a.clone()).unwrap_or_default();
            let elsewhere = known.iter().find(|(d, found)| d != dim && axes.iter().any(|a| found.contains(a)));
            let conflict = match (at_dim.is_empty(), elsewhere) {
                (true, Some((other, found))) => Some((*other, found.clone())),
                (true, None) => None,
                (false, _) => (at_dim != *axes).then_some((*dim, at_dim)),
            };
            if let Some((split, known)) = conflict {
                let kind = Layout::SpecConflict { dim: split, known, stated_dim: *dim, stated: axes.clone(), operand };
                self.report(at, FindingKind::Layout(kind));
                return Err(());
            }
        }
        Ok(())
    }
}

fn piece(param: usize, t: &TensorType, axis: &Axis, runtime: bool) -> Piece {
    // In ordinary code a tensor of unknown rank is taken to have dims between those counted from the start and those from the end.
    let assumed = if runtime { 0 } else { ASSUMED_RANK };
    let unknown = t.shape.is_none();
    let shape = t.shape.clone().unwrap_or_else(|| Shape(vec![None; assumed]));
    let split = t.local.get(axis).shard.map(i64::from);
    let shard = match unknown && runtime {
        true => split.and_then(|d| usize::try_from(d).ok()),
        false => split.and_then(|d| crate::types::normalize_dim(d, shape.rank())),
    };
    Piece { param, shape, unknown, shard }
}

/// Whether one axis lies outside another, by pairs that are known.
fn leads(before: &[(Axis, Axis)], outer: &Axis, inner: &Axis) -> bool {
    let mut reached = vec![outer];
    let mut at = 0;
    while let Some(axis) = reached.get(at).copied() {
        at += 1;
        for (a, b) in before {
            if a == axis && !reached.contains(&b) {
                if b == inner {
                    return true;
                }
                reached.push(b);
            }
        }
    }
    false
}

/// The axes by the dim that they split, from the outermost on.
pub(super) fn spec_of(local: &LocalType) -> Vec<(usize, Vec<Axis>)> {
    let mut out: Vec<(usize, Vec<(u8, Axis)>)> = Vec::new();
    for (axis, state) in local.listed() {
        let Some(dim) = state.shard.filter(|_| state.set == AxisType::V).and_then(|d| usize::try_from(d).ok()) else {
            continue;
        };
        match out.iter_mut().find(|(d, _)| *d == dim) {
            Some((_, axes)) => axes.push((state.nest, axis.clone())),
            None => out.push((dim, vec![(state.nest, axis.clone())])),
        }
    }
    out.into_iter()
        .map(|(dim, mut axes)| {
            axes.sort();
            (dim, axes.into_iter().map(|(_, a)| a).collect())
        })
        .collect()
}
