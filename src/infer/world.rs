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
    /// Inside `no_typecheck()`: nothing is judged, and what operations give has no type.
    pub unchecked: bool,
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
        Modes { typecheck: None, unchecked: false, global: false, mesh: None, grad: true, ranks: AxisSet::default() }
    }
}

impl Modes {
    /// From here on nothing is checked.
    pub fn forget_checking(&mut self) {
        (self.typecheck, self.unchecked) = (None, true);
    }
}

/// Variables that are copied together when a world writes one of them.
const CHUNK: usize = 4;

type Chunk = Arc<[Value; CHUNK]>;

/// Chunks that are copied together, in a function with more variables than that.
const PAGE: usize = 64;

/// The chunks of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Chunks {
    Few(Vec<Chunk>),
    Many(Vec<Arc<Vec<Chunk>>>),
}

impl Chunks {
    fn page(&self, at: usize) -> Option<&[Chunk]> {
        match self {
            Chunks::Few(page) => (at == 0).then_some(page),
            Chunks::Many(pages) => pages.get(at).map(|page| page.as_slice()),
        }
    }
    fn page_mut(&mut self, at: usize) -> &mut [Chunk] {
        match self {
            Chunks::Few(page) => page,
            Chunks::Many(pages) => Arc::make_mut(&mut pages[at]).as_mut_slice(),
        }
    }
    fn pages(&self) -> impl Iterator<Item = &[Chunk]> {
        (0..).map_while(|at| self.page(at))
    }
}

/// The local variables of one activation. Worlds share the chunks that neither of them wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub func: FuncRef,
    chunks: Arc<Chunks>,
}

impl Frame {
    pub fn new(func: FuncRef, n_locals: usize) -> Frame {
        let empty: Chunk = Arc::new([const { Value::Unset }; CHUNK]);
        let n = n_locals.div_ceil(CHUNK);
        let page = |n: usize| vec![empty.clone(); n];
        let chunks = match n {
            0..=PAGE => Chunks::Few(page(n)),
            _ => Chunks::Many((0..n).step_by(PAGE).map(|at| Arc::new(page(PAGE.min(n - at)))).collect()),
        };
        Frame { func, chunks: Arc::new(chunks) }
    }
    pub fn get(&self, local: LocalId) -> &Value {
        let at = local.index() / CHUNK;
        let chunk = match self.chunks.as_ref() {
            Chunks::Few(page) => &page[at],
            Chunks::Many(pages) => &pages[at / PAGE][at % PAGE],
        };
        &chunk[local.index() % CHUNK]
    }
    pub fn set(&mut self, local: LocalId, value: Value) {
        let at = local.index() / CHUNK;
        let chunk = match Arc::make_mut(&mut self.chunks) {
            Chunks::Few(page) => &mut page[at],
            Chunks::Many(pages) => &mut Arc::make_mut(&mut pages[at / PAGE])[at % PAGE],
        };
        Arc::make_mut(chunk)[local.index() % CHUNK] = value;
    }
    /// The value of every variable, and unset ones at the end.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.chunks.pages().flatten().flat_map(|chunk| chunk.iter())
    }
    /// How many values that may be.
    pub fn size(&self) -> usize {
        self.chunks.pages().map(<[Chunk]>::len).sum::<usize>() * CHUNK
    }
    /// Takes the variables that only another frame of the function has set. Chunks of which nothing is set here are shared with it.
    pub fn complete(&mut self, other: &Frame) {
        if Arc::ptr_eq(&self.chunks, &other.chunks) {
            return;
        }
        for (at, theirs) in other.chunks.pages().enumerate() {
            if self.chunks.page(at).is_some_and(|mine| !std::ptr::eq(mine, theirs)) {
                self.complete_page(at, theirs);
            }
        }
    }
    fn complete_page(&mut self, at: usize, theirs: &[Chunk]) {
        let lacks = |(x, y): (&Value, &Value)| matches!(x, Value::Unset) && !matches!(y, Value::Unset);
        for (i, theirs) in theirs.iter().enumerate() {
            let Some(mine) = self.chunks.page(at).and_then(|page| page.get(i)) else { return };
            if Arc::ptr_eq(mine, theirs) || !mine.iter().zip(theirs.iter()).any(lacks) {
                continue;
            }
            let empty = mine.iter().all(|value| matches!(value, Value::Unset));
            let mine = &mut Arc::make_mut(&mut self.chunks).page_mut(at)[i];
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
        let n = if Arc::ptr_eq(&self.chunks, &other.chunks) { 0 } else { usize::MAX };
        let pages = self.chunks.pages().zip(other.chunks.pages()).take(n).enumerate();
        pages.filter(|(_, (mine, theirs))| !std::ptr::eq(*mine, *theirs)).flat_map(|(at, (mine, theirs))| {
            let chunks = mine.iter().zip(theirs).enumerate();
            chunks.filter(|(_, (mine, theirs))| !Arc::ptr_eq(mine, theirs)).flat_map(move |(i, (mine, theirs))| {
                let first = (at * PAGE + i) * CHUNK;
                let set = |x: &Value, y: &Value| !matches!(x, Value::Unset) && !matches!(y, Value::Unset);
                let values = mine.iter().zip(theirs.iter()).enumerate();
                let differ = values.filter(move |(_, (x, y))| set(x, y) && x != y);
                differ.map(move |(j, (x, y))| (LocalId::from_index(first + j), x, y))
            })
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
