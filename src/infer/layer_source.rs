//! The source of a layer that a rule types by its name, if the project has it: what its forward takes is given the type of the rule, and
//! what it returns is compared with the rule. In: a class, its `[[layer]]` rule, and the object that its constructor leaves. Out: the types
//! of inputs, and findings. Never: configurations whose case is not decided, a group of another axis, a layer whose collectives are
//! switched off. Source: `rules/README.md`, the module's docstring of the layer. Next: `layer.rs`, calls of layers without a source.

use super::finding::{Declared, FindingKind, OperandAt};
use super::formula::{Atom, Facts, Outcome};
use super::join::Joiner;
use super::machine::Machine;
use super::output::Pass;
use super::value::Value;
use super::world::World;
use crate::ir::{Block, Func, Rvalue, Stmt, StmtId};
use crate::project::{ClassRef, FuncRef};
use crate::rules::collective::Transition;
use crate::rules::{LayerRule, Pattern};
use crate::source::{Name, Place};
use crate::types::{Axis, AxisSet, AxisState, Origin, Reason};
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// A layer whose own forward runs as a root, with the arguments of the root.
pub type OpenLayer = (LayerSource, Vec<(Name, Value)>);

/// A return of such a layer.
#[derive(Clone, Debug)]
pub struct Returned {
    /// The case of the rule.
    case: usize,
    /// Where it does not hold, if it does not.
    wrong: Option<Place>,
    facts: Facts,
}

/// A layer, its name, and where that stands.
#[derive(Clone, Debug)]
pub struct LayerSource {
    rule: Arc<LayerRule>,
    class: ClassRef,
    name: Name,
    at: Place,
}

/// Which tensors a layer has, and what is known of that which decides its case.
type Kind = (Vec<Name>, Vec<Option<bool>>);

impl LayerSource {
    /// Whether two worlds differ in an argument of the constructor that the rule has: what it says holds for all values of these.
    fn tells_apart(&self, one: &Facts, other: &Facts) -> bool {
        let is_argument = |atom: &Atom| {
            let name = atom.name().split([' ', '.']).next().unwrap_or_default();
            name != "config" && self.rule.args.params.iter().any(|p| p.name == name)
        };
        one.iter().any(|(atom, holds)| is_argument(atom) && other.get(atom) == Some(!holds))
    }
}

impl Machine<'_> {
    /// The rule that types a layer of the project by its name.
    pub(super) fn rule_of_class(&self, class: ClassRef) -> Option<Arc<LayerRule>> {
        let name = &self.project.class(class).name;
        if !self.rules.may_name(name) {
            return None;
        }
        self.rules.layer(&self.project.qualified_class(class)).cloned()
    }

    /// At the start of the constructor of a layer: the worlds in which its group is decided, with the axes that the rule gives it.
    pub fn layer_groups(&mut self, class: ClassRef, func: &Func) -> Vec<World> {
        let world = std::mem::take(&mut self.w);
        let Some((rule, at)) = self.rule_of_class(class).and_then(|rule| Some((rule.clone(), rule.group?))) else {
            return vec![world];
        };
        let Some(group) = func.params.iter().find(|p| p.name == rule.args.params[at].name) else { return vec![world] };
        self.w = world;
        let values: Vec<(Name, Value)> = func.params.iter().map(|p| (p.name.clone(), self.local(p.local))).collect();
        let mut worlds = vec![std::mem::take(&mut self.w)];
        for (cond, _) in &rule.groups {
            worlds = self.split_worlds(cond, &values, worlds);
        }
        for world in &mut worlds {
            std::mem::swap(&mut self.w, world);
            if let (Some(axes), Value::Sym(_)) = (self.axes_of_layer(&rule, &values), self.local(group.local)) {
                self.set_local(group.local, Value::Group(axes));
            }
            std::mem::swap(&mut self.w, world);
        }
        worlds
    }

    /// The rule of a class whose forward is about to run as a root.
    pub fn layer_source(&self, func: &Func, class: Option<ClassRef>) -> Option<LayerSource> {
        let class = class.filter(|_| func.name == "forward")?;
        let rule = self.rule_of_class(class).filter(|rule| !rule.default_group.is_empty())?;
        if super::model_axis::is_of_other(self.project, class.module) {
            return None;
        }
        let at = Place { file: self.project.file(class.module), span: self.project.class(class).name_span };
        Some(LayerSource { rule, class, name: self.project.class(class).name.clone(), at })
    }

    /// What the conditions of a layer are about: the arguments of its forward, and what its constructor kept of its own.
    fn layer_values(&mut self, source: &LayerSource, given: &[(Name, Value)]) -> Vec<(Name, Value)> {
        let mut values = given.to_vec();
        let Some((_, object)) = given.first().cloned() else { return values };
        let init = self.constructor_of(source.class);
        let takes = |name: &Name| init.is_some_and(|at| self.project.func(at).params.iter().any(|p| p.name == *name));
        for param in &source.rule.args.params {
            // A configuration that is not kept has the same flags. Of another argument that is not kept nothing is known, and a version
            // that does not have it does what it does by default, unless that is something more: it may do without.
            let value = match (self.has_attribute(&object, &param.name), param.name.as_str()) {
                (true, _) => self.attr_quietly(&object, &param.name),
                (false, "config") => Value::Sym(param.name.clone()),
                (false, _) if takes(&param.name) => Value::Unknown,
                (false, _) if param.default.as_ref().is_some_and(|text| text == "True") => Value::Unknown,
                (false, _) => super::layer::written(param.default.as_ref()),
            };
            values.push((param.name.clone(), value));
        }
        for (path, other) in &source.rule.kept_as {
            let of = path.split('.').next().unwrap_or(path);
            if self.has_attribute(&object, of) || takes(&Name::from(of)) {
                continue;
            }
            let kept = other.iter().find(|name| self.has_attribute(&object, name));
            let value = kept.map_or(Value::FALSE, |name| self.attr_quietly(&object, name));
            values.push((path.clone(), value));
        }
        values
    }

    pub(super) fn constructor_of(&self, class: ClassRef) -> Option<FuncRef> {
        let order = self.settings.statics.linearized(class);
        order.iter().find_map(|class| self.project.own_method(*class, "__init__"))
    }

    /// Switches of the constructor of a class that its rule does not have, each with what it is by default.
    fn further_switches(&self, source: &LayerSource) -> Vec<(Name, bool)> {
        let Some(at) = self.constructor_of(source.class) else { return Vec::new() };
        let params = &self.project.func(at).params;
        let defaults = self.settings.statics.defaults(at, &[]);
        let switches = defaults.into_iter().filter_map(|(i, value)| {
            let name = &params.get(i as usize)?.name;
            let known = source.rule.args.params.iter().any(|p| p.name == *name);
            let by_default = value.as_bool().filter(|_| !known)?;
            Some((name.clone(), by_default))
        });
        switches.collect()
    }

    /// These worlds by the case of the layer that holds in them. How its constructor came to them is forgotten: only which parameters it has
    /// and what decides the case tell them apart, and each of those that are left may spend as much as a root.
    pub(super) fn layer_worlds(
        &mut self,
        source: &LayerSource,
        root: FuncRef,
        receiver: Option<&Value>,
        worlds: Vec<World>,
    ) -> Vec<World> {
        let func = self.project.func(root);
        let groups = source.rule.groups.iter().map(|(cond, _)| cond);
        let mut left = worlds;
        let mut parts: Vec<Vec<World>> = Vec::new();
        let mut asked: Vec<Atom> = Vec::new();
        // Of a group of another axis nothing is said here, and the first case that holds is the one that counts.
        for cond in groups.chain(source.rule.cases.iter().filter_map(|(cond, _)| cond.as_ref())) {
            let mut held = Vec::new();
            for world in std::mem::take(&mut left) {
                self.w = world;
                self.begin(root, func.locals().len(), 0);
                let given = self.give_unknown(func, receiver);
                let named: Vec<(Name, Value)> = func.params.iter().map(|p| p.name.clone()).zip(given).collect();
                let values = self.layer_values(source, &named);
                let formula = self.layer_condition(cond, &values);
                asked.extend(formula.atoms().into_iter().filter(|atom| !asked.contains(atom)).collect::<Vec<_>>());
                self.w.frames.clear();
                for (world, truth) in self.sides_of(&formula) {
                    match truth {
                        Some(false) => left.push(world),
                        Some(true) | None => held.push(world),
                    }
                }
            }
            parts.push(held);
        }
        parts.push(left);
        let read = self.attributes_read(source.class);
        let mut out = Vec::new();
        for part in parts {
            let mut kinds: Vec<(Kind, World)> = Vec::new();
            for world in part {
                let known = asked.iter().map(|atom| world.facts.get(atom)).collect();
                self.w = world;
                let kind = (self.layer_kind(receiver, &read), known);
                let world = std::mem::take(&mut self.w);
                match kinds.iter_mut().find(|(k, _)| *k == kind) {
                    Some((_, known)) => {
                        *known = Joiner::new(&mut self.next_id, None).worlds(std::mem::take(known), &world);
                    }
                    None => kinds.push((kind, world)),
                }
            }
            out.extend(kinds.into_iter().map(|(_, world)| world));
        }
        self.stack.clear();
        out
    }

    /// Which of these attributes of a layer are tensors.
    fn layer_kind(&self, receiver: Option<&Value>, read: &FxHashSet<Name>) -> Vec<Name> {
        let Some(Value::Object(object)) = receiver else { return Vec::new() };
        let Some(cell) = self.w.heap.object(*object) else { return Vec::new() };
        let tensors =
            cell.attrs.iter().filter(|(name, value)| matches!(value, Value::Tensor(_)) && read.contains(name));
        tensors.map(|(name, _)| name.clone()).collect()
    }

    /// Attributes that methods of a class read, of whatever it is, beside its constructor: a weight, not what was kept of making it.
    fn attributes_read(&self, class: ClassRef) -> FxHashSet<Name> {
        let mut read = FxHashSet::default();
        for class in self.settings.linearized(self.project, class).iter() {
            for (_, func) in self.project.class(*class).methods.iter().filter(|(name, _)| name != "__init__") {
                attributes(self.project.func(FuncRef { module: class.module, func: *func }).body(), &mut read);
            }
        }
        read
    }

    /// The case of a layer that the world decides, on the axis of its own group.
    fn layer_case(&mut self, source: &LayerSource, given: &[(Name, Value)]) -> Option<(usize, Axis, Transition)> {
        let values = self.layer_values(source, given);
        let (_, object) = given.first()?;
        for name in &source.rule.switches {
            let value = self.attr_quietly(object, name);
            let is_off = matches!(value, Value::Unset) || self.decided_now(&value) == Outcome::Decided(false);
            if !is_off && self.has_attribute(object, name) {
                return None;
            }
        }
        for (cond, _) in &source.rule.groups {
            let formula = self.layer_condition(cond, &values);
            if self.outcome(&formula) != Outcome::Decided(false) {
                return None;
            }
        }
        let axes: AxisSet = source.rule.default_group.iter().map(|a| self.settings.canonical(a)).collect();
        let (case, _) =
            self.first_case(&source.rule, &values).filter(|(_, outcome)| *outcome == Outcome::Decided(true))?;
        let (_, transition) = source.rule.cases[case].1.transitions.first()?;
        Some((case, axes.single().cloned()?, transition.clone()))
    }

    fn has_attribute(&self, object: &Value, name: &str) -> bool {
        matches!(object, Value::Object(id) if self.w.heap.object(*id).is_some_and(|cell| cell.get(name).is_some()))
    }

    /// At the start of the forward of a layer: its input has the type that callers are held to, its parameters have those of the rule.
    pub fn layer_input(&mut self) {
        let Some(open) = self.layer.clone() else { return };
        let (source, given) = (&open.0, &open.1);
        let Some((_, axis, transition)) = self.layer_case(source, given) else { return };
        let Some((_, collective)) = source.rule.cases.first() else { return };
        let Some(name) = collective.args.params.get(collective.input).map(|p| p.name.clone()) else { return };
        let input = self.layer_value(&name, given);
        self.layer_typed(source, &axis, &transition.source, &input);
        for (name, pattern) in &source.rule.params {
            let attribute = given.first().map(|(_, object)| self.attr_quietly(object, name));
            self.layer_typed(source, &axis, pattern, &attribute.unwrap_or(Value::Unknown));
            let argument = self.layer_value(name, given);
            self.layer_typed(source, &axis, pattern, &argument);
        }
    }

    /// Gives a tensor of a layer the type of its rule, where nothing else is known.
    fn layer_typed(&mut self, source: &LayerSource, axis: &Axis, pattern: &Pattern, value: &Value) {
        if !matches!(value, Value::Tensor(_) | Value::Sym(_)) {
            return;
        }
        let Some(tensor) = self.as_tensor(value) else { return };
        let Some(mut t) = self.w.heap.tensor(tensor).cloned() else { return };
        if !t.local.get(axis).set.is_unknown() {
            return;
        }
        let origin = Origin::new(source.at, Reason::Contract(source.name.clone()), pattern.set.known());
        t.local.set(axis, AxisState { set: pattern.set, shard: pattern.dim(), nest: 0, origin: Some(origin) });
        self.retype(tensor, t);
    }

    /// At a return of the forward of a layer: the result has the type that callers take it for.
    pub fn layer_returned(&mut self, id: StmtId, value: &Value) {
        let Some(open) = self.layer.clone().filter(|_| self.stack.len() == 1) else { return };
        let (source, given) = (&open.0, &open.1);
        let Some((case, axis, transition)) = self.layer_case(source, given) else { return };
        let first = match value {
            Value::Tuple(items) if source.rule.gives_bias => items.first().cloned().unwrap_or(Value::Unknown),
            other => other.clone(),
        };
        let at = self.part(id, 0);
        let known = match first {
            Value::Tensor(tensor) => self.w.heap.tensor(tensor).map(|t| (tensor, t.local.get(&axis).clone())),
            _ => None,
        };
        let wanted = transition.result.set;
        let Some((tensor, found)) = known.filter(|(_, state)| !state.set.is_unknown()) else {
            return self.passed(at, Pass::Unknown);
        };
        let twin = || self.w.heap.tensor(tensor).is_some_and(|t| Machine::has_twin(&axis, std::iter::once(&t.local)));
        if !found.set.meet(wanted).is_empty() || self.is_restricted(&axis) || twin() {
            self.layer_outcomes.push(Returned { case, wrong: None, facts: self.w.facts.clone() });
            return self.passed(at, Pass::Right);
        }
        let by = Origin::new(source.at, Reason::Contract(source.name.clone()), wanted.known());
        let declared = AxisState { set: wanted, shard: transition.result.dim(), nest: 0, origin: Some(by) };
        let found = OperandAt { place: Some(at), state: found, is_number: false, is_divisor: false };
        let declared_at = source.at;
        let kind = FindingKind::DeclaredMismatch { axis, what: Declared::Layer, declared, found, declared_at };
        self.report(at, kind);
        self.layer_outcomes.push(Returned { case, wrong: Some(at), facts: self.w.facts.clone() });
        self.forget_types(tensor);
    }

    /// At the end of the root of a layer: a case of the rule that holds on some ways and not on others is one of a source that has more switches than
    /// the rule knows. Of those ways nothing is said.
    pub(super) fn layer_done(&mut self, source: Option<&LayerSource>) {
        let outcomes = std::mem::take(&mut self.layer_outcomes);
        let Some(source) = source else { return };
        for found in &outcomes {
            let Some(at) = found.wrong else { continue };
            let mut right = outcomes.iter().filter(|other| other.case == found.case && other.wrong.is_none());
            if right.any(|other| !source.tells_apart(&found.facts, &other.facts)) {
                self.out.take_back(at, &found.facts, &|kind| {
                    matches!(kind, FindingKind::DeclaredMismatch { what: Declared::Layer, .. })
                });
            }
        }
        // What is found only where such a switch is not as it is by default is beyond the contract.
        for (name, by_default) in self.further_switches(source) {
            let atom = Atom::True(self.flag_name(&name));
            self.out.findings.iter_mut().for_each(|finding| {
                if finding.worlds.iter().all(|facts| facts.get(&atom) == Some(!by_default)) {
                    finding.worlds.clear();
                }
            });
        }
    }
}

fn attributes(block: &Block, read: &mut FxHashSet<Name>) {
    for node in block.iter() {
        if let Stmt::Assign { value: Rvalue::Attr { name, .. }, .. } = &node.stmt {
            read.insert(name.clone());
        }
        node.stmt.blocks().for_each(|inner| attributes(inner, read));
    }
}
