//! A module that a specification leaves open, where the project gives the field several classes: those that the arguments do not fit are
//! left out, and a call has a type where the rules of all the others say the same. In: the classes of a field, a constructor's arguments, a
//! call. Out: an instance, and the case that covers all. Never: a guess between classes that differ in the world at hand.
//! Source: `rules/README.md`, section on intrinsics. Next: `layer.rs`, calls of an instance.

use super::expr::CallArgs;
use super::formula::Outcome;
use super::heap::{Cell, ObjectCell};
use super::layer::{bind, slot};
use super::machine::{Eval, Machine};
use super::value::Value;
use crate::ir::{ParamKind, StmtId};
use crate::project::{ClassRef, Resolved};
use crate::rules::collective::{CollectiveRule, Transition};
use crate::rules::{LayerRule, Pattern, Signature};
use crate::source::Name;
use crate::types::AxisSet;
use std::sync::Arc;

/// Among the attributes of an instance: the paths of the classes that may stand in its place.
const OTHERS: &str = "others";

/// An argument of the constructor of another class that may stand in the place of an instance.
fn argument_of(other: &str, name: &str) -> Name {
    slot(&format!("{other}:{name}"))
}

impl Machine<'_> {
    /// What is built for a field that only the project as a whole gives classes to.
    pub(super) fn build_from_field(&mut self, id: StmtId, field: &str, args: &CallArgs) -> Eval {
        let candidates = self.settings.specs.candidates(field).to_vec();
        let fitting: Vec<Value> = match candidates.as_slice() {
            [_] => candidates,
            _ => candidates.into_iter().filter(|class| self.may_be_built(class, args)).collect(),
        };
        if let [one] = fitting.as_slice() {
            return self.build_from(id, one, args);
        }
        let rules: Option<Vec<Arc<LayerRule>>> = fitting.iter().map(|class| self.closed_rule(class)).collect();
        match rules.as_deref() {
            Some([first, others @ ..]) if others.iter().all(|other| other.gives_bias == first.gives_bias) => {
                let value = self.new_layer(id, first, args);
                self.note_others(&value, first, others, args);
                Eval::One(value)
            }
            Some(_) | None => self.not_built(args),
        }
    }

    /// The rule of a class that types its calls by itself.
    fn closed_rule(&self, class: &Value) -> Option<Arc<LayerRule>> {
        match class {
            Value::Path(path) => self.rules.layer(path).filter(|rule| !rule.open).cloned(),
            _ => None,
        }
    }

    /// Whether the constructor of a class takes these arguments: by its source, or by the signature of its rule.
    fn may_be_built(&self, class: &Value, args: &CallArgs) -> bool {
        let Value::Path(path) = class else { return true };
        if let Resolved::Class(class) = self.project.path(path)
            && let Some(fits) = self.takes(class, args)
        {
            return fits;
        }
        self.rules.layer(path).is_none_or(|rule| has_all(&rule.args, args))
    }

    /// Whether the constructor in the source of a class takes these arguments; `None` if it has none of its own.
    fn takes(&self, class: ClassRef, args: &CallArgs) -> Option<bool> {
        let params = &self.project.func(self.constructor_of(class)?).params;
        let own = params.get(1..)?;
        let takes_any = |kind| own.iter().any(|p| p.kind == kind);
        let by_position = args.args.iter().filter(|a| a.keyword.is_none()).count();
        let in_order = own.iter().filter(|p| matches!(p.kind, ParamKind::Normal | ParamKind::PositionalOnly));
        let in_order: Vec<&Name> = in_order.map(|p| &p.name).collect();
        let fits = (by_position <= in_order.len() || takes_any(ParamKind::VarArgs))
            && args
                .args
                .iter()
                .filter_map(|a| a.keyword.as_ref())
                .all(|keyword| takes_any(ParamKind::KwArgs) || own.iter().any(|p| p.name == *keyword))
            && own.iter().all(|p| {
                let is_required = !p.has_default && !matches!(p.kind, ParamKind::VarArgs | ParamKind::KwArgs);
                let at = in_order.iter().position(|name| **name == p.name);
                !is_required || args.open || at.is_some_and(|at| at < by_position) || args.keyword(&p.name).is_some()
            });
        Some(fits)
    }

    /// Keeps with an instance what may stand in its place, and the arguments of each of these. Parameters that they do not agree on are
    /// nobody's.
    fn note_others(&mut self, value: &Value, rule: &LayerRule, others: &[Arc<LayerRule>], args: &CallArgs) {
        let Value::Object(object) = value else { return };
        let same = |(name, pattern): &(Name, Pattern), other: &LayerRule| {
            other.params.iter().any(|(n, p)| n == name && p == pattern)
        };
        let (differing, paths) = (
            rule.params.iter().filter(|param| !others.iter().all(|other| same(param, other))),
            others.iter().map(|other| Value::Path(other.name.clone())).collect(),
        );
        let differing: Vec<Name> = differing.map(|(name, _)| name.clone()).collect();
        let mut kept = vec![(slot(OTHERS), Value::tuple(paths))];
        for other in others {
            let bound = bind(&other.args, args);
            kept.extend(bound.into_iter().map(|(name, value)| (argument_of(&other.name, &name), value)));
        }
        kept.extend(differing.into_iter().map(|name| (name, Value::Unknown)));
        if let Some(Cell::Object(cell)) = self.w.heap.get_mut(*object) {
            kept.into_iter().for_each(|(name, value)| cell.set(&name, value));
        }
    }

    /// The case that a call of an instance takes in this world, whichever class it is of: the one that covers those of all; `None` if they
    /// differ, or are not decided.
    pub(super) fn agreed(
        &mut self,
        collective: &Arc<CollectiveRule>,
        axes: Option<&AxisSet>,
        args: &CallArgs,
        cell: Option<&ObjectCell>,
    ) -> Option<Arc<CollectiveRule>> {
        let others = match cell.and_then(|cell| cell.get(&slot(OTHERS))) {
            Some(Value::Tuple(others)) => others.clone(),
            _ => return Some(collective.clone()),
        };
        let mut cases = vec![collective.clone()];
        for other in others.iter() {
            let rule = self.closed_rule(other)?;
            let own = |name: &Name| cell.and_then(|c| c.get(&argument_of(&rule.name, name))).cloned();
            let built: Vec<(Name, Value)> =
                rule.args.params.iter().map(|p| Some((p.name.clone(), own(&p.name)?))).collect::<Option<_>>()?;
            let mut values = bind(&rule.cases.first()?.1.args, args);
            values.extend(built.iter().cloned());
            match self.first_case(&rule, &values)? {
                (at, Outcome::Decided(true)) if self.layer_axes(&rule, &built).as_ref() == axes => {
                    cases.push(rule.cases[at].1.clone());
                }
                _ => return None,
            }
        }
        cases.iter().find(|case| cases.iter().all(|other| covers(case, other))).cloned()
    }
}

/// Whether the arguments give every parameter of a signature that has no default.
fn has_all(signature: &Signature, args: &CallArgs) -> bool {
    let keywords: Vec<Option<&Name>> = args.args.iter().map(|a| a.keyword.as_ref()).collect();
    let bound = signature.bind(&keywords);
    let is_given = |at: usize| bound.first(at).is_some() || signature.params[at].default.is_some();
    args.open || (0..signature.params.len()).all(|at| signature.params[at].variadic || is_given(at))
}

/// Whether what one case takes and gives includes what another does.
fn covers(one: &CollectiveRule, other: &CollectiveRule) -> bool {
    let wider =
        |a: &Pattern, b: &Pattern| a.set.join(b.set) == a.set && a.shard == b.shard && a.any_shard == b.any_shard;
    let covered = |a: &Transition, b: &Transition| wider(&a.source, &b.source) && wider(&a.result, &b.result);
    one.transitions.len() == other.transitions.len()
        && one
            .transitions
            .iter()
            .zip(&other.transitions)
            .all(|(a, b)| a.0.is_none() && b.0.is_none() && covered(&a.1, &b.1))
}
