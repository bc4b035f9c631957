//! Ranks and sizes of tensors, where the source shows them. In: sizes. Out: [`Shape`]: sizes by dim, each known or not.
//! Never: symbolic arithmetic; a size that is not a constant is unknown. Next: `rules/shapes.rs`.

/// A size: a constant, or unknown.
pub type Dim = Option<i64>;

/// Sizes by dim; the length is the rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape(pub Vec<Dim>);

impl Shape {
    pub fn rank(&self) -> usize {
        self.0.len()
    }
    /// A dim from 0, from one that may be negative; none if out of range.
    pub fn dim(&self, dim: i64) -> Option<usize> {
        normalize(dim, self.rank())
    }
    /// Least upper bound: the same rank, sizes that agree; no shape when the ranks differ.
    pub fn join(&self, other: &Shape) -> Option<Shape> {
        (self.rank() == other.rank())
            .then(|| Shape(self.0.iter().zip(&other.0).map(|(a, b)| if a == b { *a } else { None }).collect()))
    }
}

/// A dim from 0 for a tensor of this rank.
pub fn normalize(dim: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let dim = if dim < 0 { dim + rank } else { dim };
    (0..rank).contains(&dim).then(|| usize::try_from(dim).ok()).flatten()
}
