//! A world: one path through the program, with what it knows of flags. In: heaps, frames. Out: [`World`], equality and join of worlds.
//! Never: execution. Source: DESIGN.md section 5. Next: `join.rs`, `exec.rs`.

use super::formula::Facts;
use super::heap::Heap;
use super::value::{ObjId, Value};
use crate::ir::LocalId;
use crate::project::FuncRef;
use crate::source::{Idx, Name};
use crate::types::{AxisSet, Mesh};
use std::sync::Arc;

/// The checker of the run-time tool, as set by enclosing `with` blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modes {
    /// Inside `typecheck()`: whether a missing axis is an error.
    pub typecheck: Option<bool>,
    /// Inside `typecheck(local=False)`.
    pub global: bool,
    /// The mesh in force.
    pub mesh: Option<Arc<Mesh>>,
    /// Whether gradients are recorded.
    pub grad: bool,
    /// Axes some of whose ranks have left the function by an early return.
    pub ranks: AxisSet,
}

impl Default for Modes {
    fn default() -> Self {
        Modes { typecheck: None, global: false, mesh: None, grad: true, ranks: AxisSet::default() }
    }
}

/// Variables that are copied together when a world writes one of them.
const CHUNK: usize = 8;

type Chunk = Arc<[Value; CHUNK]>;

/// The local variables of one activation. Worlds share the chunks that neither of them wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub func: FuncRef,
    chunks: Arc<Vec<Chunk>>,
}

impl Frame {
    pub fn new(func: FuncRef, n_locals: usize) -> Frame {
        let empty: Chunk = Arc::new([const { Value::Unset }; CHUNK]);
        Frame { func, chunks: Arc::new(vec![empty; n_locals.div_ceil(CHUNK)]) }
    }
    pub fn get(&self, local: LocalId) -> &Value {
        &self.chunks[local.index() / CHUNK][local.index() % CHUNK]
    }
    pub fn set(&mut self, local: LocalId, value: Value) {
        let chunk = &mut Arc::make_mut(&mut self.chunks)[local.index() / CHUNK];
        Arc::make_mut(chunk)[local.index() % CHUNK] = value;
    }
    /// The value of every variable, and unset ones at the end.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }
    /// Takes the variables that only another frame of the function has set. Chunks of which nothing is set here are shared with it.
    pub fn complete(&mut self, other: &Frame) {
        if Arc::ptr_eq(&self.chunks, &other.chunks) {
            return;
        }
        for (i, theirs) in other.chunks.iter().enumerate() {
            let Some(mine) = self.chunks.get(i).filter(|mine| !Arc::ptr_eq(mine, theirs)) else { continue };
            let lacks = |(x, y): (&Value, &Value)| matches!(x, Value::Unset) && !matches!(y, Value::Unset);
            if !mine.iter().zip(theirs.iter()).any(lacks) {
                continue;
            }
            let empty = mine.iter().all(|value| matches!(value, Value::Unset));
            let mine = &mut Arc::make_mut(&mut self.chunks)[i];
            if empty {
                *mine = theirs.clone();
                continue;
            }
            for (value, other) in Arc::make_mut(mine).iter_mut().zip(theirs.iter()) {
                if matches!(value, Value::Unset) {
                    value.clone_from(other);
                }
            }
        }
    }
    /// Variables that are set here and in another frame of the function, but not to the same values.
    pub fn differing<'a>(&'a self, other: &'a Frame) -> impl Iterator<Item = (LocalId, &'a Value, &'a Value)> {
        let n = if Arc::ptr_eq(&self.chunks, &other.chunks) { 0 } else { self.chunks.len() };
        let pairs = self.chunks.iter().zip(other.chunks.iter()).take(n).enumerate();
        pairs.filter(|(_, (mine, theirs))| !Arc::ptr_eq(mine, theirs)).flat_map(|(i, (mine, theirs))| {
            let values = mine.iter().zip(theirs.iter()).enumerate();
            let differ = |x: &Value, y: &Value| !matches!(x, Value::Unset) && !matches!(y, Value::Unset) && x != y;
            values
                .filter(move |(_, (x, y))| differ(x, y))
                .map(move |(j, (x, y))| (LocalId::from_index(i * CHUNK + j), x, y))
        })
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
