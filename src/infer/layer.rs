//! Layers with a contract: an instance keeps its constructor's arguments, a call is typed by the case that holds for them.
//! In: a [`LayerRule`] and a call. Out: values by world. Never: names of frameworks or layers. Source: `[[layer]]` and `[[mark]]` of
//! `rules/README.md`. Next: `collective.rs`, which checks the transition.

use super::exec::is_opaque;
use super::expr::CallArgs;
use super::formula::{Formula, Outcome};
use super::heap::{Cell, ObjectCell, ObjectClass};
use super::machine::{Eval, Machine};
use super::places;
use super::value::{ObjId, Value};
use super::world::World;
use crate::ir::annotation::Cond;
use crate::ir::{Const, StmtId};
use crate::rules::{Entry, IntrinsicRule, LayerRule, MarkRule, Pattern, Signature};
use crate::source::Name;
use crate::types::{Axis, AxisSet, AxisState, AxisType, LocalType, Origin, Reason, TensorType, Tri};
use std::sync::Arc;

/// Marks an instance of which nobody can tell whether it has the flags of its configuration.
const UNSURE: &str = "unsure";

/// Marks an instance whose construction is not seen: what it gives is known, what it asks for is not.
const UNSEEN: &str = "unseen";

/// A constructor's argument among the attributes of an instance, where no attribute of Python can have its name.
pub(super) fn slot(name: &str) -> Name {
    Name::from(format!("({name})"))
}

fn is_parameter(rule: &LayerRule, name: &str) -> bool {
    rule.params.iter().any(|(n, _)| n == name)
}

/// Whether somebody has turned the collectives off since the construction, or given the layer another flag than that of its configuration.
fn is_switched(rule: &LayerRule, cell: &ObjectCell) -> bool {
    let kept = rule.kept_as.iter().flat_map(|(_, names)| names);
    cell.get(&slot(UNSURE)).is_some() || rule.switches.iter().chain(kept).any(|name| cell.get(name).is_some())
}

/// Whether a text turns off a flag of some configuration that a condition of the rule asks for, or switches collectives of layers.
fn is_unsure(rule: &LayerRule, text: &str) -> bool {
    let turned_off = |name: &str| {
        set_in(text, name).any(|(base, value)| is_configuration(base, text) && value.starts_with(" = False"))
    };
    let flags = |(path, names): &(Name, Vec<Name>)| {
        turned_off(path.rsplit('.').next().unwrap_or(path)) || names.iter().any(|name| turned_off(name))
    };
    // What the own object does to its layers is executed.
    let switched = |name: &Name| {
        let is_own = |base: &str| base.split('.').next() == Some("self");
        set_in(text, name).any(|(base, value)| !is_own(base) && value.starts_with(" = "))
    };
    rule.kept_as.iter().any(flags) || rule.switches.iter().any(switched)
}

/// Where a text has an attribute of this name: what stands before the point on its line, and what follows the name.
fn set_in<'t>(text: &'t str, name: &'t str) -> impl Iterator<Item = (&'t str, &'t str)> {
    places::starts(text, name).filter_map(|at| {
        let before = text[..at].strip_suffix('.')?;
        Some((before.lines().next_back().unwrap_or_default().trim(), &text[at + name.len()..]))
    })
}

/// Whether what an attribute is set on may be a configuration: a variable, something of such a name, or the object of a class that derives
/// its fields from one another.
fn is_configuration(base: &str, text: &str) -> bool {
    let last = base.rsplit('.').next().unwrap_or(base);
    match base {
        "self" => text.contains("def __post_init__("),
        _ => !base.contains('.') || ["config", "cfg", "args", "conf"].iter().any(|word| last.contains(word)),
    }
}

/// A default as written, as a value.
pub(super) fn written(default: Option<&Name>) -> Value {
    match default.map(Name::as_str) {
        Some("None") => Value::NONE,
        Some("True") => Value::TRUE,
        Some("False") => Value::FALSE,
        Some(text) => match text.parse::<i64>() {
            Ok(n) => Value::int(n),
            Err(_) => match text.strip_prefix(['"', '\'']).and_then(|t| t.strip_suffix(['"', '\''])) {
                Some(s) => Value::str(s),
                None => text.parse::<f64>().map_or(Value::Unknown, |x| Value::Const(Const::Float(x.to_bits()))),
            },
        },
        None => Value::Unknown,
    }
}

/// The value of each parameter: the argument, or the default.
pub(super) fn bind(signature: &Signature, args: &CallArgs) -> Vec<(Name, Value)> {
    let keywords: Vec<Option<&Name>> = args.args.iter().map(|a| a.keyword.as_ref()).collect();
    let bound = signature.bind(&keywords);
    let mut out = Vec::with_capacity(signature.params.len());
    for (i, param) in signature.params.iter().enumerate() {
        let value = match bound.first(i) {
            Some(at) => args.args[at].value.clone(),
            None if args.open => Value::Unknown,
            None => written(param.default.as_ref()),
        };
        out.push((param.name.clone(), value));
    }
    out
}

impl Machine<'_> {
    /// An instance of a layer with a contract.
    pub fn new_layer(&mut self, id: StmtId, rule: &Arc<LayerRule>, args: &CallArgs) -> Value {
        self.next_id += 1;
        let path = Name::from(format!("{}#{}", rule.name.rsplit('.').next().unwrap_or("layer"), self.next_id));
        let mut cell = ObjectCell { class: ObjectClass::External(rule.name.clone()), path, attrs: Vec::new() };
        let arguments = bind(&rule.args, args);
        for (name, value) in &arguments {
            cell.set(&slot(name), value.clone());
        }
        if is_unsure(rule, self.files[self.place(id).file].whole()) {
            cell.set(&slot(UNSURE), Value::TRUE);
        }
        // What the parameters are does not depend on how the activations travel.
        let mut axes = self.layer_axes(rule, &arguments).filter(|_| self.first_case(rule, &arguments).is_some());
        if rule.params.is_empty() {
            axes = None;
        }
        for (name, pattern) in &rule.params {
            if arguments.iter().any(|(n, v)| n == name && v.as_bool() == Some(false)) {
                cell.set(name, Value::NONE);
                continue;
            }
            let t = self.layer_parameter(id, pattern, axes.as_ref());
            let value = self.new_tensor(t);
            cell.set(name, value);
        }
        Value::Object(self.fresh(Cell::Object(cell)))
    }

    /// An instance of a layer whose construction is not seen, as a parameter's annotation names it: with the defaults, and the
    /// configuration of the program.
    pub fn unseen_layer(&mut self, rule: &Arc<LayerRule>, name: &Name) -> Value {
        let path = Name::from(format!("{name}#layer"));
        let mut cell = ObjectCell { class: ObjectClass::External(rule.name.clone()), path, attrs: Vec::new() };
        for (name, value) in bind(&rule.args, &CallArgs::default()) {
            let value = if name == "config" { Value::Sym(name.clone()) } else { value };
            cell.set(&slot(&name), value);
        }
        cell.set(&slot(UNSEEN), Value::TRUE);
        Value::Object(self.fresh(Cell::Object(cell)))
    }

    fn layer_parameter(&mut self, id: StmtId, pattern: &Pattern, axes: Option<&AxisSet>) -> TensorType {
        let mut t = TensorType::unknown();
        (t.grad, t.untracked) = (Tri::Yes, true);
        for axis in axes.iter().flat_map(|a| a.iter()) {
            let origin = Origin::new(self.place(id), Reason::Parameter, pattern.set.known());
            t.local.set(axis, AxisState { set: pattern.set, shard: pattern.dim(), nest: 0, origin: Some(origin) });
        }
        t
    }

    /// The truth of a condition over named values: an argument, or an attribute of one.
    pub(super) fn layer_condition(&mut self, cond: &Cond, values: &[(Name, Value)]) -> Formula {
        match cond {
            Cond::Const(b) => Formula::Const(*b),
            Cond::Not(c) => self.layer_condition(c, values).negate(),
            Cond::And(items) => Formula::And(items.iter().map(|c| self.layer_condition(c, values)).collect()),
            Cond::Or(items) => Formula::Or(items.iter().map(|c| self.layer_condition(c, values)).collect()),
            Cond::Flag(path) => match self.layer_value(path, values) {
                Value::Unknown | Value::Unset | Value::Number(_) | Value::Share(_) | Value::Tensor(_) => {
                    self.opaque_atom()
                }
                value => self.formula(&value),
            },
            Cond::Equals(path, constant) => match self.layer_value(path, values) {
                Value::Const(c) => Formula::Const(c == *constant),
                // A member of an enumeration, by its name.
                Value::Path(path) => {
                    let member = path.rsplit('.').next().unwrap_or(&path);
                    Formula::Const(matches!(constant, Const::Str(s) if s == member))
                }
                Value::Sym(name) => {
                    let name = self.flag_name(&name);
                    Formula::Atom(match constant {
                        Const::None => super::formula::Atom::IsNone(name),
                        c => super::formula::Atom::Equals(name, c.clone()),
                    })
                }
                Value::Unknown | Value::Unset | Value::Cond(_) | Value::Number(_) | Value::Share(_) => {
                    self.opaque_atom()
                }
                _ => Formula::Const(false),
            },
        }
    }

    pub(super) fn layer_value(&mut self, path: &str, values: &[(Name, Value)]) -> Value {
        if let Some((_, value)) = values.iter().find(|(name, _)| name == path) {
            return value.clone();
        }
        let mut parts = path.split('.');
        let first = parts.next().unwrap_or_default();
        let mut value = values.iter().find(|(n, _)| n == first).map_or(Value::Unknown, |(_, v)| v.clone());
        for part in parts {
            value = self.attr_quietly(&value, &Name::from(part));
        }
        value
    }

    /// The axes of the layer's group in this world; `None` if a flag that the world does not know decides, or nothing tells.
    pub(super) fn layer_axes(&mut self, rule: &LayerRule, values: &[(Name, Value)]) -> Option<AxisSet> {
        let given = rule.group.map(|at| values[at].1.clone());
        match given {
            None | Some(Value::Const(Const::None) | Value::Unknown) => self.axes_of_layer(rule, values),
            Some(group) => self.axes_of_value(&group),
        }
    }

    /// The axes of the group of a layer that is given none.
    pub(super) fn axes_of_layer(&mut self, rule: &LayerRule, values: &[(Name, Value)]) -> Option<AxisSet> {
        for (cond, axes) in &rule.groups {
            let formula = self.layer_condition(cond, values);
            match self.outcome(&formula) {
                Outcome::Decided(true) => return Some(axes.iter().map(|a| self.settings.canonical(a)).collect()),
                Outcome::Decided(false) => {}
                Outcome::Open(_) => return None,
            }
        }
        self.default_axes(&rule.default_group)
    }

    /// The first case that may hold in this world, and whether it does.
    pub(super) fn first_case(&mut self, rule: &LayerRule, values: &[(Name, Value)]) -> Option<(usize, Outcome)> {
        rule.cases.iter().enumerate().find_map(|(i, (cond, _))| {
            let formula = cond.as_ref().map_or(Formula::Const(true), |c| self.layer_condition(c, values));
            let outcome = self.outcome(&formula);
            (outcome != Outcome::Decided(false)).then_some((i, outcome))
        })
    }

    /// A call of an instance: each world takes the case that holds in it.
    pub fn call_layer(&mut self, id: StmtId, object: ObjId, rule: &Arc<LayerRule>, args: &CallArgs) -> Eval {
        let mut values = match rule.cases.first() {
            Some((_, collective)) => bind(&collective.args, args),
            None => Vec::new(),
        };
        let cell = self.w.heap.object(object).cloned();
        for param in &rule.args.params {
            let later = cell.as_ref().filter(|_| !is_parameter(rule, &param.name)).and_then(|c| c.get(&param.name));
            let value = later.or_else(|| cell.as_ref()?.get(&slot(&param.name))).cloned();
            values.push((param.name.clone(), value.unwrap_or(Value::Unknown)));
        }
        if cell.as_ref().is_some_and(|cell| is_switched(rule, cell)) {
            let value = self.new_tensor(TensorType::unknown());
            let value = self.with_bias(rule, value, cell.as_ref());
            return Eval::One(value);
        }
        let mut taken = args.clone();
        if cell.as_ref().is_some_and(|c| c.get(&slot(UNSEEN)).is_some()) {
            for arg in taken.args.iter_mut().filter(|a| !matches!(a.value, Value::Const(_))) {
                arg.value = self.new_tensor(TensorType::unknown());
            }
        }
        let args = &taken;
        let mut pending = vec![std::mem::take(&mut self.w)];
        for (cond, _) in &rule.groups {
            pending = self.split_worlds(cond, &values, pending);
        }
        let mut outcomes: Vec<(World, Value)> = Vec::new();
        for (cond, collective) in &rule.cases {
            let is_unseen = cell.as_ref().is_some_and(|c| c.get(&slot(UNSEEN)).is_some());
            if is_unseen && cond.as_ref().is_some_and(|c| self.rests_on_unsaid(c)) {
                continue;
            }
            let mut left = Vec::new();
            for world in std::mem::take(&mut pending) {
                self.w = world;
                let formula = cond.as_ref().map_or(Formula::Const(true), |c| self.layer_condition(c, &values));
                let world = std::mem::take(&mut self.w);
                let mut sides = Vec::new();
                self.ask(&formula);
                match is_opaque(&formula) && matches!(formula.eval(&world.facts), Outcome::Open(_)) {
                    true => sides.push((world, None)),
                    false => self.split(&formula, world, &mut |_, world, truth| sides.push((world, truth))),
                }
                for (world, truth) in sides {
                    match truth {
                        Some(false) => left.push(world),
                        Some(true) => {
                            self.w = world;
                            let at = rule.args.params.len();
                            let axes = self.layer_axes(rule, &values[values.len() - at..]);
                            let value = self.layer_result(id, rule, collective, args, axes, cell.as_ref());
                            outcomes.push((std::mem::take(&mut self.w), value));
                        }
                        None => {
                            self.w = world;
                            let value = self.new_tensor(TensorType::unknown());
                            let value = self.with_bias(rule, value, cell.as_ref());
                            outcomes.push((std::mem::take(&mut self.w), value));
                        }
                    }
                }
            }
            pending = left;
        }
        for world in pending {
            self.w = world;
            let value = self.new_tensor(TensorType::unknown());
            let value = self.with_bias(rule, value, cell.as_ref());
            outcomes.push((std::mem::take(&mut self.w), value));
        }
        self.exits(outcomes)
    }

    /// Whether a condition holds only with a flag that no file and no configuration names: a program that only takes a layer, made elsewhere
    /// without that flag as far as anybody says, is not written for it.
    fn rests_on_unsaid(&self, cond: &Cond) -> bool {
        match cond {
            Cond::Flag(path) | Cond::Equals(path, _) => {
                let name = path.rsplit('.').next().unwrap_or(path);
                let fixed = self.settings.flags.iter().map(|(flag, _)| flag);
                let mut set = fixed.chain(self.settings.choices.iter().map(|(flag, _)| flag));
                // A configuration sets flags; what its comments mention sets nothing.
                let mut said = self.files.saying(name).filter(|file| !self.files[*file].path.ends_with(".toml"));
                path.contains('.') && !set.any(|flag| flag.ends_with(name)) && said.next().is_none()
            }
            Cond::And(items) => items.iter().any(|c| self.rests_on_unsaid(c)),
            Cond::Or(items) => items.iter().all(|c| self.rests_on_unsaid(c)),
            Cond::Not(_) | Cond::Const(_) => false,
        }
    }

    /// Worlds on both sides of a condition.
    pub(super) fn split_worlds(&mut self, cond: &Cond, values: &[(Name, Value)], worlds: Vec<World>) -> Vec<World> {
        let mut out = Vec::new();
        for world in worlds {
            self.w = world;
            let formula = self.layer_condition(cond, values);
            out.extend(self.sides_of(&formula).into_iter().map(|(world, _)| world));
        }
        out
    }

    /// The present world on both sides of a condition, with its truth there; as it is, if nothing can decide that.
    pub(super) fn sides_of(&mut self, formula: &Formula) -> Vec<(World, Option<bool>)> {
        let world = std::mem::take(&mut self.w);
        if is_opaque(formula) {
            return vec![(world, None)];
        }
        let mut sides = Vec::new();
        self.split(formula, world, &mut |_, world, truth| sides.push((world, truth)));
        sides
    }

    fn layer_result(
        &mut self,
        id: StmtId,
        rule: &LayerRule,
        collective: &Arc<crate::rules::CollectiveRule>,
        args: &CallArgs,
        axes: Option<AxisSet>,
        cell: Option<&ObjectCell>,
    ) -> Value {
        let agreed = self.agreed(collective, axes.as_ref(), args, cell);
        let value = match (axes, agreed) {
            (Some(axes), Some(collective)) => self.layer_transition(id, &collective, args, axes),
            (None, _) | (_, None) => self.new_tensor(TensorType::unknown()),
        };
        self.with_bias(rule, value, cell)
    }

    fn with_bias(&mut self, rule: &LayerRule, value: Value, cell: Option<&ObjectCell>) -> Value {
        if !rule.gives_bias {
            return value;
        }
        let skipped = cell.and_then(|c| c.get(&slot("skip_bias_add"))).cloned().unwrap_or(Value::Unknown);
        let bias = cell.and_then(|c| c.get("bias")).cloned().unwrap_or(Value::Unknown);
        let skipped = match skipped {
            Value::Const(_) | Value::Cond(_) | Value::Sym(_) => self.decided_now(&skipped),
            _ => return Value::tuple(vec![value, Value::Unknown]),
        };
        let second = match skipped {
            Outcome::Decided(true) => bias,
            Outcome::Decided(false) => Value::NONE,
            Outcome::Open(_) => Value::Unknown,
        };
        Value::tuple(vec![value, second])
    }

    /// `setattr(parameter, mark, value)`: a mark that says what the parameter is, or on which dim it is split. A flag as the value is
    /// followed both ways.
    pub fn marked(&mut self, id: StmtId, tensor: ObjId, name: &Name, value: &Value) -> Eval {
        if let Some(rule) = self.rules.mark(name).cloned() {
            let formula = match value {
                Value::Const(_) | Value::Cond(_) | Value::Sym(_) => self.formula(value),
                _ => return Eval::One(Value::NONE),
            };
            if is_opaque(&formula) {
                return Eval::One(Value::NONE);
            }
            let formula = self.where_read(name, &rule, formula);
            let mut sides = Vec::new();
            let world = std::mem::take(&mut self.w);
            self.split(&formula, world, &mut |_, world, truth| sides.push((world, truth)));
            let mut outcomes = Vec::new();
            for (world, truth) in sides {
                self.w = world;
                if truth == Some(true) {
                    self.split_over(id, tensor, &rule, None);
                }
                outcomes.push((std::mem::take(&mut self.w), Value::NONE));
            }
            return self.exits(outcomes);
        }
        if let (Some(true), Some(axes)) = (value.as_bool(), self.summed_by_mark(name)) {
            self.split_on(id, tensor, &axes, AxisType::R, None);
        }
        let dim = value.as_int().and_then(|n| i8::try_from(n).ok());
        if let (Some(dim), Some(rule)) = (dim, self.rules.mark_of_dim(name).cloned()) {
            self.split_at(tensor, &rule, dim);
        }
        Eval::One(Value::NONE)
    }

    /// A mark of gradients to be summed, and the flags under which the project looks for it.
    fn where_read(&self, name: &Name, rule: &MarkRule, formula: Formula) -> Formula {
        if rule.set != AxisType::R {
            return formula;
        }
        let flags = self.settings.reducers.guard_of(name, &rule.axes);
        let read = flags.iter().map(|(flag, holds, _)| {
            let flag = super::settings::cond_formula(&Cond::Flag(flag.clone()));
            if *holds { flag } else { flag.negate() }
        });
        // A reducer that runs only where nothing is marked is a mistake of its own.
        let set: Vec<Name> = formula.atoms().iter().map(|a| a.name().clone()).collect();
        match flags {
            [] => formula,
            flags if flags.iter().any(|(flag, holds, _)| !holds && set.contains(flag)) => formula,
            _ => Formula::And(std::iter::once(formula).chain(read).collect()),
        }
    }

    /// The dim of a parameter that is split over the axes of a mark; code gives it to parameters that are not split as well.
    fn split_at(&mut self, tensor: ObjId, rule: &MarkRule, dim: i8) {
        let Some(mut t) = self.w.heap.tensor(tensor).cloned() else { return };
        let others = rule.unless.iter().flat_map(|(_, axes)| axes);
        for axis in rule.axes.iter().chain(others).map(|a| self.settings.canonical(a)) {
            let state = t.local.get(&axis).clone();
            if state.set == AxisType::V && state.shard.is_none() {
                t.local.set(&axis, AxisState { shard: Some(dim), ..state });
            }
        }
        self.retype(tensor, t);
    }

    /// A parameter is split over the axes of a mark.
    fn split_over(&mut self, id: StmtId, tensor: ObjId, rule: &MarkRule, dim: Option<i8>) {
        let axes = match &rule.unless {
            None => &rule.axes,
            Some((flag, others)) => match self.flag_of_code(flag) {
                Some(formula) => match self.outcome(&formula) {
                    Outcome::Decided(true) => others,
                    Outcome::Decided(false) => &rule.axes,
                    Outcome::Open(_) => return,
                },
                None => &rule.axes,
            },
        };
        let axes: Vec<Axis> = axes.iter().map(|a| self.settings.canonical(a)).collect();
        self.split_on(id, tensor, &axes, rule.set, dim);
    }

    /// Gives a parameter the type that a mark says, where nothing is declared of it.
    fn split_on(&mut self, id: StmtId, tensor: ObjId, axes: &[Axis], set: AxisType, dim: Option<i8>) {
        let Some(mut t) = self.w.heap.tensor(tensor).cloned() else { return };
        for axis in axes {
            let state = t.local.get(axis).clone();
            if state.set.meet(set).is_empty() || state.is_declared() {
                continue;
            }
            let origin = Origin::new(self.place(id), Reason::Parameter, set.known());
            let shard = dim.or(state.shard).filter(|_| set == AxisType::V);
            t.local.set(axis, AxisState { set, shard, nest: 0, origin: Some(origin) });
        }
        self.retype(tensor, t);
    }

    /// Whether an attribute of a parameter says what it is: by the rules, or because the project sums the gradients of what has it.
    pub fn is_mark(&self, name: &Name) -> bool {
        self.rules.mark(name).is_some()
            || self.rules.mark_of_dim(name).is_some()
            || self.settings.reducers().all.iter().any(|r| r.group.is_some() && r.asks(name))
    }

    /// A variable of the function under execution, or an attribute of its receiver, as a flag.
    fn flag_of_code(&mut self, name: &Name) -> Option<Formula> {
        let func = self.func();
        let local = func.params.iter().find(|p| p.name == *name).map(|p| p.local);
        let value = match local {
            Some(local) => self.local(local),
            None => {
                let receiver = func.params.first().filter(|p| p.name == "self").map(|p| p.local)?;
                let receiver = self.local(receiver);
                match &receiver {
                    Value::Object(id) => self.w.heap.object(*id)?.get(name)?.clone(),
                    _ => return None,
                }
            }
        };
        match value {
            Value::Const(_) | Value::Cond(_) | Value::Sym(_) => Some(self.formula(&value)),
            _ => None,
        }
    }

    /// A function that marks a parameter as split: `mark(tensor, is_parallel, dim)`.
    pub fn mark_partitioned(&mut self, id: StmtId, rule: &IntrinsicRule, args: &CallArgs) -> Value {
        let arguments = bind(&rule.args, args);
        let get = |name: &str| arguments.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
        let Some(Value::Tensor(tensor)) = get("tensor") else { return Value::NONE };
        let split = match get("is_parallel") {
            Some(value @ (Value::Const(_) | Value::Cond(_))) => self.decided_now(&value),
            Some(_) => return Value::NONE,
            None => Outcome::Decided(true),
        };
        let mark = self.rules.entries().find_map(|(_, e)| match e {
            Entry::Mark(m) if m.axes == rule.default_group => Some(m.clone()),
            _ => None,
        });
        if let (Outcome::Decided(true), Some(mark)) = (split, mark) {
            let dim = get("dim").as_ref().and_then(Value::as_int).and_then(|n| i8::try_from(n).ok());
            self.split_over(id, tensor, &mark, dim);
        }
        Value::NONE
    }
}

/// A type without what it says of dims on axes other than these.
pub fn forget_other_shards(local: &mut LocalType, axes: &AxisSet) {
    let kept: Vec<(Axis, AxisState)> = axes.iter().map(|a| (a.clone(), local.get(a).clone())).collect();
    local.forget_shards();
    for (axis, state) in kept {
        local.set(&axis, state);
    }
}
