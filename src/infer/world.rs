//! A world: one path through the program, with what it knows of flags. In: heaps, frames. Out: [`World`], equality and join of worlds.
//! Never: execution. Source: DESIGN.md section 5. Next: `join.rs`, `exec.rs`.

use super::formula::Facts;
use super::heap::Heap;
use super::value::{ObjId, Value};
use crate::ir::LocalId;
use crate::project::FuncRef;
use crate::source::{Idx, Name};
use crate::types::Mesh;
use std::sync::Arc;

/// The checker of the run-time tool, as set by enclosing `with` blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Modes {
    /// Inside `typecheck()`: whether a missing axis is an error.
    pub typecheck: Option<bool>,
    /// Inside `typecheck(local=False)`.
    pub global: bool,
    /// The mesh in force.
    pub mesh: Option<Arc<Mesh>>,
    /// Whether gradients are recorded.
    pub grad: bool,
}

impl Default for Modes {
    fn default() -> Self {
        Modes { typecheck: None, global: false, mesh: None, grad: true }
    }
}

/// The local variables of one activation.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    pub func: FuncRef,
    locals: Arc<Vec<Value>>,
}

impl Frame {
    pub fn new(func: FuncRef, n_locals: usize) -> Frame {
        Frame { func, locals: Arc::new(vec![Value::Unset; n_locals]) }
    }
    pub fn get(&self, local: LocalId) -> &Value {
        &self.locals[local.index()]
    }
    pub fn set(&mut self, local: LocalId, value: Value) {
        Arc::make_mut(&mut self.locals)[local.index()] = value;
    }
    pub fn locals(&self) -> &[Value] {
        &self.locals
    }
    pub fn shares(&self, other: &Frame) -> bool {
        Arc::ptr_eq(&self.locals, &other.locals)
    }
    pub fn replace(&mut self, locals: Vec<Value>) {
        self.locals = Arc::new(locals);
    }
}

/// One path through the program.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub facts: Facts,
    pub heap: Heap,
    pub frames: Vec<Frame>,
    /// Tensors that unknown values turned out to be, by path.
    pub symbols: imbl::OrdMap<Name, ObjId>,
    pub modes: Modes,
}

impl World {
    pub fn frame(&self) -> &Frame {
        self.frames.last().expect("a world in execution has a frame")
    }
    pub fn frame_mut(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("a world in execution has a frame")
    }
}

/// How a block or statement ends on one path.
#[derive(Clone, Debug, PartialEq)]
pub enum Flow {
    Next,
    Return(Value),
    Break,
    Continue,
    Raise,
}

/// A world and how it left the block.
#[derive(Clone, Debug)]
pub struct Path {
    pub world: World,
    pub flow: Flow,
}
