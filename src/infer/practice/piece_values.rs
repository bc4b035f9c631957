//! What the values of a softmax are whose dim is split over ranks, as data. In: nothing. Out: [`Value`], [`Piece`]. Never: how they come about.
//! Next: `piece_flow.rs`, which follows them, and `hand_softmax.rs`, which judges them.

use super::pieces::What;
use crate::ir::{BinOp, CmpOp, Const};
use crate::project::FuncRef;
use crate::source::{Name, Place};
use smallvec::SmallVec;

/// An object: variables that are views of one another hold the same.
pub type CellId = usize;
pub type PieceId = usize;

/// How far two values are compared part by part.
const MOST_DEPTH: usize = 6;

/// What has been done to the numbers along the split dim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    Plain,
    Exponentials,
    /// The logarithm of this sum was taken off.
    LogShares(PieceId),
}

/// Numbers along the split dim. `of`: what they were at first; `by`: the largest that was taken off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    pub of: CellId,
    pub by: Option<PieceId>,
    pub form: Form,
}

/// The entries at places from the first one of a part on; places of other parts are not told apart yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Picked {
    pub row: Row,
    pub places: Places,
}

/// `target - first`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Places {
    pub target: CellId,
    pub first: CellId,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing is known but that it is itself.
    Fresh,
    Const(Const),
    Zeros,
    /// An attribute.
    Member(CellId, Name),
    Arith(BinOp, CellId, CellId),
    Compare(CmpOp, CellId, CellId),
    Row(Row),
    /// What a maximum along a dim returns: with the places.
    Largest(PieceId),
    Piece(PieceId),
    /// The logarithm of a sum.
    Log(PieceId),
    /// An entry less the largest.
    Less(PieceId),
    Places(Places),
    Mask {
        places: Places,
        inside: bool,
    },
    Picked(Picked),
    Tuple(Vec<CellId>),
    /// Several in one tensor.
    Pack(Vec<CellId>),
}

#[derive(Clone, Debug)]
pub struct Cell {
    pub value: Value,
    /// What it was computed from in a way that is not followed.
    pub from: SmallVec<[PieceId; 2]>,
}

/// A test around a step, as it is written, and whether it holds there.
pub type Tests = Vec<(String, bool)>;

/// What a reduction does.
#[derive(Clone, Debug, PartialEq)]
pub enum Does {
    Sum,
    Largest,
    Other(Name),
    Unknown,
}

/// Over which ranks.
#[derive(Clone, Debug, PartialEq)]
pub enum Over {
    All,
    Axes(Vec<Name>),
    Unknown,
}

/// A collective that a piece was given to.
#[derive(Clone, Debug)]
pub struct Reduced {
    pub at: Place,
    /// The function that calls it.
    pub within: FuncRef,
    pub does: Does,
    pub over: Over,
    pub tests: Tests,
}

/// Where a piece is taken for that of all ranks.
#[derive(Clone, Debug)]
pub struct Used {
    pub at: Place,
    pub within: FuncRef,
    pub tests: Tests,
}

/// A number for each row, of one rank's part at first.
#[derive(Clone, Debug)]
pub struct Piece {
    pub what: What,
    pub row: Row,
    pub name: Option<Name>,
    pub made: Place,
    pub reduced: Vec<Reduced>,
    pub used: Vec<Used>,
    /// Something that is not followed has it, or anything made of it.
    pub is_told: bool,
}

/// The comparison with sides swapped.
fn flipped(op: CmpOp) -> CmpOp {
    match op {
        CmpOp::Lt => CmpOp::Gt,
        CmpOp::Le => CmpOp::Ge,
        CmpOp::Gt => CmpOp::Lt,
        CmpOp::Ge => CmpOp::Le,
        other => other,
    }
}

/// The places that two comparisons tell apart from all others: `(t < first) | (t >= last)`, and `(t >= first) & (t < last)` (`inside`).
pub fn bounds(cells: &[Cell], a: CellId, b: CellId, inside: bool) -> Option<Places> {
    let ways = |cell: CellId| match cells[cell].value {
        Value::Compare(op, l, r) => vec![(l, op, r), (r, flipped(op), l)],
        _ => Vec::new(),
    };
    let below = |op: CmpOp| matches!(op, CmpOp::Lt | CmpOp::Le);
    let above = |op: CmpOp| matches!(op, CmpOp::Gt | CmpOp::Ge);
    for (target, op, bound) in ways(a) {
        for (other, then, last) in ways(b) {
            if !is_same(cells, target, other, 0) {
                continue;
            }
            let first = match (op, then) {
                (op, then) if below(op) && above(then) => (bound, last),
                (op, then) if above(op) && below(then) => (last, bound),
                _ => continue,
            };
            return Some(Places { target, first: if inside { first.1 } else { first.0 } });
        }
    }
    None
}

/// What a cell holds, as numbers along a dim, if it is nothing else.
pub fn row(cells: &[Cell], cell: CellId) -> Option<Row> {
    match cells[cell].value {
        Value::Row(row) => Some(row),
        Value::Fresh | Value::Places(_) | Value::Arith(..) | Value::Member(..) => {
            Some(Row { of: cell, by: None, form: Form::Plain })
        }
        _ => None,
    }
}

/// What a cell is a copy of.
pub fn origin(cells: &[Cell], cell: CellId) -> CellId {
    match cells[cell].value {
        Value::Row(Row { of, by: None, form: Form::Plain }) => of,
        _ => cell,
    }
}

/// Whether two cells hold the same number.
pub fn is_same(cells: &[Cell], a: CellId, b: CellId, depth: usize) -> bool {
    let (a, b) = (origin(cells, a), origin(cells, b));
    let deeper = |a: CellId, b: CellId| is_same(cells, a, b, depth + 1);
    a == b
        || depth < MOST_DEPTH
            && match (&cells[a].value, &cells[b].value) {
                (Value::Const(x), Value::Const(y)) => x == y,
                (Value::Member(x, name), Value::Member(y, other)) => name == other && deeper(*x, *y),
                (Value::Arith(op, x, y), Value::Arith(other, v, w)) => op == other && deeper(*x, *v) && deeper(*y, *w),
                (Value::Places(x), Value::Places(y)) => deeper(x.target, y.target) && deeper(x.first, y.first),
                _ => false,
            }
}
