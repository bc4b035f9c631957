//! What a function keeps beside its statements: where they are, and its variables. In: what lowering adds, in order. Out: look-ups by id.
//! Never: removal. Half of a program's memory would be here if each statement and each temporary had an entry of its own on the heap.
//! Next: `mod.rs`.

use super::{Local, LocalId, LocalKind, StmtId};
use crate::source::{Idx, Name, Span};

/// Where the statements of a function and their parts are, while they are added.
#[derive(Clone, Debug, Default)]
pub struct SpansSoFar {
    /// By statement: its span, and where its parts begin in `parts`; they end where those of the next one begin.
    all: Vec<(Span, u32)>,
    /// Operand spans of all statements, in the order of the operands of each (see [`super::Stmt`]).
    parts: Vec<Span>,
}

impl SpansSoFar {
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
        let everywhere = || self.all.iter().map(|(span, _)| span).chain(&self.parts);
        let base = everywhere().map(|span| span.start).min().unwrap_or(0);
        let places = everywhere().map(|span| (span.start - base).max(span.len())).max().unwrap_or(0);
        let largest = self.all.last().map_or(0, |(_, at)| *at).max(places);
        let table = match u16::try_from(largest) {
            Ok(_) => Width::Narrow(Table::new(self, base)),
            Err(_) => Width::Wide(Table::new(self, base)),
        };
        self.all.clear();
        self.parts.clear();
        Spans { base, table }
    }
}

/// Where the statements of a function and their parts are.
#[derive(Clone, Debug, PartialEq)]
pub struct Spans {
    /// Places are counted from here.
    base: u32,
    table: Width,
}

/// Most functions are shorter than 64 kB.
#[derive(Clone, Debug, PartialEq)]
enum Width {
    Narrow(Table<u16>),
    Wide(Table<u32>),
}

/// Starts and lengths; of statements also where their parts begin.
#[derive(Clone, Debug, PartialEq)]
struct Table<N> {
    all: Box<[[N; 3]]>,
    parts: Box<[[N; 2]]>,
}

impl<N: TryFrom<u32> + Copy> Table<N> {
    /// Places counted from `base`, none of which is too large for the numbers.
    fn new(spans: &SpansSoFar, base: u32) -> Table<N> {
        let number = |n: u32| N::try_from(n).ok().expect("the width was chosen by the largest number");
        let of = |span: &Span| [number(span.start - base), number(span.len())];
        let one = |(span, at): &(Span, u32)| {
            let [start, len] = of(span);
            [start, len, number(*at)]
        };
        Table { all: spans.all.iter().map(one).collect(), parts: spans.parts.iter().map(of).collect() }
    }
}

impl<N: Into<u32> + Copy> Table<N> {
    fn get(&self, at: usize) -> Option<(u32, u32)> {
        self.all.get(at).map(|[start, len, _]| ((*start).into(), (*len).into()))
    }
    fn parts(&self, at: usize) -> &[[N; 2]] {
        let starts = |at: usize| self.all.get(at).map(|[_, _, start]| (*start).into() as usize);
        match (starts(at), starts(at + 1)) {
            (Some(start), Some(end)) => &self.parts[start..end],
            (Some(start), None) => &self.parts[start..],
            (None, _) => &[],
        }
    }
    fn part(&self, at: usize, index: usize) -> Option<(u32, u32)> {
        self.parts(at).get(index).map(|[start, len]| ((*start).into(), (*len).into()))
    }
}

impl Default for Spans {
    fn default() -> Spans {
        SpansSoFar::default().exact()
    }
}

impl Spans {
    /// The expression or statement itself.
    #[inline]
    pub fn of(&self, id: StmtId) -> Span {
        self.get(id).expect("a statement of this function")
    }
    /// The same, if there is such a statement.
    #[inline]
    pub fn get(&self, id: StmtId) -> Option<Span> {
        let found = match &self.table {
            Width::Narrow(table) => table.get(id.index()),
            Width::Wide(table) => table.get(id.index()),
        };
        found.map(|found| self.span(found))
    }
    /// The parts of a statement; none if there is no such statement.
    pub fn parts(&self, id: StmtId) -> impl Iterator<Item = Span> {
        (0..).map_while(move |index| self.nth(id, index))
    }
    /// A part of a statement; the statement itself if there is no such part.
    pub fn part(&self, id: StmtId, index: usize) -> Span {
        self.nth(id, index).unwrap_or_else(|| self.of(id))
    }
    /// The number of statements.
    pub fn len(&self) -> usize {
        match &self.table {
            Width::Narrow(table) => table.all.len(),
            Width::Wide(table) => table.all.len(),
        }
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Moves everything to a later place in a file.
    pub fn shift(&mut self, by: u32) {
        if !self.is_empty() {
            self.base += by;
        }
    }
    fn nth(&self, id: StmtId, index: usize) -> Option<Span> {
        let found = match &self.table {
            Width::Narrow(table) => table.part(id.index(), index),
            Width::Wide(table) => table.part(id.index(), index),
        };
        found.map(|found| self.span(found))
    }
    fn span(&self, (start, len): (u32, u32)) -> Span {
        Span::new(self.base + start, self.base + start + len)
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
    /// The variable of this name; a temporary has none.
    pub fn named(&self, name: &str) -> Option<LocalId> {
        let is_it = |local: &Local| local.kind != LocalKind::Temp && local.name == name;
        self.items.iter().position(is_it).map(LocalId::from_index)
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
