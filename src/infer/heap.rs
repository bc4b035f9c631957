//! The heap of a world: tensors, lists, dicts, objects and captured variables by id. In: cells. Out: cells, shared between worlds
//! until one of them writes. Never: garbage collection; a root is short. Next: `world.rs`.

use super::value::{ObjId, Value};
use crate::project::ClassRef;
use crate::source::Name;
use crate::types::{LocalType, TensorType, Tri};
use std::sync::Arc;

/// What an id stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Tensor(TensorType),
    List(ListCell),
    Dict(DictCell),
    Object(ObjectCell),
    /// A variable that nested functions share.
    Variable(Value),
}

/// A list or set. `rest` stands for further elements when their number is not known.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ListCell {
    pub items: Vec<Value>,
    pub rest: Option<Value>,
}

/// A dict, in order of insertion. `open`: it may have other keys, or keys that are not known.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct DictCell {
    pub entries: Vec<(Value, Value)>,
    pub open: bool,
}

/// An instance of a class (of the project, or an external one by path).
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectCell {
    pub class: ObjectClass,
    /// The name under which unknown attributes are known: `self`.
    pub path: Name,
    pub attrs: Vec<(Name, Value)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ObjectClass {
    Project(ClassRef),
    /// An instance of an external class, by qualified path.
    External(Name),
}

impl ObjectCell {
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.attrs.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }
    pub fn set(&mut self, name: &Name, value: Value) {
        match self.attrs.iter_mut().find(|(n, _)| n == name) {
            Some((_, v)) => *v = value,
            None => self.attrs.push((name.clone(), value)),
        }
    }
}

impl DictCell {
    pub fn get(&self, key: &Value) -> Option<&Value> {
        self.entries.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }
    pub fn set(&mut self, key: Value, value: Value) {
        match self.entries.iter_mut().find(|(k, _)| *k == key) {
            Some((_, v)) => *v = value,
            None => self.entries.push((key, value)),
        }
    }
}

/// Cells by id; a clone shares everything until it writes.
#[derive(Clone, Debug, Default)]
pub struct Heap {
    cells: imbl::OrdMap<ObjId, Arc<Cell>>,
}

impl Heap {
    pub fn insert(&mut self, id: ObjId, cell: Cell) {
        self.cells.insert(id, Arc::new(cell));
    }
    pub fn get(&self, id: ObjId) -> Option<&Cell> {
        self.cells.get(&id).map(Arc::as_ref)
    }
    pub fn get_mut(&mut self, id: ObjId) -> Option<&mut Cell> {
        self.cells.get_mut(&id).map(Arc::make_mut)
    }
    pub fn tensor(&self, id: ObjId) -> Option<&TensorType> {
        match self.get(id) {
            Some(Cell::Tensor(t)) => Some(t),
            _ => None,
        }
    }
    pub fn tensor_mut(&mut self, id: ObjId) -> Option<&mut TensorType> {
        match self.get_mut(id) {
            Some(Cell::Tensor(t)) => Some(t),
            _ => None,
        }
    }
    pub fn object(&self, id: ObjId) -> Option<&ObjectCell> {
        match self.get(id) {
            Some(Cell::Object(o)) => Some(o),
            _ => None,
        }
    }
    /// Forgets what is known of tensors that other methods may have changed since the constructor: all but parameters and what the
    /// source declares.
    pub fn forget_state(&mut self) {
        let mutable: Vec<ObjId> = self
            .cells
            .iter()
            .filter(|(_, cell)| match cell.as_ref() {
                Cell::Tensor(t) => t.grad != Tri::Yes && !t.local.listed().any(|(_, s)| s.is_declared()),
                _ => false,
            })
            .map(|(id, _)| *id)
            .collect();
        for id in mutable {
            if let Some(t) = self.tensor_mut(id) {
                t.local = LocalType::unknown();
                t.zero = false;
                t.untracked = true;
            }
        }
    }

    /// Ids whose cells differ, and ids that only the other heap has.
    pub fn differences(&self, other: &Heap) -> (Vec<ObjId>, Vec<(ObjId, Arc<Cell>)>) {
        let (mut changed, mut added) = (Vec::new(), Vec::new());
        for item in self.cells.diff(&other.cells) {
            match item {
                imbl::ordmap::DiffItem::Update { old, new } => {
                    if !Arc::ptr_eq(old.1, new.1) && old.1 != new.1 {
                        changed.push(*old.0);
                    }
                }
                imbl::ordmap::DiffItem::Add(id, cell) => added.push((*id, cell.clone())),
                imbl::ordmap::DiffItem::Remove(..) => {}
            }
        }
        (changed, added)
    }
    pub fn insert_shared(&mut self, id: ObjId, cell: Arc<Cell>) {
        self.cells.insert(id, cell);
    }
}
