//! Plans at work: the forward of a parallelized module, with what each style does to the inputs and outputs of its module. In: plans
//! that a root applied, and calls of modules with a style. Out: types after styles, and findings where what one style leaves is not
//! what the next one takes. Never: a finding about a type that no style decided. Source: torch 2.15
//! `torch.distributed.tensor.parallel.style`. Next: `modules.rs`.

use super::found::{Distributed, PlanMistake};
use crate::infer::expr::CallArgs;
use crate::infer::finding::FindingKind;
use crate::infer::heap::{Cell, ObjectCell, ObjectClass};
use crate::infer::machine::{Eval, Machine};
use crate::infer::ops::OpCall;
use crate::infer::practice::near;
use crate::infer::value::{Method, ObjId, Value};
use crate::ir::{Const, ParamKind, StmtId};
use crate::plan::{Placement, Written};
use crate::rules::shapes::ShapeRule;
use crate::rules::{Entry, IntrinsicRule};
use crate::source::{Name, Place};
use crate::types::{
    Axis, AxisState, AxisType, Dist, LocalType, Mesh, OnMesh, Origin, Reason, Shape, Stated, TensorType, dims_differ,
    normalize_dim,
};
use std::sync::Arc;

/// Among the attributes of a module, where no attribute of Python can have the name: its style, and the axis.
pub(super) const STYLE: &str = "(style)";
const AXIS: &str = "(axis of style)";

/// A plan that was applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    pub module: ObjId,
    pub axis: Axis,
    pub place: Place,
}

/// A style with its arguments.
struct Style {
    rule: Arc<IntrinsicRule>,
    cell: ObjectCell,
    axis: Axis,
}

impl Style {
    /// The layouts of an argument, one for each tensor; `None`: not known. An absent one is the default of the rule.
    fn layouts(&self, m: &Machine<'_>, part: &str) -> Option<Vec<Option<Written>>> {
        let default = || match self.rule.role(part).map(Name::as_str) {
            Some("replicate") => Some(vec![Some(Written::Replicate)]),
            Some("shard-last") => Some(vec![Some(Written::Shard { dim: -1, order: None })]),
            _ => None,
        };
        let name = self.rule.role(&format!("{part}-argument"))?;
        match self.cell.get(name) {
            None | Some(Value::Const(Const::None)) => default(),
            Some(Value::Placement(written)) => Some(vec![Some(**written)]),
            Some(list) => {
                let items = m.literal_items(list)?;
                let one = |item: &Value| match item {
                    Value::Placement(written) => Some(Some(**written)),
                    Value::Const(Const::None) => Some(None),
                    _ => None,
                };
                items.iter().map(one).collect()
            }
        }
    }

    /// Whether tensors leave a part as local ones; `None`: not known.
    fn local(&self, part: &str) -> Option<bool> {
        let name = self.rule.role(&format!("{part}-local"))?;
        match self.cell.get(name) {
            Some(value) => value.as_bool(),
            None => {
                let at = self.rule.args.index(name)?;
                Some(self.rule.args.params.get(at)?.default.as_deref() == Some("True"))
            }
        }
    }

    fn name(&self) -> Name {
        crate::infer::collective::short(&self.rule.name)
    }
}

impl Machine<'_> {
    /// Gives a module a style.
    pub(super) fn styled(&mut self, module: ObjId, style: &Value, axis: &Axis) {
        if let Some(Cell::Object(cell)) = self.w.heap.get_mut(module) {
            cell.set(&Name::from(STYLE), style.clone());
            cell.set(&Name::from(AXIS), Value::str(axis.0.clone()));
        }
    }

    /// A module with a style that is not followed: nothing is known of what a layer gives, or of the layers in a module of the project.
    pub(super) fn styled_otherwise(&mut self, module: ObjId) {
        let Some(Cell::Object(cell)) = self.w.heap.get_mut(module) else { return };
        match cell.class {
            ObjectClass::External(_) => cell.set(&Name::from(STYLE), Value::Unknown),
            ObjectClass::Project(_) => self.open_modules = true,
        }
    }

    /// At the end of a root: the forwards of the modules to which it applied plans.
    pub(in crate::infer) fn run_plans(&mut self) {
        if self.plans.is_empty() || self.quiet {
            return;
        }
        let world = self.w.clone();
        for plan in self.plans.clone() {
            let forward = Name::from("forward");
            let Some(Value::Bound(bound)) = self.object_attr(&Value::Object(plan.module), &forward) else { continue };
            let Method::Closure(closure) = &bound.method else { continue };
            let func = self.project.func(closure.func);
            let mut given = vec![bound.receiver.clone()];
            for param in func.params.iter().skip(1) {
                if !matches!(param.kind, ParamKind::Normal | ParamKind::PositionalOnly) {
                    break;
                }
                given.push(self.new_tensor(TensorType::unknown()));
            }
            let args = CallArgs::of(given);
            self.planning = Some(plan.clone());
            let closure = closure.clone();
            let wanted = std::mem::replace(&mut self.records, false);
            let _ = self.call_closure(StmtId(0), &closure, &args);
            self.records = wanted;
            self.planning = None;
            self.w = world.clone();
        }
    }

    fn style_at(&self, object: ObjId) -> Option<Style> {
        if self.prepared.contains(&object) {
            return None;
        }
        let cell = self.w.heap.object(object)?;
        let (Some(Value::Object(style)), Some(axis)) = (cell.get(STYLE), cell.get(AXIS).and_then(Value::as_str)) else {
            return None;
        };
        let cell = self.w.heap.object(*style)?.clone();
        let ObjectClass::External(path) = &cell.class else { return None };
        match self.rules.get(path)? {
            Entry::Intrinsic(rule) => Some(Style { rule: rule.clone(), axis: Axis(axis.clone()), cell }),
            _ => None,
        }
    }

    /// A call of a module with a style; `None` if it has none.
    pub(in crate::infer) fn call_styled(&mut self, id: StmtId, object: &Value, args: &CallArgs) -> Option<Eval> {
        let Value::Object(at) = object else { return None };
        if self.w.heap.object(*at).is_some_and(|cell| cell.get(STYLE) == Some(&Value::Unknown)) {
            self.forget(args);
            return Some(Eval::One(self.new_tensor(TensorType::unknown())));
        }
        let style = self.style_at(*at)?;
        let mut args = args.clone();
        let fine = self.prepare_inputs(id, &style, &mut args);
        if !fine {
            self.forget(&args);
            return Some(Eval::One(self.new_tensor(TensorType::unknown())));
        }
        if matches!(style.rule.does.as_str(), "dtensor-style-weight" | "dtensor-style") {
            return Some(Eval::One(self.layer_output(&style, &args)));
        }
        self.prepared.push(*at);
        let outcome = self.call(id, object, &args);
        self.prepared.pop();
        Some(match outcome {
            Eval::One(value) => Eval::One(self.prepare_output(&style, value)),
            many => many,
        })
    }

    /// Whether the inputs are what the style takes them for; then they are what it makes of them.
    fn prepare_inputs(&mut self, id: StmtId, style: &Style, args: &mut CallArgs) -> bool {
        let layouts = match style.rule.role("sequence") {
            Some(_) => style.sequence().map(|dim| vec![Some(Written::Shard { dim, order: None })]),
            None => style.layouts(self, "input"),
        };
        let Some(layouts) = layouts else { return true };
        let desired = style.layouts(self, "desired");
        let positional: Vec<usize> =
            (0..args.args.len()).filter(|i| args.args.get(*i).is_some_and(|a| a.keyword.is_none())).collect();
        for (i, (at, layout)) in positional.iter().zip(&layouts).enumerate() {
            let Some(layout) = layout else { continue };
            let Some(arg) = args.args.get(*at).cloned() else { continue };
            let whole = self.is_split_of_whole(&arg.value, *layout).then(|| AxisState::new(AxisType::R));
            if let Some(state) = self.contradicts(&arg.value, *layout, &style.axis).or(whole) {
                // A module of a sequence gets what the one before gives: that is written nowhere.
                let value = if arg.part == 0 { self.place(id) } else { self.part(id, arg.part) };
                let left = state.origin.as_ref().map(|o| o.root().place);
                let mistake = PlanMistake::Layouts { style: style.name(), layout: *layout, state, value, left };
                self.report(value, FindingKind::Distributed(Distributed::Plan(mistake)));
                return false;
            }
            self.taken_for(style, &arg.value, *layout);
            let made = desired.as_ref().and_then(|d| d.get(i).copied().flatten());
            if let (Some(made), Some(local)) = (made, style.local("input"))
                && let Some(known) = self.as_tensor(&arg.value).and_then(|t| self.w.heap.tensor(t).cloned())
            {
                let value = self.laid_out(style, made, local, known.shape);
                if let Some(arg) = args.args.get_mut(*at) {
                    arg.value = value;
                }
            }
        }
        true
    }

    /// A local value of which nothing is known is what the style takes it for.
    fn taken_for(&mut self, style: &Style, value: &Value, layout: Written) {
        let Some(tensor) = self.as_tensor(value).filter(|_| self.planning.is_some()) else { return };
        let Some(t) = self.w.heap.tensor(tensor).cloned() else { return };
        if t.dist.on().is_some() || !t.local.get(&style.axis).set.is_unknown() {
            return;
        }
        let mut local = t.local.clone();
        local.set(&style.axis, self.local_state(layout, t.rank()));
        self.retype(tensor, TensorType { local, ..t });
    }

    /// The type of the part of a rank in a layout.
    fn local_state(&self, layout: Written, rank: Option<usize>) -> AxisState {
        let mut state = AxisState::new(match layout {
            Written::Replicate => AxisType::EQUAL,
            Written::Shard { .. } | Written::Strided { .. } => AxisType::V,
            Written::Partial(_) => AxisType::P,
        });
        if let Written::Shard { dim, .. } = layout {
            let counted = rank.and_then(|rank| normalize_dim(dim, rank)).and_then(|d| i8::try_from(d).ok());
            state.shard = counted.or_else(|| i8::try_from(dim).ok());
        }
        let place = self.planning.as_ref().map(|p| p.place);
        match place.or_else(|| self.stack.last().and_then(|a| a.call)) {
            Some(place) => {
                let origin = Origin::new(place, Reason::Declared, state.known());
                state.from(&origin)
            }
            None => state,
        }
    }

    /// An operation on the part of a rank and on a whole value, both of them so by the plan: their sizes do not fit.
    pub(in crate::infer) fn planned_operands(&mut self, id: StmtId, call: &OpCall<'_>, args: &CallArgs) {
        let Some(plan) = &self.planning else { return };
        if call.rule.shape != ShapeRule::Broadcast {
            return;
        }
        let axis = plan.axis.clone();
        let (mut split, mut whole, mut part, mut wide) = (None, None, None, None);
        for argument in self.tensor_arguments(call, args) {
            let Some(t) = self.w.heap.tensor(argument.id).filter(|t| t.dist.on().is_none()) else { continue };
            let state = t.local.get(&axis);
            let declared = state.origin.as_ref().is_some_and(|o| o.root().reason == Reason::Declared);
            let last = state.shard.is_some_and(|d| d < 0 || t.rank() == usize::try_from(d).ok().map(|d| d + 1));
            if self.whole_last.contains(&argument.id) {
                wide = Some(argument.part);
            }
            match (state.set, state.shard) {
                (AxisType::V, Some(dim)) if declared && last => part = Some((argument.part, dim)),
                (AxisType::V, Some(dim)) if declared && !last => split = Some((argument.part, dim)),
                // Of a dim of one element each part takes the same.
                (AxisType::EQUAL, _) if !self.adds_dim(id, argument.part) => whole = Some(argument.part),
                _ => {}
            }
        }
        let found = if part.is_some() && wide.is_some() { (part, wide) } else { (split, whole) };
        if let (Some((split, dim)), Some(whole)) = found {
            let op = call.rule.name.clone();
            let mistake = PlanMistake::Apart {
                op,
                split: self.part(id, split),
                dim,
                whole: self.part(id, whole),
                plan: plan_place(self),
            };
            self.report(self.place(id), FindingKind::Distributed(Distributed::Plan(mistake)));
        }
    }

    /// Whether an operand gets a dim of one element where it stands: `gate.unsqueeze(1)`, `gate[:, None]`, `x.mean(1, keepdim=True)`.
    fn adds_dim(&self, id: StmtId, part: usize) -> bool {
        let at = self.part(id, part);
        let text = self.files[at.file].slice(at.span);
        let adds = |text: &str| near::has_any(text, &["unsqueeze(", "None", "keepdim"]);
        let bound = format!("{text} = ");
        let body = self.files[at.file].slice(self.func().span);
        adds(text) || body.lines().any(|line| line.trim_start().starts_with(&bound) && adds(line))
    }

    /// What a value is on the axis, if a style made it that and it is not what a layout says.
    fn contradicts(&mut self, value: &Value, layout: Written, axis: &Axis) -> Option<AxisState> {
        let tensor = self.as_tensor(value)?;
        let t = self.w.heap.tensor(tensor)?;
        if t.dist.on().is_some() {
            return None;
        }
        let state = t.local.get(axis);
        let declared = state.origin.as_ref().is_some_and(|o| o.root().reason == Reason::Declared);
        // Nothing else makes a value equal on all ranks, and leaves open what its gradient is.
        let decided = declared || (self.planning.is_some() && state.set == AxisType::EQUAL);
        let wrong = match layout {
            Written::Replicate => state.set == AxisType::V,
            Written::Shard { dim, .. } => {
                let other = |a: i8| i8::try_from(dim).is_ok_and(|b| dims_differ(a, b, t.rank()));
                (!state.set.is_empty() && state.set.leq(AxisType::EQUAL))
                    || (state.set == AxisType::V && state.shard.is_some_and(other))
            }
            _ => false,
        };
        (decided && wrong && !state.set.is_unknown()).then(|| state.clone())
    }

    /// What a layer with a style gives.
    fn layer_output(&mut self, style: &Style, args: &CallArgs) -> Value {
        let given = args.positional(0).cloned();
        let known = given.and_then(|v| self.as_tensor(&v)).and_then(|t| self.w.heap.tensor(t).cloned());
        let rank = known.as_ref().and_then(TensorType::rank);
        let shape = rank.map(|rank| Shape(vec![None; rank]));
        let layout = match style.rule.role("sequence") {
            Some(_) => style.sequence().map(|dim| Written::Shard { dim, order: None }),
            None => style.layouts(self, "output").and_then(|l| l.first().copied().flatten()),
        };
        match (layout, style.local("output")) {
            (Some(layout), Some(local)) => self.laid_out(style, layout, local, shape),
            _ => self.new_tensor(TensorType { shape, ..TensorType::unknown() }),
        }
    }

    fn prepare_output(&mut self, style: &Style, value: Value) -> Value {
        let desired = style.layouts(self, "desired-output");
        let (Some(desired), Some(local), Value::Tensor(tensor)) = (desired, style.local("output"), &value) else {
            return value;
        };
        let shape = self.w.heap.tensor(*tensor).and_then(|t| t.shape.clone());
        match desired.as_slice() {
            [Some(layout)] => self.laid_out(style, *layout, local, shape),
            _ => value,
        }
    }

    /// A tensor in a layout: the part of this rank, or a distributed one.
    fn laid_out(&mut self, style: &Style, layout: Written, local: bool, shape: Option<Shape>) -> Value {
        let rank = shape.as_ref().map(Shape::rank);
        let shape = shape.map(|s| Shape(vec![None; s.rank()]));
        if !local {
            let placement = match (layout, rank) {
                (Written::Replicate, _) => Some(Placement::Replicate),
                (Written::Partial(op), _) => Some(Placement::Partial(op)),
                (Written::Shard { dim, .. }, Some(rank)) => normalize_dim(dim, rank).map(Placement::Shard),
                (Written::Shard { dim, .. }, None) => usize::try_from(dim).ok().map(Placement::Shard),
                _ => None,
            };
            let mesh = (!style.axis.is_variable()).then(|| Arc::new(Mesh::new(vec![(style.axis.clone(), None)])));
            let on = OnMesh { mesh, placements: Some(vec![placement]), stated: Stated::default() };
            let dist = Dist::On(Arc::new(on));
            return self.new_tensor(TensorType { shape, dist, ..TensorType::unknown() });
        }
        let state = self.local_state(layout, rank);
        let mut types = LocalType::unknown();
        types.set(&style.axis, state);
        self.new_tensor(TensorType { local: types, shape, dist: Dist::Plain, ..TensorType::unknown() })
    }
}

impl Style {
    /// The dim of a style that splits one dim throughout.
    fn sequence(&self) -> Option<i64> {
        let name = self.rule.role("sequence")?;
        match self.cell.get(name) {
            Some(value) => value.as_int(),
            None => {
                let at = self.rule.args.index(name)?;
                self.rule.args.params.get(at)?.default.as_deref()?.parse().ok()
            }
        }
    }
}

fn plan_place(m: &Machine<'_>) -> Option<Place> {
    m.planning.as_ref().map(|plan| plan.place)
}
