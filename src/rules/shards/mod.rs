//! Where the split dim of an operand goes: shard propagation, one mesh axis at a time.
//!
//! In: an operation's rule, its arguments, and the shape and split dim of every tensor among them. Out: [`Placed`], what the result is
//! on the axis, or a [`Refusal`]: ranks that each hold a part of the operands cannot compute their part of the result alone.
//! Never: local types (`operator.rs`), words. A shape that is not known gives [`Placed::Unknown`].
//! Source: DESIGN.md section 8; the sharding strategies of torch 2.15 `torch.distributed.tensor._ops`, which
//! `tests/shard_propagation.rs` records. Next: `labels.rs` for notations, `views.rs` for operations that move elements.

mod labels;
mod views;
mod whole;

pub use whole::Whole;

use super::book::OpRule;
use super::shapes::{Given, ShapeRule};
use crate::types::{Dim, Shape};

/// A tensor among the arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// The parameter that it was given for.
    pub param: usize,
    /// The sizes on one rank. Where the rank is `unknown`: [`ASSUMED_RANK`] dims without sizes, those of the first half counted from
    /// the start, the others from the end; none if nothing may be assumed.
    pub shape: Shape,
    /// Nothing is known of the shape.
    pub unknown: bool,
    /// The dim that is split over the axis.
    pub shard: Option<usize>,
}

/// The rank of a tensor of which none is known, where one has to be assumed: more than any program counts.
pub const ASSUMED_RANK: usize = 16;

impl Piece {
    /// Whether the split dim is counted from the end of an unknown number.
    fn counts_from_end(&self) -> bool {
        self.unknown && self.shard.is_some_and(|d| d >= ASSUMED_RANK / 2)
    }
    /// Whether a dim may be broadcast: it has one element, all of which every rank has.
    fn broadcasts(&self, dim: usize) -> bool {
        self.shard != Some(dim) && self.shape.0.get(dim) == Some(&Some(1))
    }
    fn size(&self, dim: usize) -> Dim {
        self.shape.0.get(dim).copied().flatten()
    }
}

/// One part of a subscript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// An element: the dim goes.
    At,
    /// `:`
    Full,
    /// A slice that takes part of the dim.
    Part,
    /// `None`: a new dim.
    New,
    /// `...`
    Ellipsis,
    /// Anything else, a tensor of indices for one.
    Other,
}

/// One call.
pub struct ShardCall<'a> {
    pub rule: &'a OpRule,
    /// What was given for each parameter.
    pub given: &'a [Given],
    pub pieces: &'a [Piece],
    /// The subscript, of an indexing operation.
    pub index: &'a [Index],
    /// As the run-time checker of these types does it, which refuses some of what could be followed.
    pub runtime: bool,
}

/// What the result is on the axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Split on this dim.
    Split(usize),
    /// Split on this dim from the end, 1 for the last, of a tensor of unknown rank.
    FromEnd(usize),
    /// Every rank has all of it.
    Whole,
    /// Every rank has a term of the sum.
    Pending,
    /// Not followed.
    Unknown,
}

/// A reduction over ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reduction {
    Sum,
    Mean,
    Max,
    Min,
    Norm,
    Product,
}

impl Reduction {
    pub fn parse(text: &str) -> Option<Reduction> {
        Some(match text {
            "sum" => Reduction::Sum,
            "mean" => Reduction::Mean,
            "max" => Reduction::Max,
            "min" => Reduction::Min,
            "norm" => Reduction::Norm,
            "product" => Reduction::Product,
            _ => return None,
        })
    }
}

/// Why ranks cannot compute their part of the result from their part of the operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// The operation couples the elements along the split dim.
    Coupled,
    /// Another operand, by its place among the pieces, has the dim whole.
    OtherWhole(usize),
    /// Another operand is split on a dim that does not correspond.
    OtherSplit(usize),
    /// A contraction leaves a pending sum, to which every rank would add the same term.
    AddedTerm,
    /// The reduction over the ranks is none that a type says.
    Reduced(Reduction),
    /// What a rank has is not one piece of the result.
    Strided,
    /// The split dim is cut into several.
    CutApart,
    /// Only a part of the split dim is taken.
    Taken,
    /// The split dim is repeated.
    Repeated,
    /// Tensors are joined along the split dim.
    Joined,
}

/// What the result of a call is on an axis on which at least one piece is split.
///
/// # Errors
/// Why the parts do not make up a part of the result.
pub fn propagate(call: &ShardCall<'_>) -> Result<Placed, Refusal> {
    if call.pieces.iter().all(|p| p.shard.is_none()) {
        return Ok(Placed::Whole);
    }
    if call.runtime && call.pieces.iter().any(|p| p.unknown && p.shard.is_some()) {
        return Ok(Placed::Unknown);
    }
    if whole::couples(call) {
        return Err(Refusal::Coupled);
    }
    // The others say a dtype or a device.
    let others = |p: &&Piece| !call.rule.tensors.contains(&p.param);
    if call.rule.identity && call.pieces.iter().any(|p| others(&p)) {
        let pieces: Vec<Piece> = call.pieces.iter().filter(|p| !others(p)).cloned().collect();
        return propagate(&ShardCall { pieces: &pieces, ..*call });
    }
    if call.runtime && folds_batch(call) {
        return Err(Refusal::Strided);
    }
    if let ([first, rest @ ..], [Whole::LastOf(_)]) = (call.pieces, call.rule.whole.as_slice())
        && let Some(shard) = first.shard
        && rest.iter().all(|p| p.shard.is_none())
    {
        // A norm over the last dims: its weight and bias have no others.
        return Ok(if first.counts_from_end() { Placed::FromEnd(ASSUMED_RANK - shard) } else { Placed::Split(shard) });
    }
    if let Some(dims) = &call.rule.dims {
        return labels::by_notation(call, dims);
    }
    match call.rule.shape {
        ShapeRule::Same
        | ShapeRule::Broadcast
        | ShapeRule::Sort
        | ShapeRule::Topk
        | ShapeRule::Like
        | ShapeRule::SameRank
        | ShapeRule::LastDim
        | ShapeRule::OneHot => labels::elementwise(call),
        ShapeRule::ExpandAs if call.pieces.first().is_some_and(|p| p.shard.is_some()) => labels::elementwise(call),
        ShapeRule::ReduceOrBroadcast if call.pieces.len() > 1 => labels::elementwise(call),
        _ if call.pieces.iter().any(Piece::counts_from_end) => Ok(Placed::Unknown),
        ShapeRule::Reduce | ShapeRule::ReduceOrBroadcast | ShapeRule::Scalar => reduced(call),
        ShapeRule::Loss => loss(call),
        ShapeRule::ClassLoss if !call.runtime => class_loss(call),
        ShapeRule::Einsum => labels::by_equation(call),
        ShapeRule::Setitem => stored(call),
        ShapeRule::Matmul | ShapeRule::Mm | ShapeRule::Bmm | ShapeRule::Mv | ShapeRule::Dot | ShapeRule::Outer => {
            Ok(Placed::Unknown)
        }
        _ => views::moved(call),
    }
}

/// Whether a product folds a split batch dim of its right operand into another one: torch does so where the left one is a vector or a matrix.
fn folds_batch(call: &ShardCall<'_>) -> bool {
    match call.pieces {
        [left, right] if call.rule.shape == ShapeRule::Matmul && !left.unknown && !right.unknown => {
            let (one, other) = (left.shape.rank(), right.shape.rank());
            one <= 2 && other >= 3 && right.shard.is_some_and(|dim| dim + 2 < other)
        }
        _ => false,
    }
}

/// A reduction over some dims, or all of them.
fn reduced(call: &ShardCall<'_>) -> Result<Placed, Refusal> {
    let [piece] = call.pieces else { return Ok(Placed::Unknown) };
    let (Some(shard), rank) = (piece.shard, piece.shape.rank()) else { return Ok(Placed::Whole) };
    let Some(mut dims) = whole::dims_given(call, "dim", rank, true) else { return Ok(Placed::Unknown) };
    // The same dim twice is refused by torch.
    dims.sort_unstable();
    dims.dedup();
    if dims.contains(&shard) {
        return match call.rule.pending {
            Some(Reduction::Sum) => Ok(Placed::Pending),
            Some(other) => Err(Refusal::Reduced(other)),
            None => Err(Refusal::Coupled),
        };
    }
    match named(call, "keepdim") {
        Given::Bool(true) => Ok(Placed::Split(shard)),
        Given::Absent | Given::Bool(false) => Ok(Placed::Split(shard - dims.iter().filter(|d| **d < shard).count())),
        _ => Ok(Placed::Unknown),
    }
}

/// `x[index] = value`: the part that is written and the value are split alike.
fn stored(call: &ShardCall<'_>) -> Result<Placed, Refusal> {
    let Some(target) = call.pieces.first() else { return Ok(Placed::Unknown) };
    let part = match target.shard {
        Some(shard) => views::subscripted(call.index, target.shape.rank(), shard)?,
        None => Placed::Whole,
    };
    let kept = target.shard.map_or(Placed::Whole, Placed::Split);
    match (part, call.pieces.get(1).map(|v| (v.shard, v.shape.rank()))) {
        (Placed::Split(_), None) => Ok(kept),
        (Placed::Split(at), Some((Some(dim), _))) if at == dim => Ok(kept),
        (Placed::Split(_), Some((Some(_), _))) => Err(Refusal::OtherSplit(1)),
        (Placed::Split(at), Some((None, rank))) if at < rank => Err(Refusal::OtherWhole(1)),
        (Placed::Whole, Some((Some(_), _))) => Err(Refusal::OtherWhole(0)),
        _ => Ok(Placed::Unknown),
    }
}

/// A loss of terms that line up.
fn loss(call: &ShardCall<'_>) -> Result<Placed, Refusal> {
    let terms = labels::elementwise(call)?;
    match named(call, "reduction") {
        Given::Absent => Err(Refusal::Reduced(Reduction::Mean)),
        Given::Str(s) if s == "mean" => Err(Refusal::Reduced(Reduction::Mean)),
        Given::Str(s) if s == "sum" => Ok(Placed::Pending),
        Given::Str(s) if s == "none" => Ok(terms),
        _ => Ok(Placed::Unknown),
    }
}

/// A loss of class scores, whose first dim counts examples.
fn class_loss(call: &ShardCall<'_>) -> Result<Placed, Refusal> {
    let Some(Piece { shard: Some(0), .. }) = call.pieces.first() else { return Ok(Placed::Unknown) };
    match named(call, "reduction") {
        Given::Str(s) if s == "none" => Ok(Placed::Split(0)),
        Given::Str(s) if s == "sum" => Ok(Placed::Pending),
        Given::Absent | Given::Str(_) => Err(Refusal::Reduced(Reduction::Mean)),
        _ => Ok(Placed::Unknown),
    }
}

/// What was given for a parameter.
fn named<'a>(call: &ShardCall<'a>, name: &str) -> &'a Given {
    call.rule.args.index(name).and_then(|i| call.given.get(i)).unwrap_or(&Given::Absent)
}
