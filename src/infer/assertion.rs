//! Types stated in the code: `assert_type`, `mutate_type`, and annotation comments on statements. In: a value and a declared type.
//! Out: the value so typed, or a finding that shows both. Never: parsing of comments (`syntax/`). Source: DESIGN.md section 3;
//! spmd_types 0.3.1 `runtime.assert_type`. Next: `settings.rs`.

use super::dtensor::found::Distributed;
use super::expr::CallArgs;
use super::finding::{AnnotationName, AnnotationProblem, ArgumentProblem, Declared, FindingKind, OperandAt};
use super::formula::{Atom as Atom_, Formula};
use super::intrinsics::atom_set;
use super::machine::Machine;
use super::value::{ObjId, Value};
use crate::ir::annotation::{Alt, Atom, AxisAtom, ClauseKind, Cond, Target, TypeExpr, TypedTarget};
use crate::ir::{Claim, Const, StmtId};
use crate::source::{Name, Place};
use crate::types::{Axis, AxisSet, AxisState, AxisType, Origin, Reason as Why, Shape, Spmd, TensorType, Tri};

/// A declared type, resolved: axes with their atoms, in order; `rest` for a bare atom.
#[derive(Clone, Debug, Default)]
pub struct DeclaredType {
    pub entries: Vec<(Axis, Atom)>,
    pub rest: Option<Atom>,
    /// Rank, if the notation shows it.
    pub rank: Option<usize>,
}

impl DeclaredType {
    /// The stated axes by the dim that they split, in the order in which they are written.
    fn spec(&self) -> Vec<(usize, Vec<Axis>)> {
        let mut out: Vec<(usize, Vec<Axis>)> = Vec::new();
        for (axis, atom) in &self.entries {
            let Atom::Shard(dim) = atom else { continue };
            let Ok(dim) = usize::try_from(*dim) else { continue };
            match out.iter_mut().find(|(d, _)| *d == dim) {
                Some((_, axes)) => axes.push(axis.clone()),
                None => out.push((dim, vec![axis.clone()])),
            }
        }
        out
    }

    /// How many of the axes that split the same dim are written before this one.
    fn nest(&self, axis: &Axis) -> u8 {
        let at = self.spec().iter().find_map(|(_, axes)| axes.iter().position(|a| a == axis));
        at.and_then(|n| u8::try_from(n).ok()).unwrap_or(0)
    }
}

impl Machine<'_> {
    /// `assert_type(tensor, types, spec)`: checks what is known, and declares what is not.
    pub fn assert_type(&mut self, id: StmtId, args: &CallArgs) -> Value {
        let Some(target) = args.get(0, "tensor").cloned() else { return Value::Unknown };
        if let Some(items) = self.asserted_items(&target) {
            for item in &items {
                let mut one = args.clone();
                if let Some(first) = one.args.first_mut() {
                    first.value = item.clone();
                }
                self.assert_type(id, &one);
            }
            return target;
        }
        let Some(tensor) = self.as_tensor(&target) else { return target };
        let rank = self.w.heap.tensor(tensor).and_then(TensorType::rank);
        let Some(declared) = self.declared_arguments(id, args, rank) else { return target };
        let part = args.args.first().map_or(0, |a| a.part);
        let place = self.place(id);
        let at = self.part(id, part);
        if self.declare(id, tensor, &declared, Declared::Assertion, place, at) {
            self.changed.push(tensor);
        }
        target
    }

    /// The tensors of a sequence that is asserted one by one, as far as they are known.
    fn asserted_items(&self, target: &Value) -> Option<Vec<Value>> {
        match target {
            Value::Tuple(items) => Some(items.to_vec()),
            Value::List(id) => Some(self.list_cell(*id)?.items.clone()),
            _ => None,
        }
    }

    /// `assert_type_like(tensor, source, overrides)`: the types of another tensor, but for some axes.
    pub fn assert_type_like(&mut self, id: StmtId, args: &CallArgs) -> Value {
        let Some(target) = args.get(0, "tensor").cloned() else { return Value::Unknown };
        let source = args.get(1, "source").cloned().and_then(|source| self.tensor(&source).cloned());
        let (Some(tensor), Some(source)) = (self.as_tensor(&target), source) else { return target };
        let over = match args.get(2, "overrides").cloned() {
            None | Some(Value::Const(Const::None)) => Some(Vec::new()),
            Some(types) => self.type_dict(&types),
        };
        let Some(over) = over.filter(|_| !source.untracked) else { return target };
        let mut declared = DeclaredType::default();
        for (axis, state) in source.local.listed() {
            let atom = match (state.set.known(), state.shard) {
                (Some(Spmd::Varying), Some(dim)) => Atom::Shard(i32::from(dim)),
                (Some(Spmd::Varying), None) => Atom::Varying,
                (Some(Spmd::Replicate), _) => Atom::Replicate,
                (Some(Spmd::Invariant), _) => Atom::Invariant,
                (Some(Spmd::Partial), _) => Atom::Partial,
                (None, _) => return target,
            };
            declared.entries.push((axis.clone(), atom));
        }
        for (axes, atom) in over {
            for axis in axes.iter() {
                declared.entries.retain(|(a, _)| a != axis);
                declared.entries.push((axis.clone(), atom));
            }
        }
        let (place, at) = (self.place(id), self.part(id, args.args.first().map_or(0, |a| a.part)));
        if self.declare(id, tensor, &declared, Declared::Assertion, place, at) {
            self.changed.push(tensor);
        }
        target
    }

    /// The types and the partition spec given to an assertion; `None` after a finding or when they are not known.
    fn declared_arguments(&mut self, id: StmtId, args: &CallArgs, rank: Option<usize>) -> Option<DeclaredType> {
        let mut out = DeclaredType::default();
        let mut shards: Vec<(i8, Axis)> = Vec::new();
        let mut spec = None;
        for arg in args.args.iter().skip(1) {
            match &arg.value {
                Value::Dict(_) => {
                    let entries = self.type_dict(&arg.value)?;
                    for (axes, atom) in entries {
                        for axis in axes.iter() {
                            let atom = self.canonical_atom(id, atom, rank)?;
                            if let Atom::Shard(dim) = atom {
                                let dim = i8::try_from(dim).ok()?;
                                if shards.iter().any(|(d, _)| *d == dim) {
                                    let name = Name::from("assert_type");
                                    let kind = FindingKind::BadArguments {
                                        name,
                                        problem: ArgumentProblem::UnorderedShards(dim),
                                    };
                                    self.report(self.place(id), kind);
                                    return None;
                                }
                                shards.push((dim, axis.clone()));
                            }
                            out.entries.push((axis.clone(), atom));
                        }
                    }
                }
                Value::Atom(atom) => out.rest = Some(*atom),
                Value::Spec(dims) => spec = Some(dims.clone()),
                Value::Const(Const::None) => {}
                _ => return None,
            }
        }
        if let Some(dims) = spec {
            self.add_spec(id, &dims, rank, &mut out)?;
        }
        Some(out)
    }

    fn add_spec(&mut self, id: StmtId, dims: &[Vec<Axis>], rank: Option<usize>, out: &mut DeclaredType) -> Option<()> {
        if let Some(rank) = rank.filter(|r| *r != dims.len()) {
            let problem = AnnotationProblem::WrongRank { entries: dims.len(), rank };
            self.report(self.place(id), FindingKind::AnnotationMisfit { problem });
            return None;
        }
        for (dim, axes) in dims.iter().enumerate() {
            for axis in axes {
                let stated = out.entries.iter().find(|(a, _)| a == axis).map(|(_, t)| *t);
                match stated {
                    None | Some(Atom::Varying) => {
                        out.entries.retain(|(a, _)| a != axis);
                        out.entries.push((axis.clone(), Atom::Shard(i32::try_from(dim).ok()?)));
                    }
                    Some(other) => {
                        let problem = ArgumentProblem::ShardOf(super::intrinsics::atom_type(other));
                        let kind = FindingKind::BadArguments { name: Name::from("assert_type"), problem };
                        self.report(self.place(id), kind);
                        return None;
                    }
                }
            }
        }
        Some(())
    }

    /// A shard dim counted from 0; a finding if the tensor has fewer dims.
    fn canonical_atom(&mut self, id: StmtId, atom: Atom, rank: Option<usize>) -> Option<Atom> {
        let (Atom::Shard(dim), Some(rank)) = (atom, rank) else { return Some(atom) };
        match crate::types::normalize_dim(i64::from(dim), rank) {
            Some(at) => i32::try_from(at).ok().map(Atom::Shard),
            None => {
                let kind = FindingKind::ShardOutOfRange { dim: i64::from(dim), rank, operand: None };
                self.report(self.place(id), kind);
                None
            }
        }
    }

    /// Checks a declared type against what is known of a tensor, and sets what is not. False after a finding.
    pub fn declare(
        &mut self,
        id: StmtId,
        tensor: ObjId,
        declared: &DeclaredType,
        what: Declared,
        by: Place,
        at: Place,
    ) -> bool {
        let Some(mut t) = self.w.heap.tensor(tensor).cloned() else { return true };
        let checked = self.w.modes.typecheck.is_some() && what == Declared::Assertion;
        let reason = if what == Declared::Assertion { Why::Asserted } else { Why::Declared };
        if checked {
            let operand = OperandAt { place: Some(at), state: AxisState::UNKNOWN, is_number: false, is_divisor: false };
            if self.check_stated_spec(&t, &declared.spec(), operand, at).is_err() {
                self.forget_types(tensor);
                return false;
            }
        }
        let mut all = declared.entries.clone();
        if self.placed_otherwise(&t, declared, by, at) {
            return false;
        }
        if let Some(rest) = declared.rest {
            let named = self.whole_mesh().map(|set| set.iter().cloned().collect::<Vec<_>>()).unwrap_or_default();
            all.extend(named.into_iter().filter(|a| !declared.entries.iter().any(|(b, _)| a == b)).map(|a| (a, rest)));
        }
        for (axis, atom) in &all {
            let known = t.local.get(axis).clone();
            let set = atom_set(*atom);
            let shard = match atom {
                Atom::Shard(dim) => i8::try_from(*dim).ok(),
                _ => None,
            };
            // A varying value may be declared the pending sum that it is about to be.
            let transmuted = known.set.contains(Spmd::Varying) && set == AxisType::P || t.zero && !checked;
            let adopted = !checked
                && t.grad == crate::types::Tri::No
                && known.set.leq(AxisType::EQUAL)
                && set.leq(AxisType::EQUAL);
            let shards_differ =
                matches!((known.shard, shard), (Some(a), Some(b)) if t.dims_differ(a, b) && known.set == AxisType::V);
            let apart = !checked && self.is_restricted(axis);
            if ((known.set.meet(set).is_empty() && !transmuted && !adopted) || shards_differ) && !apart {
                let declared = AxisState { set, shard, nest: 0, origin: None };
                let operand = OperandAt { place: Some(at), state: known, is_number: false, is_divisor: false };
                let kind = FindingKind::DeclaredMismatch {
                    axis: axis.clone(),
                    what,
                    declared,
                    found: operand,
                    declared_at: by,
                };
                self.report(at, kind);
                self.forget_types(tensor);
                return false;
            }
            let origin = Origin::new(by, reason.clone(), set.known());
            let origin = if known.set == set { known.origin.unwrap_or(origin) } else { origin };
            // The run-time checker keeps the spec of what it now takes for a pending sum, and refuses the next use.
            let kept = known.shard.filter(|_| set == AxisType::V || (checked && set == AxisType::P));
            let nest = if shard.is_some() { declared.nest(axis) } else { known.nest };
            t.local.set(axis, AxisState { set, shard: shard.or(kept), nest, origin: Some(origin) });
        }
        if let (Some(rest), true) = (declared.rest, t.local.rest.set.is_unknown()) {
            t.local.rest = AxisState::new(atom_set(rest)).from(&Origin::new(by, reason, atom_set(rest).known()));
        }
        if let (Some(rank), None) = (declared.rank, &t.shape) {
            t.shape = Some(Shape(vec![None; rank]));
        }
        let _ = id;
        if self.w.heap.tensor(tensor) != Some(&t) {
            self.retype(tensor, t);
        }
        true
    }

    /// Whether the placements of a distributed tensor are others than what is stated of it.
    fn placed_otherwise(&mut self, t: &TensorType, declared: &DeclaredType, by: Place, at: Place) -> bool {
        let Some(on) = t.dist.on() else { return false };
        let mut other = None;
        for (axis, atom) in &declared.entries {
            let Some((_, Some(placement))) = on.axes().find(|(a, _)| *a == axis) else { continue };
            let mut state = AxisState::new(atom_set(*atom));
            if let Atom::Shard(dim) = atom {
                state.shard = i8::try_from(*dim).ok();
            }
            if super::dtensor::differs(&state, placement, t.rank()) {
                other = Some((axis.clone(), state, placement));
                break;
            }
        }
        let Some((axis, state, placement)) = other else { return false };
        let kind = Distributed::Notations {
            axis,
            state,
            placement,
            stated: on.stated.0,
            here: false,
            value: Some(at),
            by: Some(by),
        };
        self.report(at, FindingKind::Distributed(kind));
        true
    }

    pub(super) fn forget_types(&mut self, tensor: ObjId) {
        if let Some(t) = self.w.heap.tensor(tensor).cloned() {
            self.retype(tensor, TensorType { local: crate::types::LocalType::unknown(), untracked: true, ..t });
        }
    }

    /// `reinterpret_no_grad(tensor, axis, dst=)`: Replicate becomes Invariant, or the other way round, where there is no gradient to tell them apart.
    pub fn reinterpret_no_grad(&mut self, id: StmtId, args: &CallArgs) -> Value {
        let Some(target) = args.get(0, "tensor").cloned() else { return Value::Unknown };
        let axes = args.get(1, "axis").cloned().and_then(|axis| self.axes_of_value(&axis));
        let (Some(tensor), Some(axes), Some(Value::Atom(dst))) =
            (self.as_tensor(&target), axes, args.keyword("dst").cloned())
        else {
            return target;
        };
        let Some(mut t) = self.w.heap.tensor(tensor).cloned() else { return target };
        let equal = |set: AxisType| !set.meet(AxisType::EQUAL).is_empty();
        let wrong = axes.iter().find(|axis| !equal(t.local.get(axis).set) || !equal(atom_set(dst)));
        let problem = match (t.grad, wrong) {
            (Tri::Yes, _) => Some(ArgumentProblem::RequiresGradient),
            (_, Some(axis)) => Some(ArgumentProblem::NotEqual(axis.clone())),
            (Tri::No | Tri::Unknown, None) => None,
        };
        if let Some(problem) = problem {
            self.report(self.place(id), FindingKind::BadArguments { name: Name::from("reinterpret_no_grad"), problem });
            self.forget_types(tensor);
            return target;
        }
        for axis in axes.iter() {
            let state = self.asserted(id, dst);
            t.local.set(axis, state);
        }
        self.retype(tensor, t);
        target
    }

    /// What `mutate_type` changes: axes, with what they are and what they become; `None` if that is not known.
    fn mutations(&mut self, tensor: ObjId, args: &CallArgs) -> Option<Vec<(Axis, Atom, Atom)>> {
        let axes = match args.get(1, "axis").cloned().filter(|axis| !axis.is_none()) {
            Some(axis) => Some(self.axes_of_value(&axis)?),
            None => None,
        };
        let (src, dst) = (args.keyword("src").cloned()?, args.keyword("dst").cloned()?);
        let by_axis = |entries: Vec<(AxisSet, Atom)>| -> Vec<(Axis, Atom)> {
            entries.iter().flat_map(|(axes, atom)| axes.iter().map(|a| (a.clone(), *atom))).collect()
        };
        let all = |axes: Vec<Axis>, src: Atom, dst: Atom| axes.into_iter().map(|a| (a, src, dst)).collect();
        match (&src, &dst) {
            (Value::Atom(src), Value::Atom(dst)) => {
                let listed = || self.w.heap.tensor(tensor).map(|t| t.local.listed().map(|(a, _)| a.clone()).collect());
                Some(all(axes.map(|axes| axes.iter().cloned().collect()).or_else(listed)?, *src, *dst))
            }
            (Value::Atom(src), _) => {
                let to = by_axis(self.type_dict(&dst)?);
                Some(to.into_iter().map(|(axis, dst)| (axis, *src, dst)).collect())
            }
            (_, Value::Atom(dst)) => {
                let from = by_axis(self.type_dict(&src)?);
                Some(from.into_iter().map(|(axis, src)| (axis, src, *dst)).collect())
            }
            _ => {
                let (from, to) = (by_axis(self.type_dict(&src)?), by_axis(self.type_dict(&dst)?));
                let other = |axis: &Axis| to.iter().find(|(a, _)| a == axis).map(|(_, t)| *t);
                from.iter().map(|(axis, src)| Some((axis.clone(), *src, other(axis)?))).collect()
            }
        }
    }

    /// `mutate_type(tensor, axis, src=, dst=)`; without an axis `src` and `dst` say of which axes, or are of all that the tensor has.
    pub fn mutate_type(&mut self, id: StmtId, args: &CallArgs) -> Value {
        let Some(target) = args.get(0, "tensor").cloned() else { return Value::Unknown };
        let Some(tensor) = self.as_tensor(&target) else { return target };
        let Some(updates) = self.mutations(tensor, args) else {
            self.forget_types(tensor);
            return target;
        };
        let Some(mut t) = self.w.heap.tensor(tensor).cloned() else { return target };
        for (axis, src, dst) in &updates {
            let known = t.local.get(axis).clone();
            if known.set.meet(atom_set(*src)).is_empty() {
                let place = Some(self.part(id, 1));
                let declared = AxisState::new(atom_set(*src));
                let found = OperandAt { place, state: known, is_number: false, is_divisor: false };
                let at = self.place(id);
                let kind = FindingKind::DeclaredMismatch {
                    axis: axis.clone(),
                    what: Declared::Assertion,
                    declared,
                    found,
                    declared_at: at,
                };
                self.report(at, kind);
                self.forget_types(tensor);
                return target;
            }
            let mut state = self.asserted(id, *dst);
            // What the spec says of a split dim it goes on to say.
            state.shard = known.shard.filter(|_| state.set == AxisType::V);
            t.local.set(axis, state);
        }
        self.retype(tensor, t);
        target
    }

    /// The annotation comments whose logical line ends with this statement.
    pub fn claims_after(&mut self, id: StmtId) {
        let func = self.func();
        let start = func.claims.partition_point(|c| c.stmt < id);
        for claim in func.claims[start..].iter().take_while(|c| c.stmt == id) {
            self.claim(id, claim);
        }
    }

    fn claim(&mut self, id: StmtId, claim: &Claim) {
        for clause in &claim.annotation.clauses {
            match &clause.kind {
                ClauseKind::Bare(types) => {
                    if types.len() > claim.targets.len() && !claim.targets.is_empty() {
                        let place = self.place_of(clause.span);
                        self.report(place, FindingKind::AnnotationMisfit { problem: AnnotationProblem::TooManyTypes });
                        continue;
                    }
                    for (target, ty) in claim.targets.iter().zip(types) {
                        if let Some(value) = self.claim_target(target) {
                            self.claim_value(id, &value, ty);
                        }
                    }
                }
                ClauseKind::Named(targets) => {
                    for typed in targets {
                        if let Some(value) = self.named_target(typed) {
                            self.claim_named(id, claim, &value, typed);
                        }
                    }
                }
                ClauseKind::Trust(targets) => {
                    for typed in targets {
                        if let Some(value) = self.named_target(typed) {
                            if let Some(tensor) = self.as_tensor(&value) {
                                self.forget_types(tensor);
                            }
                            self.claim_value(id, &value, &typed.ty);
                        }
                    }
                }
                ClauseKind::Param { target, ty, reduce: _ } => {
                    let typed = TypedTarget { target: target.clone(), ty: ty.clone(), span: clause.span };
                    if let Some(value) = self.named_target(&typed) {
                        self.claim_value(id, &value, ty);
                    }
                }
                ClauseKind::Assume(cond) => self.assume_cond(cond),
                ClauseKind::Signature { .. }
                | ClauseKind::Mesh { .. }
                | ClauseKind::Alias { .. }
                | ClauseKind::Group { .. }
                | ClauseKind::Flag(_)
                | ClauseKind::Mode(_)
                | ClauseKind::Extern { .. } => {}
            }
        }
    }

    /// A condition of an annotation where it stands: a name is the variable of the function, the attribute of its receiver, or a flag.
    pub fn cond_here(&mut self, cond: &Cond) -> Formula {
        match cond {
            Cond::Const(b) => Formula::Const(*b),
            Cond::Not(c) => self.cond_here(c).negate(),
            Cond::And(items) => Formula::And(items.iter().map(|c| self.cond_here(c)).collect()),
            Cond::Or(items) => Formula::Or(items.iter().map(|c| self.cond_here(c)).collect()),
            Cond::Flag(name) => match self.named_here(name) {
                Some(value @ (Value::Cond(_) | Value::Const(_))) => self.formula(&value),
                Some(Value::Sym(path)) => Formula::Atom(Atom_::True(self.flag_name(&path))),
                Some(_) | None => super::settings::cond_formula(cond),
            },
            Cond::Equals(name, constant) => match self.named_here(name) {
                Some(Value::Const(c)) => Formula::Const(c == *constant),
                Some(Value::Sym(path)) => {
                    let name = self.flag_name(&path);
                    Formula::Atom(match constant {
                        Const::None => Atom_::IsNone(name),
                        Const::Bool(true) => Atom_::True(name),
                        c => Atom_::Equals(name, c.clone()),
                    })
                }
                Some(_) | None => super::settings::cond_formula(cond),
            },
        }
    }

    /// What a dotted name of an annotation means in the function under execution.
    fn named_here(&mut self, name: &str) -> Option<Value> {
        let func = self.func();
        let mut parts = name.split('.');
        let first = parts.next()?;
        let local = func.locals().named(first);
        let mut value = match local.map(|l| self.local(l)).filter(|v| *v != Value::Unset) {
            Some(value) => value,
            None => {
                // A bare name may be an attribute of the receiver.
                let receiver = func.params.first().filter(|p| p.name == "self").map(|p| p.local)?;
                match self.local(receiver) {
                    Value::Object(id) => self.w.heap.object(id)?.get(first)?.clone(),
                    _ => return None,
                }
            }
        };
        for part in parts {
            value = self.attr_quietly(&value, &Name::from(part));
        }
        Some(value)
    }

    pub fn assume_cond(&mut self, cond: &Cond) {
        let formula = super::settings::cond_formula(cond);
        if let super::formula::Outcome::Open(atom) = self.outcome(&formula) {
            let value = !matches!(formula, super::formula::Formula::Not(_));
            self.w.facts = self.w.facts.with(atom, value);
        }
    }

    /// The value that a named target means; a name that is not there is a finding.
    pub fn named_target(&mut self, typed: &TypedTarget) -> Option<Value> {
        let local = |m: &Self, name: &Name| m.func().locals().named(name);
        let base = match &typed.target {
            Target::Name(name) | Target::Attr(name, _) | Target::Index(name, _) | Target::Key(name, _) => name,
            Target::Return => return None,
        };
        let Some(at) = local(self, base) else {
            let near = self.nearest_local(base);
            let place = self.place_of(typed.span);
            self.report(
                place,
                FindingKind::UnknownInAnnotation { what: AnnotationName::Variable, name: base.clone(), near },
            );
            return None;
        };
        let mut value = self.local(at);
        match &typed.target {
            Target::Attr(_, path) => {
                for name in path {
                    value = self.attr_quietly(&value, name);
                }
            }
            Target::Index(_, n) => value = self.claim_item(&value, &Value::int(*n)),
            Target::Key(_, key) => value = self.claim_item(&value, &Value::str(key.clone())),
            Target::Name(_) | Target::Return => {}
        }
        Some(value)
    }

    fn claim_item(&mut self, base: &Value, key: &Value) -> Value {
        match base {
            Value::Sym(path) => {
                let path = path.clone();
                self.symbol_item(&path, key)
            }
            Value::Tuple(items) => {
                key.as_int().and_then(|n| items.get(usize::try_from(n).ok()?)).cloned().unwrap_or(Value::Unknown)
            }
            Value::Dict(_) | Value::List(_) => self
                .literal_items(base)
                .and_then(|items| key.as_int().and_then(|n| items.get(usize::try_from(n).ok()?).cloned()))
                .or_else(|| match base {
                    Value::Dict(id) => match self.w.heap.get(*id) {
                        Some(super::heap::Cell::Dict(cell)) => cell.get(key).cloned(),
                        _ => None,
                    },
                    _ => None,
                })
                .unwrap_or(Value::Unknown),
            _ => Value::Unknown,
        }
    }

    fn nearest_local(&self, name: &str) -> Option<Name> {
        let candidates = self.func().locals().iter().map(|l| &l.name);
        super::settings::nearest(name, candidates)
    }

    /// Checks or declares the type of what a comment names: where the line assigns it, or where the comment stands.
    fn claim_named(&mut self, id: StmtId, claim: &Claim, value: &Value, typed: &TypedTarget) {
        let at = if claim.targets.is_empty() && !claim.trailing {
            let name = crate::source::Span::new(typed.span.start, typed.ty.span.start);
            let text = self.files[self.place_of(name).file].slice(name);
            let end = typed.span.start + text.trim_end_matches([' ', ':']).len() as u32;
            self.place_of(crate::source::Span::new(typed.span.start, end))
        } else {
            self.place(id)
        };
        self.claim_at(id, value, &typed.ty, at);
    }

    /// Checks or declares a value's type by a comment.
    pub fn claim_value(&mut self, id: StmtId, value: &Value, ty: &TypeExpr) {
        let at = self.place(id);
        self.claim_at(id, value, ty, at);
    }

    fn claim_at(&mut self, id: StmtId, value: &Value, ty: &TypeExpr, at: crate::source::Place) {
        let Some(tensor) = self.as_tensor(value) else { return };
        let rank = self.w.heap.tensor(tensor).and_then(TensorType::rank);
        let Some(declared) = self.resolve_type(ty, rank) else { return };
        let by = self.place_of(ty.span);
        self.declare(id, tensor, &declared, Declared::Comment, by, at);
        self.changed.push(tensor);
    }

    /// A written type in the present world; `None` if it says nothing here, or after a finding.
    pub fn resolve_type(&mut self, ty: &TypeExpr, rank: Option<usize>) -> Option<DeclaredType> {
        for (cond, alt) in &ty.alternatives {
            let holds = match cond {
                None => true,
                Some(cond) => {
                    let formula = self.cond_here(cond);
                    match self.outcome(&formula) {
                        super::formula::Outcome::Decided(b) => b,
                        super::formula::Outcome::Open(_) => return None,
                    }
                }
            };
            if holds {
                return self.resolve_alt(ty, alt, rank);
            }
        }
        None
    }

    fn resolve_alt(&mut self, ty: &TypeExpr, alt: &Alt, rank: Option<usize>) -> Option<DeclaredType> {
        let mut out = DeclaredType::default();
        match alt {
            Alt::Unknown => return None,
            Alt::Atom(atom) => out.rest = Some(*atom),
            Alt::Map(entries) => self.add_map(entries, rank, &mut out)?,
            Alt::Spec(dims) => {
                let mut resolved = Vec::new();
                for dim in dims {
                    let mut axes = Vec::new();
                    for name in dim {
                        axes.extend(self.axis_in_annotation(name, ty)?.iter().cloned());
                    }
                    resolved.push(axes);
                }
                self.add_dims(ty, &resolved, rank, &mut out)?;
            }
            Alt::Dims { dims, map } => {
                let mut resolved = Vec::new();
                for dim in dims {
                    let mut axes = Vec::new();
                    for name in &dim.over {
                        axes.extend(self.axis_in_annotation(name, ty)?.iter().cloned());
                    }
                    resolved.push(axes);
                }
                self.add_map(map, rank, &mut out)?;
                self.add_dims(ty, &resolved, rank, &mut out)?;
            }
        }
        Some(out)
    }

    fn add_dims(
        &mut self,
        ty: &TypeExpr,
        dims: &[Vec<Axis>],
        rank: Option<usize>,
        out: &mut DeclaredType,
    ) -> Option<()> {
        let place = self.place_of(ty.span);
        if let Some(rank) = rank.filter(|r| *r != dims.len()) {
            let problem = AnnotationProblem::WrongRank { entries: dims.len(), rank };
            self.report(place, FindingKind::AnnotationMisfit { problem });
            return None;
        }
        out.rank = Some(dims.len());
        for (dim, axes) in dims.iter().enumerate() {
            for axis in axes {
                if out.entries.iter().any(|(a, t)| a == axis && matches!(t, Atom::Shard(_))) {
                    self.report(place, FindingKind::AnnotationMisfit { problem: AnnotationProblem::RepeatedAxis });
                    return None;
                }
                out.entries.retain(|(a, _)| a != axis);
                out.entries.push((axis.clone(), Atom::Shard(i32::try_from(dim).ok()?)));
            }
        }
        Some(())
    }

    fn add_map(&mut self, entries: &[AxisAtom], rank: Option<usize>, out: &mut DeclaredType) -> Option<()> {
        for entry in entries {
            let mut atom = entry.atom;
            if let (Atom::Shard(dim), Some(rank)) = (atom, rank) {
                match crate::types::normalize_dim(i64::from(dim), rank) {
                    Some(at) => atom = Atom::Shard(i32::try_from(at).ok()?),
                    None => {
                        let place = self.place_of(entry.span);
                        self.report(place, FindingKind::ShardOutOfRange { dim: i64::from(dim), rank, operand: None });
                        return None;
                    }
                }
            }
            for name in &entry.axes {
                let ty = TypeExpr { span: entry.span, alternatives: Vec::new() };
                for axis in self.axis_in_annotation(name, &ty)?.iter() {
                    out.entries.push((axis.clone(), atom));
                }
            }
        }
        Some(())
    }

    /// An axis, alias or group parameter named in an annotation; one that the mesh does not have is a finding.
    fn axis_in_annotation(&mut self, name: &Name, ty: &TypeExpr) -> Option<crate::types::AxisSet> {
        let module = self.activation().module;
        let local = self.func().locals().named(name);
        if let Some(local) = local {
            let value = self.local(local);
            if let Some(axes) = self.axes_of_value(&value) {
                return Some(axes);
            }
        }
        match self.settings.axis_in(module, name) {
            Ok(axes) => Some(axes),
            Err(near) => {
                let place = self.place_of(ty.span);
                self.report(
                    place,
                    FindingKind::UnknownInAnnotation { what: AnnotationName::Axis, name: name.clone(), near },
                );
                None
            }
        }
    }
}
