//! The source of a function that a rule types by its name and that is no more than its body: what it returns is compared with the rule. In:
//! a function of the project and its `[[collective]]` rule. Out: findings. Never: a function that returns on some way what is not known, or
//! what the rule says; functions that apply an autograd function, which `autograd/declared.rs` compares. Source: `rules/README.md`.
//! Next: `layer_source.rs`, the same for layers.

use super::finding::{Declared, FindingKind, OperandAt};
use super::formula::Facts;
use super::machine::Machine;
use super::settings::Settings;
use super::value::Value;
use crate::ir::{Func, FuncKind, StmtId};
use crate::project::FuncRef;
use crate::rules::{CollectiveRule, Entry, Form};
use crate::source::{Name, Place};
use crate::types::{Axis, AxisSet, AxisState, AxisType, Origin, Reason};

/// A function that runs as a root, and what a rule says of its result.
#[derive(Debug)]
pub struct RuledSource {
    name: Name,
    at: Place,
    /// What the group of the rule may be in it.
    axes: Vec<Axis>,
    /// What the rule gives, in any of its cases.
    result: AxisType,
    /// Where it returns something else, and whether all its returns do.
    wrong: Vec<(Place, Facts)>,
    always: bool,
}

/// What the group of a rule may be in a function: its argument of that name, or what it is by default.
pub fn groups_of(settings: &Settings, rule: &CollectiveRule, f: &Func) -> Vec<AxisSet> {
    let argument = rule.group.map(|at| &rule.args.params[at].name);
    let given = argument.filter(|name| f.params.iter().any(|p| p.name == **name)).map(|name| {
        let known = settings.group_named(name);
        known.unwrap_or_else(|| AxisSet::one(Axis::variable(name.strip_suffix("_name").unwrap_or(name))))
    });
    let default: AxisSet = rule.default_group.iter().map(|axis| settings.canonical(axis)).collect();
    given.into_iter().chain((!default.is_empty()).then_some(default)).collect()
}

/// Whether one type is that of equal values and the other of values that differ.
fn contradicts(found: AxisType, wanted: AxisType) -> bool {
    let (equal, different) = (AxisType::EQUAL, AxisType::ALL.without(AxisType::EQUAL));
    let is = |t: AxisType, all: AxisType| !t.is_empty() && t.leq(all);
    is(found, equal) && is(wanted, different) || is(found, different) && is(wanted, equal)
}

impl Machine<'_> {
    /// The rule of a function that is about to run as a root.
    pub(super) fn ruled_source(&self, root: FuncRef) -> Option<RuledSource> {
        let func = self.project.func(root);
        if func.class.is_some() || func.kind != FuncKind::Function || !self.rules.may_name(&func.name) {
            return None;
        }
        let Some(Entry::Collective(rule)) = self.rules.get(&self.project.qualified(root)) else { return None };
        let file = self.project.file(root.module);
        if rule.form != Form::Result || self.files[file].slice(func.span).contains(".apply(") {
            return None;
        }
        let result = rule.transitions.iter().fold(AxisType::EMPTY, |set, (_, t)| set.join(t.result.set));
        let axes = groups_of(self.settings, rule, func).iter().filter_map(|g| g.single().cloned()).collect();
        let at = Place { file, span: func.name_span };
        Some(RuledSource { name: func.name.clone(), at, axes, result, wrong: Vec::new(), always: true })
    }

    /// At a return of such a function.
    pub(super) fn ruled_returned(&mut self, id: StmtId, value: &Value) {
        if self.stack.len() != 1 {
            return;
        }
        let Some(mut source) = self.ruled.take() else { return };
        let known = self.tensor(value).map(|t| t.local.clone());
        let states = source.axes.iter().filter_map(|axis| Some((axis.clone(), known.as_ref()?.get(axis).clone())));
        let states: Vec<(Axis, AxisState)> = states.filter(|(_, state)| !state.set.is_unknown()).collect();
        let wrong = states.iter().all(|(axis, s)| contradicts(s.set, source.result) && !self.is_restricted(axis));
        let Some((axis, found)) = states.into_iter().next().filter(|_| wrong) else {
            source.always = false;
            self.ruled = Some(source);
            return;
        };
        let at = self.part(id, 0);
        let by = Origin::new(source.at, Reason::Contract(source.name.clone()), source.result.known());
        let declared = AxisState { origin: Some(by), ..AxisState::new(source.result) };
        let found = OperandAt { place: Some(at), state: found, is_number: false, is_divisor: false };
        let kind =
            FindingKind::DeclaredMismatch { axis, what: Declared::Ruled, declared, found, declared_at: source.at };
        self.report(at, kind);
        source.wrong.push((at, self.w.facts.clone()));
        self.ruled = Some(source);
    }

    /// At the end of such a root: one that returns something else on some ways only has switches that the rule does not know.
    pub(super) fn ruled_done(&mut self) {
        let Some(source) = self.ruled.take().filter(|source| !source.always) else { return };
        for (at, facts) in &source.wrong {
            self.out.take_back(*at, facts, &|kind| {
                matches!(kind, FindingKind::DeclaredMismatch { what: Declared::Ruled, .. })
            });
        }
    }
}
