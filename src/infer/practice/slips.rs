//! Slips of the pen about ranks, sizes and groups, as data: what was meant stands beside what was written. In: nothing. Out: [`Slip`].
//! Never: prose. Next: `diagnostics/words/practice_slips.rs`.

use crate::source::{Name, Place};

/// Mistakes that one line makes about another one beside it.
#[derive(Clone, Debug, PartialEq)]
pub enum Slip {
    /// A function calls itself without the group that it was given.
    GroupForgotten { function: Name, parameter: Name, given: Place },
    /// A collective runs over all ranks where the code asks for a group, beside one that runs over its group.
    AskedNotGiven { collective: Name, group: Name, guard: Place, beside: Place },
    /// What is called a size is a rank, or the other way round. `other`: what stands in its place.
    RankForSize { name: Name, given: Name, rank_given: bool, other: Option<Place> },
    /// `n := size() > 1` binds the comparison, and it is computed with.
    ComparisonBound { name: Name, used: Place },
    /// `a == x or B`, which holds whatever `a` is.
    AlwaysHolds { constant: Name },
    /// Where no group is given a function takes that of its own rank alone.
    GroupOfOne { parameter: Name, made: Place },
    /// The length of a loader that goes through the part of one rank, divided by the number of ranks.
    LengthDivided { loader: Name, sampler: Place },
    /// This rank's part of one size is divided by the whole of another, of which this rank's part is kept too.
    PartByWhole { part: Name, whole: Name, local: Name, divided: Place, kept: Place },
    /// Ranks take parts that begin at multiples of the whole length.
    EmptyPart { part: Name, share: Name },
    /// A call leaves out the number of nodes, which is one then; the caller's own, which nothing reads, and the parameter.
    NodesLeftOut { function: Name, parameter: Name, own: Place, takes: Place },
    /// A method never reads what the same method of a class beside it hands on; where, and where it is counted instead.
    SiblingHandsOn { function: Name, parameter: Name, handed: Place, counts: Place },
    /// An argument that is named after the group of some axes, and the group of other ones in its place.
    OtherAxes { parameter: Name, named: Vec<Name>, given: Vec<Name>, asked: Option<Place> },
    /// The first rank of a group, computed with the size of another one.
    FirstOfOther { named: Vec<Name>, size: Vec<Name>, asked: Place },
    /// A loss is multiplied by the number of all ranks, and its count is summed over fewer of those that have the same tokens.
    AllRanksFactor { count: Name, over: Vec<Name>, summed: Place, shared: Place },
    /// A loss is multiplied by the number of ranks of some axes, and its count is summed over fewer, which have a part of the tokens.
    CountOfFewer { count: Name, over: Vec<Name>, axes: Vec<Name>, sized: Place },
    /// A loss is the share of this rank in a mean over all ranks, and a wrapper averages its gradients; where its weight is summed.
    ShareAveraged { loss: Name, weight: Name, reduced: Place },
    /// A branch for distributed tensors leaves out the reduction over a group that the function is given.
    MeshLeftOut { function: Name, group: Name, reduced: Place },
}
