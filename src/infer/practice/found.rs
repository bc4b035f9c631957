//! What the checks of practice find, as data. In: nothing. Out: [`Practice`], a variant for each kind of mistake. Never: prose.
//! Next: `diagnostics/words/practice.rs`.

use crate::source::{Name, Place};

/// One mistake of practice. The place of the finding is where it happens; the places here say why.
#[derive(Clone, Debug, PartialEq)]
pub enum Practice {
    /// An in-place collective on a copy that nothing keeps.
    LostCopy { collective: Name, method: Name, original: Place },
    /// The result of a collective that returns it is not used.
    UnusedResult { collective: Name },
    /// A switch that nothing looks at; what communicates whatever it says, and what decides instead.
    IgnoredSwitch { owner: Name, switch: Name, runs: Vec<Place> },
    /// A reducer asks for a mark that nothing sets, and there are norms to carry it.
    MarkNeverSet { mark: Name, modules: Vec<Name>, reducer: Place, missing: Place },
    /// A module is marked and one that is made alike is not.
    SiblingNotMarked { module: Name, sibling: Name, mark: Name, marked: Place },
    /// A reducer takes a parameter by name and no reducer takes another one of the same module.
    PartNotNamed { module: Name, named: Name, part: Name, made: Place },
    /// A parameter of a module is marked and another one is not.
    PartNotMarked { module: Name, marked: Name, part: Name, mark: Name, made: Place },
    /// Of gradients and dims of distributed tensors.
    Placements(Placements),
    /// Of groups, sizes and factors.
    Scales(Scales),
}

/// Mistakes about placements of distributed tensors.
#[derive(Clone, Debug, PartialEq)]
pub enum Placements {
    /// `to_local()` or `full_tensor()` of a weight that meets values of one rank, without gradient placements.
    BareLocal { method: Name, weight: Name, meets: Place, evidence: Option<Place> },
    /// `local_map` whose input gradients are partial, without gradient placements, always or under a condition.
    RegionGradient { conditional: bool },
    /// A style that returns local tensors, used for a router without gradient placements.
    StyleGradient { style: Name, module: Name, parameter: Name, returns: Place },
    /// Another number of placements than the mesh has dims.
    Count { api: Name, given: usize, dims: usize, why: Option<Place> },
    /// A gather or a placement about another dim than the one that comments call the sequence.
    ShardDim { dim: usize, sequence: usize, why: Option<Place> },
}

/// Mistakes about groups, sizes and factors.
#[derive(Clone, Debug, PartialEq)]
pub enum Scales {
    /// Gradients are never summed before the step; `distributed`: what says that ranks have their own data.
    UnreducedStep { model: Name, made: Place, backward: Place, distributed: Place },
    /// Wrapped over data-parallel ranks, and the batch is cut by the rank of another axis.
    NarrowWrapper { axis: Name, sliced: Place },
    /// The default group, where the object or the caller gives one for the same axis.
    GroupLeftOut { collective: Name, own: Name, stored: Place },
    /// The rank of all ranks, and a parameter that says over which ranks is not read.
    GlobalRank { unread: Name, given: Place },
    /// Divided by the size of one group, and summed over another.
    OtherSize { size: Vec<Name>, group: Vec<Name>, reduced: Place },
    /// A count that several ranks have of the same data, summed over all and scaled by fewer.
    CountedAgain { summed: Place, evidence: Option<Place> },
    /// An inner module divides its gradients by the size of its own mesh.
    InnerDivisor { module: Name, mesh: Name, whole: Name, outer: Place },
    /// Divided by the number of all tokens, and averaged by the wrapper before.
    MeanTwice { wrapped: Place },
    /// An auxiliary loss without the factor of the main one.
    Auxiliary { scaler: Name, main: Place },
    /// A factor that undoes a mean, where a flag turns the mean off.
    WhateverFlag { flag: Name, mean: Place },
}
