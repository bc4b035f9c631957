//! Shardings that are declared apart from the code that computes: layouts, and what a module's states, inputs and outputs are. In:
//! calls of the functions to which rules give `does = "declared-..."`, and attributes that keep what they make. Out: values, findings,
//! types for the modules concerned. Never: names of a framework's arguments, which `roles` of the rule gives. Source: DESIGN.md
//! section 3. Next: `layout.rs`, `target.rs`, `flow.rs`.

pub mod flow;
pub mod found;
pub mod layout;
mod target;

use super::expr::CallArgs;
use super::finding::FindingKind;
use super::heap::{Cell, ObjectCell, ObjectClass};
use super::machine::Machine;
use super::value::{ObjId, Value};
use crate::ir::annotation::Atom;
use crate::ir::{Const, StmtId};
use crate::rules::{Entry, IntrinsicRule};
use crate::source::{Name, Place};
use crate::types::Axis;
use found::{Declaration, Part};
use layout::{DeclaredLayout, Moved};
use std::sync::Arc;

/// What is given for a part of a declaration.
enum Given {
    /// Nothing, or `None`.
    Without,
    Unknown,
    Layout(Arc<DeclaredLayout>),
}

impl Machine<'_> {
    /// A function about declared shardings; `None` if the rule is about something else.
    pub(super) fn declared_intrinsic(
        &mut self,
        id: StmtId,
        rule: &Arc<IntrinsicRule>,
        args: &CallArgs,
    ) -> Option<Value> {
        let does = rule.does.strip_prefix("declared-")?;
        if args.open {
            return Some(Value::Unknown);
        }
        Some(match does {
            "layout" => self.declared_layout(id, rule, args),
            "sharding" => self.declared_sharding(id, rule, args),
            "local" => self.declared_object(rule, args),
            "axes" => args.positional(0).cloned().unwrap_or(Value::Unknown),
            _ => Value::Unknown,
        })
    }

    /// The argument that plays a part.
    fn played(&self, rule: &IntrinsicRule, args: &CallArgs, part: &str) -> Option<Value> {
        let name = rule.role(part)?;
        let at = rule.args.index(name)?;
        let positional = rule.args.params.get(at).is_some_and(|p| !p.keyword_only);
        let given = args.keyword(name).or_else(|| args.positional(at).filter(|_| positional));
        given.cloned()
    }

    fn declared_object(&mut self, rule: &Arc<IntrinsicRule>, args: &CallArgs) -> Value {
        let mut attrs: Vec<(Name, Value)> = Vec::new();
        for (i, param) in rule.args.params.iter().enumerate() {
            let given = args.keyword(&param.name).or_else(|| args.positional(i).filter(|_| !param.keyword_only));
            let value = given.cloned().unwrap_or(match param.default.as_deref() {
                Some("None") => Value::NONE,
                _ => Value::Unknown,
            });
            attrs.push((param.name.clone(), value));
        }
        let cell = ObjectCell { class: ObjectClass::External(rule.name.clone()), path: rule.name.clone(), attrs };
        Value::Object(self.fresh(Cell::Object(cell)))
    }

    /// The axis that a key or entry names: a string, or a member of the enumeration of axes.
    fn declared_axis(&mut self, value: &Value) -> Option<Axis> {
        match value {
            Value::Const(Const::Str(name)) => Some(self.settings.canonical(name)),
            Value::Group(axes) => axes.single().cloned(),
            Value::Path(path) => {
                let (base, member) = path.rsplit_once('.')?;
                match self.rules.get(base)? {
                    Entry::Intrinsic(rule) if rule.does == "declared-axes" => {
                        Some(self.settings.canonical(&member.to_lowercase()))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// A layout; unknown where an axis or the spec is not known.
    fn declared_layout(&mut self, id: StmtId, rule: &Arc<IntrinsicRule>, args: &CallArgs) -> Value {
        let Some(axes) = self.played(rule, args, "axes").and_then(|v| self.axis_types(&v)) else {
            return Value::Unknown;
        };
        let spec = match self.played(rule, args, "spec") {
            None => None,
            Some(value) if value.is_none() => None,
            Some(value) => match self.axis_order(&value) {
                Some(spec) => Some(spec),
                None => return Value::Unknown,
            },
        };
        let layout = DeclaredLayout { made: self.place(id), axes, spec };
        self.read_declaration(layout.made, layout.is_known());
        if let Some(mistake) = refused(&layout) {
            self.declaration(layout.made, mistake);
            return Value::Unknown;
        }
        Value::Layout(Arc::new(layout))
    }

    fn axis_types(&mut self, value: &Value) -> Option<Vec<(Axis, Option<Atom>)>> {
        let Value::Dict(dict) = value else { return None };
        let entries = match self.w.heap.get(*dict)? {
            Cell::Dict(dict) if !dict.is_open() => dict.entries.clone(),
            _ => return None,
        };
        let mut out = Vec::new();
        for (key, value) in entries {
            let atom = match value {
                Value::Atom(atom) => Some(atom),
                _ => None,
            };
            out.push((self.declared_axis(&key)?, atom));
        }
        Some(out)
    }

    fn axis_order(&mut self, value: &Value) -> Option<Vec<Vec<Axis>>> {
        if let Value::Spec(spec) = value {
            return Some(spec.as_ref().clone());
        }
        let items = self.literal_items(value)?;
        let mut out = Vec::new();
        for item in items {
            out.push(match &item {
                Value::Const(Const::None) => Vec::new(),
                Value::Tuple(inner) => inner.iter().map(|v| self.declared_axis(v)).collect::<Option<_>>()?,
                one => vec![self.declared_axis(one)?],
            });
        }
        Some(out)
    }

    /// What a module's states, inputs and outputs are.
    fn declared_sharding(&mut self, id: StmtId, rule: &Arc<IntrinsicRule>, args: &CallArgs) -> Value {
        let object = self.declared_object(rule, args);
        let place = self.place(id);
        let Value::Object(at) = object else { return object };
        let mut known = true;
        for part in ["states", "input-from", "input-to"] {
            known &= self.is_without(rule, at, part) || self.layouts_of(rule, at, part).is_some();
        }
        for part in ["output-from", "output-to"] {
            known &= !matches!(self.layout_of(rule, at, part), Given::Unknown);
        }
        self.read_declaration(place, known);
        self.check_moves(rule, at, place);
        let local = self.declared_part(rule, at, "local");
        if matches!(local, Some(Value::Object(_)))
            && let (Some(from), Some(to)) =
                (self.layouts_of(rule, at, "input-from"), self.layouts_of(rule, at, "input-to"))
            && let Some((name, _)) = from.iter().find(|(n, _)| !to.is_empty() && !to.iter().any(|(m, _)| m == n))
        {
            let kind = Declaration::UndeclaredInput { class: None, name: name.clone() };
            self.declaration(place, kind);
            return Value::Object(at);
        }
        let results = ["output-from", "output-to"].map(|part| self.layout_of(rule, at, part));
        // Other versions say it where the region of local tensors is declared.
        let says = |local: &Value| match local {
            Value::Object(local) => !self.is_without(rule, *local, "local-output"),
            _ => true,
        };
        if local.is_some_and(|local| !says(&local))
            && results.iter().all(|given| matches!(given, Given::Without))
            && let Some(argument) = rule.role("output-from")
        {
            self.declaration(place, Declaration::NoResult { argument: argument.clone() });
        }
        Value::Object(at)
    }

    /// Moves at the boundary of a module: each input, and the output.
    fn check_moves(&mut self, rule: &IntrinsicRule, at: ObjId, place: Place) {
        let to = self.layouts_of(rule, at, "input-to").unwrap_or_default();
        let without = self.is_without(rule, at, "input-from");
        let from = self.layouts_of(rule, at, "input-from");
        for (name, to) in &to {
            let part = Part::Input(name.clone());
            match from.as_ref().map(|all| all.iter().find(|(n, _)| n == name)) {
                Some(Some((_, Some(from)))) => {
                    if let Some(to) = to
                        && self.check_move(place, part, from, to)
                    {
                        return;
                    }
                }
                Some(Some((_, None))) => {}
                None if !without => {}
                // Of what is no such layout (placements of distributed tensors, in older versions) the source need not be told.
                _ if to.is_none() => {}
                _ => return self.declaration(place, Declaration::NoSource { part }),
            }
        }
        match (self.layout_of(rule, at, "output-from"), self.layout_of(rule, at, "output-to")) {
            (Given::Layout(from), Given::Layout(to)) => {
                self.check_move(place, Part::Output, &from, &to);
            }
            (Given::Without, Given::Layout(_)) => self.declaration(place, Declaration::NoSource { part: Part::Output }),
            _ => {}
        }
    }

    fn check_move(&mut self, place: Place, part: Part, from: &DeclaredLayout, to: &DeclaredLayout) -> bool {
        let Some(moved) = from.moved(to) else { return false };
        let named = |axes: &[(Axis, Option<Atom>)]| axes.iter().all(|(a, _)| !a.is_variable());
        if moved == Moved::Axes && !(named(&from.axes) && named(&to.axes)) {
            return false;
        }
        self.declaration(place, Declaration::Move { part, moved, from: from.made, to: to.made });
        true
    }

    fn declaration(&mut self, place: Place, kind: Declaration) {
        self.report(place, FindingKind::Declaration(kind));
    }

    fn read_declaration(&mut self, place: Place, known: bool) {
        if !self.quiet {
            let read = self.out.coverage.declarations.entry(place).or_default();
            *read |= known;
        }
    }

    /// The rule of an object that declares a sharding.
    fn sharding_rule(&self, object: ObjId) -> Option<Arc<IntrinsicRule>> {
        let ObjectClass::External(path) = &self.w.heap.object(object)?.class else { return None };
        match self.rules.get(path)? {
            Entry::Intrinsic(rule) if rule.does == "declared-sharding" => Some(rule.clone()),
            _ => None,
        }
    }

    fn declared_part(&self, rule: &IntrinsicRule, object: ObjId, part: &str) -> Option<Value> {
        self.w.heap.object(object)?.get(rule.role(part)?).cloned()
    }

    fn is_without(&self, rule: &IntrinsicRule, object: ObjId, part: &str) -> bool {
        self.declared_part(rule, object, part).is_none_or(|v| v.is_none())
    }

    fn layout_of(&self, rule: &IntrinsicRule, object: ObjId, part: &str) -> Given {
        match self.declared_part(rule, object, part) {
            None => Given::Without,
            Some(value) if value.is_none() => Given::Without,
            Some(Value::Layout(layout)) => Given::Layout(layout),
            Some(_) => Given::Unknown,
        }
    }

    /// Names with their layouts, `None` where one is not known; nothing if not even the names are.
    fn layouts_of(
        &self,
        rule: &IntrinsicRule,
        object: ObjId,
        part: &str,
    ) -> Option<Vec<(Name, Option<Arc<DeclaredLayout>>)>> {
        let Some(Value::Dict(dict)) = self.declared_part(rule, object, part) else { return None };
        match self.w.heap.get(dict)? {
            Cell::Dict(dict) if !dict.is_open() => dict
                .entries
                .iter()
                .map(|(key, value)| {
                    let layout = match value {
                        Value::Layout(layout) => Some(layout.clone()),
                        _ => None,
                    };
                    Some((key.as_str()?.clone(), layout))
                })
                .collect(),
            _ => None,
        }
    }
}

/// What the constructor of a layout, or the first use of it, refuses.
fn refused(layout: &DeclaredLayout) -> Option<Declaration> {
    let mut seen: Vec<(i32, Axis)> = Vec::new();
    for (axis, atom) in &layout.axes {
        let Some(Atom::Shard(dim)) = atom else { continue };
        if layout.spec.is_some() {
            return Some(Declaration::WithSpec { axis: axis.clone(), dim: *dim });
        }
        if let Some((_, other)) = seen.iter().find(|(d, _)| d == dim) {
            return Some(Declaration::Unordered { axes: [other.clone(), axis.clone()], dim: *dim });
        }
        seen.push((*dim, axis.clone()));
    }
    let mut named: Vec<&Axis> = Vec::new();
    for axis in layout.spec.iter().flatten().flatten() {
        if named.contains(&axis) {
            return Some(Declaration::Twice { axis: axis.clone() });
        }
        named.push(axis);
        let stated = layout.axes.iter().find(|(a, _)| a == axis);
        if let Some((_, Some(atom @ (Atom::Replicate | Atom::Invariant | Atom::Partial)))) = stated {
            return Some(Declaration::Contradicts { axis: axis.clone(), atom: *atom });
        }
    }
    None
}
