//! What is known at one point of a program: variables of the calls under way, tensors, the mode. In: values. Out: [`State`], and the
//! join of two. Never: evaluation. Next: `exec.rs`.

use super::super::shared::Shared;
use super::value::{Id, Note, Tensor, Val};
use crate::ir::LocalId;
use crate::project::FuncRef;
use crate::rules::ModuleRule;
use crate::source::{Name, Place};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::hash::Hash;
use std::rc::Rc;
use std::sync::Arc;

/// A map that states have in common until one of them changes it.
pub type Map<K, V> = Shared<FxHashMap<K, V>>;

/// The variables of one call.
#[derive(Clone, Debug)]
pub struct Frame {
    pub at: FuncRef,
    pub locals: Map<LocalId, Val>,
}

/// A module of torch: its rule, the arguments of its constructor by parameter, and the parameters that were asked for.
#[derive(Clone, Debug)]
pub struct Layer {
    pub rule: Arc<ModuleRule>,
    pub args: FxHashMap<Name, Val>,
    pub made: Place,
    pub params: FxHashMap<Name, Id>,
}

/// Whether annotations are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    No,
    Yes,
    Unknown,
}

#[derive(Clone, Debug)]
pub struct State {
    pub frames: Vec<Frame>,
    pub tensors: Map<Id, Tensor>,
    pub layers: Map<Id, Layer>,
    pub objects: Map<Id, Map<Name, Val>>,
    pub global_mesh: Val,
    pub mode: Mode,
    /// The first tensor on a device, made while the mode was off.
    pub early: Option<Place>,
    /// Meshes that a variable held before branches met and did not agree; shared by all states of a run.
    pub lost: Rc<RefCell<BTreeSet<Id>>>,
}

impl State {
    pub fn new() -> State {
        State {
            frames: Vec::new(),
            tensors: Shared::default(),
            layers: Shared::default(),
            objects: Shared::default(),
            global_mesh: Val::Unknown,
            mode: Mode::Unknown,
            early: None,
            lost: Rc::default(),
        }
    }

    pub fn get(&self, local: LocalId) -> Option<&Val> {
        self.frames.last()?.locals.get(&local)
    }

    pub fn set(&mut self, local: LocalId, value: Val) {
        if let Some(frame) = self.frames.last_mut() {
            frame.locals.insert(local, value);
        }
    }

    /// What holds in both: the other one is a state of the same calls.
    pub fn join(mut self, other: State) -> State {
        for (mine, theirs) in self.frames.iter_mut().zip(&other.frames) {
            if mine.locals != theirs.locals {
                agree(&mut mine.locals, &theirs.locals, &self.lost);
            }
        }
        if !self.objects.is(&other.objects) {
            for (id, object) in self.objects.iter_mut() {
                if let Some(theirs) = other.objects.get(id).filter(|theirs| object != *theirs) {
                    agree(object, theirs, &self.lost);
                }
            }
            for (id, theirs) in other.objects.iter() {
                self.objects.entry(*id).or_insert_with(|| theirs.clone());
            }
        }
        if !self.tensors.is(&other.tensors) {
            self.join_tensors(&other.tensors);
        }
        if !self.layers.is(&other.layers) {
            for (id, theirs) in other.layers.iter() {
                match self.layers.get_mut(id) {
                    Some(mine) => mine.params.extend(theirs.params.iter().map(|(name, id)| (name.clone(), *id))),
                    None => {
                        self.layers.insert(*id, theirs.clone());
                    }
                }
            }
        }
        if self.global_mesh != other.global_mesh {
            self.global_mesh = Val::Unknown;
        }
        if self.mode != other.mode {
            self.mode = Mode::Unknown;
        }
        self.early = self.early.filter(|e| other.early == Some(*e));
        self
    }

    fn join_tensors(&mut self, other: &FxHashMap<Id, Tensor>) {
        for (id, theirs) in other {
            match self.tensors.get(id) {
                Some(mine) if mine == theirs => continue,
                Some(_) => {}
                None => {
                    self.tensors.insert(*id, theirs.clone());
                    continue;
                }
            }
            let Some(mine) = self.tensors.get_mut(id) else { continue };
            if mine.note != theirs.note {
                mine.note = Note::Unknown;
            }
            if mine.shape != theirs.shape {
                mine.shape = None;
            }
            if mine.manual != theirs.manual {
                mine.manual = super::value::Manual::Unknown;
            }
        }
    }

    /// Something unknown may have been done to a value: to its annotations, its attributes, its elements.
    pub fn touch(&mut self, value: &Val, depth: usize) {
        if depth > 6 {
            return;
        }
        match value {
            Val::Tensor(id) => {
                if let Some(t) = self.tensors.get_mut(id) {
                    t.note = Note::Unknown;
                }
            }
            Val::Layer(id) => {
                let params: Vec<Id> =
                    self.layers.get(id).map_or_else(Vec::new, |l| l.params.values().copied().collect());
                for id in params {
                    self.touch(&Val::Tensor(id), depth + 1);
                }
            }
            Val::Object(id) => {
                let held: Vec<Val> =
                    self.objects.get_mut(id).map_or_else(Vec::new, |o| o.drain().map(|(_, v)| v).collect());
                for v in held {
                    self.touch(&v, depth + 1);
                }
            }
            Val::Tuple(items) => items.iter().for_each(|i| self.touch(i, depth + 1)),
            Val::List(items) => {
                items.iter().for_each(|i| self.touch(i, depth + 1));
                self.forget_list(value);
            }
            _ => {}
        }
    }

    /// A list changed: no variable that may be it is known.
    pub fn forget_list(&mut self, list: &Val) {
        for frame in self.frames.iter_mut().filter(|frame| holds(&frame.locals, list)) {
            for value in frame.locals.values_mut() {
                if value == list {
                    *value = Val::Unknown;
                }
            }
        }
        if self.objects.values().any(|object| holds(object, list)) {
            for object in self.objects.values_mut().filter(|object| holds(object, list)) {
                object.retain(|_, v| v != list);
            }
        }
    }
}

fn holds<K>(map: &FxHashMap<K, Val>, wanted: &Val) -> bool {
    map.values().any(|value| value == wanted)
}

/// Keeps what two maps agree about.
fn agree<K: Eq + Hash>(mine: &mut FxHashMap<K, Val>, theirs: &FxHashMap<K, Val>, lost: &RefCell<BTreeSet<Id>>) {
    let drop = |value: &Val| {
        if let Val::Mesh(mesh) = value {
            lost.borrow_mut().insert(mesh.id);
        }
    };
    for (key, value) in theirs {
        if mine.get(key) != Some(value) {
            drop(value);
        }
    }
    mine.retain(|key, value| {
        let kept = theirs.get(key) == Some(value);
        if !kept {
            drop(value);
        }
        kept
    });
}
