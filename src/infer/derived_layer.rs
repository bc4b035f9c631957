//! Classes of the project derived from a layer of a library: `class Head(nn.Linear)`. In: an object of such a class. Out: the
//! parameters that the constructor of the base makes, and what its forward gives. Never: a class that has methods of its own in between.
//! Next: `external.rs`, the layers themselves.

use super::expr::CallArgs;
use super::heap::{Cell, ObjectClass};
use super::machine::{Eval, Machine};
use super::value::{ObjId, Value};
use crate::ir::StmtId;
use crate::project::ClassRef;
use crate::rules::{Entry, ModuleRule};
use crate::source::Name;
use std::sync::Arc;

impl Machine<'_> {
    /// `super().__init__(...)` and `super().forward(...)` where no class of the project is meant.
    pub fn super_of_layer(&mut self, id: StmtId, base: &Value, name: &Name, args: &CallArgs) -> Option<Eval> {
        if !matches!(name.as_str(), "__init__" | "forward" | "__call__") {
            return None;
        }
        let Value::Super(at) = base else { return None };
        let Value::Object(object) = &at.0 else { return None };
        let (object, after) = (*object, at.1);
        let ObjectClass::Project(class) = self.w.heap.object(object)?.class.clone() else { return None };
        let order = self.settings.linearized(self.project, class);
        let rest = order.iter().position(|c| *c == after).map_or(0, |i| i + 1);
        let taken = |c: &ClassRef| self.project.class(*c).methods.iter().any(|(n, _)| n == name);
        if order[rest..].iter().any(taken) {
            return None;
        }
        let rule = self.layer_below(class)?;
        if name == "__init__" {
            let made = self.layer_by_world(&rule, args, &mut |m, args| {
                m.layer_parts(id, object, &rule, args);
                Value::NONE
            });
            return Some(made);
        }
        Some(self.call_external_object(id, &Value::Object(object), &rule.name, args))
    }

    /// A call of an object whose class leaves its forward to the layer that it is derived from.
    pub fn call_as_layer(&mut self, id: StmtId, object: &Value, args: &CallArgs) -> Option<Eval> {
        let Value::Object(at) = object else { return None };
        let ObjectClass::Project(class) = self.w.heap.object(*at)?.class.clone() else { return None };
        let rule = self.layer_below(class)?;
        Some(self.call_external_object(id, object, &rule.name, args))
    }

    /// The parameters of an object whose class leaves its constructor to the layer that it is derived from.
    pub fn construct_as_layer(&mut self, id: StmtId, class: ClassRef, object: &Value, args: &CallArgs) {
        let Value::Object(at) = object else { return };
        if let Some(rule) = self.layer_below(class) {
            self.layer_parts(id, *at, &rule, args);
        }
    }

    /// The one layer of a library that a class is derived from.
    pub fn layer_below(&self, class: ClassRef) -> Option<Arc<ModuleRule>> {
        let mut layers = self.settings.statics.external_bases(class).filter_map(|b| match self.rules.get(b) {
            Some(Entry::Module(rule)) => Some(rule.clone()),
            _ => None,
        });
        layers.next().filter(|_| layers.next().is_none())
    }

    fn layer_parts(&mut self, id: StmtId, object: ObjId, rule: &Arc<ModuleRule>, args: &CallArgs) {
        let Value::Object(made) = self.external_module(id, rule, args) else { return };
        let Some(parts) = self.w.heap.object(made).map(|o| o.attrs.clone()) else { return };
        let Some(Cell::Object(mut cell)) = self.w.heap.get(object).cloned() else { return };
        for (name, value) in parts {
            // Whether it has this one its caller decides.
            let unsure = self.tensor(&value).and_then(|t| t.divided.as_ref()).is_some_and(|d| d.axes.is_empty());
            let value = if unsure { Value::Unknown } else { value };
            cell.set(&name, value);
        }
        self.w.heap.insert(object, Cell::Object(cell));
    }
}
