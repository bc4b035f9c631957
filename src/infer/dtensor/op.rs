//! Operations on distributed tensors. In: an operation's rule and its arguments, of which one at least lies on a mesh. Out: the result
//! with its placements where they are known, or a finding. Never: local types. Source: torch 2.15 `torch.distributed.tensor._ops` and
//! `_dispatch.py`, which `tests/dtensor.rs` records. Next: `mesh.rs`.

use super::found::{Cost, Distributed};
use super::placements::question;
use super::view::{Viewed, viewed};
use crate::infer::expr::CallArgs;
use crate::infer::finding::FindingKind;
use crate::infer::layout::Argument;
use crate::infer::machine::Machine;
use crate::infer::ops::OpCall;
use crate::infer::practice::expr::Expr;
use crate::infer::practice::view::View;
use crate::infer::value::Value;
use crate::ir::StmtId;
use crate::plan::{Placement, ReduceOp};
use crate::project::Resolved;
use crate::rules::shapes::ShapeRule;
use crate::rules::shards::{Piece, Placed, Reduction, Refusal, ShardCall, propagate};
use crate::rules::{Arg, Kind, OpClass, Role, Violation, apply};
use crate::types::{AxisType, Dist, LocalType, OnMesh, Shape, Spmd, Stated, TensorType, Tri};
use std::sync::Arc;

/// What an operation leaves on one mesh dim.
enum Outcome {
    Placed(Option<Placement>),
    /// A view that cuts a split dim: which, the size that the ranks do not divide, and their number.
    Cut {
        dim: usize,
        size: i64,
        ranks: u64,
    },
    /// A pending reduction is completed first.
    Completed {
        operand: usize,
        placement: Placement,
    },
}

impl Machine<'_> {
    /// An operation with a distributed tensor among its arguments; `None` if there is none, or if it asks for no values.
    pub(in crate::infer) fn distributed_op(&mut self, id: StmtId, call: &OpCall<'_>, args: &CallArgs) -> Option<Value> {
        let arguments = self.tensor_arguments(call, args);
        // Every operation comes by here; few have anything distributed.
        let first = arguments.iter().position(|a| self.w.heap.tensor(a.id).is_some_and(|t| t.dist.on().is_some()))?;
        let tensors: Vec<TensorType> =
            arguments.iter().map(|a| self.w.heap.tensor(a.id).cloned()).collect::<Option<_>>()?;
        let on = tensors.get(first)?.dist.on()?.clone();
        let kind = match call.rule.class {
            OpClass::Plain(kind) => kind,
            OpClass::Equal | OpClass::UnknownValues => {
                let value = self.results(id, call, args, Some(LocalType::unknown()));
                let whole =
                    |p: &Option<Placement>| p.filter(|p| matches!(p, Placement::Replicate | Placement::Shard(_)));
                let placements = on.placements.as_ref().map(|all| all.iter().map(whole).collect());
                let placements = placements.filter(|_| call.rule.shape == ShapeRule::Like);
                let like = OnMesh { mesh: on.mesh.clone(), placements, stated: Stated::default() };
                self.stamp(&value, &Dist::On(Arc::new(like)));
                return Some(value);
            }
            _ => return None,
        };
        // Of some operands only the shape matters.
        let alike = matches!(call.rule.shape, ShapeRule::ExpandAs | ShapeRule::ViewAs);
        let auto = on.mesh.as_deref().is_some_and(|mesh| mesh.auto);
        let fine = alike
            || auto
            || self.same_mesh(id, call, &arguments, &tensors) && self.unmixed(id, call, &arguments, &tensors, first);
        let placements = match fine {
            true => self.placements_after(id, call, args, kind, &arguments, &tensors),
            false => None,
        };
        let placements = if auto { placements.map(reduced_at_once) } else { placements };
        let value = self.results(id, call, args, Some(LocalType::unknown()));
        if !call.rule.in_place {
            let mesh = tensors.iter().find_map(|t| t.dist.on().and_then(|on| on.mesh.clone()));
            self.stamp(&value, &Dist::On(Arc::new(OnMesh { mesh, placements, stated: Stated::default() })));
        }
        Some(value)
    }

    /// Marks the tensors of a result.
    pub(in crate::infer) fn stamp(&mut self, value: &Value, dist: &Dist) {
        match value {
            Value::Tensor(id) => {
                if let Some(t) = self.w.heap.tensor_mut(*id) {
                    t.dist = dist.clone();
                }
            }
            Value::Tuple(items) => items.iter().for_each(|item| self.stamp(item, dist)),
            Value::List(list) => {
                let Some(cell) = self.list_cell(*list) else { return };
                cell.items.iter().chain(&cell.rest).for_each(|item| self.stamp(item, dist));
            }
            _ => {}
        }
    }

    /// Marks a result as a tensor of one process where nothing distributed went into it.
    pub(in crate::infer) fn mark_plain(&mut self, call: &OpCall<'_>, args: &CallArgs, value: &Value) {
        let Value::Tensor(result) = value else { return };
        if self.planning.is_some() {
            let arguments: Vec<_> = self.tensor_arguments(call, args).iter().map(|a| a.id).collect();
            self.keep_whole(call.rule.shape, &arguments, *result);
        }
        if args.open || call.rule.in_place || args.args.iter().any(|a| a.value == *value) {
            return;
        }
        let free = args.args.iter().all(|a| self.is_of_one_process(&a.value, 0));
        let tensors = args.args.iter().any(|a| matches!(a.value, Value::Tensor(_)));
        let made = matches!(call.rule.class, OpClass::Equal | OpClass::UnknownValues);
        if free
            && (tensors || made)
            && let Some(t) = self.w.heap.tensor_mut(*result)
        {
            t.dist = Dist::Plain;
        }
    }

    fn is_of_one_process(&self, value: &Value, depth: usize) -> bool {
        match value {
            Value::Tensor(id) => self.w.heap.tensor(*id).is_some_and(|t| t.dist == Dist::Plain),
            Value::Tuple(items) => depth < 3 && items.iter().all(|v| self.is_of_one_process(v, depth + 1)),
            Value::Const(_)
            | Value::Path(_)
            | Value::Number(_)
            | Value::Share(_)
            | Value::Size(_)
            | Value::Rank(_)
            | Value::Edge(_) => true,
            _ => false,
        }
    }

    /// Whether all distributed operands lie on one mesh, as far as is known.
    fn same_mesh(&mut self, id: StmtId, call: &OpCall<'_>, arguments: &[Argument], tensors: &[TensorType]) -> bool {
        // Lists are looked at one by one, and losses are composed: what is equal on all ranks passes there.
        if matches!(call.rule.shape, ShapeRule::Cat | ShapeRule::Stack | ShapeRule::Loss | ShapeRule::ClassLoss) {
            return true;
        }
        let mut seen: Option<(usize, _)> = None;
        for (i, t) in tensors.iter().enumerate() {
            let Some(mesh) = t.dist.on().and_then(|on| on.mesh.clone()) else { continue };
            // A scalar goes with any mesh.
            if t.rank().is_none_or(|rank| rank == 0) {
                continue;
            }
            let Some((j, first)) = &seen else {
                seen = Some((i, mesh));
                continue;
            };
            if mesh.differs(first) {
                let part = |i: usize| arguments.get(i).map_or(0, |a| a.part);
                let at = [self.part(id, part(*j)), self.part(id, part(i))];
                let kind = Distributed::TwoMeshes { op: call.rule.name.clone(), meshes: [first.clone(), mesh], at };
                self.report(self.place(id), FindingKind::Distributed(kind));
                return false;
            }
        }
        true
    }

    /// Whether no tensor of one process meets a distributed one.
    fn unmixed(
        &mut self,
        id: StmtId,
        call: &OpCall<'_>,
        arguments: &[Argument],
        tensors: &[TensorType],
        first: usize,
    ) -> bool {
        let many = |t: &TensorType| t.shape.as_ref().is_some_and(|s| s.0.iter().any(|n| n.is_some_and(|n| n > 1)));
        let Some(plain) = tensors.iter().position(|t| t.dist == Dist::Plain && many(t)) else { return true };
        // Its loss takes plain labels for replicated ones.
        let loss = matches!(call.rule.shape, ShapeRule::Loss | ShapeRule::ClassLoss);
        let may_mix = |m: &Self| m.project_says("implicit_replication") || loss && m.project_says("loss_parallel");
        if may_mix(self) || self.is_asked(id) {
            return true;
        }
        let part = |i: usize| arguments.get(i).map_or(0, |a| a.part);
        let kind = Distributed::Mixed {
            op: call.rule.name.clone(),
            distributed: self.part(id, part(first)),
            plain: self.part(id, part(plain)),
        };
        self.report(self.place(id), FindingKind::Distributed(kind));
        false
    }

    /// Whether a function is asked for what is known of the tensors around a statement: what it says is not followed.
    fn is_asked(&self, id: StmtId) -> bool {
        let view = View::new(self.project, self.rules, self.files, self.activation());
        let asks = |e: &Expr| match e {
            Expr::Call { callee, .. } => callee
                .path()
                .is_some_and(|path| path == "hasattr" || matches!(self.project.path(path), Resolved::Func(_))),
            _ => false,
        };
        let step = view.steps.iter().find(|step| step.id == id);
        step.is_some_and(|step| step.guards.iter().any(|g| view.expr(g.test).any(&mut |e| asks(e))))
    }

    /// Whether a word occurs anywhere in the project.
    pub(super) fn project_says(&self, word: &str) -> bool {
        self.files.any_says(word)
    }

    /// The placements of the result, one for each mesh dim.
    fn placements_after(
        &mut self,
        id: StmtId,
        call: &OpCall<'_>,
        args: &CallArgs,
        kind: Kind,
        arguments: &[Argument],
        tensors: &[TensorType],
    ) -> Option<Vec<Option<Placement>>> {
        let mut dims: Option<usize> = None;
        for t in tensors {
            if let Some(on) = t.dist.on() {
                let own = on.placements.as_ref()?.len();
                if dims.is_some_and(|n| n != own) {
                    return None;
                }
                dims = Some(own);
            }
        }
        let mut out = Vec::new();
        for mesh_dim in 0..dims? {
            out.push(match self.placed_outcome(call, args, kind, arguments, tensors, mesh_dim) {
                Outcome::Placed(placement) => placement,
                Outcome::Cut { dim, size, ranks } => {
                    if !tensors.iter().any(|t| t.dist.on().and_then(|on| on.mesh.as_ref()).is_some_and(|m| m.auto)) {
                        let operand = self.part(id, arguments.first().map_or(0, |a| a.part));
                        let op = call.rule.name.clone();
                        let kind = Distributed::View { op, operand, dim, size, ranks };
                        self.report(self.place(id), FindingKind::Distributed(kind));
                        return None;
                    }
                    None
                }
                Outcome::Completed { operand, placement } => {
                    self.completed(id, call, arguments, tensors, operand, mesh_dim, placement);
                    (tensors.len() == 1 && kind == Kind::Nonlinear && call.rule.whole.is_empty())
                        .then_some(Placement::Replicate)
                }
            });
        }
        Some(out)
    }

    fn placed_outcome(
        &mut self,
        call: &OpCall<'_>,
        args: &CallArgs,
        kind: Kind,
        arguments: &[Argument],
        tensors: &[TensorType],
        mesh_dim: usize,
    ) -> Outcome {
        let unknown = Outcome::Placed(None);
        // A value that is no tensor of the heap may be anything.
        let hidden = call.operands.iter().any(|o| o.id.is_none() && o.role != Role::Number);
        if hidden || args.open || arguments.is_empty() {
            return unknown;
        }
        let placed: Option<Vec<Placement>> = tensors
            .iter()
            .map(|t| match &t.dist {
                Dist::On(on) => on.placement(mesh_dim),
                Dist::Plain => Some(Placement::Replicate),
                Dist::Unknown => None,
            })
            .collect();
        let Some(placed) = placed else { return unknown };
        if placed.iter().all(|p| *p == Placement::Replicate) {
            return Outcome::Placed(Some(Placement::Replicate));
        }
        let split = placed.iter().any(|p| p.shard_dim().is_some());
        match placed.iter().position(|p| p.is_partial()) {
            None => match self.view_after(call, args, tensors, mesh_dim) {
                Some(outcome) => outcome,
                None => Outcome::Placed(self.split_after(call, args, arguments, tensors, &placed)),
            },
            Some(_) if split => unknown,
            Some(at) => pending_after(call, kind, &placed, at),
        }
    }

    /// What a view makes of a shard, where all sizes are known.
    fn view_after(
        &mut self,
        call: &OpCall<'_>,
        args: &CallArgs,
        tensors: &[TensorType],
        mesh_dim: usize,
    ) -> Option<Outcome> {
        if !matches!(call.rule.shape, ShapeRule::View | ShapeRule::Flatten | ShapeRule::Unflatten) {
            return None;
        }
        let [t] = tensors else { return None };
        let on = t.dist.on()?.clone();
        let Placement::Shard(dim) = on.placement(mesh_dim)? else { return None };
        let ranks = on.mesh.as_deref().filter(|m| !m.flat)?.axes.get(mesh_dim)?.1?;
        let known = |shape: &Shape| shape.0.iter().copied().collect::<Option<Vec<i64>>>();
        let from = known(t.shape.as_ref()?)?;
        let to = known(&self.one_shape(call, args)?)?;
        let split: Vec<usize> = on.placements.iter().flatten().flatten().filter_map(|p| p.shard_dim()).collect();
        Some(match viewed(&from, &to, dim, i64::try_from(ranks).ok()?, &split) {
            Viewed::Split(dim) => Outcome::Placed(Some(Placement::Shard(dim))),
            Viewed::Whole => Outcome::Placed(Some(Placement::Replicate)),
            Viewed::Uneven { size } => Outcome::Cut { dim, size, ranks },
            Viewed::Unknown => Outcome::Placed(None),
        })
    }

    /// Where a shard goes.
    fn split_after(
        &mut self,
        call: &OpCall<'_>,
        args: &CallArgs,
        arguments: &[Argument],
        tensors: &[TensorType],
        placed: &[Placement],
    ) -> Option<Placement> {
        let moves =
            matches!(call.rule.shape, ShapeRule::View | ShapeRule::Flatten | ShapeRule::Unflatten | ShapeRule::ViewAs);
        if moves || placed.iter().any(|p| p.is_strided()) {
            return None;
        }
        if tensors.iter().zip(placed).any(|(t, p)| t.shape.is_none() && p.shard_dim().is_some()) {
            return None;
        }
        let given = self.givens(call, args);
        let index = match call.rule.shape {
            ShapeRule::Getitem => self.subscript(args),
            _ => Vec::new(),
        };
        let pieces: Vec<Piece> = arguments
            .iter()
            .zip(tensors)
            .zip(placed)
            .map(|((a, t), p)| Piece {
                param: a.param,
                shape: t.shape.clone().unwrap_or_else(|| Shape(Vec::new())),
                unknown: t.shape.is_none(),
                shard: p.shard_dim(),
            })
            .collect();
        let shards = ShardCall { rule: call.rule, given: &given, pieces: &pieces, index: &index, runtime: false };
        match propagate(&shards) {
            Ok(Placed::Split(dim)) => Some(Placement::Shard(dim)),
            Ok(Placed::Pending) => Some(Placement::Partial(ReduceOp::Sum)),
            Ok(Placed::Whole) => Some(Placement::Replicate),
            Ok(Placed::FromEnd(_) | Placed::Unknown) => None,
            Err(Refusal::Reduced(Reduction::Mean)) => Some(Placement::Partial(ReduceOp::Avg)),
            Err(Refusal::Reduced(Reduction::Max)) => Some(Placement::Partial(ReduceOp::Max)),
            Err(Refusal::Reduced(Reduction::Min)) => Some(Placement::Partial(ReduceOp::Min)),
            Err(_) => None,
        }
    }

    /// A pending reduction that an operation completes before it begins.
    #[expect(clippy::too_many_arguments, reason = "the call, its operands, and which of them")]
    fn completed(
        &mut self,
        id: StmtId,
        call: &OpCall<'_>,
        arguments: &[Argument],
        tensors: &[TensorType],
        operand: usize,
        mesh_dim: usize,
        placement: Placement,
    ) {
        let (Some(argument), Some(t)) = (arguments.get(operand), tensors.get(operand)) else { return };
        let Some(on) = t.dist.on() else { return };
        if on.mesh.as_deref().is_some_and(|mesh| mesh.auto) {
            return;
        }
        let axis = on.axes().nth(mesh_dim).map(|(axis, _)| axis.clone()).filter(|a| !a.is_position());
        let (op, at) = (call.rule.name.clone(), self.part(id, argument.part));
        if call.rule.in_place && tensors.len() > 1 {
            return;
        }
        if call.rule.in_place {
            let kind = Distributed::InPlace { op, axis, placement, operand: at };
            return self.report(self.place(id), FindingKind::Distributed(kind));
        }
        // One number costs nothing worth a word.
        if t.shape.as_ref().is_some_and(|s| s.0.iter().all(|n| *n == Some(1))) {
            return;
        }
        let cost = cost(t, on, mesh_dim);
        let kind = Distributed::Implicit { op, axis, placement, operand: at, cost };
        self.report(self.place(id), FindingKind::Distributed(kind));
    }
}

/// What a compiler leaves: it takes pending sums where they arise.
fn reduced_at_once(placements: Vec<Option<Placement>>) -> Vec<Option<Placement>> {
    let taken = |p: Option<Placement>| if p.is_some_and(|p| p.is_partial()) { Some(Placement::Replicate) } else { p };
    placements.into_iter().map(taken).collect()
}

/// What an operation makes of a pending reduction.
fn pending_after(call: &OpCall<'_>, kind: Kind, placed: &[Placement], at: usize) -> Outcome {
    let pending = placed.get(at).copied().unwrap_or(Placement::Replicate);
    let others = placed.iter().filter(|p| p.is_partial());
    if others.clone().any(|p| *p != pending) || pending != Placement::Partial(ReduceOp::Sum) {
        return Outcome::Placed(None);
    }
    // One operand of the rule for each tensor: else some play another part.
    let tensors = call.operands.iter().filter(|o| o.id.is_some()).count();
    if tensors != placed.len() {
        return Outcome::Placed(None);
    }
    let mut each = placed.iter();
    let operands: Vec<Arg> = call
        .operands
        .iter()
        .map(|o| {
            let set = match o.id.and_then(|_| each.next()) {
                Some(p) if p.is_partial() => AxisType::P,
                _ => AxisType::R,
            };
            Arg { set, grad: Tri::No, role: o.role }
        })
        .collect();
    let whole = placed.contains(&Placement::Replicate);
    match apply(kind, &operands) {
        Ok(applied) if applied.result.known() == Some(Spmd::Partial) && keeps_pending(call, kind) => {
            Outcome::Placed(Some(pending))
        }
        Ok(_) => Outcome::Placed(None),
        // A whole term of a sum is divided among the ranks, which costs nothing.
        Err(Violation::PartialAffine) if whole => Outcome::Placed(None),
        Err(Violation::InvariantMixed) => Outcome::Placed(None),
        Err(_) => Outcome::Completed { operand: at, placement: pending },
    }
}

/// Whether the run time knows that an operation is linear; of some it does not.
fn keeps_pending(call: &OpCall<'_>, kind: Kind) -> bool {
    let rule = call.rule;
    let whole = rule.whole.is_empty() || rule.pending == Some(Reduction::Sum);
    let sums = rule.pending.is_none_or(|r| r == Reduction::Sum);
    whole && sums && !matches!(kind, Kind::Select | Kind::Affine) && rule.shape != ShapeRule::Diagonal
}

/// The bytes that an all-reduce of the tensor moves, where all sizes are known.
fn cost(t: &TensorType, on: &OnMesh, mesh_dim: usize) -> Option<Cost> {
    let mesh = on.mesh.as_deref().filter(|m| !m.flat)?;
    let ranks = mesh.axes.get(mesh_dim)?.1?;
    let shape = t.shape.as_ref().filter(|s| s.0.iter().all(Option::is_some))?;
    if mesh.axes.iter().any(|(_, n)| n.is_none()) {
        return None;
    }
    let from = on.known()?;
    let mut to = from.clone();
    *to.get_mut(mesh_dim)? = Placement::Replicate;
    let plan = question(Some(mesh), Some(shape), &from, &to).ok()??;
    Some(Cost { ranks, bytes: plan.forward.bytes() })
}
