//! The heap of a world: tensors, lists, dicts, objects and captured variables by id. In: cells. Out: cells, shared between worlds
//! until one of them writes. Never: garbage collection; a root is short. Next: `world.rs`.

use super::limits::MAX_DICT;
use super::trie::IdMap;
use super::value::{ObjId, Value};
use crate::project::ClassRef;
use crate::source::{Name, Place};
use crate::types::{LocalType, TensorType, Tri};
use std::sync::Arc;

/// What an id stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    Tensor(TensorType),
    List(ListCell),
    Dict(DictCell),
    Object(ObjectCell),
    /// A variable that nested functions share.
    Variable(Value),
}

/// A list or set. `rest` stands for further elements when their number is not known.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ListCell {
    pub items: Vec<Value>,
    pub rest: Option<Value>,
}

/// A dict, in order of insertion. `rest`: what it holds under keys that are not known, where it may have some; `Unknown`: anything.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DictCell {
    pub entries: Vec<(Value, Value)>,
    pub rest: Option<Value>,
}

/// An instance of a class (of the project, or an external one by path).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectCell {
    pub class: ObjectClass,
    /// The name under which unknown attributes are known: `self`.
    pub path: Name,
    pub attrs: Vec<(Name, Value)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
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
        let has_room = self.entries.len() < MAX_DICT;
        match self.entries.iter_mut().find(|(k, _)| *k == key) {
            Some((_, v)) => *v = value,
            None if has_room => self.entries.push((key, value)),
            None => self.open(),
        }
    }

    /// It may have other keys, or keys that are not known.
    pub fn open(&mut self) {
        self.rest = Some(Value::Unknown);
    }

    pub fn is_open(&self) -> bool {
        self.rest.is_some()
    }

    /// Takes over the entries of another one.
    pub fn extend(&mut self, other: DictCell) {
        if other.is_open() {
            self.open();
        }
        for (key, value) in other.entries {
            self.set(key, value);
        }
    }
}

/// A cell that worlds share. Equal only if it is the same one: a look for differences passes over what is shared without reading it.
#[derive(Clone, Debug)]
pub struct SharedCell(Arc<Cell>);

impl Eq for SharedCell {}

impl PartialEq for SharedCell {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Cells by id; a clone shares everything until it writes.
#[derive(Clone, Debug, Default)]
pub struct Heap {
    cells: IdMap<SharedCell>,
}

impl Heap {
    pub fn insert(&mut self, id: ObjId, cell: Cell) {
        self.cells.insert(id.0, SharedCell(Arc::new(cell)));
    }
    pub fn get(&self, id: ObjId) -> Option<&Cell> {
        self.cells.get(id.0).map(|cell| cell.0.as_ref())
    }
    pub fn get_mut(&mut self, id: ObjId) -> Option<&mut Cell> {
        self.cells.get_mut(id.0).map(|cell| Arc::make_mut(&mut cell.0))
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
        let mut mutable: Vec<ObjId> = Vec::new();
        self.cells.for_each(&mut |id, cell| {
            if let Cell::Tensor(t) = cell.0.as_ref()
                && t.grad != Tri::Yes
                && !t.local.listed().any(|(_, s)| s.is_declared())
            {
                mutable.push(ObjId(id));
            }
        });
        for id in mutable {
            if let Some(t) = self.tensor_mut(id) {
                t.local = LocalType::unknown();
                t.zero = false;
                t.untracked = true;
            }
        }
    }

    /// The tensors that were made as parameters at a place.
    pub fn made_at(&self, home: Place) -> Vec<ObjId> {
        let mut out = Vec::new();
        self.cells.for_each(&mut |id, cell| {
            if matches!(cell.0.as_ref(), Cell::Tensor(t) if t.home == Some(home)) {
                out.push(ObjId(id));
            }
        });
        out
    }

    /// Whether something holds of every cell.
    pub fn all(&self, holds: &mut dyn FnMut(&Cell) -> bool) -> bool {
        let mut all = true;
        self.cells.for_each(&mut |_, cell| all = all && holds(cell.0.as_ref()));
        all
    }

    /// Ids whose cells differ; those that only one of the heaps has are not among them.
    pub fn changes(&self, other: &Heap) -> Vec<ObjId> {
        let mut out = Vec::new();
        self.cells.changes(&other.cells, &mut |id, mine, theirs| {
            if *mine.0 != *theirs.0 {
                out.push(ObjId(id));
            }
        });
        out
    }
    /// Takes the cells that only another heap has.
    pub fn complete(&mut self, other: &Heap) {
        self.cells.complete(&other.cells);
    }
}
