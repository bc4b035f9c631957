//! The modules of a `Sequential`, one by one: indexed, sliced, added; and the dicts that they are made from. In: an object and an index.
//! Out: a module. Never: its call as a whole, which is `containers.rs`. Next: `items.rs`.

use super::expr::CallArgs;
use super::heap::{Cell, DictCell, ListCell};
use super::machine::Machine;
use super::value::{ObjId, Value};
use crate::source::Name;

impl Machine<'_> {
    /// `steps[0]`, `steps[1:]`
    pub fn step_at(&mut self, object: ObjId, index: &Value) -> Option<Value> {
        let modules = self.modules_of(object)?;
        let at = |n: i64| {
            let n = if n < 0 { n + modules.len() as i64 } else { n };
            usize::try_from(n).ok().filter(|n| *n <= modules.len())
        };
        let bound = |value: &Value, default: usize| match value {
            value if value.is_none() => Some(default),
            value => value.as_int().and_then(at),
        };
        match index {
            Value::Slice(parts) if parts[2].is_none() => {
                let (start, stop) = (bound(&parts[0], 0)?, bound(&parts[1], modules.len())?);
                let items = modules.get(start..stop)?.to_vec();
                let mut cell = self.w.heap.object(object)?.clone();
                let list = Value::List(self.fresh(Cell::List(ListCell { items, rest: None })));
                cell.set(&Name::from("(modules)"), list);
                Some(Value::Object(self.fresh(Cell::Object(cell))))
            }
            index => modules.get(at(index.as_int()?)?).cloned(),
        }
    }

    /// Whether a method adds modules to a `Sequential`, which it does: `steps.append(module)`.
    pub fn adds_step(&mut self, object: ObjId, method: &Name, args: &CallArgs) -> bool {
        if !matches!(method.as_str(), "append" | "extend" | "insert" | "pop" | "__setitem__" | "__delitem__") {
            return false;
        }
        let modules = self.w.heap.object(object).and_then(|cell| cell.get("(modules)")).cloned();
        let Some(list @ Value::List(id)) = modules else { return false };
        if method == "append" {
            self.container_method(&list, method, args);
        } else {
            let open = ListCell { items: Vec::new(), rest: Some(Value::Unknown) };
            self.w.heap.insert(id, Cell::List(open));
        }
        true
    }

    /// `dict([(key, value), ..])`
    pub fn dict_of_pairs(&self, pairs: &Value) -> DictCell {
        let mut dict = DictCell::default();
        for pair in self.literal_items(pairs).unwrap_or_else(|| vec![Value::Unknown]) {
            match self.literal_items(&pair).as_deref() {
                Some([key @ Value::Const(_), value]) => dict.set(key.clone(), value.clone()),
                _ => return DictCell { entries: Vec::new(), rest: Some(Value::Unknown) },
            }
        }
        dict
    }
}
