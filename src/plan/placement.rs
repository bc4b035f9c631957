//! How a tensor lies on one dim of a mesh. In: nothing. Out: [`Placement`], printed as the run time prints it.
//! Never: text of the user, which is [`super::parse`]. Next: `order.rs`.

use std::fmt;

/// One placement, its tensor dim already counted from the front.
///
/// Source: torch 2.15, `torch/distributed/tensor/placement_types.py`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    Replicate,
    /// `Shard(dim)`: the rank holds one chunk of a tensor dim, as `torch.chunk` cuts it.
    Shard(usize),
    /// `_StridedShard(dim, split_factor)`: the dim is cut into `split` pieces first, and each piece into chunks.
    Strided {
        dim: usize,
        split: u64,
    },
    Partial(ReduceOp),
}

/// The pending reduction of a `Partial`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReduceOp {
    Sum,
    Avg,
    Min,
    Max,
    Product,
    BitAnd,
    BitOr,
    BitXor,
}

impl ReduceOp {
    pub const ALL: [ReduceOp; 8] = [
        ReduceOp::Sum,
        ReduceOp::Avg,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::Product,
        ReduceOp::BitAnd,
        ReduceOp::BitOr,
        ReduceOp::BitXor,
    ];

    /// The run time's word for it.
    pub fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Avg => "avg",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Product => "product",
            ReduceOp::BitAnd => "band",
            ReduceOp::BitOr => "bor",
            ReduceOp::BitXor => "bxor",
        }
    }
}

impl Placement {
    /// The tensor dim of a `Shard` or `_StridedShard`: `_is_shard_like`.
    pub fn shard_dim(self) -> Option<usize> {
        match self {
            Placement::Shard(dim) | Placement::Strided { dim, .. } => Some(dim),
            Placement::Replicate | Placement::Partial(_) => None,
        }
    }

    pub fn reduce_op(self) -> Option<ReduceOp> {
        match self {
            Placement::Partial(op) => Some(op),
            _ => None,
        }
    }

    pub fn is_partial(self) -> bool {
        self.reduce_op().is_some()
    }

    pub fn is_strided(self) -> bool {
        matches!(self, Placement::Strided { .. })
    }
}

/// As `str(placement)` of the run time: `R`, `S(0)`, `_S(0, 2)`, `P(sum)`.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Replicate => write!(f, "R"),
            Placement::Shard(dim) => write!(f, "S({dim})"),
            Placement::Strided { dim, split } => write!(f, "_S({dim}, {split})"),
            Placement::Partial(op) => write!(f, "P({})", op.name()),
        }
    }
}
