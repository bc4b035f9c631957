//! What each rank has of its own where all are to share it, and the other way around, as data: statistics, permutations, parameters outside of a wrapper, parts that are
//! taken for wholes. In: nothing. Out: [`Unshared`]. Never: prose. Next: `diagnostics/words/practice_unshared.rs`.

use crate::source::{Name, Place};

/// Mistakes about what is a rank's own and what is everybody's.
#[derive(Clone, Debug, PartialEq)]
pub enum Unshared {
    /// Each rank scores its own rows against those of all, which a raw gather gives; where, and the call around that.
    KeysWithoutGradient { rows: Place, called: Option<Place> },
    /// The same, where an autograd function gathers, and its backward keeps this rank's part of the gradient and sums nothing.
    OwnPartOfKeys { class: Name, rows: Place, called: Option<Place> },
    /// Of two kinds of features that are gathered side by side, one is cut off its gradient: it is detached, or its own rows are not put back.
    SiblingCut { features: Name, sibling: Name, kept: Place, detached: bool },
    /// Of two methods of a class that sum gradients, for some parameters over other ranks, one is called and the other one is named nowhere;
    /// what both are, and what the idle one sums.
    SiblingNeverCalled { called: Name, idle: Name, reduces: Place, marked: Name },
    /// Of two methods that step an optimizer of the object one sums gradients of marked parameters before, by a function that the other one leaves
    /// out; where it is called, and what it sums.
    SplitStep { method: Name, other: Name, function: Name, called: Place, summed: Place },
    /// A loop steps with a model in a wrapper of the project's own whose method that reduces gradients is named nowhere; where the model is
    /// wrapped, where gradients are computed, and what would reduce them.
    NeverCalled { wrapper: Name, method: Name, wrapped: Place, backward: Place, reduces: Place },
    /// A buffer follows statistics of this rank's samples; where they are taken, and what shows that ranks are to have the same.
    RunningAlone { class: Name, buffer: Name, taken: Place, shared: Place },
    /// Something along a sequence is cut in one run where tokens are cut in two chunks; where these are taken.
    OtherCut { value: Name, two: Place },
    /// Gradients of shards are averaged over ranks that have other shards, by a call that steps; the wrapper, and where it wraps.
    ShardsAveraged { call: Name, wrapper: Name, wrapped: Place },
    /// A mean over a batch is gathered as if it had an entry for each sample; where it is taken.
    MeanGathered { mean: Place },
    /// A kernel runs on each rank's part of the sequence, or of each head, by itself.
    KernelSplit { axis: Name, of_sequence: bool, call: Place },
    /// A complete term is added to parts before both are summed; the layer that sums it, and the sum.
    CompleteSummed { layer: Name, completed: Place, summed: Place },
    /// The blocks of a model are sharded, and the model, which has parameters outside of them, is not.
    RootNotSharded { model: Name, outside: Name, made: Place, sharded: Place },
    /// What a handle is waited for is read in a loop before the one that waits.
    ReadInLoop { read: Name, handle: Name, waited: Place },
    /// Each rank draws a permutation and takes its own part of it; where.
    OwnPermutation { taken: Place },
    /// Parameters are marked for a sum that nobody asks for; the mark that is asked for, and where the other one is set.
    MarkUnasked { mark: Name, asked: Name, set: Place },
    /// Each rank draws weights with a seed that has its rank in it, and nothing makes them equal; where the model is made.
    OwnWeights { rank: Name, made: Place },
    /// One rank saves its state of random numbers, and all load it; where.
    StateOfOne { loaded: Place },
    /// Rows of a split table are zero where other ranks have them, and nothing sums them; the lookup, where they are set to zero, and the sum on the
    /// other side of a test.
    RowsNotSummed { rows: Name, lookup: Place, zeroed: Place, other: Option<Place> },
    /// A whole module is marked for a sum over ranks over which the layer behind it sums the gradient of its input already; where it is called, and the sum.
    MarkedComplete { module: Name, mark: Name, axes: Vec<Name>, layer: Name, first: Place, sum: Place },
    /// A gradient is summed over ranks that a list beside the one that is read says to have the same, and nobody reads that; where it is set.
    EqualSummed { mark: Name, summed: Name, axis: Name, set: Place },
    /// Losses are divided by the number of objects of all ranks, and averaged over ranks besides.
    NumberOfAll { count: Name, reduced: Place },
    /// Gradients are taken by a function that runs no hook of the wrapper; how the model is wrapped, and where they become those that are stepped with.
    HooksNotRun { model: Name, wrapper: Name, wrapped: Place, put: Place },
    /// A backward divides sums over ranks by the rows of this rank times the number of ranks; the sum, and where the forward counts the rows of all.
    RowsTimesRanks { reduced: Place, counted: Place },
    /// A backward sums the gradient of a parameter over all ranks, and a wrapper averages it; the attribute, and the module that keeps it.
    AffineTwice { class: Name, parameter: Name, of: Name, wrapper: Name, summed: Place, wrapped: Place },
    /// A model of a class without a forward is wrapped: the wrapper is never called. `wrapper`: its name, if that is not for an object to choose.
    NoForward { model: Name, class: Name, wrapper: Option<Name>, wrapped: Place },
    /// A model is drawn with a seed that has the rank in it, and an optimizer averages gradients over ranks; where it is seeded, and made.
    DrawnApart { rank: Name, seeded: Place, made: Place },
    /// A data set has the samples of the data-parallel rank, and random numbers of the rank among all; what splits the samples, and where it is given both.
    DataDrawnApart { data: Name, split: Place, given: Place },
    /// Seeds differ along one of two dims of a mesh whose ranks have other samples, and not along the other; where the mesh is made.
    DimNotSeeded { given: Name, missing: Name, mesh: Place },
    /// A backward divides by the length of this rank's part, and the forward by that of the whole; where.
    OwnDivisor { whole: Place },
    /// The spread of a random start follows from the length of a dim that is split; where the weight is made, and drawn.
    SpreadOfPart { weight: Name, made: Place, drawn: Place },
    /// What a function draws from this rank's data is written into a buffer, where another method broadcasts it before; where.
    DrawnBeside { function: Name, buffer: Name, shared: Place },
    /// Rows that were gathered in one order are taken back in the other one: every n-th, or in one run.
    TakenInTurns { taken: Place, in_turns: bool },
    /// Columns are joined and gathered then, and labels count the rows of one column; where.
    ColumnsJoined { joined: Place, counted: Place },
    /// The count of all ranks is kept under a name that nothing reads, and the loss divides by the own count; where it is summed, and kept.
    CountKept { name: Name, function: Name, summed: Place, kept: Place },
    /// On one side of a test a norm is given the flag of split sequences, and on this one it is plain; where it is given it.
    NormNotTold { norm: Name, flag: Name, mark: Name, told: Place },
    /// A method drops the handles that have completed, and nothing calls the one that waits for all; where a handle is made, and what steps.
    PendingDropped { drops: Name, waits: Name, started: Place, stepped: Place },
}
