//! Results of tensor operations: their values, gradients, shapes, and what is written in place. In: a typed operation.
//! Out: values. Never: the types themselves, which `ops.rs` combines. Source: the torch documentation of each operation.
//! Next: `collective.rs`.

use super::expr::{CallArg, CallArgs};
use super::finding::{FindingKind, OperandAt};
use super::heap::{Cell, ListCell};
use super::machine::Machine;
use super::ops::{OpCall, Operand};
use super::value::{ObjId, Value};
use crate::ir::{Const, StmtId};
use crate::rules::shapes::{self, Given, ShapeArgs, Shapes};
use crate::rules::{OpClass, OpRule, ResultForm, Role};
use crate::source::Name;
use crate::types::{AxisState, AxisType, LocalType, Shape, TensorType, Tri};
use std::sync::Arc;

impl Machine<'_> {
    /// Where nothing is checked, what an operation gives has no type, and what it writes into keeps the one that it has.
    pub(super) fn unchecked_op(&mut self, id: StmtId, call: OpCall<'_>, args: &CallArgs) -> Value {
        match args.args.first() {
            Some(first) if call.rule.in_place => first.value.clone(),
            _ => self.results(id, &call, args, Some(LocalType::unknown())),
        }
    }

    /// Makes the results of an operation, and applies in-place effects.
    pub fn results(&mut self, id: StmtId, call: &OpCall<'_>, args: &CallArgs, ty: Option<LocalType>) -> Value {
        let rule = call.rule;
        if rule.in_place || args.keyword("out").is_some() {
            return self.written_touched(id, call, args, ty);
        }
        match rule.result {
            ResultForm::Number if rule.class == OpClass::Metadata => return self.shape_value(call, args),
            ResultForm::Number => {
                let unknown = call.operands.iter().all(|o| o.ty.is_unknown());
                return match (&ty, unknown) {
                    (Some(t), false) if rule.class != OpClass::Metadata => Value::Number(Some(Arc::new(t.clone()))),
                    (None, false) | (Some(_), _) => self.number_of(call),
                    (None, true) => Value::Number(None),
                };
            }
            ResultForm::Bool | ResultForm::None => return Value::Unknown,
            ResultForm::Shape => return self.shape_value(call, args),
            _ => {}
        }
        if let Some(itself) = self.itself(rule, args) {
            return Value::Tensor(itself);
        }
        let passthrough_input = call.operands.iter().find(|o| o.id.is_some()).map(|o| o.ty.clone());
        let mut local = match ty {
            Some(ty) => ty,
            None if rule.class == OpClass::Metadata => return self.shape_value(call, args),
            None => passthrough_input.unwrap_or_else(LocalType::unknown),
        };
        let global = self.is_global();
        if !(global
            || rule.identity
            || rule.dims.is_some()
            || matches!(rule.shape, shapes::ShapeRule::Same | shapes::ShapeRule::Broadcast | shapes::ShapeRule::Einsum))
        {
            self.move_shards(id, call, args, &mut local);
        }
        let grad = self.result_grad(call, args);
        let untracked = rule.class == OpClass::Opaque || call.lost || self.loses_track(call);
        let shapes = self.shapes(call, args);
        let view_of = self.shared_memory(rule, args);
        let zero = self.is_zero(rule, args, rule.identity || view_of.is_some());
        let reduced = self.in_16_bits(call, args);
        let divided = self.divided(call, args);
        let least = self.least_rank(call, args);
        let in_order = self.lies_in_order(call);
        let touched = self.is_touched(call, args);
        let make = |shape: Option<Shape>, grad: Tri| TensorType {
            local: local.clone(),
            grad,
            shape,
            untracked,
            spoiled: call.spoiled,
            touched,
            zero,
            view_of,
            reduced,
            home: None,
            term: None,
            dist: crate::types::Dist::Unknown,
            divided: divided.clone(),
            least,
            in_order: in_order && view_of.is_none(),
        };
        match rule.result {
            ResultForm::ValuesIndices => self.pair(id, make, shapes, grad),
            ResultForm::ValuesIndicesIfDim if self.has_dim(call, args) => self.pair(id, make, shapes, grad),
            ResultForm::List => self.list_result(make, shapes, grad),
            ResultForm::Tuple(n) => {
                let items = (0..n).map(|_| self.new_tensor(make(None, grad))).collect();
                Value::tuple(items)
            }
            _ => {
                let shape = match shapes {
                    Shapes::One(shape) => shape,
                    Shapes::Many(..) => None,
                };
                self.new_tensor(make(shape, grad))
            }
        }
    }

    /// Whether an operand comes out of what was reported: one cause has one diagnostic.
    pub(super) fn has_spoiled(&self, call: &OpCall<'_>) -> bool {
        let spoiled = |o: &Operand| o.id.and_then(|id| self.w.heap.tensor(id)).is_some_and(|t| t.spoiled);
        call.operands.iter().any(spoiled)
    }

    /// After a finding: what an in-place operation wrote is unknown.
    pub(super) fn spoil(&mut self, call: &OpCall<'_>, args: &CallArgs) {
        if call.rule.in_place
            && let Some(CallArg { value: Value::Tensor(id), .. }) = args.args.first()
            && let Some(mut t) = self.w.heap.tensor(*id).cloned()
        {
            t.local = LocalType::unknown();
            t.untracked = true;
            self.retype(*id, t);
        }
    }

    /// Whether the run-time checker may know a type of an operand that is lost here.
    fn loses_track(&self, call: &OpCall<'_>) -> bool {
        let lost = |o: &Operand| o.id.and_then(|id| self.w.heap.tensor(id)).is_some_and(|t| t.untracked);
        self.w.modes.typecheck.is_some() && call.operands.iter().any(lost)
    }

    /// How many dims the result has at least, where its shape is not known.
    fn least_rank(&self, call: &OpCall<'_>, args: &CallArgs) -> u8 {
        let of = |o: &Operand| o.id.and_then(|id| self.w.heap.tensor(id)).map_or(0, TensorType::least_rank);
        let terms = || call.operands.iter().filter(|o| o.role == Role::Term);
        let swapped = |name: &str| {
            let at = call.rule.args.index(name).and_then(|param| call.bound.first(param))?;
            args.args[at].value.as_int().and_then(|dim| u8::try_from(dim + 1).ok())
        };
        let first = || terms().next().map_or(0, of);
        match call.rule.shape {
            shapes::ShapeRule::Same | shapes::ShapeRule::Linear => first(),
            shapes::ShapeRule::Broadcast => terms().map(of).max().unwrap_or(0),
            shapes::ShapeRule::Transpose => {
                [swapped("dim0"), swapped("dim1")].into_iter().flatten().fold(first(), u8::max)
            }
            _ => 0,
        }
    }

    /// What a tensor is on an axis after something of another type was written into it.
    fn after_write(&self, old: &TensorType, was: AxisState, now: AxisState) -> AxisState {
        if self.w.modes.typecheck.is_some() {
            return if now.set.is_unknown() { was } else { now };
        }
        let both = was.set.meet(now.set);
        if old.grad == Tri::Yes && !both.is_empty() { AxisState { set: both, ..now } } else { now }
    }

    /// Whether the result is known to hold 16-bit floats: by a cast, a `dtype`, or because every operand does.
    fn in_16_bits(&self, call: &OpCall<'_>, args: &CallArgs) -> bool {
        let last = call.rule.name.rsplit('.').next().unwrap_or(&call.rule.name);
        if matches!(last, "half" | "bfloat16") {
            return true;
        }
        if matches!(last, "float" | "double") {
            return false;
        }
        if let Some(dtype) = args.keyword("dtype") {
            return is_reduced(dtype);
        }
        let reduced = |v: &Value| self.tensor(v).is_some_and(|t| t.reduced);
        match last {
            "to" if args.args.iter().any(|a| is_dtype(&a.value)) => args.args.iter().any(|a| is_reduced(&a.value)),
            "type_as" => args.positional(1).is_some_and(reduced),
            _ => {
                let tensors = || call.operands.iter().filter_map(|o| o.id).filter_map(|id| self.w.heap.tensor(id));
                let is_scalar = |t: &&TensorType| t.rank() == Some(0);
                // Beside tensors with dims, one without has no say in the dtype.
                let of_dims = tensors().any(|t| !is_scalar(&t));
                let mut counted = tensors().filter(|t| !(of_dims && is_scalar(t))).peekable();
                counted.peek().is_some() && counted.all(|t| t.reduced)
            }
        }
    }

    /// The first argument, if it is a tensor.
    fn first_tensor(&self, args: &CallArgs) -> Option<(ObjId, &TensorType)> {
        match args.args.first().map(|a| &a.value) {
            Some(Value::Tensor(id)) => self.w.heap.tensor(*id).map(|t| (*id, t)),
            _ => None,
        }
    }

    /// A tensor that PyTorch gives back as the same object, so that a type given to one is that of the other: one of one dim that is
    /// flattened, or one in the order of its dims that is made contiguous.
    fn itself(&self, rule: &OpRule, args: &CallArgs) -> Option<ObjId> {
        let flattens = rule.name.ends_with(".flatten") && matches!(rule.shape, shapes::ShapeRule::Flatten);
        let orders = rule.name.ends_with(".contiguous") && args.args.len() == 1;
        let (id, t) = self.first_tensor(args).filter(|_| self.deriving.is_none() && (flattens || orders))?;
        let same = if flattens { t.rank() == Some(1) } else { is_in_order(t) };
        same.then_some(id)
    }

    /// Whether the result of an operation, if it is no view, lies in the order of its dims.
    fn lies_in_order(&self, call: &OpCall<'_>) -> bool {
        use shapes::ShapeRule as Rule;
        let of_operands = || {
            let mut tensors = call.operands.iter().map(|o| o.id.and_then(|id| self.w.heap.tensor(id)));
            tensors.all(|t| t.is_some_and(|t| is_in_order(t) || t.rank() == Some(0)))
        };
        match call.rule.shape {
            _ if call.rule.name.ends_with(".contiguous") => true,
            Rule::Factory | Rule::New | Rule::Full | Rule::Sized | Rule::Matmul | Rule::Mm | Rule::Linear => true,
            Rule::Same | Rule::Like | Rule::Broadcast | Rule::Reduce | Rule::Cat => of_operands(),
            _ => false,
        }
    }

    /// The tensor whose memory the result of a view shares.
    fn shared_memory(&self, rule: &OpRule, args: &CallArgs) -> Option<u32> {
        let views = matches!(
            rule.shape,
            shapes::ShapeRule::View
                | shapes::ShapeRule::ViewAs
                | shapes::ShapeRule::Getitem
                | shapes::ShapeRule::Narrow
                | shapes::ShapeRule::Select
                | shapes::ShapeRule::Transpose
                | shapes::ShapeRule::T
                | shapes::ShapeRule::Mt
                | shapes::ShapeRule::Permute
                | shapes::ShapeRule::Squeeze
                | shapes::ShapeRule::Unsqueeze
                | shapes::ShapeRule::Expand
                | shapes::ShapeRule::Flatten
                | shapes::ShapeRule::Unflatten
                | shapes::ShapeRule::Split
                | shapes::ShapeRule::Chunk
                | shapes::ShapeRule::Unbind
        ) || rule.name.ends_with(".data")
            || rule.name.ends_with(".detach");
        let (id, t) = self.first_tensor(args).filter(|_| views)?;
        Some(t.view_of.unwrap_or(id.0))
    }

    /// Whether every value that a factory is given is a constant of the source.
    pub fn made_of_constants(&self, call: &OpCall<'_>, args: &CallArgs) -> bool {
        call.rule.tensors.iter().flat_map(|p| call.bound.all(*p)).all(|i| self.is_constant(&args.args[*i].value))
    }

    fn is_constant(&self, value: &Value) -> bool {
        match value {
            Value::Const(_) => true,
            Value::Tuple(_) | Value::List(_) => {
                self.literal_items(value).is_some_and(|items| items.iter().all(|v| self.is_constant(v)))
            }
            _ => false,
        }
    }

    /// A number read off a tensor differs by rank where the tensor does.
    fn number_of(&self, call: &OpCall<'_>) -> Value {
        if call.rule.class == OpClass::Metadata {
            return Value::Number(None);
        }
        match call.operands.first() {
            Some(o) if !o.ty.is_unknown() => Value::Number(Some(Arc::new(o.ty.clone()))),
            _ => Value::Number(None),
        }
    }

    fn has_dim(&self, call: &OpCall<'_>, args: &CallArgs) -> bool {
        let Some(at) = call.rule.args.index("dim") else { return false };
        match call.bound.first(at).map(|i| &args.args[i].value) {
            Some(Value::Tensor(_) | Value::Sym(_)) | None => false,
            Some(value) => !value.is_none(),
        }
    }

    fn pair(
        &mut self,
        _id: StmtId,
        make: impl Fn(Option<Shape>, Tri) -> TensorType,
        shapes: Shapes,
        grad: Tri,
    ) -> Value {
        let shape = match shapes {
            Shapes::One(shape) => shape,
            Shapes::Many(..) => None,
        };
        let values = self.new_tensor(make(shape.clone(), grad));
        let indices = self.new_tensor(make(shape, Tri::No));
        Value::tuple(vec![values, indices])
    }

    fn list_result(&mut self, make: impl Fn(Option<Shape>, Tri) -> TensorType, shapes: Shapes, grad: Tri) -> Value {
        let (count, shape) = match shapes {
            Shapes::Many(count, shape) => (count, shape),
            Shapes::One(shape) => (None, shape),
        };
        match count.filter(|n| *n <= super::limits::MAX_LIST) {
            Some(n) => {
                let items = (0..n).map(|_| self.new_tensor(make(shape.clone(), grad))).collect();
                Value::tuple(items)
            }
            None => {
                let item = self.new_tensor(make(shape, grad));
                Value::List(self.fresh(Cell::List(ListCell { items: Vec::new(), rest: Some(item) })))
            }
        }
    }

    /// Whether the result requires a gradient.
    fn result_grad(&mut self, call: &OpCall<'_>, args: &CallArgs) -> Tri {
        let rule = call.rule;
        if rule.class == OpClass::Probe {
            return Tri::No;
        }
        if rule.fresh_grad || matches!(rule.class, OpClass::Equal | OpClass::UnknownValues) {
            return match args.keyword("requires_grad") {
                Some(Value::Const(Const::Bool(b))) => Tri::from_bool(*b),
                Some(_) => Tri::Unknown,
                None => Tri::No,
            };
        }
        if rule.nondiff || !self.w.modes.grad {
            return Tri::No;
        }
        if rule.class == OpClass::Opaque {
            return Tri::Unknown;
        }
        // An operand may be judged as if it required a gradient; the result does only where the tensor itself does.
        let grad = |o: &Operand| o.id.and_then(|id| self.w.heap.tensor(id)).map_or(o.grad, |t| t.grad);
        call.operands.iter().filter(|o| o.role != Role::Index).fold(Tri::No, |g, o| g.or(grad(o)))
    }

    /// Whether a sum gets its finished value copied back, where no gradient asks how.
    fn is_finished(&self, call: &OpCall<'_>, was: &AxisState) -> bool {
        let plain = self.w.modes.typecheck.is_none() && !self.w.modes.grad;
        plain && was.set == AxisType::P && call.rule.name.ends_with("copy_")
    }

    /// Whether a result is zero everywhere. `same`: it has the values of what it is made of.
    fn is_zero(&self, rule: &OpRule, args: &CallArgs, same: bool) -> bool {
        rule.zero || is_times_zero(rule, args) || (same && self.first_tensor(args).is_some_and(|(_, t)| t.zero))
    }

    /// The same, and what nobody knows of is noted to have been written.
    fn written_touched(&mut self, id: StmtId, call: &OpCall<'_>, args: &CallArgs, ty: Option<LocalType>) -> Value {
        let touched = self.is_touched(call, args);
        let target = self.written(id, call, args, ty);
        if touched {
            self.touch_value(&target);
        }
        target
    }

    /// An in-place or `out=` operation: the type of what is written may not change.
    fn written(&mut self, id: StmtId, call: &OpCall<'_>, args: &CallArgs, ty: Option<LocalType>) -> Value {
        let target = match args.keyword("out") {
            Some(out) => out.clone(),
            None => args.args.first().map_or(Value::Unknown, |a| a.value.clone()),
        };
        let Some(tensor) = self.as_tensor(&target) else { return target };
        let (Some(old), Some(ty)) = (self.w.heap.tensor(tensor).cloned(), ty) else { return target };
        if self.w.modes.typecheck.is_some() && call.rule.shape == shapes::ShapeRule::Setitem {
            // The run-time checker does not take a partial write for one; autograd does.
            let grad = if self.w.modes.grad { old.grad.or(self.result_grad(call, args)) } else { old.grad };
            if grad != old.grad {
                self.retype(tensor, TensorType { grad, ..old });
            }
            return target;
        }
        if call.rule.name.ends_with(".copy_") && self.w.modes.typecheck.is_none() && self.copied_part(id, tensor, args)
        {
            return target;
        }
        let fills = matches!(call.rule.class, OpClass::Fill | OpClass::Equal | OpClass::UnknownValues);
        let whole = old.view_of.and_then(|id| self.w.heap.tensor(ObjId(id))).is_some_and(|t| t.grad == Tri::Yes);
        if fills && (old.grad == Tri::Yes || whole) && self.w.modes.typecheck.is_none() {
            // How a parameter is initialised says nothing about who sums its gradient.
            return target;
        }
        if args.keyword("out").is_some() && self.w.modes.typecheck.is_none() {
            // All of it is new: what the buffer held before does not matter.
            self.retype(tensor, TensorType { local: ty, zero: call.rule.zero, ..old });
            return target;
        }
        let part = if args.keyword("out").is_some() { 0 } else { args.args.first().map_or(0, |a| a.part) };
        let mut local = old.local.clone();
        for axis in LocalType::axes_of([&old.local, &ty]) {
            let (was, now) = (old.local.get(&axis).clone(), ty.get(&axis).clone());
            let differs = !now.set.is_empty() && now.set.leq(AxisType::V.join(AxisType::P));
            let differs = differs && self.w.modes.typecheck.is_none();
            // Zeros are a buffer that is filled, part by part.
            let blank = old.zero && self.w.modes.typecheck.is_none();
            let becomes_varying = old.grad != Tri::Yes
                && (was.set.leq(AxisType::EQUAL) || blank)
                && (now.set == AxisType::V || differs && old.grad == Tri::No);
            let is_filled = blank && old.grad != Tri::Yes || self.is_finished(call, &was);
            // What every rank has may be the first value of its own part of a parameter, as with `fill_`. What is loaded into a part that
            // its size tells is that part.
            let fits = now.set.leq(AxisType::EQUAL) || old.divided.is_some() && now.set != AxisType::P;
            let begins =
                (old.grad == Tri::Yes || whole) && was.set == AxisType::V && fits && self.w.modes.typecheck.is_none();
            // A copy replaces all that an own part had, also by what may be the same on all ranks.
            let may_be_equal = !now.set.meet(AxisType::EQUAL).is_empty() && call.rule.name.ends_with("copy_");
            let replaced = old.grad != Tri::Yes && was.set == AxisType::V && may_be_equal;
            if begins || replaced && self.w.modes.typecheck.is_none() {
                continue;
            }
            if was.set.meet(now.set).is_empty()
                && !(becomes_varying || is_filled)
                && !self.rank_restricted.contains(&axis)
            {
                let place = Some(self.part(id, part));
                let operand = OperandAt { place, state: was, is_number: false, is_divisor: false };
                let kind = FindingKind::InPlaceChange {
                    axis: axis.clone(),
                    op: call.rule.name.clone(),
                    target: operand,
                    result: now.set,
                };
                self.report(self.place(id), kind);
                local = LocalType::unknown();
                break;
            }
            local.set(&axis, self.after_write(&old, was, now));
        }
        let grad = if self.w.modes.grad { old.grad.or(self.result_grad(call, args)) } else { old.grad };
        if self.w.modes.typecheck.is_none() && old.local.rest.set != ty.rest.set {
            local.rest = AxisState::UNKNOWN;
        }
        let zero = call.rule.zero;
        self.retype(tensor, TensorType { local, grad, zero, ..old });
        target
    }

    /// `x[index] = value` on a tensor: a partial write keeps the rest, so the types must agree.
    pub fn store_slice(&mut self, id: StmtId, base: &Value, index: &Value, value: &Value) {
        let Some(rule) = self.rules.op("torch.Tensor.__setitem__").cloned() else { return };
        let args = [base, index, value]
            .into_iter()
            .enumerate()
            .map(|(part, v)| CallArg { keyword: None, value: v.clone(), part })
            .collect();
        let args = CallArgs { args, open: false };
        if self.deriving.is_some() {
            self.stored_term(base, index, value);
            return;
        }
        if self.w.modes.typecheck.is_some() {
            self.apply_op(id, &rule, &args);
            return;
        }
        // In ordinary code a slice store into a fresh buffer is how shards and pending sums are assembled: the buffer takes on what
        // is written, and is unknown where the two differ.
        let Some(buffer) = self.as_tensor(base) else { return };
        let Some(old) = self.w.heap.tensor(buffer).cloned() else { return };
        let new = match value {
            Value::Tensor(_) => self.tensor(value).cloned().unwrap_or_else(TensorType::unknown),
            Value::Const(_) => TensorType { grad: Tri::No, ..old.clone() },
            _ => TensorType { grad: Tri::No, ..TensorType::unknown() },
        };
        let mut local = old.local.clone();
        for axis in LocalType::axes_of([&old.local, &new.local]) {
            let (a, b) = (old.local.get(&axis), new.local.get(&axis));
            let state = if a.set == b.set { a.clone() } else { AxisState::UNKNOWN };
            local.set(&axis, state);
        }
        if old.local.rest.set != new.local.rest.set {
            local.rest = AxisState::UNKNOWN;
        }
        let grad = old.grad.or(if self.w.modes.grad { new.grad } else { Tri::No });
        self.retype(buffer, TensorType { local, grad, zero: false, ..old });
    }

    /// `.size()` and `.shape`: the sizes that are known.
    fn shape_value(&mut self, call: &OpCall<'_>, args: &CallArgs) -> Value {
        let shape = args.args.first().and_then(|a| self.tensor(&a.value)).and_then(|t| t.shape.clone());
        if call.rule.result != ResultForm::Shape {
            return match (call.rule.name.rsplit('.').next(), shape) {
                (Some("dim" | "ndim" | "ndimension"), Some(s)) => Value::int(s.rank() as i64),
                (Some("numel" | "nelement"), _) => Value::Number(None),
                _ if call.rule.result == ResultForm::Number => Value::Number(None),
                _ => Value::Unknown,
            };
        }
        let size = |d: &Option<i64>| d.map_or(Value::Number(None), Value::int);
        match (shape, args.positional(1).and_then(Value::as_int)) {
            (Some(s), Some(dim)) => s.dim(dim).map_or(Value::Number(None), |at| size(&s.0[at])),
            // The size of one dim, which is an argument.
            (_, None) if args.positional(1).is_some_and(|v| !v.is_none()) => Value::Number(None),
            (Some(s), None) => Value::tuple(s.0.iter().map(size).collect()),
            (None, Some(_)) => Value::Number(None),
            (None, None) => {
                let sizes = ListCell { items: Vec::new(), rest: Some(Value::Number(None)) };
                let sizes = self.fresh(Cell::List(sizes));
                self.sizes_of = args.args.first().map(|a| (sizes, a.value.clone()));
                Value::List(sizes)
            }
        }
    }

    /// Sizes that are unpacked into so many variables are those of a tensor of so many dims.
    pub fn counted_sizes(&mut self, sizes: &Value, count: usize) {
        let made = self.sizes_of.take();
        let tensor = match sizes {
            Value::List(list) => made.filter(|(of, _)| of == list).and_then(|(_, tensor)| self.as_tensor(&tensor)),
            Value::Sym(path) => {
                // A parameter with a declared type is a tensor, also where nothing has used it yet.
                let of = path.strip_suffix(".shape").map(Name::from);
                let of = of.filter(|of| self.symbol(of).is_some() || self.settings.declared_type(of).is_some());
                of.and_then(|of| self.as_tensor(&Value::Sym(of)))
            }
            _ => None,
        };
        if let Some(id) = tensor
            && let Some(mut t) = self.w.heap.tensor(id).filter(|t| t.shape.is_none()).cloned()
        {
            t.shape = Some(Shape(vec![None; count]));
            self.retype_quietly(id, t);
        }
    }

    /// What was given for each parameter, as shape rules see it.
    pub(super) fn givens(&mut self, call: &OpCall<'_>, args: &CallArgs) -> Vec<Given> {
        (0..call.rule.args.params.len())
            .map(|param| {
                let variadic = call.rule.args.params[param].variadic;
                let at = call.bound.all(param);
                match (variadic, at) {
                    (_, []) => Given::Absent,
                    // One that is not known may be the tuple of all.
                    (true, [one]) if matches!(args.args[*one].value, Value::Unknown) => Given::Unknown,
                    (true, many) if many.len() > 1 || !self.is_sequence(&args.args[many[0]].value) => {
                        let values: Vec<Value> = many.iter().map(|i| args.args[*i].value.clone()).collect();
                        self.given(&Value::tuple(values))
                    }
                    (_, [first, ..]) => self.given(&args.args[*first].value),
                }
            })
            .collect()
    }

    /// Shapes of the results.
    /// The shape of the result, if that is one tensor.
    pub(super) fn one_shape(&mut self, call: &OpCall<'_>, args: &CallArgs) -> Option<Shape> {
        match self.shapes(call, args) {
            Shapes::One(shape) => shape,
            _ => None,
        }
    }

    fn shapes(&mut self, call: &OpCall<'_>, args: &CallArgs) -> Shapes {
        let given = self.givens(call, args);
        if call.rule.name.ends_with("__getitem__") {
            return Shapes::One(self.indexed_shape(args));
        }
        shapes::infer(
            call.rule.shape,
            &ShapeArgs { signature: &call.rule.args, given: &given, tensors: &call.rule.tensors },
        )
    }

    fn is_sequence(&self, value: &Value) -> bool {
        matches!(value, Value::Tuple(_) | Value::List(_))
    }

    /// A value as a shape rule sees it.
    fn given(&mut self, value: &Value) -> Given {
        match value {
            Value::Const(Const::None) => Given::Nothing,
            Value::Const(Const::Int(n)) => Given::Int(Some(*n)),
            Value::Const(Const::Bool(b)) => Given::Bool(*b),
            Value::Const(Const::Str(s)) => Given::Str(s.to_string()),
            Value::Const(Const::Float(_))
            | Value::Number(_)
            | Value::Share(_)
            | Value::Size(_)
            | Value::Rank(_)
            | Value::Edge(_) => Given::Int(None),
            Value::Tensor(_) => Given::Tensor(self.tensor(value).and_then(|t| t.shape.clone())),
            Value::Sym(path) => match self.symbol(path) {
                Some(id) => Given::Tensor(self.w.heap.tensor(id).and_then(|t| t.shape.clone())),
                None => Given::Unknown,
            },
            Value::Tuple(_) | Value::List(_) => match self.literal_items(value) {
                Some(items) if items.iter().any(|v| matches!(v, Value::Tensor(_))) => {
                    Given::Tensors(items.iter().map(|v| self.tensor(v).and_then(|t| t.shape.clone())).collect())
                }
                Some(items) => Given::Ints(items.iter().map(Value::as_int).collect()),
                None => Given::Unknown,
            },
            _ => Given::Unknown,
        }
    }

    /// The shape of `x[index]` for indices of integers, slices, `...` and `None`.
    fn indexed_shape(&self, args: &CallArgs) -> Option<Shape> {
        let shape = self.tensor(args.positional(0)?)?.shape.clone()?;
        let index = args.positional(1)?;
        let items: Vec<Value> = match index {
            Value::Tuple(items) => items.to_vec(),
            other => vec![other.clone()],
        };
        let taken = items.iter().filter(|v| !v.is_none() && !matches!(v, Value::Const(Const::Ellipsis))).count();
        let mut rest = shape.0.as_slice();
        let mut out = Vec::new();
        for item in &items {
            match item {
                Value::Const(Const::None) => out.push(Some(1)),
                Value::Const(Const::Ellipsis) => {
                    let n = shape.rank().checked_sub(taken)?;
                    let n = n.min(rest.len());
                    out.extend_from_slice(&rest[..n]);
                    rest = &rest[n..];
                }
                Value::Const(Const::Int(_)) | Value::Number(_) | Value::Share(_) | Value::Rank(_) | Value::Edge(_) => {
                    rest = rest.get(1..)?;
                }
                Value::Slice(parts) => {
                    out.push(sliced(*rest.first()?, parts));
                    rest = &rest[1..];
                }
                _ => return None,
            }
        }
        out.extend_from_slice(rest);
        Some(Shape(out))
    }

    /// Where a reshaping operation takes the split dim; forgotten when it is not followed.
    fn move_shards(&mut self, id: StmtId, call: &OpCall<'_>, args: &CallArgs, local: &mut LocalType) {
        let rank = args.args.first().and_then(|a| self.tensor(&a.value)).and_then(TensorType::rank);
        let int = |name: &str| {
            let at = call.rule.args.index(name)?;
            args.args[call.bound.first(at)?].value.as_int()
        };
        let norm = |d: Option<i64>| crate::types::normalize_dim(d?, rank?).and_then(|d| i8::try_from(d).ok());
        // A dim that is counted from the end is one that is counted from the start.
        let own = |d: i8| norm(Some(i64::from(d)));
        match call.rule.shape {
            shapes::ShapeRule::Transpose => {
                let (Some(a), Some(b)) = (norm(int("dim0")), norm(int("dim1"))) else {
                    return self.move_split(id, call, args, local);
                };
                local.map_shards(|d| {
                    let d = own(d)?;
                    Some(if d == a {
                        b
                    } else if d == b {
                        a
                    } else {
                        d
                    })
                });
            }
            shapes::ShapeRule::T | shapes::ShapeRule::Mt if rank == Some(2) => {
                local.map_shards(|d| own(d).filter(|d| *d < 2).map(|d| 1 - d))
            }
            // A matrix, or less.
            shapes::ShapeRule::T if rank.is_none() && call.rule.name.ends_with(".t") => {
                local.map_shards(|d| match d {
                    0 | -2 => Some(-1),
                    1 | -1 => Some(-2),
                    _ => None,
                });
            }
            shapes::ShapeRule::Unsqueeze => {
                let at = int("dim").filter(|d| *d >= 0).and_then(|d| i8::try_from(d).ok());
                let Some(at) = at else { return local.forget_shards() };
                local.map_shards(|d| {
                    let d = own(d).unwrap_or(d);
                    Some(if d >= at { d + 1 } else { d })
                });
            }
            _ => self.move_split(id, call, args, local),
        }
    }
}

/// The size left by a slice with constant bounds.
pub fn sliced(size: Option<i64>, parts: &[Value; 3]) -> Option<i64> {
    let size = size.filter(|n| *n >= 0)?;
    let bound = |v: &Value, default: i64| match v {
        Value::Const(Const::None) => Some(default),
        Value::Const(Const::Int(n)) => Some(if *n < 0 { n + size } else { *n }.clamp(0, size)),
        _ => None,
    };
    if !parts[2].is_none() {
        return None;
    }
    Some((bound(&parts[1], size)? - bound(&parts[0], 0)?).max(0))
}

/// Whether the memory of a tensor is its own and lies in the order of its dims.
fn is_in_order(t: &TensorType) -> bool {
    t.in_order || t.rank() == Some(1) && t.view_of.is_none()
}

/// A `torch` dtype.
fn is_dtype(value: &Value) -> bool {
    matches!(value, Value::Path(path) if DTYPES.contains(&path.as_str()) || is_reduced(value))
}

/// A 16-bit floating-point dtype.
pub fn is_reduced(value: &Value) -> bool {
    matches!(value, Value::Path(path) if matches!(path.as_str(), "torch.bfloat16" | "torch.float16" | "torch.half"))
}

/// Dtypes of more than 16 bits, or of integers.
const DTYPES: &[&str] = &[
    "torch.float32",
    "torch.float",
    "torch.float64",
    "torch.double",
    "torch.int64",
    "torch.long",
    "torch.int32",
    "torch.bool",
];

/// `x * 0`, by whichever rank it is written.
fn is_times_zero(rule: &OpRule, args: &CallArgs) -> bool {
    let is_zero = |v: &Value| matches!(v, Value::Const(c) if super::ops::is_zero(c));
    let multiplies = matches!(rule.name.rsplit('.').next(), Some("mul" | "multiply" | "__mul__" | "__rmul__"));
    multiplies && args.args.iter().any(|a| is_zero(&a.value))
}

/// `torch.add(x, y, alpha=a)`: what `a` makes of the second operand is not followed.
pub(super) fn scale_second(call: &mut OpCall<'_>, args: &CallArgs) {
    let given = call.rule.args.index("alpha").and_then(|p| call.bound.first(p)).map(|at| &args.args[at].value);
    if let (Some(Value::Number(Some(_)) | Value::Rank(_) | Value::Edge(_) | Value::Unknown), Some(last)) =
        (given, call.operands.last_mut())
    {
        last.ty = LocalType::unknown();
    }
}

/// Whether a tensor that an operation needs is `None`: no program gets past it.
pub(super) fn lacks_operand(call: &OpCall<'_>, args: &CallArgs) -> bool {
    let params = call.rule.tensors.iter().filter(|param| call.rule.args.params[**param].default.is_none());
    params.flat_map(|param| call.bound.all(*param)).any(|at| args.args[*at].value == Value::NONE)
}
