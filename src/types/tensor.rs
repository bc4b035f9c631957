//! All that is known of one tensor. In: local type, gradient, shape. Out: [`TensorType`] with its join.
//! Never: identity or aliasing, which are `infer/heap.rs`. Next: `rules/`.

use super::{AxisSet, Dist, LocalType, Shape, Term, dims_differ};
use crate::source::Place;
use std::sync::Arc;

/// Yes, no, or not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tri {
    No,
    Yes,
    Unknown,
}

impl Tri {
    #[must_use]
    pub fn join(self, other: Tri) -> Tri {
        if self == other { self } else { Tri::Unknown }
    }
    /// Logical or.
    #[must_use]
    pub fn or(self, other: Tri) -> Tri {
        match (self, other) {
            (Tri::Yes, _) | (_, Tri::Yes) => Tri::Yes,
            (Tri::No, Tri::No) => Tri::No,
            _ => Tri::Unknown,
        }
    }
    pub fn from_bool(b: bool) -> Tri {
        if b { Tri::Yes } else { Tri::No }
    }
}

/// What is known of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorType {
    pub local: LocalType,
    /// Whether the tensor requires a gradient.
    pub grad: Tri,
    pub shape: Option<Shape>,
    /// The checker lost track of the tensor: an axis that is missing here may be there at run time.
    pub untracked: bool,
    /// It comes out of an operation that was reported: nothing is concluded from it any more.
    pub spoiled: bool,
    /// What is not followed may have written it since a collective did, or decides how much of that is in it.
    pub touched: bool,
    /// Zero everywhere: a legal pending sum, and a legal anything else.
    pub zero: bool,
    /// The tensor whose memory this one shares, by number in its world's heap.
    pub view_of: Option<u32>,
    /// Known to hold 16-bit floats.
    pub reduced: bool,
    /// Where the parameter was made that this is.
    pub home: Option<Place>,
    /// How it was computed from the arguments of an autograd function that is being derived.
    pub term: Option<Arc<Term>>,
    /// Whether it is a distributed tensor, and how it lies.
    pub dist: Dist,
    /// Sizes that were divided by numbers of ranks.
    pub divided: Option<Arc<Divided>>,
    /// How many dims it has at least, where no shape is known.
    pub least: u8,
    /// It has memory of its own, known to lie in the order of its dims.
    pub in_order: bool,
}

/// A tensor made with a size divided by the number of ranks of a group, or cut by the own rank in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divided {
    pub axes: AxisSet,
    /// The dim, if it is one.
    pub dim: Option<i8>,
}

impl TensorType {
    pub fn unknown() -> TensorType {
        TensorType { untracked: true, ..TensorType::of(LocalType::unknown(), Tri::Unknown) }
    }
    /// A tensor of this type, of which nothing else is known.
    pub fn of(local: LocalType, grad: Tri) -> TensorType {
        TensorType {
            local,
            grad,
            shape: None,
            untracked: false,
            spoiled: false,
            touched: false,
            zero: false,
            view_of: None,
            reduced: false,
            home: None,
            term: None,
            dist: Dist::Unknown,
            divided: None,
            least: 0,
            in_order: false,
        }
    }
    pub fn rank(&self) -> Option<usize> {
        self.shape.as_ref().map(Shape::rank)
    }
    /// How many dims it has at least.
    pub fn least_rank(&self) -> u8 {
        self.rank().map_or(self.least, |rank| u8::try_from(rank).unwrap_or(u8::MAX))
    }
    /// Whether two dims, counted from the start or the end, are known not to be the same one.
    pub fn dims_differ(&self, a: i8, b: i8) -> bool {
        // They are one dim of a tensor that has just as many dims as are counted.
        let between = |start: i8, end: i8| i16::from(start) - i16::from(end);
        let apart = match (a < 0, b < 0) {
            (false, true) => i16::from(self.least) > between(a, b),
            (true, false) => i16::from(self.least) > between(b, a),
            _ => false,
        };
        dims_differ(a, b, self.rank()) || self.shape.is_none() && apart
    }
    #[must_use]
    pub fn join(&self, other: &TensorType) -> TensorType {
        let shape = match (&self.shape, &other.shape) {
            (Some(a), Some(b)) => a.join(b),
            _ => None,
        };
        TensorType {
            local: self.local.join(&other.local),
            grad: self.grad.join(other.grad),
            shape,
            untracked: self.untracked || other.untracked,
            spoiled: self.spoiled || other.spoiled,
            touched: self.touched || other.touched,
            zero: self.zero && other.zero,
            reduced: self.reduced && other.reduced,
            // A parameter that only one of them has marked is not one without a mark.
            home: self.home.filter(|_| self.home == other.home && self.local.has_sets_of(&other.local)),
            term: match (&self.term, &other.term) {
                (Some(a), Some(b)) => Some(Term::either(a, b)),
                (None, None) => None,
                _ => Some(Arc::new(Term::Unknown)),
            },
            dist: self.dist.join(&other.dist),
            divided: self.divided.clone().filter(|_| self.divided == other.divided),
            view_of: if self.view_of == other.view_of { self.view_of } else { None },
            least: self.least_rank().min(other.least_rank()),
            in_order: self.in_order && other.in_order,
        }
    }
}
