//! Tensor operations by rule. In: an operation's rule and its arguments. Out: the typed result, narrowed operands, or a finding.
//! Never: collectives (`collective.rs`). Source: DESIGN.md section 4 and the tables in `rules/torch`. Next: `collective.rs`.

use super::expr::{CallArg, CallArgs};
use super::finding::{FindingKind, OperandAt};
use super::limits::MAX_ORIGIN_STEPS;
use super::machine::Machine;
use super::output::{Pass, Reason};
use super::value::{ObjId, Value};
use crate::ir::{Const, StmtId};
use crate::rules::operator::Applied;
use crate::rules::shapes::ShapeRule;
use crate::rules::{Arg, Bound, Kind, OpClass, OpRule, Role, Typecheck, Violation};
use crate::source::Name;
use crate::types::{Axis, AxisState, AxisType, LocalType, Origin, Reason as Why, Spmd, TensorType, Tri};
use std::sync::Arc;

/// One operand that carries a type.
#[derive(Clone, Debug)]
pub struct Operand {
    /// The tensor, if the operand is one that can be narrowed.
    pub id: Option<ObjId>,
    pub ty: LocalType,
    pub grad: Tri,
    pub role: Role,
    /// Index of its place among the parts of the statement.
    pub part: usize,
}

/// What an operation computes with: its operands, bound arguments.
pub struct OpCall<'r> {
    pub rule: &'r OpRule,
    pub bound: Bound,
    pub operands: Vec<Operand>,
    /// Split dims of its operands were not followed through it.
    pub lost: bool,
    /// It was reported, or an operand comes out of what was.
    pub spoiled: bool,
}

/// The axes of a step, and whether the axis listed is every other one.
pub enum AxisRef {
    Named(Axis),
    Rest,
}

impl Machine<'_> {
    /// A Python operator on tensors, by its name without underscores.
    pub fn operator(&mut self, id: StmtId, name: &str, operands: &[Value]) -> Value {
        // Tensors have no product in place: `x @= w` binds `x` to the product.
        let name = if name == "imatmul" { "matmul" } else { name };
        let path = format!("torch.Tensor.__{name}__");
        let Some(rule) = self.rules.op(&path).cloned() else {
            self.lose(Reason::NoRule, &path);
            return Value::Unknown;
        };
        // Parts of a binary statement are its operands, in the order of the source; of a subscript, base and index.
        let swapped = name.starts_with('r') && operands.len() == 2 && !matches!(name, "rshift");
        let args = operands
            .iter()
            .enumerate()
            .map(|(i, value)| CallArg { keyword: None, value: value.clone(), part: if swapped { 1 - i } else { i } })
            .collect();
        self.apply_op(id, &rule, &CallArgs { args, open: false })
    }

    /// A method of a tensor.
    pub fn tensor_method(&mut self, id: StmtId, base: &Value, name: &Name, args: &CallArgs) -> Value {
        match name.as_str() {
            "backward" => {
                self.backward(id, base, args);
                return Value::NONE;
            }
            "register_hook" => {
                self.hooked(base, args);
                return Value::Unknown;
            }
            "requires_grad_" => {
                let asked = args.get(0, "requires_grad").map_or(Some(true), Value::as_bool);
                self.set_grad(base, asked.map_or(Tri::Unknown, Tri::from_bool));
                return base.clone();
            }
            "set_" => {
                self.take_over(base, args);
                return base.clone();
            }
            // The result of a functional collective is the tensor that it stands for.
            "wait" => return base.clone(),
            _ => {}
        }
        let all = args.with_first(base.clone());
        match self.rules.tensor_method(name).cloned() {
            Some(rule) => self.apply_op(id, &rule, &all),
            None => {
                let path = format!("torch.Tensor.{name}");
                if self.rules.get(&path).is_some() {
                    return match self.call_external(id, &Name::from(path), &all) {
                        super::machine::Eval::One(value) => value,
                        super::machine::Eval::Many(_) => Value::Unknown,
                    };
                }
                self.lose(Reason::NoRule, &path);
                self.forget(&all);
                Value::Unknown
            }
        }
    }

    /// A property of a tensor, or one of its methods.
    pub fn tensor_attr(&mut self, id: StmtId, base: &Value, name: &Name) -> Value {
        match self.rules.tensor_method(name).cloned() {
            Some(rule) if rule.args.params.len() <= 1 && is_property(name) => {
                let args =
                    CallArgs { args: vec![CallArg { keyword: None, value: base.clone(), part: 0 }], open: false };
                if self.w.modes.typecheck.is_some() && rule.typecheck == Typecheck::Default {
                    return self.unseen_property(id, &rule, &args);
                }
                self.apply_op(id, &rule, &args)
            }
            _ => Self::named_method(base.clone(), name),
        }
    }

    /// A property that the run-time checker does not see: its value has no type there.
    fn unseen_property(&mut self, id: StmtId, rule: &Arc<OpRule>, args: &CallArgs) -> Value {
        let bound = rule.args.bind(&[None]);
        let call = OpCall { rule, bound, operands: Vec::new(), lost: false, spoiled: false };
        self.results(id, &call, args, Some(LocalType::unknown()))
    }

    /// Applies an operation's rule; in an autograd function that is derived, its result is a term.
    pub fn apply_op(&mut self, id: StmtId, rule: &Arc<OpRule>, args: &CallArgs) -> Value {
        if self.deriving.is_none() {
            return self.apply_typed(id, rule, args);
        }
        let keywords: Vec<Option<&Name>> = args.args.iter().map(|a| a.keyword.as_ref()).collect();
        let call = OpCall { rule, bound: rule.args.bind(&keywords), operands: Vec::new(), lost: false, spoiled: false };
        self.tensors_of(&call, args);
        let term = self.term_of_op(&call, args);
        self.note_product(&term);
        let makes_tensor = !matches!(rule.class, OpClass::Metadata | OpClass::Probe);
        if makes_tensor && *term == crate::types::Term::Unknown && self.follows(args) {
            self.gap(&super::collective::short(&rule.name));
        }
        let value = self.apply_typed(id, rule, args);
        self.set_term(&value, &term);
        if rule.name.ends_with(".contiguous")
            && let (Value::Tensor(of), Some(Value::Tensor(base))) = (&value, args.args.first().map(|a| &a.value))
            && let Some(t) = self.w.heap.tensor_mut(*of)
        {
            t.view_of = Some(base.0);
        }
        value
    }

    fn apply_typed(&mut self, id: StmtId, rule: &Arc<OpRule>, args: &CallArgs) -> Value {
        let keywords: Vec<Option<&Name>> = args.args.iter().map(|a| a.keyword.as_ref()).collect();
        let (bound, checked) = (rule.args.bind(&keywords), self.w.modes.typecheck.is_some());
        if self.w.modes.unchecked {
            return self.unchecked_op(
                id,
                OpCall { rule, bound, operands: Vec::new(), lost: false, spoiled: false },
                args,
            );
        }
        let operands =
            if checked { self.operands_checked(rule, &bound, args) } else { self.operands(rule, &bound, args) };
        let mut call = OpCall { rule, bound, operands, lost: false, spoiled: false };
        call.spoiled = !checked && self.has_spoiled(&call);
        call.lost = call.spoiled || !checked && super::op_results::lacks_operand(&call, args);
        if call.lost {
            return self.results(id, &call, args, Some(LocalType::unknown()));
        }
        super::op_results::scale_second(&mut call, args);
        self.planned_operands(id, &call, args);
        if !checked && let Some(value) = self.distributed_op(id, &call, args) {
            return value;
        }
        if checked && rule.typecheck == Typecheck::Passthrough {
            return self.results(id, &call, args, None);
        }
        let typed = match self.is_global() {
            true => self.global_type(id, &mut call, args),
            false => self.result_type(id, &call, args).and_then(|ty| {
                // What the run-time checker says of it holds inside `typecheck()`.
                if !checked {
                    self.check_normalised(id, &call, args)?;
                }
                Ok(ty)
            }),
        };
        let ty = match typed {
            Ok(ty) if checked => ty,
            Ok(ty) => by_rank(&call, args, ty),
            Err(()) => {
                self.spoil(&call, args);
                // A residual connection is blamed on what comes before it: what follows is looked at as if it were right.
                (call.lost, call.spoiled) = (true, !checked && !self.is_residual(&call.operands));
                LocalType::unknown()
            }
        };
        let value = self.results(id, &call, args, Some(ty));
        self.mark_plain(&call, args, &value);
        self.note_same(&call, &value);
        value
    }

    /// The operands of a rule, by its table: tensors, divisors, indices and numbers.
    fn operands(&mut self, rule: &OpRule, bound: &Bound, args: &CallArgs) -> Vec<Operand> {
        let mut out = Vec::new();
        for param in 0..rule.args.params.len() {
            let role = if rule.divisor.contains(&param) {
                Role::Divisor
            } else if rule.tensors.contains(&param) {
                Role::Term
            } else if rule.index.contains(&param) {
                Role::Index
            } else {
                continue;
            };
            for at in bound.all(param) {
                let arg = &args.args[*at];
                let before = out.len();
                match share(&arg.value, role, &out) {
                    Some(ty) => out.push(Operand { id: None, ty, grad: Tri::No, role: Role::Term, part: arg.part }),
                    None => self.collect(&arg.value, role, arg.part, true, &mut out),
                }
                if rule.nondiff {
                    // Nothing receives a gradient through a comparison.
                    out[before..].iter_mut().for_each(|o| o.grad = Tri::No);
                }
            }
        }
        out
    }

    /// The operands as the run-time checker sees them: every tensor argument; numbers only where its table lists a tensor.
    fn operands_checked(&mut self, rule: &OpRule, bound: &Bound, args: &CallArgs) -> Vec<Operand> {
        let mut out = Vec::new();
        let mut numbers: Vec<usize> = Vec::new();
        let registered = matches!(rule.typecheck, Typecheck::Kind(_));
        for (param, _) in rule.args.params.iter().enumerate() {
            let named = rule.tensors.contains(&param) || rule.divisor.contains(&param);
            if registered && named {
                numbers.extend(bound.all(param));
            }
        }
        for (i, arg) in args.args.iter().enumerate() {
            if arg.keyword.as_deref() == Some("out") {
                continue;
            }
            let divisor = rule.divisor.iter().any(|p| bound.all(*p).contains(&i));
            let role = if divisor && registered { Role::Divisor } else { Role::Term };
            self.collect(&arg.value, role, arg.part, numbers.contains(&i), &mut out);
        }
        if rule.typecheck == Typecheck::Kind(Kind::Affine) {
            // Its decomposition rules do not look at gradients.
            for operand in &mut out {
                operand.grad = Tri::Yes;
            }
        }
        out
    }

    /// Adds a value as operands; sequences contribute their elements.
    pub fn collect(&mut self, value: &Value, role: Role, part: usize, numbers: bool, out: &mut Vec<Operand>) {
        match value {
            Value::Tensor(id) => self.collect_tensor(*id, role, part, out),
            Value::Sym(path) if !self.annotated_other(path) && !self.settings.is_config(path) => {
                if let Some(id) = self.as_tensor(value) {
                    self.collect_tensor(id, role, part, out);
                }
            }
            Value::Number(Some(t)) => {
                out.push(Operand { id: None, ty: t.as_ref().clone(), grad: Tri::No, role, part });
            }
            Value::Rank(_) | Value::Edge(_) | Value::RankCond(_) => {
                let ty = super::expr::number_type(value).unwrap_or_else(LocalType::unknown);
                out.push(Operand { id: None, ty, grad: Tri::No, role, part });
            }
            // Zero is no part of a sum, and a sum that is still to come may begin with it.
            Value::Const(zero) if role == Role::Term && is_zero(zero) && self.w.modes.typecheck.is_none() => {}
            Value::Const(Const::Int(_) | Const::Float(_)) | Value::Number(None) | Value::Size(_) | Value::Share(_)
                if numbers =>
            {
                let ty = LocalType::everywhere(AxisState::new(AxisType::R));
                let role = if role == Role::Index { return } else { Role::Number };
                out.push(Operand { id: None, ty, grad: Tri::No, role, part });
            }
            Value::Tuple(items) => {
                for item in items.iter() {
                    self.collect(item, role, part, numbers, out);
                }
            }
            Value::List(id) => {
                if let Some(cell) = self.list_cell(*id) {
                    for item in cell.items.iter().chain(&cell.rest) {
                        self.collect(item, role, part, numbers, out);
                    }
                }
            }
            Value::Slice(parts) => {
                for item in parts.iter().filter(|v| {
                    matches!(
                        v,
                        Value::Number(Some(_))
                            | Value::Rank(_)
                            | Value::Edge(_)
                            | Value::RankCond(_)
                            | Value::Tensor(_)
                    )
                }) {
                    self.collect(item, Role::Index, part, false, out);
                }
            }
            // A position of which nothing is known may be that of this rank.
            Value::Unknown if role != Role::Index || self.w.modes.typecheck.is_none() => {
                out.push(Operand { id: None, ty: LocalType::unknown(), grad: Tri::Unknown, role, part });
            }
            _ => {}
        }
    }

    fn collect_tensor(&self, id: ObjId, role: Role, part: usize, out: &mut Vec<Operand>) {
        let Some(t) = self.w.heap.tensor(id) else { return };
        let grad = if self.w.modes.grad { t.grad } else { Tri::No };
        let free = t.zero && self.w.modes.typecheck.is_none();
        let ty =
            if free { LocalType::everywhere(AxisState::new(AxisType::R.join(AxisType::P))) } else { t.local.clone() };
        out.push(Operand { id: Some(id).filter(|_| !free), ty, grad, role, part });
    }

    /// The type of the result on every axis.
    ///
    /// # Errors
    /// A finding was reported.
    fn result_type(&mut self, id: StmtId, call: &OpCall<'_>, args: &CallArgs) -> Result<LocalType, ()> {
        let checked = self.w.modes.typecheck.is_some();
        let made_new = call.rule.name.contains(".new_") && call.rule.typecheck == Typecheck::Factory;
        let fresh = call.operands.is_empty() || made_new;
        if checked && fresh {
            return Ok(self.factory_type(call.rule.typecheck == Typecheck::Factory));
        }
        let kind = match (call.rule.class, checked, call.rule.typecheck) {
            (_, true, Typecheck::Kind(kind)) => kind,
            (_, true, _) => Kind::Nonlinear,
            (OpClass::Plain(kind), false, _) => kind,
            (OpClass::Probe, false, _) => return Ok(probed(&call.operands)),
            (OpClass::Equal, false, _) if !call.rule.tensors.is_empty() && !self.made_of_constants(call, args) => {
                if call.operands.iter().any(|o| o.role == Role::Number) {
                    return Ok(LocalType::unknown());
                }
                Kind::Linear
            }
            (OpClass::Equal, false, _) if self.is_made_up() => return Ok(LocalType::unknown()),
            (OpClass::Equal, false, _) => {
                // What needs a gradient says by its use whether each rank has a part of it or all of it.
                let leaf = args.keyword("requires_grad").and_then(Value::as_bool) == Some(true);
                let (set, decided) = if leaf { (AxisType::EQUAL, None) } else { (AxisType::R, Some(Spmd::Replicate)) };
                let origin = Origin::new(self.place(id), Why::Factory, decided);
                return Ok(LocalType::everywhere(AxisState::new(set).from(&origin)));
            }
            (OpClass::CopyInto, false, _) => Kind::Linear,
            (OpClass::Fill, false, _) => {
                return Ok(call.operands.first().map_or_else(LocalType::unknown, |o| o.ty.clone()));
            }
            (OpClass::Metadata | OpClass::UnknownValues | OpClass::Opaque, false, _) => return Ok(LocalType::unknown()),
        };
        let operands: Vec<Operand> = match call.rule.class {
            OpClass::CopyInto if !checked => call.operands.iter().skip(1).cloned().collect(),
            _ => call.operands.clone(),
        };
        if operands.is_empty() {
            return Ok(LocalType::unknown());
        }
        if let (Kind::LinearLayer, Some(dims), false, [a, b, bias]) =
            (kind, &call.rule.dims, checked, operands.as_slice())
            && let Some(sum) = self.pending_product(id, dims, &call.rule.name, &[a.clone(), b.clone()])?
        {
            return self.combine(id, Kind::Linear, &call.rule.name, &[sum, bias.clone()]);
        }
        let mut out = self.combine(id, kind, &call.rule.name, &operands)?;
        match self.notation(call, args).filter(|_| !checked) {
            Some(dims) => {
                self.flow_shards(id, (&call.rule.name, &dims), kind != Kind::Multilinear, &operands, &mut out)?;
            }
            None if call.rule.shape == ShapeRule::Einsum => out.forget_shards(),
            None => {}
        }
        Ok(out)
    }

    /// The type of the result with its split dims, where partition specs are followed.
    ///
    /// # Errors
    /// A finding was reported.
    fn global_type(&mut self, id: StmtId, call: &mut OpCall<'_>, args: &CallArgs) -> Result<LocalType, ()> {
        for i in 0..call.operands.len() {
            if let (Some(tensor), part) = (call.operands[i].id, call.operands[i].part) {
                self.check_spec(id, tensor, part)?;
            }
        }
        let mut out = self.result_type(id, call, args)?;
        let lost = self.follow_shards(id, call, args, &mut out)?;
        call.lost = lost && self.w.modes.typecheck.is_some();
        Ok(out)
    }

    /// A factory under the run-time checker: R on the mesh where it is deterministic, else nothing known.
    fn factory_type(&self, deterministic: bool) -> LocalType {
        let mut ty = LocalType::unknown();
        if let (true, Some(mesh)) = (deterministic, &self.w.modes.mesh) {
            for (axis, _) in &mesh.axes {
                ty.set(axis, AxisState::new(AxisType::R));
            }
        }
        ty
    }

    /// Combines operands axis by axis; narrows them; reports the first violation.
    ///
    /// # Errors
    /// A finding was reported.
    pub fn combine(&mut self, id: StmtId, kind: Kind, op: &Name, operands: &[Operand]) -> Result<LocalType, ()> {
        let mut axes: Vec<AxisRef> =
            LocalType::axes_of(operands.iter().map(|o| &o.ty)).into_iter().map(AxisRef::Named).collect();
        let strict = self.w.modes.typecheck == Some(true);
        if self.w.modes.typecheck.is_some()
            && let Some(mesh) = self.w.modes.mesh.clone()
        {
            for (axis, _) in &mesh.axes {
                if !axes.iter().any(|a| matches!(a, AxisRef::Named(b) if b == axis)) {
                    axes.push(AxisRef::Named(axis.clone()));
                }
            }
            axes.sort_by(|a, b| axis_key(a).cmp(&axis_key(b)));
        }
        axes.push(AxisRef::Rest);
        let mut out = LocalType::unknown();
        for axis in &axes {
            if strict {
                self.check_present(id, axis, op, operands)?;
            }
            let state = self.combine_axis(id, kind, op, operands, axis)?;
            match axis {
                AxisRef::Named(axis) => out.set(axis, state),
                AxisRef::Rest => out.rest = state,
            }
        }
        let known = |o: &Operand| o.ty.listed().all(|(_, s)| !s.set.is_unknown()) && !o.ty.is_unknown();
        let right = operands.iter().all(|o| o.role == Role::Number || known(o));
        self.passed(self.place(id), if right { Pass::Right } else { Pass::Unknown });
        Ok(out)
    }

    /// Under strict checking every operand has a type on every axis of the mesh.
    fn check_present(&mut self, id: StmtId, axis: &AxisRef, op: &Name, operands: &[Operand]) -> Result<(), ()> {
        let AxisRef::Named(axis) = axis else { return Ok(()) };
        let Some(missing) = operands.iter().find(|o| o.role != Role::Number && !o.ty.has(axis)) else { return Ok(()) };
        // A tensor that the checker lost track of is not known to lack the axis.
        if missing.id.is_none() || self.lost_track(missing) {
            return Ok(());
        }
        let operand = self.operand_at(id, missing, axis);
        let kind = FindingKind::MissingAxis { axis: axis.clone(), operand, op: op.clone() };
        self.report(self.place(id), kind);
        Err(())
    }

    /// Whether the type of a tensor is unknown to the checker rather than missing in the program.
    fn lost_track(&self, operand: &Operand) -> bool {
        operand.id.is_some_and(|id| self.w.heap.tensor(id).is_some_and(|t| t.untracked))
    }

    fn combine_axis(
        &mut self,
        id: StmtId,
        kind: Kind,
        op: &Name,
        operands: &[Operand],
        axis: &AxisRef,
    ) -> Result<AxisState, ()> {
        let unsummed = match axis {
            AxisRef::Named(axis) => self.without_sum(axis, operands),
            _ => None,
        };
        let operands = unsummed.as_deref().unwrap_or(operands);
        let state_of = |o: &Operand| match axis {
            AxisRef::Named(a) => o.ty.get(a).clone(),
            AxisRef::Rest => o.ty.rest.clone(),
        };
        let permissive_skip = self.w.modes.typecheck.is_some();
        let states: Vec<AxisState> = operands.iter().map(state_of).collect();
        // That a parameter carries no mark decides nothing about values that are not known: it is held against those that are.
        let unmarked = states.iter().any(|s| s.is_unmarked() || s.is_whole());
        if states.iter().all(|s| s.set.is_unknown()) && permissive_skip {
            return Ok(AxisState::UNKNOWN);
        }
        if states.iter().any(|s| s.set == AxisType::P) && self.is_taken_away(id, op, operands) {
            return Ok(AxisState::UNKNOWN);
        }
        let args: Vec<Arg> = operands
            .iter()
            .zip(&states)
            .map(|(o, s)| Arg { set: if s.set.is_empty() { AxisType::ALL } else { s.set }, grad: o.grad, role: o.role })
            .collect();
        match self.applications.apply(kind, &args).as_ref() {
            // A parameter of a divided size may be each rank's own part: what it meets does not tell that it is whole.
            Ok(applied) if self.meets_part(operands, &states, axis, applied.result) => Ok(AxisState::UNKNOWN),
            Ok(applied) => {
                if !permissive_skip && !unmarked {
                    self.narrow(id, op, operands, axis, &states, applied);
                }
                Ok(self.result_state(id, operands, &states, applied))
            }
            Err(violation) => {
                let violation = *violation;
                let AxisRef::Named(name) = axis else { return self.violated_rest(id, violation, op, operands) };
                if self.is_restricted(name) || Self::has_twin(name, operands.iter().map(|o| &o.ty)) {
                    let set = states.iter().fold(AxisType::EMPTY, |s, a| s.join(a.set));
                    return Ok(AxisState::new(set));
                }
                self.violated(id, violation, name, op, operands);
                Err(())
            }
        }
    }

    /// A violation on the axes that nobody names: shown on the axes of the mesh if there is one, else as "every axis".
    fn violated_rest(
        &mut self,
        id: StmtId,
        violation: Violation,
        op: &Name,
        operands: &[Operand],
    ) -> Result<AxisState, ()> {
        let axis = self.settings.any_axis(self.activation().module);
        self.violated(id, violation, &axis, op, operands);
        Err(())
    }

    fn violated(&mut self, id: StmtId, violation: Violation, axis: &Axis, op: &Name, operands: &[Operand]) {
        let lacks_gradient = violation == Violation::InvariantMixed && self.w.modes.typecheck.is_none();
        if lacks_gradient && self.mixed_where_applied(axis) {
            return;
        }
        if self.is_straight_through(id, axis, op, operands)
            || self.is_statistic(id, violation, op)
            || self.may_be_term(violation, axis, op, operands)
            || self.is_changed_unseen(id, violation, axis, operands)
            || lacks_gradient && (self.is_only_looked_at(id) || self.gives_detached() || self.is_own_forward())
        {
            return;
        }
        let mut at: Vec<OperandAt> = operands.iter().map(|o| self.operand_at(id, o, axis)).collect();
        for (i, operand) in at.iter_mut().enumerate() {
            operand.place = Some(self.operand_place(id, operands, i));
        }
        if lacks_gradient {
            self.note_residual(axis, operands, &at);
        }
        let symbol = op.contains(".__");
        let repairs = self.operator_repairs(id, violation, axis, op, operands);
        let kind = FindingKind::Operator { violation, axis: axis.clone(), op: op.clone(), operands: at, symbol };
        self.report_with(self.place(id), kind, repairs);
    }

    pub fn operand_at(&self, id: StmtId, operand: &Operand, axis: &Axis) -> OperandAt {
        OperandAt {
            place: Some(self.part(id, operand.part)),
            state: operand.ty.get(axis).clone(),
            is_number: operand.role == Role::Number,
            is_divisor: operand.role == Role::Divisor,
        }
    }

    /// Leaves an operand only the members that took part in a legal combination.
    fn narrow(
        &mut self,
        id: StmtId,
        op: &Name,
        operands: &[Operand],
        axis: &AxisRef,
        states: &[AxisState],
        applied: &Applied,
    ) {
        for ((operand, state), set) in operands.iter().zip(states).zip(&applied.narrowed) {
            let Some(tensor) = operand.id else { continue };
            let set = self.told(id, *set, state.set);
            if set == state.set || set.is_empty() {
                continue;
            }
            let Some(mut t) = self.w.heap.tensor(tensor).cloned() else { continue };
            let origin = Origin::new(self.part(id, operand.part), Why::Narrowed(op.clone()), set.known());
            let narrowed = AxisState { set, shard: state.shard, nest: state.nest, origin: Some(origin) };
            match axis {
                AxisRef::Named(a) => t.local.set(a, narrowed.clone()),
                AxisRef::Rest => t.local.rest = narrowed.clone(),
            }
            self.retype_quietly(tensor, t);
            self.narrow_same(tensor, axis, &narrowed);
        }
    }

    fn result_state(&self, id: StmtId, operands: &[Operand], states: &[AxisState], applied: &Applied) -> AxisState {
        let mut state = AxisState::new(applied.result);
        if let Some(known) = applied.result.known() {
            // The operand that decided: one with the same type, else any known one.
            // A parameter of which only the lack of a mark is known explains less than anything else.
            let telling = |s: &&AxisState| s.origin.as_ref().is_none_or(|o| !o.is_unmarked_within(MAX_ORIGIN_STEPS));
            let alike = || states.iter().filter(|s| s.known() == Some(known));
            let decider =
                alike().find(telling).or_else(|| alike().next()).or_else(|| states.iter().find(|s| s.origin.is_some()));
            state.origin = Some(Arc::new(Origin {
                place: self.place(id),
                reason: Why::Computed,
                decided: Some(known),
                from: decider.and_then(|s| s.origin.clone()),
                keeps_part: None,
            }));
        } else if !applied.result.is_unknown() && !applied.result.is_empty() {
            // What is left was decided by an operand of which something is known.
            let decides = |o: &Arc<Origin>| !o.is_unmarked_within(MAX_ORIGIN_STEPS);
            let telling = |s: &&AxisState| !s.set.is_unknown() && s.origin.as_ref().is_some_and(decides);
            let from = states.iter().find(telling).and_then(|s| s.origin.clone());
            if from.is_some() {
                let started = Origin::new(self.place(id), Why::Computed, None);
                state.origin = Some(Arc::new(Origin { from, ..(*started).clone() }));
            }
        }
        if applied.result == AxisType::V {
            // Elementwise on values split alike: the split survives when every varying operand agrees.
            let mut shards = states.iter().zip(operands).filter(|(s, o)| s.set == AxisType::V && o.role == Role::Term);
            if let Some((first, _)) = shards.next()
                && shards.all(|(s, _)| s.shard == first.shard)
                && self.dims_line_up(operands, states, first.shard)
            {
                state.shard = first.shard;
            }
        }
        state
    }

    /// Changes a type by narrowing: what the program knows, not what it does.
    pub fn retype_quietly(&mut self, id: ObjId, t: TensorType) {
        if let Some(known) = self.w.heap.tensor_mut(id) {
            *known = t;
        }
    }
}

/// Whether a constant is the number zero.
pub(super) fn is_zero(constant: &Const) -> bool {
    match constant {
        Const::Int(n) => *n == 0,
        Const::Float(bits) => f64::from_bits(*bits) == 0.0,
        Const::None | Const::Bool(_) | Const::Str(_) | Const::Ellipsis => false,
    }
}

/// What a result is when a number that differs by rank is among the arguments that are no operands (a dim, a size, a start): equal
/// values differ, and what a rank takes of a pending sum is not followed.
fn by_rank(call: &OpCall<'_>, args: &CallArgs, mut ty: LocalType) -> LocalType {
    for (param, _) in call.rule.args.params.iter().enumerate() {
        if [&call.rule.tensors, &call.rule.divisor, &call.rule.index].iter().any(|list| list.contains(&param)) {
            continue;
        }
        for at in call.bound.all(param) {
            let Some(axes) = super::expr::differing(&args.args[*at].value) else { continue };
            for axis in axes.iter() {
                let state = ty.get(axis).clone();
                let set = if state.set.leq(AxisType::EQUAL.join(AxisType::V)) { AxisType::V } else { AxisType::ALL };
                ty.set(axis, AxisState { set, shard: None, nest: 0, origin: state.origin });
            }
        }
    }
    ty
}

/// Division of a replicated value by the number of ranks is a product with a number that is also one term of a sum.
fn share(divisor: &Value, role: Role, before: &[Operand]) -> Option<LocalType> {
    let Value::Size(axes) = divisor else { return None };
    let replicated = |o: &Operand| axes.iter().all(|a| o.ty.get(a).set == AxisType::R || o.ty.get(a).is_whole());
    (role == Role::Divisor && before.iter().all(replicated)).then(|| super::expr::share_of(axes))
}

fn axis_key(axis: &AxisRef) -> (bool, Option<&Axis>) {
    match axis {
        AxisRef::Named(a) => (false, Some(a)),
        AxisRef::Rest => (true, None),
    }
}

/// What a rank sees of its own values: equal values stay equal, a term of a pending sum differs by rank.
fn probed(operands: &[Operand]) -> LocalType {
    let mut out = LocalType::everywhere(AxisState::new(AxisType::R));
    let seen = |set: AxisType| {
        let equal = set.meet(AxisType::EQUAL);
        let differs = if set.leq(AxisType::EQUAL) { AxisType::EMPTY } else { AxisType::V };
        equal.join(differs)
    };
    for operand in operands {
        out.rest = AxisState::new(mixed(out.rest.set, seen(operand.ty.rest.set)));
    }
    for axis in LocalType::axes_of(operands.iter().map(|o| &o.ty)) {
        let set = operands.iter().fold(AxisType::R, |s, o| mixed(s, seen(o.ty.get(&axis).set)));
        out.set(&axis, AxisState::new(set));
    }
    out
}

/// Values without gradient that meet: different as soon as one is.
fn mixed(a: AxisType, b: AxisType) -> AxisType {
    if b == AxisType::V || a == AxisType::V {
        AxisType::V
    } else if b.leq(AxisType::EQUAL) && a.leq(AxisType::EQUAL) {
        a.join(b).meet(AxisType::R).join(if a == b { a } else { AxisType::R })
    } else {
        a.join(b)
    }
}

/// Tensor attributes read without a call.
fn is_property(name: &str) -> bool {
    matches!(
        name,
        "T" | "mT"
            | "H"
            | "mH"
            | "real"
            | "imag"
            | "data"
            | "grad"
            | "shape"
            | "dtype"
            | "device"
            | "ndim"
            | "requires_grad"
            | "is_cuda"
            | "itemsize"
            | "nbytes"
            | "is_leaf"
            | "grad_fn"
            | "layout"
            | "is_meta"
            | "is_sparse"
            | "is_cpu"
            | "names"
    )
}

/// Methods that strings, dicts, lists and configurations have as well.
pub(super) fn is_ambiguous(name: &str) -> bool {
    matches!(
        name,
        "split"
            | "copy_"
            | "index"
            | "count"
            | "sort"
            | "type"
            | "size"
            | "data"
            | "to"
            | "apply_"
            | "register_hook"
            | "float"
            | "half"
            | "bfloat16"
            | "cuda"
            | "cpu"
            | "values"
            | "indices"
            | "name"
            | "names"
            | "share_memory_"
            | "requires_grad_"
            | "zero_"
            | "dim"
            | "stride"
            | "numel"
            | "item"
            | "tolist"
            | "numpy"
            | "eq"
            | "max"
            | "min"
            | "sum"
            | "mean"
            | "any"
            | "all"
            | "is_shared"
            | "double"
            | "type_as"
            | "state_dict"
    )
}
