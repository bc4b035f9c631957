//! Containers of modules, and modules built from a specification. In: a rule's `does` and a call. Out: lists, dicts, objects, and what
//! a specification builds. Never: names of frameworks. Source: `rules/README.md`, section on intrinsics. Next: `alternatives.rs`.

use super::expr::{CallArg, CallArgs};
use super::heap::{Cell, ListCell, ObjectCell, ObjectClass};
use super::limits::MAX_VALUE_DEPTH;
use super::machine::{Eval, Machine};
use super::value::{ObjId, Value};
use crate::ir::{Block, StmtId};
use crate::project::ClassRef;
use crate::rules::IntrinsicRule;
use crate::source::Name;
use std::sync::Arc;

/// Words of what a layer keeps that tells it from others.
const PLACES: &[&str] =
    &["idx", "index", "number", "_id", "first", "last", "depth", "stage", "position", "order", "even", "odd", "skip"];

impl Machine<'_> {
    pub fn container(&mut self, id: StmtId, rule: &Arc<IntrinsicRule>, args: &CallArgs) -> Eval {
        let first = args.positional(0).cloned();
        match rule.does.as_str() {
            "module-list" => self.builtin(id, "list", &CallArgs::of(first.into_iter().collect())),
            "module-dict" => self.builtin(id, "dict", args),
            "sequential" => Eval::One(self.sequential(rule, args)),
            "module-spec" => {
                let mut cell = self.empty_object(rule);
                for (i, param) in rule.args.params.iter().enumerate() {
                    let value = args.get(i, &param.name).cloned().unwrap_or(Value::NONE);
                    cell.set(&param.name, value);
                }
                Eval::One(Value::Object(self.fresh(Cell::Object(cell))))
            }
            _ => match first.or_else(|| args.keyword(&rule.args.params[0].name).cloned()) {
                Some(spec) => self.build_from(id, &spec, &args.skip_first()),
                None => Eval::One(Value::Unknown),
            },
        }
    }

    fn empty_object(&self, rule: &IntrinsicRule) -> ObjectCell {
        ObjectCell { class: ObjectClass::External(rule.name.clone()), path: rule.name.clone(), attrs: Vec::new() }
    }

    /// `Sequential(a, b)` or `Sequential(OrderedDict(a=..))`: an object whose call is that of its modules in turn.
    fn sequential(&mut self, rule: &IntrinsicRule, args: &CallArgs) -> Value {
        let modules: Vec<Value> = match args.args.as_slice() {
            [one] => match &one.value {
                Value::Dict(id) => match self.w.heap.get(*id) {
                    Some(Cell::Dict(d)) if !d.is_open() => d.entries.iter().map(|(_, v)| v.clone()).collect(),
                    _ => return Value::Unknown,
                },
                value => vec![value.clone()],
            },
            many => many.iter().map(|a| a.value.clone()).collect(),
        };
        let mut cell = self.empty_object(rule);
        let rest = args.open.then_some(Value::Unknown);
        let list = Value::List(self.fresh(Cell::List(ListCell { items: modules, rest })));
        cell.set(&Name::from("(modules)"), list);
        Value::Object(self.fresh(Cell::Object(cell)))
    }

    /// The modules of a `Sequential`, in order; `None` if the object is not one, or they are not known.
    pub fn modules_of(&self, object: ObjId) -> Option<Vec<Value>> {
        let cell = self.w.heap.object(object)?;
        // One that is added by name stands behind the others.
        let added = cell.attrs.iter().any(|(name, _)| !name.starts_with('('));
        let list = cell.get("(modules)").filter(|_| !added)?.clone();
        self.literal_items(&list)
    }

    /// Whether a loop goes through the layers of a model, as many as it is given and all alike, and does the same with each: what is right for
    /// one only is not right.
    pub fn goes_through_layers(&self, sequence: &Value, element: &Value, body: &Block) -> bool {
        let (Value::List(list), Value::Object(layer)) = (sequence, element) else { return false };
        let is_open = |cell: &Cell| matches!(cell, Cell::List(ListCell { items, rest: Some(_) }) if items.is_empty());
        let asks = body.iter().any(|node| node.stmt.blocks().next().is_some());
        if asks || self.deriving.is_some() || !self.w.heap.get(*list).is_some_and(is_open) {
            return false;
        }
        let Some(cell) = self.w.heap.object(*layer) else { return false };
        let ObjectClass::Project(class) = &cell.class else { return false };
        let order = self.settings.linearized(self.project, *class);
        let has_forward = |base: &ClassRef| self.project.class(*base).methods.iter().any(|(name, _)| name == "forward");
        order.iter().any(has_forward) && !self.knows_its_place(*layer, 0)
    }

    /// Whether a layer, or a part of it, keeps which of them it is.
    fn knows_its_place(&self, layer: ObjId, depth: usize) -> bool {
        let Some(cell) = self.w.heap.object(layer).filter(|_| depth <= MAX_VALUE_DEPTH) else { return false };
        cell.attrs.iter().any(|(name, value)| {
            let says = || PLACES.iter().any(|word| name.contains(word));
            match value {
                Value::Object(inner) => self.knows_its_place(*inner, depth + 1),
                Value::Const(_) | Value::Tensor(_) | Value::Size(_) | Value::Share(_) | Value::Group(_) => false,
                _ => says(),
            }
        })
    }

    /// Calls one after the other, each with the result of the one before, in every world.
    pub fn call_in_turn(&mut self, id: StmtId, modules: &[Value], args: &CallArgs) -> Eval {
        let Some((first, rest)) = modules.split_first() else {
            return Eval::One(args.positional(0).cloned().unwrap_or(Value::Unknown));
        };
        let mut outcome = self.call(id, first, args);
        for module in rest {
            outcome = self.then(outcome, &mut |m, value| {
                let one = CallArgs { args: vec![CallArg { keyword: None, value, part: 0 }], open: false };
                m.call(id, module, &one)
            });
        }
        outcome
    }

    /// Goes on from each world of an evaluation.
    pub fn then(&mut self, eval: Eval, next: &mut dyn FnMut(&mut Self, Value) -> Eval) -> Eval {
        match eval {
            Eval::One(value) => next(self, value),
            Eval::Many(outcomes) => {
                let mut all = Vec::new();
                for (world, value) in outcomes {
                    self.w = world;
                    match next(self, value) {
                        Eval::One(value) => all.push((std::mem::take(&mut self.w), value)),
                        Eval::Many(more) => all.extend(more),
                    }
                }
                self.exits(all)
            }
        }
    }

    /// What a specification builds: a class with the specification's own parameters and submodules, or the value itself.
    pub(super) fn build_from(&mut self, id: StmtId, spec: &Value, args: &CallArgs) -> Eval {
        match spec {
            Value::Class(_) | Value::Partial(_) => self.call(id, spec, args),
            Value::Path(path) if self.rules.get(path).is_none() => match self.project.path(path) {
                crate::project::Resolved::Class(class) => self.call(id, &Value::Class(class), args),
                _ => self.call(id, spec, args),
            },
            Value::Path(_) => self.call(id, spec, args),
            Value::Closure(_) => Eval::One(spec.clone()),
            Value::Object(object) => {
                let Some(cell) = self.w.heap.object(*object).cloned() else { return Eval::One(Value::Unknown) };
                let Some(module) = cell.get("module").cloned() else {
                    // An instance: it is what it is.
                    return Eval::One(spec.clone());
                };
                let mut all = args.clone();
                if let Some(Value::Dict(params)) = cell.get("params")
                    && let Some(Cell::Dict(params)) = self.w.heap.get(*params)
                {
                    all.open |= params.is_open();
                    for (key, value) in &params.entries {
                        let keyword = key.as_str().cloned();
                        all.args.push(CallArg { keyword, value: value.clone(), part: 0 });
                    }
                }
                if let Some(submodules) = cell.get("submodules").filter(|s| !s.is_none()) {
                    let keyword = Some(Name::from("submodules"));
                    all.args.push(CallArg { keyword, value: submodules.clone(), part: 0 });
                }
                self.build_from(id, &module, &all)
            }
            Value::Sym(path) => {
                let field = path.rsplit('.').next().unwrap_or(path);
                self.build_from_field(id, field, args)
            }
            _ => self.not_built(args),
        }
    }

    pub(super) fn not_built(&mut self, args: &CallArgs) -> Eval {
        self.unresolved(args, "module specification");
        Eval::One(Value::Unknown)
    }
}
