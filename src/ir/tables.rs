//! What a function keeps beside its statements: where they are, and its variables. In: what lowering adds, in order. Out: look-ups by id.
//! Never: removal. Half of a program's memory would be here if each statement and each temporary had an entry of its own on the heap.
//! Next: `mod.rs`.

use super::{Local, LocalId, LocalKind, StmtId};
use crate::source::{Idx, Name, Span};

/// Where the statements of a function and their parts are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spans {
    /// By statement: its span, and where its parts begin in `parts`; they end where those of the next one begin.
    all: Vec<(Span, u32)>,
    /// Operand spans of all statements, in the order of the operands of each (see [`super::Stmt`]).
    parts: Vec<Span>,
}

impl Spans {
    /// The expression or statement itself.
    #[inline]
    pub fn of(&self, id: StmtId) -> Span {
        self.all[id.index()].0
    }
    /// The same, if there is such a statement.
    pub fn get(&self, id: StmtId) -> Option<Span> {
        self.all.get(id.index()).map(|(span, _)| *span)
    }
    /// The parts of a statement; none if there is no such statement.
    pub fn parts(&self, id: StmtId) -> &[Span] {
        let starts = |at: usize| self.all.get(at).map(|(_, start)| *start as usize);
        match (starts(id.index()), starts(id.index() + 1)) {
            (Some(start), Some(end)) => &self.parts[start..end],
            (Some(start), None) => &self.parts[start..],
            (None, _) => &[],
        }
    }
    /// A part of a statement; the statement itself if there is no such part.
    pub fn part(&self, id: StmtId, index: usize) -> Span {
        self.parts(id).get(index).copied().unwrap_or_else(|| self.of(id))
    }
    /// The number of statements.
    pub fn len(&self) -> usize {
        self.all.len()
    }
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
    /// Adds the next statement.
    pub fn push(&mut self, span: Span, parts: &[Span]) -> StmtId {
        let start = u32::try_from(self.parts.len()).expect("a file has fewer than 2^32 bytes");
        self.all.push((span, start));
        self.parts.extend_from_slice(parts);
        StmtId::from_index(self.all.len() - 1)
    }
    /// Takes everything out, into memory without room for more.
    pub fn exact(&mut self) -> Spans {
        Spans { all: exact(&mut self.all), parts: exact(&mut self.parts) }
    }
}

/// The variables of a function. Temporaries after the last named one have no entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Locals {
    items: Vec<Local>,
    len: u32,
}

static TEMP: Local = Local { name: Name::new(), kind: LocalKind::Temp };

impl Locals {
    /// Adds the next variable.
    pub fn push(&mut self, local: Local) -> LocalId {
        let id = LocalId(self.len);
        self.len += 1;
        if local.kind != LocalKind::Temp {
            self.items.resize(id.index(), TEMP.clone());
            self.items.push(local);
        }
        id
    }
    pub fn len(&self) -> usize {
        self.len as usize
    }
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    pub fn get(&self, id: LocalId) -> Option<&Local> {
        (id.0 < self.len).then(|| self.items.get(id.index()).unwrap_or(&TEMP))
    }
    pub fn iter(&self) -> impl Iterator<Item = &Local> {
        self.items.iter().chain(std::iter::repeat_n(&TEMP, self.len() - self.items.len()))
    }
    pub fn iter_enumerated(&self) -> impl Iterator<Item = (LocalId, &Local)> {
        self.iter().enumerate().map(|(i, local)| (LocalId::from_index(i), local))
    }
    pub fn ids(&self) -> impl Iterator<Item = LocalId> + use<> {
        (0..self.len).map(LocalId)
    }
    /// Takes everything out, into memory without room for more.
    pub fn exact(&mut self) -> Locals {
        Locals { items: exact(&mut self.items), len: std::mem::take(&mut self.len) }
    }
}

impl std::ops::Index<LocalId> for Locals {
    type Output = Local;
    #[inline]
    fn index(&self, id: LocalId) -> &Local {
        self.items.get(id.index()).unwrap_or(&TEMP)
    }
}

impl std::ops::IndexMut<LocalId> for Locals {
    /// Only a named variable is changed after it was added.
    fn index_mut(&mut self, id: LocalId) -> &mut Local {
        &mut self.items[id.index()]
    }
}

fn exact<T>(items: &mut Vec<T>) -> Vec<T> {
    let mut out = Vec::with_capacity(items.len());
    out.append(items);
    out
}
