//! Collectives and conversions. In: a collective's rule and a call. Out: the typed result or effect, or a finding.
//! Never: resolution of groups (`groups.rs`). Source: DESIGN.md section 4; each row of `rules/collectives` and `rules/models`.
//! Next: `intrinsics.rs`.

use super::expr::CallArgs;
use super::finding::{ArgumentProblem, FindingKind, OperandAt};
use super::groups::{is_all_ranks, is_world, may_name};
use super::limits::MAX_ORIGIN_STEPS;
use super::machine::Machine;
use super::output::{Pass, Reason, Site};
use super::value::{ObjId, Value};
use crate::ir::annotation::Atom;
use crate::ir::{Const, StmtId};
use crate::rules::collective::DimRef;
use crate::rules::{Bound, CollectiveRule, Form, Pattern, Transition};
use crate::source::{Name, Place};
use crate::types::{
    Axis, AxisSet, AxisState, AxisType, LocalType, Origin, Reason as Why, Shape, Spmd, TensorType, Tri,
};
use std::sync::Arc;

/// A collective call with its arguments bound.
pub(super) struct Call<'r> {
    pub rule: &'r CollectiveRule,
    pub bound: Bound,
    pub axes: AxisSet,
    pub input: ObjId,
    /// Part of the statement that is the input.
    pub part: usize,
}

/// A side of a transition, with the shard dim as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Side {
    pub set: AxisType,
    pub shard: Option<i64>,
}

impl Machine<'_> {
    /// A call of a collective or conversion.
    pub fn collective(&mut self, id: StmtId, rule: &Arc<CollectiveRule>, args: &CallArgs) -> Value {
        if self.deriving.is_some() {
            return self.collective_term(id, rule, args);
        }
        let keywords: Vec<Option<&Name>> = args.args.iter().map(|a| a.keyword.as_ref()).collect();
        let bound = rule.args.bind(&keywords);
        let place = self.place(id);
        self.out.coverage.site(place, Site::NotReached);
        if self.w.modes.unchecked {
            return match rule.form {
                Form::InPlace | Form::IntoOutput | Form::IntoList => Value::Unknown,
                Form::SrcDst | Form::Result => self.new_tensor(TensorType::unknown()),
            };
        }
        let argument = |param: usize| bound.first(param).map(|i| &args.args[i]);
        let Some(input_arg) = argument(rule.input) else { return Value::Unknown };
        let (part, input_value) = (input_arg.part, input_arg.value.clone());
        let group = rule.group.and_then(argument).map(|a| a.value.clone());
        if let (Value::List(_) | Value::Tuple(_), Form::InPlace) = (&input_value, rule.form) {
            self.forget(args);
            return Value::Unknown;
        }
        let Some(input) = self.tensor_of_input(&input_value) else {
            self.out.coverage.site(place, Site::NoValue);
            self.lose(Reason::UnknownOperand, &rule.op);
            self.forget_outputs(rule, &bound, args);
            return self.unknown_result(rule);
        };
        let Some(axes) = self.group_axes(group.as_ref(), rule) else {
            self.out.coverage.site(place, Site::NoGroup);
            self.lose(Reason::UnresolvedGroup, &rule.op);
            self.forget(args);
            return self.unknown_result(rule);
        };
        if !self.w.heap.tensor(input).is_some_and(|t| t.local.is_unknown()) {
            self.out.coverage.site(place, Site::Typed);
        }
        self.forget_unknown_meshes(input, &axes);
        let call = Call { rule, bound, axes, input, part };
        let outcome = match rule.form {
            Form::SrcDst => self.converted(id, &call, args),
            Form::Result => self.transitioned(id, &call, args),
            Form::InPlace => self.reduced_in_place(id, &call, args),
            Form::IntoOutput | Form::IntoList => self.written_out(id, &call, args),
        };
        match outcome {
            Ok(value) => value,
            Err(()) => self.spoiled(),
        }
    }

    /// What comes out of a collective that was reported: nothing more is concluded from it.
    fn spoiled(&mut self) -> Value {
        self.new_tensor(TensorType { spoiled: self.w.modes.typecheck.is_none(), ..TensorType::unknown() })
    }

    /// A call of a layer with a contract, over the axes of its group: like a collective with these types.
    pub fn layer_transition(
        &mut self,
        id: StmtId,
        rule: &Arc<CollectiveRule>,
        args: &CallArgs,
        axes: AxisSet,
    ) -> Value {
        let keywords: Vec<Option<&Name>> = args.args.iter().map(|a| a.keyword.as_ref()).collect();
        let bound = rule.args.bind(&keywords);
        let Some(arg) = bound.first(rule.input).map(|i| args.args[i].clone()) else {
            return self.new_tensor(TensorType::unknown());
        };
        let input = match self.as_tensor(&arg.value) {
            Some(input) => input,
            None => match self.new_tensor(TensorType::unknown()) {
                Value::Tensor(id) => id,
                _ => return Value::Unknown,
            },
        };
        let call = Call { rule, bound, axes: axes.clone(), input, part: arg.part };
        let Ok(value) = self.transitioned(id, &call, args) else { return self.spoiled() };
        if let Value::Tensor(id) = value
            && let Some(t) = self.w.heap.tensor_mut(id)
        {
            // The parameters of the layer require gradients where its input does not; its dims are not those of the input.
            t.grad = if t.grad == Tri::Yes { Tri::Yes } else { Tri::Unknown };
            t.shape = None;
            super::layer::forget_other_shards(&mut t.local, &axes);
        }
        value
    }

    /// The tensor that a collective is given; a value that nothing follows is a tensor of its own here.
    fn tensor_of_input(&mut self, value: &Value) -> Option<ObjId> {
        match value {
            // What a list holds is looked at where it is made; what becomes of it is another list.
            Value::Unknown | Value::List(_) | Value::Tuple(_) => {
                match self.new_tensor(TensorType { untracked: true, ..TensorType::unknown() }) {
                    Value::Tensor(id) => Some(id),
                    _ => None,
                }
            }
            value => self.as_tensor(value),
        }
    }

    fn unknown_result(&mut self, rule: &CollectiveRule) -> Value {
        match rule.form {
            Form::SrcDst | Form::Result => self.new_tensor(TensorType::unknown()),
            Form::InPlace | Form::IntoOutput | Form::IntoList => Value::Unknown,
        }
    }

    fn forget_outputs(&mut self, rule: &CollectiveRule, bound: &Bound, args: &CallArgs) {
        if let Some(at) = rule.output.and_then(|o| bound.first(o)) {
            let one = CallArgs { args: vec![args.args[at].clone()], open: false };
            self.forget(&one);
        }
    }

    /// The argument of a parameter, or its default if that is an SPMD type.
    pub(super) fn type_argument(&mut self, call: &Call<'_>, args: &CallArgs, name: &str) -> Option<Value> {
        let param = call.rule.args.index(name)?;
        match call.bound.first(param) {
            Some(at) => Some(args.args[at].value.clone()),
            None => match call.rule.args.params[param].default.as_deref()? {
                "R" => Some(Value::Atom(Atom::Replicate)),
                "I" => Some(Value::Atom(Atom::Invariant)),
                "V" => Some(Value::Atom(Atom::Varying)),
                "P" => Some(Value::Atom(Atom::Partial)),
                _ => None,
            },
        }
    }

    pub(super) fn int_argument(&self, call: &Call<'_>, args: &CallArgs, name: &str) -> Option<i64> {
        let param = call.rule.args.index(name)?;
        match call.bound.first(param) {
            Some(at) => args.args[at].value.as_int(),
            None => call.rule.args.params[param].default.as_deref()?.parse().ok(),
        }
    }

    pub fn axis_size(&self, axis: &Axis) -> Option<u64> {
        self.w.modes.mesh.as_ref().and_then(|m| m.size(axis)).or_else(|| self.settings.axis_size(axis))
    }

    /// A collective with fixed types.
    fn transitioned(&mut self, id: StmtId, call: &Call<'_>, args: &CallArgs) -> Result<Value, ()> {
        let Some(transition) = self.chosen_transition(call, args) else {
            return Ok(self.new_tensor(TensorType::unknown()));
        };
        let (source, result) = self.sides(call, args, &transition);
        let rank = self.w.heap.tensor(call.input).and_then(TensorType::rank);
        let source = self.in_range(id, call, source, rank)?;
        let result = self.in_range(id, call, result, rank)?;
        self.check_precision(id, call, args, source, result)?;
        self.apply_transition(id, call, source, result)
    }

    /// The transition whose condition on an argument holds; none if that is not known.
    pub(super) fn chosen_transition(&mut self, call: &Call<'_>, args: &CallArgs) -> Option<Transition> {
        for (condition, transition) in &call.rule.transitions {
            let Some((param, expected)) = condition else { return Some(transition.clone()) };
            let written = match call.bound.first(*param) {
                None => call.rule.args.params[*param].default.clone(),
                Some(at) => {
                    let value = args.args[at].value.clone();
                    let value = self.decided(&value);
                    match &value {
                        Value::Const(Const::Bool(true)) => Some(Name::from("True")),
                        Value::Const(Const::Bool(false)) => Some(Name::from("False")),
                        Value::Const(Const::None) => Some(Name::from("None")),
                        Value::Const(Const::Int(n)) => Some(Name::from(n.to_string())),
                        Value::Const(Const::Str(s)) => Some(s.clone()),
                        _ => return self.undecided(call, transition),
                    }
                }
            };
            if written.as_ref() == Some(expected) {
                return Some(transition.clone());
            }
        }
        None
    }

    /// Both outcomes of a condition that is not known: their join.
    fn undecided(&self, call: &Call<'_>, transition: &Transition) -> Option<Transition> {
        let other = call.rule.transitions.iter().find(|(c, _)| c.is_none()).map(|(_, t)| t)?;
        let join = |a: &Pattern, b: &Pattern| Pattern {
            set: a.set.join(b.set),
            shard: if a.shard == b.shard { a.shard.clone() } else { None },
            any_shard: false,
        };
        Some(Transition {
            source: join(&transition.source, &other.source),
            result: join(&transition.result, &other.result),
        })
    }

    /// A flag that the world knows, as a constant.
    fn decided(&mut self, value: &Value) -> Value {
        match value {
            Value::Sym(_) | Value::Cond(_) => {
                let formula = self.formula(value);
                match self.outcome(&formula) {
                    super::formula::Outcome::Decided(b) => Value::Const(Const::Bool(b)),
                    super::formula::Outcome::Open(_) => value.clone(),
                }
            }
            _ => value.clone(),
        }
    }

    pub(super) fn sides(&mut self, call: &Call<'_>, args: &CallArgs, transition: &Transition) -> (Side, Side) {
        let dim = |p: &Pattern| match &p.shard {
            Some(DimRef::At(n)) => Some(i64::from(*n)),
            Some(DimRef::Argument(name)) => self.int_argument(call, args, name),
            None => None,
        };
        let source = Side { set: transition.source.set, shard: dim(&transition.source) };
        let result = Side { set: transition.result.set, shard: dim(&transition.result) };
        (source, result)
    }

    /// Checks the input on every axis of the group and makes the result.
    pub(super) fn apply_transition(
        &mut self,
        id: StmtId,
        call: &Call<'_>,
        source: Side,
        result: Side,
    ) -> Result<Value, ()> {
        let input = self.w.heap.tensor(call.input).cloned().unwrap_or_else(TensorType::unknown);
        let mut local = input.local.clone();
        let no_grad = !self.w.modes.grad || input.grad == Tri::No;
        if self.is_global() {
            self.check_spec(id, call.input, call.part)?;
        }
        for axis in call.axes.iter() {
            self.check_source(id, call, axis, &input, source, no_grad)?;
            if self.is_global() {
                self.check_redistribution(id, call, axis, &input, source)?;
            }
            if source.set == AxisType::I || result.set == AxisType::I {
                self.note_invariant(axis);
            }
            local.set(axis, self.collective_state(id, call, &input, axis, result));
        }
        self.over_all_ranks(call, result, &mut local);
        let known = call.axes.iter().all(|axis| !input.local.get(axis).set.is_unknown());
        self.passed(self.place(id), if known { Pass::Right } else { Pass::Unknown });
        if call.rule.op != "layer" {
            self.out.coverage.site(self.place(id), Site::Typed);
        }
        let counted = input.grad == Tri::Unknown && self.w.modes.typecheck.is_none() && self.is_counted(id, call.part);
        let grad = if self.w.modes.grad && !counted { input.grad } else { Tri::No };
        let shape = self.moved_shape(call, &input, source, result);
        let stacks = source.set == AxisType::V || result.set == AxisType::V;
        let keeps_dims = !stacks || source.shard.is_some() || result.shard.is_some();
        Ok(self.new_tensor(TensorType {
            local,
            grad,
            shape,
            untracked: input.untracked,
            spoiled: false,
            touched: false,
            zero: input.zero,
            view_of: None,
            reduced: input.reduced,
            home: None,
            term: None,
            dist: crate::types::Dist::Unknown,
            divided: None,
            least: if keeps_dims { input.least_rank() } else { 0 },
            // The run-time checker's collectives make new tensors.
            in_order: self.w.modes.typecheck.is_some(),
        }))
    }

    /// All ranks are those of every axis: what differed on one is now what the collective gives. A group that nothing resolves may be one that
    /// has a name elsewhere, as marks of parameters give it, or that of all ranks: of that nothing is known then.
    fn over_all_ranks(&self, call: &Call<'_>, result: Side, local: &mut LocalType) {
        if call.axes.iter().any(Axis::is_variable) {
            for axis in LocalType::axes_of([&*local]) {
                let all = is_all_ranks(&axis) && !call.axes.contains(&axis);
                let differs = !local.get(&axis).set.leq(AxisType::EQUAL);
                let named = !axis.is_variable() && call.axes.iter().any(|group| may_name(group, &axis));
                if named || all && differs {
                    local.set(&axis, AxisState::UNKNOWN);
                }
            }
        }
        if !is_world(&call.axes) {
            return;
        }
        let set = if matches!(call.rule.op.as_str(), "all_reduce" | "all_gather") { result.set } else { AxisType::ALL };
        for axis in LocalType::axes_of([&*local]) {
            let state = local.get(&axis).clone();
            if !call.axes.contains(&axis) && !state.set.leq(AxisType::EQUAL) {
                local.set(&axis, AxisState { set, shard: None, nest: 0, origin: state.origin });
            }
        }
    }

    fn collective_state(
        &self,
        id: StmtId,
        call: &Call<'_>,
        input: &TensorType,
        axis: &Axis,
        result: Side,
    ) -> AxisState {
        let before = input.local.get(axis);
        let origin = Arc::new(Origin {
            place: self.place(id),
            reason: Why::Collective(short(&call.rule.name)),
            decided: result.set.known(),
            from: before.origin.clone(),
            keeps_part: None,
        });
        let tracked = self.w.modes.typecheck.is_none() || self.w.modes.global;
        let shard = result.shard.filter(|_| tracked && result.set == AxisType::V).and_then(|d| i8::try_from(d).ok());
        // The axis becomes the innermost of those that split the dim.
        let outer = |(a, s): &(&Axis, &AxisState)| self.is_global() && *a != axis && s.shard == shard;
        let nest = shard.map_or(0, |_| input.local.listed().filter(outer).count());
        AxisState { set: result.set, shard, nest: u8::try_from(nest).unwrap_or(u8::MAX), origin: Some(origin) }
    }

    /// Whether equal values are reduced or gathered on purpose, to count, to average or to time.
    fn is_idiom(&self, id: StmtId, call: &Call<'_>, input: &TensorType, state: &AxisState) -> bool {
        let plain = self.w.modes.typecheck.is_none();
        if input.zero && plain {
            return true;
        }
        if input.grad == Tri::Yes || !state.set.leq(AxisType::EQUAL) {
            return false;
        }
        // So is the functional form on what has no gradient: a mask that is all ones where none was given is gathered like one that was.
        let detached = input.grad == Tri::No;
        let counts = detached && plain && matches!(call.rule.op.as_str(), "all_reduce" | "all_gather");
        let again = was_communicated(state, self.place(id), detached && call.rule.op == "all_reduce");
        // Counting ranks, averaging and comparing by a raw collective of equal values is an idiom, not a mistake.
        (!call.rule.differentiable || counts) && (!again || averages(call, input))
            || call.rule.op == "all_reduce" && detached && plain && self.reads_number_of_ranks(&call.axes)
            // What is written down stands for whatever the ranks have: ones to count with, masks, blank inputs.
            || plain && is_constant(state)
            || call.rule.form == Form::InPlace && self.is_measured(id)
    }

    /// Whether a collective runs for its time: nobody learns what it sums.
    fn is_measured(&self, id: StmtId) -> bool {
        self.loop_depth > 0 && super::repeated::only_repeats(self.func(), id)
            || super::repeated::is_never_read(self.project, self.activation(), id)
            || super::repeated::is_read_no_more(self.project, self.rules, self.files, self.activation(), id)
    }

    /// The input must have the source type; an unknown input is narrowed to it.
    fn check_source(
        &mut self,
        id: StmtId,
        call: &Call<'_>,
        axis: &Axis,
        input: &TensorType,
        source: Side,
        no_grad: bool,
    ) -> Result<(), ()> {
        let state = input.local.get(axis);
        let mut accepted = source.set;
        if accepted == AxisType::P && !(call.rule.differentiable && is_own_columns(state)) {
            // A varying value is taken as the pending sum that it is about to be.
            accepted = accepted.join(AxisType::V);
        }
        if no_grad && !accepted.meet(AxisType::EQUAL).is_empty() {
            accepted = accepted.join(AxisType::EQUAL);
        }
        let plain = self.w.modes.typecheck.is_none();
        let meet = state.set.meet(accepted);
        let meant = || plain && meet.is_empty() && self.is_on_purpose(id, call, state.set);
        if self.is_idiom(id, call, input, state) || meant() {
            return Ok(());
        }
        let source_dim = source.shard.and_then(|d| i8::try_from(d).ok());
        let shards_differ = matches!((source_dim, state.shard), (Some(a), Some(b)) if input.dims_differ(a, b) && state.set == AxisType::V);
        let strict = self.w.modes.typecheck == Some(true);
        if strict && state.set.is_unknown() && !input.untracked {
            return self.bad_arguments(id, call, ArgumentProblem::NoType(axis.clone()));
        }
        let apart = self.is_restricted(axis) || Self::has_twin(axis, std::iter::once(&input.local));
        // It may hold other values by now than those that a collective left on all ranks.
        if meet.is_empty() && plain && input.touched && state.set.leq(AxisType::EQUAL) {
            return Ok(());
        }
        if (meet.is_empty() && !apart) || (shards_differ && plain) {
            let mut operand = self.input_at(id, call, Some(axis));
            operand.state = state.clone();
            let repairs = self.collective_repairs(id, call.rule, axis, call.input, source.set);
            let kind = FindingKind::CollectiveSource {
                op: call.rule.op.clone(),
                name: short(&call.rule.name),
                axis: axis.clone(),
                expected: source.set,
                dim: source.shard.filter(|_| shards_differ),
                operand,
            };
            self.report_with(self.place(id), kind, repairs);
            return Err(());
        }
        if meet != state.set && !meet.is_empty() && self.w.modes.typecheck.is_none() {
            let origin = Origin::new(self.part(id, call.part), Why::Narrowed(short(&call.rule.name)), meet.known());
            let mut t = input.clone();
            t.local.set(axis, AxisState { set: meet, shard: state.shard, nest: state.nest, origin: Some(origin) });
            self.retype_quietly(call.input, t);
        }
        Ok(())
    }

    pub(super) fn input_at(&self, id: StmtId, call: &Call<'_>, axis: Option<&Axis>) -> OperandAt {
        let state = match (axis, self.w.heap.tensor(call.input)) {
            (Some(axis), Some(t)) => t.local.get(axis).clone(),
            _ => AxisState::UNKNOWN,
        };
        OperandAt { place: Some(self.part(id, call.part)), state, is_number: false, is_divisor: false }
    }

    /// A raw in-place reduction: the input takes on the result type.
    fn reduced_in_place(&mut self, id: StmtId, call: &Call<'_>, args: &CallArgs) -> Result<Value, ()> {
        let input = self.w.heap.tensor(call.input).cloned().unwrap_or_else(TensorType::unknown);
        let checked = self.w.modes.typecheck.is_some();
        let Some(transition) = self.chosen_transition(call, args) else { return Ok(Value::Unknown) };
        let (mut source, mut result) = self.sides(call, args, &transition);
        if checked {
            (source.set, result.set) = (AxisType::P, AxisType::R);
        } else if self.is_extremum(call, args) {
            source.set = self.extremum_takes(call, args);
        } else if input.grad == Tri::Yes && self.w.modes.grad {
            result.set = AxisType::I;
        }
        let mut local = input.local.clone();
        if self.is_global() {
            self.check_spec(id, call.input, call.part)?;
        }
        for axis in call.axes.iter() {
            if checked {
                self.check_raw_source(id, call, axis, &input, AxisType::P)?;
            } else {
                self.check_source(id, call, axis, &input, source, true).inspect_err(|()| self.lose_type(call.input))?;
            }
            local.set(axis, self.collective_state(id, call, &input, axis, result));
        }
        self.over_all_ranks(call, result, &mut local);
        self.passed(self.place(id), Pass::Unknown);
        self.out.coverage.site(self.place(id), Site::Typed);
        self.retype(call.input, TensorType { local, touched: false, ..input });
        Ok(Value::Unknown)
    }

    fn lose_type(&mut self, id: ObjId) {
        if let Some(t) = self.w.heap.tensor(id).cloned() {
            self.retype(id, TensorType { local: LocalType::unknown(), ..t });
        }
    }

    /// A reduction by maximum or minimum, or one that is not known: of equal values too it gives an equal value.
    fn is_extremum(&self, call: &Call<'_>, args: &CallArgs) -> bool {
        let Some(param) = call.rule.reduce_op else { return false };
        match call.bound.first(param).map(|i| &args.args[i].value) {
            None => false,
            Some(Value::ReduceOp(name)) => !matches!(name.as_str(), "SUM" | "sum"),
            Some(Value::Const(Const::Str(name))) => name != "sum",
            Some(_) => true,
        }
    }

    /// What a reduction other than a sum takes: a maximum over the terms of a pending sum means nothing.
    fn extremum_takes(&self, call: &Call<'_>, args: &CallArgs) -> AxisType {
        let op = call.rule.reduce_op.and_then(|p| call.bound.first(p)).map(|i| &args.args[i].value);
        match op {
            Some(Value::ReduceOp(name)) if matches!(name.as_str(), "MAX" | "MIN" | "PRODUCT") => {
                AxisType::EQUAL.join(AxisType::V)
            }
            _ => AxisType::ALL,
        }
    }

    /// A raw collective inside `typecheck()`: exactly the source type.
    fn check_raw_source(
        &mut self,
        id: StmtId,
        call: &Call<'_>,
        axis: &Axis,
        input: &TensorType,
        source: AxisType,
    ) -> Result<(), ()> {
        let state = input.local.get(axis);
        // What may be several types is not known to be another one.
        let open = state.set.known().is_none() && !state.set.is_unknown() && !state.set.meet(source).is_empty();
        if open
            || state.set == source
            || (state.set.is_unknown() && (input.untracked || self.w.modes.typecheck == Some(false)))
        {
            return Ok(());
        }
        if state.set.is_unknown() {
            return self.bad_arguments(id, call, ArgumentProblem::NoType(axis.clone()));
        }
        let kind = FindingKind::CollectiveSource {
            op: call.rule.op.clone(),
            name: short(&call.rule.name),
            axis: axis.clone(),
            expected: source,
            dim: None,
            operand: self.input_at(id, call, Some(axis)),
        };
        let repairs = self.collective_repairs(id, call.rule, axis, call.input, source);
        self.report_with(self.place(id), kind, repairs);
        Err(())
    }

    /// A raw collective into a buffer: the buffer takes on the result type; autograd does not see it.
    fn written_out(&mut self, id: StmtId, call: &Call<'_>, args: &CallArgs) -> Result<Value, ()> {
        let input = self.w.heap.tensor(call.input).cloned().unwrap_or_else(TensorType::unknown);
        let checked = self.w.modes.typecheck.is_some();
        let Some(transition) = self.chosen_transition(call, args) else { return Ok(Value::Unknown) };
        let (mut source, result) = self.sides(call, args, &transition);
        if !checked && self.is_extremum(call, args) {
            source.set = self.extremum_takes(call, args);
        }
        if self.is_global() {
            self.check_spec(id, call.input, call.part)?;
        }
        for axis in call.axes.iter() {
            if checked {
                let raw = if source.set.contains(Spmd::Partial) { AxisType::P } else { source.set };
                self.check_raw_source(id, call, axis, &input, raw)?;
            } else {
                self.check_source(id, call, axis, &input, source, true)?;
            }
        }
        self.passed(self.place(id), Pass::Unknown);
        self.out.coverage.site(self.place(id), Site::Typed);
        let Some(at) = call.rule.output.and_then(|o| call.bound.first(o)) else { return Ok(Value::Unknown) };
        let (output, part) = (args.args[at].value.clone(), args.args[at].part);
        let targets = self.output_tensors(&output);
        for target in targets {
            let Some(mut t) = self.w.heap.tensor(target).cloned() else { continue };
            for axis in call.axes.iter() {
                if checked {
                    self.check_output(id, call, axis, &t, result.set, self.part(id, part))?;
                } else {
                    t.local.set(axis, self.collective_state(id, call, &input, axis, result));
                }
            }
            if !checked {
                for axis in LocalType::axes_of([&input.local]) {
                    if !call.axes.contains(&axis) {
                        t.local.set(&axis, input.local.get(&axis).clone());
                    }
                }
                t.local.rest = input.local.rest.clone();
                self.over_all_ranks(call, result, &mut t.local);
                (t.zero, t.touched) = (false, false);
                self.retype(target, t);
            }
        }
        Ok(Value::Unknown)
    }

    fn check_output(
        &mut self,
        id: StmtId,
        call: &Call<'_>,
        axis: &Axis,
        t: &TensorType,
        expected: AxisType,
        place: Place,
    ) -> Result<(), ()> {
        let state = t.local.get(axis);
        if state.set.is_unknown() {
            if t.untracked || self.w.modes.typecheck == Some(false) {
                return Ok(());
            }
            return self.bad_arguments(id, call, ArgumentProblem::NoType(axis.clone()));
        }
        if state.set.known().is_none() && !state.set.meet(expected).is_empty() || state.set.leq(expected) {
            return Ok(());
        }
        let operand = OperandAt { place: Some(place), state: state.clone(), is_number: false, is_divisor: false };
        let kind =
            FindingKind::CollectiveOutput { name: short(&call.rule.name), axis: axis.clone(), expected, operand };
        self.report(self.place(id), kind);
        Err(())
    }

    /// The tensors of an output argument.
    fn output_tensors(&mut self, output: &Value) -> Vec<ObjId> {
        match output {
            Value::Tuple(_) | Value::List(_) => match self.literal_items(output) {
                Some(items) => items.iter().filter_map(|v| self.as_tensor(v)).collect(),
                None => {
                    if let Value::List(id) = output
                        && let Some(cell) = self.list_cell(*id)
                    {
                        return cell.items.iter().chain(&cell.rest).filter_map(|v| self.as_tensor(v)).collect();
                    }
                    Vec::new()
                }
            },
            other => self.as_tensor(other).into_iter().collect(),
        }
    }

    /// The shape of the result: gathered, scattered, stacked or unstacked dims.
    fn moved_shape(&self, call: &Call<'_>, input: &TensorType, source: Side, result: Side) -> Option<Shape> {
        let mut shape = input.shape.clone()?;
        let n = call.axes.single().and_then(|a| self.axis_size(a)).and_then(|n| i64::try_from(n).ok());
        let first_rank = self.w.modes.typecheck.is_some();
        let scale = |shape: &mut Shape, dim: Option<i64>, grow: bool| {
            if let Some(at) = dim.and_then(|d| usize::try_from(d).ok()).filter(|d| *d < shape.rank()) {
                shape.0[at] = match (shape.0[at], n) {
                    (Some(size), Some(n)) if grow => size.checked_mul(n),
                    (Some(size), Some(n)) if size % n == 0 => Some(size / n),
                    // The run-time checker runs on the first rank, whose part is the largest.
                    (Some(size), Some(n)) if first_rank && size > 0 => size.checked_add(n - 1).map(|up| up / n),
                    _ => None,
                };
            }
        };
        let equal = |set: AxisType| set.leq(AxisType::EQUAL.join(AxisType::P));
        match (source.set == AxisType::V, result.set == AxisType::V) {
            (true, false) if result.set == AxisType::P && call.rule.op != "all_reduce" => {
                if source.shard.is_some() {
                    scale(&mut shape, source.shard, true);
                } else if call.rule.op == "convert" || call.rule.op == "redistribute" {
                    shape.0.insert(0, n);
                }
            }
            (true, false) if call.rule.op == "all_gather" || call.rule.op == "redistribute" => match source.shard {
                Some(_) => scale(&mut shape, source.shard, true),
                None => shape.0.insert(0, n),
            },
            (_, true) if call.rule.op == "reduce_scatter" || equal(source.set) && call.rule.op != "reinterpret" => {
                match result.shard {
                    Some(_) => scale(&mut shape, result.shard, false),
                    None if shape.rank() > 0 => {
                        shape.0.remove(0);
                    }
                    None => return None,
                }
            }
            (true, true) if call.rule.op == "all_to_all" || call.rule.op == "redistribute" => {
                if source.shard.is_some() && result.shard.is_some() && source.shard != result.shard {
                    scale(&mut shape, source.shard, true);
                    scale(&mut shape, result.shard, false);
                } else if source.shard.is_none() != result.shard.is_none() {
                    return Some(Shape(vec![None; shape.rank()]));
                }
            }
            _ => {}
        }
        Some(shape)
    }
}

/// Whether a reduction without gradient goes over several axes, on one of which the value differs: the rest is a factor.
fn averages(call: &Call<'_>, input: &TensorType) -> bool {
    let differs = |axis: &Axis| !input.local.get(axis).set.leq(AxisType::EQUAL);
    input.grad == Tri::No && call.axes.len() > 1 && call.axes.iter().any(differs)
}

/// Whether a type was decided by a declaration, or by a collective that stands before this place; one that stands after it belongs to
/// an earlier round of a loop, between which the value may have been filled anew.
fn was_communicated(state: &AxisState, here: Place, detached: bool) -> bool {
    let mut at = state.origin.as_ref();
    while let Some(origin) = at {
        match origin.reason {
            // In another file the sum may be half of an average that is seen nowhere as a whole.
            Why::Collective(_) => return origin.place.file == here.file && origin.place.span.end <= here.span.start,
            // What is logged and compared is reduced over ranks that agree, and divided by their number.
            Why::Declared | Why::Asserted | Why::Contract(_) => return !detached,
            Why::Computed
            | Why::Factory
            | Why::Parameter
            | Why::Unmarked(_)
            | Why::MarkedWhere
            | Why::Whole(_)
            | Why::Narrowed(_)
            | Why::Mode(_)
            | Why::RankDependent => at = origin.from.as_ref(),
        }
    }
    false
}

/// Whether a value is made of constants only.
pub(super) fn is_constant(state: &AxisState) -> bool {
    let mut at = state.origin.as_ref();
    while let Some(origin) = at {
        match origin.reason {
            Why::Factory => return origin.from.is_none(),
            Why::Computed => at = origin.from.as_ref(),
            _ => return false,
        }
    }
    false
}

pub(super) fn side(atom: Atom) -> Side {
    match atom {
        Atom::Replicate => Side { set: AxisType::R, shard: None },
        Atom::Invariant => Side { set: AxisType::I, shard: None },
        Atom::Varying => Side { set: AxisType::V, shard: None },
        Atom::Partial => Side { set: AxisType::P, shard: None },
        Atom::Shard(dim) => Side { set: AxisType::V, shard: Some(i64::from(dim)) },
    }
}

pub(super) fn show(side: Side) -> String {
    match side.shard {
        Some(dim) => format!("S({dim})"),
        None => side.set.to_string(),
    }
}

/// The last part of a qualified name.
pub fn short(name: &str) -> Name {
    Name::from(name.rsplit('.').next().unwrap_or(name))
}

/// Whether a value is each rank's own columns of a product with a split weight: what a sum over the ranks adds then are different columns.
pub fn is_own_columns(state: &AxisState) -> bool {
    let chain = std::iter::successors(state.origin.as_ref(), |at| at.from.as_ref()).take(MAX_ORIGIN_STEPS);
    let mut first = chain.skip_while(|at| at.reason == Why::Computed);
    state.set == AxisType::V && state.shard.is_some() && first.next().is_some_and(|at| at.reason == Why::Parameter)
}
