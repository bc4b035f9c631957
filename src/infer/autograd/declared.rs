//! Types that a comment or a rule declares, compared with those that forward and backward imply. In: a derivation and the declaration.
//! Out: a disagreement, with the lines that decide. Never: cases that are not decided. Source: DESIGN.md section 6. Next: `apply.rs`.

use super::super::assertion::DeclaredType;
use super::super::contract::contract;
use super::super::finding::{Finding, FindingKind};
use super::super::machine::Machine;
use super::super::value::Value;
use super::super::world::Frame;
use super::derive::{Case, Derived, Signature};
use crate::ir::annotation::{Atom, Result_, Target};
use crate::project::ClassRef;
use crate::rules::Entry;
use crate::rules::collective::Transition;
use crate::source::{Name, Place};
use crate::types::{Axis, AxisSet, Spmd};

impl Machine<'_> {
    /// Compares the signature above `forward` with the cases of its class.
    pub fn compare_declared(&mut self, derived: &Derived) {
        let Some(methods) = self.methods_of(derived.class) else { return };
        let func = self.project.func(methods.forward);
        let Some(contract) = contract(func) else { return };
        let Some(Result_::One(result)) = contract.result else { return };
        let own = usize::from(methods.setup.is_none());
        let known = self.w.clone();
        for case in &derived.cases {
            if case.trouble.is_some() || case.legal.is_empty() || case.ambiguous || !case.further.is_empty() {
                continue;
            }
            self.w = known.clone();
            self.w.facts = case.facts.clone();
            self.w.frames = vec![Frame::new(methods.forward, func.locals().len())];
            for param in &func.params {
                let value = match self.settings.group_named(&param.name) {
                    Some(axes) => Value::Group(axes),
                    None => Value::Sym(param.name.clone()),
                };
                self.set_local(param.local, value);
            }
            let Some(wanted) = self.resolve_type(result, Some(case.rank)) else { continue };
            let mut sources: Vec<(usize, DeclaredType)> = Vec::new();
            for typed in &contract.params {
                let Target::Name(name) = &typed.target else { continue };
                let at = func.params.iter().skip(own).position(|p| p.name == *name);
                let place = at.and_then(|at| case.inputs.iter().position(|i| *i == at));
                if let Some(declared) = place.and_then(|_| self.resolve_type(&typed.ty, Some(case.rank))) {
                    sources.extend(place.map(|p| (p, declared)));
                }
            }
            let fits = |s: &Signature, axis: &Axis| {
                allows(&wanted, axis, s.result.0)
                    && sources.iter().all(|(k, d)| s.sources.get(*k).is_none_or(|(t, _)| allows(d, axis, *t)))
            };
            let bad: AxisSet = case.axes.iter().filter(|a| !case.legal.iter().any(|s| fits(s, a))).cloned().collect();
            // What it does to an input of the declared type says more than what it does to any.
            let from_declared = |s: &&Signature| {
                let as_declared = |(k, d): &(usize, DeclaredType)| {
                    let of_axis = |axis| s.sources.get(*k).is_none_or(|(t, _)| allows(d, axis, *t));
                    bad.iter().all(of_axis)
                };
                sources.iter().all(as_declared)
            };
            let nearest = case.legal.iter().find(from_declared).filter(|_| !sources.is_empty());
            if let (false, Some(principal), Some(backward)) =
                (bad.is_empty(), nearest.or(case.principal.as_ref()), case.backward.first())
            {
                let place = self.place_of(result.span);
                let kind = FindingKind::DeclaredOther {
                    class: self.project.class(derived.class).name.clone(),
                    axes: bad,
                    derived: notation(case, principal),
                    ruled: None,
                    forward: case.forward.clone(),
                    backward: backward.clone(),
                    forward_at: case.forward_at,
                    backward_at: case.backward_at,
                };
                self.report(place, kind);
            }
        }
        self.w = known;
    }

    /// Where the cases of a class are not what the rule says that types its `apply` by its name.
    pub(super) fn against_ruled(&self, derived: &Derived) -> Option<FindingKind> {
        let class = self.project.class(derived.class);
        let path = format!("{}.apply", self.project.qualified_class(derived.class));
        let Entry::Collective(rule) = self.rules.get(&path)? else { return None };
        let says: Vec<Transition> = rule.transitions.iter().map(|(_, t)| t.clone()).collect();
        let says = Says { transitions: &says, input: rule.input, groups: &[] };
        let kind = against_rule(self.place_of(class.name_span), &class.name, &says, &derived.cases)?.kind;
        // One that communicates, and yet exchanges nothing, does so on a copy that may be no copy: `all_reduce(x.contiguous())`.
        let exchanges = matches!(&kind, FindingKind::DeclaredOther { forward, backward, .. }
            if forward.exchanges() || backward.exchanges());
        (exchanges || !self.may_exchange(derived.class)).then_some(kind)
    }

    /// Whether the text of forward or backward names something that communicates.
    fn may_exchange(&self, class: ClassRef) -> bool {
        let Some(methods) = self.methods_of(class) else { return false };
        [methods.forward, methods.backward].into_iter().any(|at| {
            let text = self.files[self.project.file(at.module)].slice(self.project.func(at).span);
            let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.any(|word| self.rules.may_communicate(word))
        })
    }
}

/// What a rule says of a function that applies a class.
pub struct Says<'a> {
    /// The types of the cases that may hold.
    pub transitions: &'a [Transition],
    /// The argument that they are about.
    pub input: usize,
    /// What the group of the rule may be in the function: an argument of that name, the default.
    pub groups: &'a [AxisSet],
}

/// The types of a case on the group of the rule: of a function that goes over several groups that one has to be known among them.
fn on_group<'a>(case: &'a Case, groups: &[AxisSet]) -> Option<(&'a AxisSet, &'a [Signature], &'a Signature)> {
    let of_rule = |axes: &AxisSet| case.further.is_empty() || groups.contains(axes);
    if of_rule(&case.axes) {
        return Some((&case.axes, &case.legal, case.principal.as_ref()?));
    }
    let further = case.further.iter().find(|f| of_rule(&f.axes))?;
    Some((&further.axes, &further.legal, &further.principal))
}

/// What a function that applies a class is, where a rule says that it is something else: of each configuration some signature has to be
/// one of the rule's.
pub fn against_rule(at: Place, name: &Name, says: &Says<'_>, cases: &[Case]) -> Option<Finding> {
    let decided =
        |c: &Case| c.trouble.is_none() && !c.legal.is_empty() && !c.ambiguous && on_group(c, says.groups).is_some();
    if cases.is_empty() || !cases.iter().all(decided) || says.transitions.is_empty() {
        return None;
    }
    let fits = |case: &Case, legal: &[Signature]| {
        let input = case.inputs.iter().position(|i| *i == says.input);
        legal.iter().any(|s| {
            let source = input.and_then(|k| s.sources.get(k)).map(|(t, _)| *t);
            says.transitions
                .iter()
                .any(|t| source.is_none_or(|source| t.source.set.contains(source)) && t.result.set.contains(s.result.0))
        })
    };
    let mut on_rule = cases.iter().filter_map(|c| Some((c, on_group(c, says.groups)?)));
    let (case, (axes, _, principal)) =
        on_rule.find(|(c, (axes, legal, _))| !fits(c, legal) || c.communicates() && is_elsewhere(axes, says.groups))?;
    let kind = FindingKind::DeclaredOther {
        class: name.clone(),
        axes: axes.clone(),
        derived: notation(case, principal),
        ruled: Some(shown(says)),
        forward: case.forward.clone(),
        backward: case.backward.first()?.clone(),
        forward_at: case.forward_at,
        backward_at: case.backward_at,
    };
    Some(Finding::everywhere(at, kind))
}

/// Whether axes are none of the group of a rule, of a function that takes no group.
fn is_elsewhere(axes: &AxisSet, groups: &[AxisSet]) -> bool {
    let [default] = groups else { return false };
    let is_known = |axes: &AxisSet| !axes.is_empty() && axes.iter().all(|a| !a.is_variable());
    is_known(axes) && is_known(default) && !axes.iter().any(|axis| default.contains(axis))
}

/// The types of a rule, each once, with the axes of its group where they are known.
fn shown(says: &Says<'_>) -> String {
    let mut texts: Vec<String> = says.transitions.iter().map(Transition::to_string).collect();
    texts.sort();
    texts.dedup();
    let types = texts.join(" or ");
    match says.groups {
        [group] => format!("{types} on `{group}`"),
        _ => types,
    }
}

/// Whether a declaration allows a type on an axis; one that does not mention it allows any.
fn allows(declared: &DeclaredType, axis: &Axis, t: Spmd) -> bool {
    let atom = declared.entries.iter().find(|(a, _)| a == axis).map(|(_, atom)| *atom).or(declared.rest);
    match atom {
        None => true,
        Some(Atom::Replicate) => t == Spmd::Replicate,
        Some(Atom::Invariant) => t == Spmd::Invariant,
        Some(Atom::Varying | Atom::Shard(_)) => t == Spmd::Varying,
        Some(Atom::Partial) => t == Spmd::Partial,
    }
}

/// `S(0) -> R`, of several arguments `V, I -> V`.
pub fn notation(case: &Case, signature: &Signature) -> String {
    let side = |(t, dim): &(Spmd, Option<usize>)| match dim {
        Some(dim) if *t == Spmd::Varying => format!("S({})", super::shown_dim(case, *dim)),
        _ => t.letter().to_string(),
    };
    let sources: Vec<String> = signature.sources.iter().map(side).collect();
    format!("{} -> {}", sources.join(", "), side(&signature.result))
}
