//! What the checks of practice find, as data. In: nothing. Out: [`Practice`], a variant for each kind of mistake. Never: prose.
//! Next: `diagnostics/words/practice.rs`.

use super::super::rehearsal::Rehearsed;
use super::concerned::{Concerned, When};
use super::membership::Membership;
use super::training::Training;
use crate::source::{Name, Place};

/// One mistake of practice. The place of the finding is where it happens; the places here say why.
#[derive(Clone, Debug, PartialEq)]
pub enum Practice {
    /// Groups do not fit the ranks of a small job.
    Rehearsed(Box<Rehearsed>),
    /// An in-place collective on a copy that nothing keeps.
    LostCopy {
        collective: Name,
        method: Name,
        original: Place,
    },
    /// An in-place collective on what was computed where it is called, which nothing keeps.
    LostComputed {
        collective: Name,
        made: Place,
    },
    /// The sum of gradients stays in a copy of them.
    LostGradients {
        collective: Name,
        copy: Name,
        made: Place,
    },
    /// The result of a collective that returns it is not used.
    UnusedResult {
        collective: Name,
    },
    /// The result of an autograd function is not used, and its argument goes on as it was.
    UnusedApply {
        function: Name,
        value: Name,
    },
    /// A buffer of a pool that is kept beyond the call.
    SharedBuffer {
        owner: Name,
        buffer: Name,
        kept: Place,
    },
    /// A switch that nothing looks at; what communicates whatever it says, and what decides instead.
    IgnoredSwitch {
        owner: Name,
        switch: Name,
        runs: Vec<Place>,
    },
    /// A reducer asks for a mark that nothing sets, and there are norms to carry it.
    MarkNeverSet {
        mark: Name,
        modules: Vec<Name>,
        reducer: Place,
        missing: Place,
    },
    /// A reducer asks for a mark that nothing sets, and one of nearly that name is set and read by nothing.
    MarkMisnamed {
        /// A mark that says that a gradient is summed, and no reducer over its axes; where the project sums its gradients.
        asked: Name,
        mark: Name,
        set: Place,
    },
    MarkNeverAsked {
        mark: Name,
        axes: Vec<Name>,
        reducer: Place,
        parameters: Concerned,
        when: When,
    },
    /// A module is marked and one that is made alike is not.
    SiblingNotMarked {
        module: Name,
        sibling: Name,
        mark: Name,
        marked: Place,
    },
    /// A reducer takes a parameter by name and no reducer takes another one of the same module.
    PartNotNamed {
        module: Name,
        named: Name,
        part: Name,
        made: Place,
    },
    /// A parameter of a module is marked and another one is not.
    PartNotMarked {
        module: Name,
        marked: Name,
        part: Name,
        mark: Name,
        made: Place,
    },
    /// A part of a parameter that nothing marks as one; another that is marked.
    /// Or what asks for the mark (`is_asked`), where none is marked in the file.
    PartitionNotMarked {
        parameter: Name,
        mark: Name,
        axes: Vec<Name>,
        other: Place,
        is_asked: bool,
        /// Where it is marked otherwise.
        otherwise: Option<Place>,
    },
    /// Of gradients and dims of distributed tensors.
    Placements(Placements),
    /// Of groups, sizes and factors.
    Scales(Scales),
    /// Of backwards of autograd functions.
    Backwards(super::backwards::Backwards),
    /// Of who takes part in a sum.
    Membership(super::membership::Membership),
    /// Of softmaxes that are put together from parts.
    Apart(super::pieces::Apart),
    /// Of collectives that are taken for what they are not.
    Unlike(Unlike),
    /// Of ranks, sizes and groups that were mistaken for each other.
    Slips(super::slips::Slip),
    /// Of what is left out.
    Omission(super::omissions::Omission),
    /// What is a rank's own and what is everybody's.
    Unshared(super::unshared::Unshared),
    /// Of who comes to a collective.
    Coming(super::coming::Coming),
    /// Of hooks, handles and arguments.
    Lapse(super::lapses::Lapse),
    /// Of training loops around wrappers.
    Training(super::training::Training),
    /// A collective that is reached only where its subject is None; where the subject is used.
    InvertedGuard {
        variable: Name,
        used: Place,
        collective: Name,
    },
    /// An output buffer between a submodule and the result; where the function that holds it is called. Or one between an argument and a
    /// differentiable collective.
    GradientCut {
        collective: Name,
        call: Option<Place>,
        before: Option<(Name, Place)>,
    },
    /// A raw reduction of what a differentiable collective reduces elsewhere.
    MixedGradient {
        collective: Name,
        differentiable: Name,
        other: Place,
    },
    /// A buffer is read while a collective in the background may still write it.
    ReadInFlight {
        collective: Name,
        launched: Place,
        until: Until,
        buffer: Name,
    },
    /// A collective over all ranks that only some reach; `exit`: because the others have left, and where.
    SomeRanks {
        collective: Name,
        condition: Place,
        exit: Option<Place>,
    },
    /// A collective over the ranks of a group that only some of them reach.
    SomeOfGroup {
        collective: Name,
        condition: Place,
        exit: bool,
    },
    /// A sum over the ranks of a group of what each cuts out at its own place.
    OtherPositions {
        collective: Name,
        sliced: Place,
    },
    /// A sum is divided by a count of one rank: a sum that was reduced, or a loss whose gradients a comment says are averaged.
    LocalCount {
        divided: Place,
        reduced: Option<Place>,
        comment: Option<Place>,
    },
    /// A value of one rank, where that of all ranks is meant.
    OfThisRank(Own),
    /// Gradients are reduced when it is too late; where they are taken, and what came before.
    LateReduction {
        why: Late,
        gradients: Place,
        before: Place,
    },
}

impl Practice {
    /// Where the numbers stand that would be right if something had summed them that is not seen; nothing if that would not help.
    pub fn unsummed(&self, place: Place) -> Option<Vec<Place>> {
        match self {
            Practice::LocalCount { .. } => Some(vec![place]),
            Practice::Membership(Membership::PartMean { .. }) => Some(vec![place]),
            Practice::Apart(super::pieces::Apart::NotReduced { .. }) => Some(vec![place]),
            Practice::Training(
                Training::LocalNorm { .. } | Training::MarkedNorm { .. } | Training::AskedNorm { .. },
            ) => Some(vec![place]),
            Practice::Membership(Membership::OtherCount { count, divided, .. }) => Some(vec![place, *count, *divided]),
            _ => None,
        }
    }

    /// Where a value meets another one, if what their types say there says the same again.
    pub fn met(&self, place: Place) -> Vec<Place> {
        match self {
            Practice::Lapse(super::lapses::Lapse::PlainInput { used, .. }) => vec![*used],
            Practice::Membership(Membership::CopiesGathered { cut, .. }) => vec![place, *cut],
            Practice::Scales(Scales::BiasDivided { .. }) | Practice::Lapse(super::lapses::Lapse::BesideCopy { .. }) => {
                vec![place]
            }
            Practice::Lapse(super::lapses::Lapse::WholeBias { summed, .. }) => vec![place, *summed],
            _ => Vec::new(),
        }
    }

    /// Where keys are scored whose gradient is not summed: what types say of it there is the same mistake.
    pub fn scores_keys(&self) -> Option<Place> {
        match self {
            Practice::Unshared(super::unshared::Unshared::OwnPartOfKeys { rows, .. }) => Some(*rows),
            _ => None,
        }
    }

    /// Whether something is made like another one, of which the gradient is summed.
    pub fn is_of_sibling(&self) -> bool {
        use super::membership::Membership;
        matches!(self, Practice::SiblingNotMarked { .. } | Practice::Membership(Membership::SiblingNotHooked { .. }))
    }

    /// Whether the mistake is one of gradients alone: without any nothing is wrong.
    pub fn is_of_gradients(&self) -> bool {
        matches!(
            self,
            Practice::GradientCut { .. }
                | Practice::MixedGradient { .. }
                | Practice::Placements(
                    Placements::StyleInput { .. }
                        | Placements::BareLocal { .. }
                        | Placements::CutLocal { .. }
                        | Placements::PartOut { .. }
                        | Placements::RegionGradient { .. }
                        | Placements::CompleteGradient { .. }
                        | Placements::StyleGradient { .. }
                        | Placements::NormKept { .. },
                )
                | Practice::Lapse(
                    super::lapses::Lapse::SumInLoss { .. }
                        | super::lapses::Lapse::PlainInput { .. }
                        | super::lapses::Lapse::BesideCopy { .. }
                )
        )
    }

    /// The flags under which the mistake is one; none: always.
    pub fn when(&self) -> When {
        match self {
            Practice::MarkNeverAsked { when, .. } | Practice::Scales(Scales::ReducerNotCalled { when, .. }) => {
                when.clone()
            }
            Practice::Scales(Scales::GuardAgainstMark { flag, .. }) => vec![(flag.clone(), true)],
            _ => When::new(),
        }
    }
}

/// How long a collective in the background may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Nothing waits for it; where its buffer is read, if that is somewhere else.
    End { read: Option<Place> },
    /// Nothing waits for it on the path on which its buffer is read; a wait on another path.
    OtherPath { read: Place, wait: Place },
    /// The wait.
    Wait(Place),
    /// Whatever gets hold of its handle here.
    HandedOn(Place),
}

/// Mistakes about placements of distributed tensors.
#[derive(Clone, Debug, PartialEq)]
pub enum Placements {
    /// The replicated input of a parallel style, whose local part is taken without gradient placements; where its output is taken for partial.
    StyleInput { input: Name, partial: Place },
    /// The head of a plan gives its part of the vocabulary as a plain tensor; where the loss asks for a distributed one, if the file shows it.
    LocalHead { head: Name, context: Option<Place> },
    /// A norm behind a projection that is split, with a style that takes its input for replicated; where that is.
    NormKept { norm: Name, source: Name, style: Name, made: Place },
    /// `to_local()` or `full_tensor()` of a weight that meets values of one rank, without gradient placements.
    BareLocal { method: Name, weight: Name, meets: Place, evidence: Option<Place> },
    /// The local part of a trained parameter that autograd does not see; how it is taken, and what it meets.
    CutLocal { weight: Name, how: Name, made: Place, meets: Place },
    /// The same of a value that is whole, and from which something is made that is wrapped as a part of a sum.
    PartOut { method: Name, value: Name, out: Place },
    /// A weight that holds several parts is cut into equal runs of rows; where the forward splits what comes of it, and where it is given.
    PackedCut { parameter: Name, split: Place, filled: Place },
    /// A gather into a buffer that is larger in another dim than the first, which is the one along which the parts come; where it is made so.
    /// `dim`: as it is written.
    WideBuffer { collective: Name, buffer: Name, dim: Name, wider: Place },
    /// A sum is scattered into a buffer that is smaller in another dim than the first, along which it is cut; where it is made so.
    NarrowBuffer { collective: Name, buffer: Name, dim: Name, narrower: Place },
    /// What several values are put together into is gathered and taken apart as if each of them stood whole in it.
    ViewsApart { parts: usize, joined: Place, apart: Place },
    /// A function of whole matrices is given a rank's part, and what it makes is wrapped as the part of a result.
    OwnRows { function: Name, value: Name, wrapped: Place },
    /// The local parts of a gradient are wrapped with the placements of another tensor; where these are kept, and where the parts are taken.
    LabelledAs { gradient: Name, reference: Name, kept: Place, taken: Place },
    /// `local_map` whose input gradients are partial, without gradient placements, always or under a condition.
    RegionGradient { conditional: bool },
    /// An input of `local_map` whose gradient is given as replicated along a dim of the mesh along which each rank has a part of it.
    CompleteGradient { dim: usize },
    /// A style that returns local tensors, used for a router without gradient placements.
    StyleGradient { style: Name, module: Name, parameter: Name, returns: Place },
    /// Another number of placements than the mesh has dims.
    Count { api: Name, given: usize, dims: usize, why: Option<Place> },
    /// A module is split over one mesh whose parameters lie on another already; what has put them there.
    OnOtherMesh { model: Name, by: Name, splits: Name, sharded: Place },
    /// A gather or a placement about another dim than the one that comments call the sequence.
    ShardDim { dim: usize, sequence: usize, why: Option<Place> },
}

/// Mistakes about groups, sizes and factors.
#[derive(Clone, Debug, PartialEq)]
pub enum Scales {
    /// Gradients are never summed before the step; `distributed`: what says that ranks have their own data.
    UnreducedStep { model: Name, made: Place, backward: Place, distributed: Place },
    /// A step that is reached without the sum of gradients, unless a flag holds that says nothing of ranks.
    ReducedWhere { flag: Name, holds: bool, reduced: Vec<Place> },
    /// A loop whose gradients are summed over other axes than the one over which ranks have their own data.
    DataNotSummed {
        axis: Name,
        backward: Place,
        evidence: Place,
        divided: bool,
        reducer: Option<Place>,
        parameters: Concerned,
    },
    /// A loop that leaves out a finaliser which sums the gradients of marked parameters.
    ReducerNotCalled { function: Name, reducer: Place, backward: Place, parameters: Concerned, when: When },
    /// The same gradients are summed a second time; what sums or averages them first, and the sum itself.
    SummedAgain { axes: Vec<Name>, first: Place, sum: Place },
    /// Gradients of parts are summed with those of other parts; where one is marked as a part, and the mark that asks for the sum.
    PartSummed { axes: Vec<Name>, part: Place, sum: Option<Name> },
    /// A whole layer reads what another leaves each rank a part of the sequence of, and nothing marks it; where it is used, and the comment, or where a
    /// sibling class marks such a layer, which is called so. `inside`: where a helper makes it.
    UnmarkedBehind {
        layer: Name,
        before: Name,
        axes: Vec<Name>,
        used: Place,
        said: Place,
        sibling: Option<Name>,
        inside: Option<Place>,
        told_other: Option<Place>,
    },
    /// The map of a checkpoint and the mark of a parameter disagree on the dim that is split, or one leaves it out.
    CheckpointAxis { parameter: Name, mapped: Option<i64>, marked: Option<i64>, mark: Place },
    /// A plan that does not fit what a module is given: a part of the result of another, or the whole of it.
    PlanMisfit { module: Name, source: Name, gives_part: bool, listed: bool, norm: bool, made: Place, used: Place },
    /// A sum for marked parameters that goes by another condition than the split of sequences.
    OtherGate { mark: Name, predicate: Name, defined: Place },
    /// A finaliser that runs only where the mark that it looks for is not set.
    GuardAgainstMark { flag: Name, mark: Name, marked: Place, guard: Place, parameters: Concerned },
    /// Wrapped over data-parallel ranks, and the batch is cut by the rank of another axis.
    NarrowWrapper {
        axis: Name,
        sliced: Place,
        made: Option<Place>,
        also: Vec<Place>,
        /// What sums gradients over these ranks, where it is no wrapper.
        collective: Option<Name>,
    },
    /// A model is sharded over a mesh without replicas, where the test for it asks whether there are any.
    ReplicasAsked { axis: Name, asked: Place, sharded: Place },
    /// The default group, where the object or the caller gives one for the same axis.
    GroupLeftOut { collective: Name, own: Name, stored: Place },
    /// All ranks, where the output is made for those of a group.
    BufferOfGroup { collective: Name, size: Name, made: Place },
    /// A call leaves out the group over which the function would communicate; what the caller has for it and nothing reads.
    GroupNotGiven { function: Name, parameter: Name, own: Name, stored: Place, asked: bool },
    /// A collective over other ranks, where a loop or a function names a group that nothing reads.
    UnreadGroup { collective: Name, unread: Name, given: Place },
    /// A collective over some ranks that starts at rank 0 of all; where a variable is set to it.
    FixedRoot { collective: Name, group: Vec<Name>, said: Option<Place> },
    /// Data that is split over all ranks, some of which share a model.
    SplitOverModel { dim: Name, cut: Place, sampler: Place },
    /// Data that is split over all ranks, where gradients are averaged over data-parallel ranks.
    SampledByAll { wrapped: Place },
    /// The rank of all ranks, and a parameter that says over which ranks is not read.
    GlobalRank { unread: Name, given: Place },
    /// The rank of all ranks picks a part of what belongs to another group, which is named there.
    /// `named`: as what it is kept, if that is how it is told that it belongs to the group.
    WorldRank { group: Place, named: Option<Name> },
    /// As many parts as one axis has ranks, and the rank of another picks one.
    OtherPart { size: Vec<Name>, rank: Vec<Name>, parts: Place },
    /// Gradients of parts of the sequence are averaged over the ranks that have the parts; the sum, where something else divides.
    AveragedParts { summed: Option<Place> },
    /// Divided by the size of one group, and summed over another.
    OtherSize { size: Vec<Name>, group: Vec<Name>, reduced: Place },
    /// A count that several ranks have of the same data, summed over all and scaled by fewer.
    CountedAgain { summed: Place, evidence: Option<Place> },
    /// Gradients of experts are averaged over the ranks with copies of them; where that group is chosen, and used.
    ExpertMean { chosen: Place, reduced: Place },
    /// The same, beside a mean of other gradients over all data ranks, or where the group is chosen. `sized`: by the size that a call is given.
    ExpertCopies { beside: Place, sized: bool },
    /// A gradient is divided by the number of ranks, and what it is given to divides again.
    DividedAgain { first: Place, again: Place },
    /// An inner module divides its gradients by the size of its own mesh.
    InnerDivisor { module: Name, mesh: Name, whole: Name, outer: Place },
    /// Gradients are summed, and averaged over the same ranks on the other side of a test.
    MixedMean { averaged: Place },
    /// Divided by the number of all tokens, and averaged by the wrapper before.
    MeanTwice { wrapped: Place },
    /// The rank on the node picks a part of what all ranks gathered.
    NodeRank { rank: Name, gathered: Place, picked: Place },
    /// A slice of what all ranks gathered is named as this rank's, and is that of the first rank on all.
    FirstPart { slice: Name, gathered: Place, picked: Place },
    /// The gradient of a weight that stages share is averaged over them.
    TiedMean { collective: Name },
    /// Every rank adds its share of a parameter to what is summed, and the gradient of each is divided as well.
    BiasDivided { bias: Name, summed: Place },
    /// An auxiliary loss without the factor of the main one.
    Auxiliary { scaler: Name, main: Place },
    /// A factor that undoes a mean, where a flag turns the mean off.
    WhateverFlag { flag: Name, mean: Place },
    /// Gradients that reach the optimizer with another factor than the mean that the loss is, or than others.
    Factor(Box<super::super::scale::verdict::Mistake>),
}

/// What a collective does otherwise than its caller takes it to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Unlike {
    /// It works in place and returns nothing that is a tensor.
    InPlace { collective: Name, used: Place },
    /// It writes to what indexing has copied.
    Indexed { collective: Name, indexed: Place },
    /// Rows of positions that a mask says are those of other ranks are in the sum.
    OthersRows { mask: Name, masked: Place, lookup: Place },
    /// A backward takes 1 off at positions of which a mask has made those of other ranks 0, and does not ask it; where the forward does for what
    /// it sums.
    ForeignTargets { mask: Name, masked: Place, zeroed: Place },
}

/// What comes before a reduction and should come after it.
#[derive(Clone, Debug, PartialEq)]
pub enum Late {
    Used,
    Cleared,
    Clipped,
    /// The backward pass, before which nothing is there.
    Early,
    /// The gradients were copied to those of other parameters before.
    Copied,
    /// A method has added the gradients to others and cleared them.
    Moved {
        method: Name,
        call: Place,
    },
}

/// What is of one rank alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Own {
    /// The size that a sum over ranks is divided by.
    Size { reduced: Place },
    /// A number that a loss is divided by, beside one of all ranks.
    Factor { reduced: Place },
    /// A statistic that is kept beside one of all ranks.
    Kept { reduced: Place },
    /// A sum over this rank's part of a dim that another reduction takes over the ranks too.
    Partial { partial: Place, reduced: Place },
    /// A sum over this rank's part of a dim that is divided by the size of the whole; where a parameter is made that has this part.
    Width { partial: Place, cut: Place },
    /// A mean over this rank's part of a dim, beside a parameter that has this part; where that is made.
    WidthMean { cut: Place },
}
