//! What the checks of training loops find, as data: norms, wrappers and steps. In: nothing. Out: [`Training`]. Never: prose.
//! Next: `diagnostics/words/practice_training.rs`.

use crate::source::{Name, Place};

/// Mistakes of training loops around wrappers.
#[derive(Clone, Debug, PartialEq)]
pub enum Training {
    /// A norm of what one rank keeps of the gradients of a sharded model; the method that takes that of all.
    ShardNorm { function: Name, model: Name, method: Name, wrapped: Place },
    /// A norm of the gradients of one stage of a pipeline, by which they are clipped; where the schedule runs.
    StageNorm { function: Name, schedule: Place },
    /// A norm of copies of parameters that get the gradients of this rank's shards; where they get them.
    CopiedNorm { function: Name, list: Name, copied: Place, wrapped: Place },
    /// A norm of parameters that a class keeps in a list, of each of which a rank has its part; where that is cut.
    ListOfParts { function: Name, list: Name, cut: Place },
    /// A root of a sum over this rank's parts of gradients, by which they are scaled; what sums it over other ranks than those that have the
    /// other parts.
    LocalNorm { wrapped: Place, summed: Vec<Place> },
    /// Gradients are scaled by a norm in which split parameters count by their parts of one rank. `asked`: where the mark is asked for.
    MarkedNorm { mark: Name, asked: Place },
    /// A norm of gradients of which the code asks whether they are distributed, and takes the local parts; where it does.
    AskedNorm { asked: Place, divided: Option<Place> },
    /// A norm is reduced by an operation that belongs to the other branch of a test: the largest is summed, or sums are compared.
    NormOperation { largest: bool, operation: Name, test: Place },
    /// A branch of a test whether the norm is that of the largest reduces over ranks over which the other one does not. `largest`: the
    /// other one is that of the largest.
    NormOneSide { largest: bool, group: Option<Name>, reduced: Place },
    /// Norms of what ranks have are summed, and not their squares; the last step that makes the factor.
    RootsSummed { used: Place },
    /// Norms of what ranks have are summed, and the sum is squared; where a norm is taken, the square, and where it scales gradients.
    NormSquared { made: Place, squared: Place, used: Place },
    /// A loop over the parts of a model clips each by a norm that is summed over the stages of the pipeline; the loop, and the sum.
    NormOfEach { function: Name, list: Name, round: Place, summed: Place },
    /// Norms of all gradients are averaged over data-parallel ranks that have other experts than each other; where the root is taken, and what
    /// is clipped by the mean.
    NormsAveraged { root: Place, used: Place },
    /// The local value of a norm that is a distributed tensor: of a wrapped model, or the code asks whether it is one; where.
    PartialNorm { function: Name, taken: Place, wrapped: Place, asked: bool },
    /// Two sums of squares, told apart by a test, are added up in a function that never reads the group that it is given.
    TwoNorms { group: Name, given: Place, told: Place },
    /// A step whose last backward pass was told not to sum; what told it.
    /// `rounds`: what lets the step run, where it does not run in every round. `decided`: where the variable is set that says so.
    UnsyncedStep { backward: Place, said: Place, rounds: Option<Place>, decided: Option<Place> },
    /// An optimizer sums gradients that it has summed before; where it did, and where it is made.
    SynchronizedAgain { optimizer: Name, first: Place, made: Place },
    /// A hook sums what a backward pass adds, in the rounds of a flag alone.
    RoundHook { flag: Name, summed: Place },
    /// Gradients are reduced only where they are clipped, and the optimizer steps either way.
    ClippedOnly { test: Name, reduced: Place, stepped: Place },
    /// A flag that says whether gradients are summed is on only in the rounds that the last stage of a pipeline skips. `told`: the place is
    /// where it is off, and `other` the backward pass; the other way round otherwise.
    LastStage { flag: Name, rounds: Name, told: bool, other: Place, cooldown: Place },
    /// The gradient of a shared weight is summed over its copies after what holds it was scattered; the call that scatters, and both collectives.
    AfterScatter { before: Place, scattered: Place, summed: Place },
    /// The model's own reduction of gradients is all that is called before a step. `off`: the attribute with the finaliser that sums the
    /// others, and where it is set to nothing. `split`: where the file says that ranks share the model.
    FinaliserOff { method: Name, off: Option<(Name, Place)>, split: Place },
    /// A method reduces gradients over the data ranks alone, and that of its base over others too: there, in the method `helper` if that is
    /// another one.
    OverrideSum { method: Name, axes: Vec<Name>, summed: Place, helper: Option<Name> },
    /// A flag that the forward pass reads is set after it.
    LateFlag { flag: Name, forward: Place, backward: Place },
    /// What a loop receives is only sent on, and it reads the first value instead.
    NeverRead { variable: Name, first: Name, passed: Place },
    /// A block of another rank that a round takes up, and a call that reads what was saved in its place.
    BlockNeverRead { variable: Name, taken: Place },
    /// Blocks of other ranks that a round takes up, and a call that is given this rank's own in their place.
    OwnBlockRead { unread: Vec<Name>, own: Vec<Name>, taken: Place },
    /// A wrapped model is only ever used around its wrapper.
    Bypassed { model: Name, wrapper: Name, wrapped: Place },
    /// An optimizer has the parameters that a model had before others were put in their place.
    Replaced { model: Name, by: Name, replaced: Place },
    /// An optimizer is given what a wrapper was told to leave alone.
    Ignored { wrapper: Name, ignored: Place, optimizer: Place },
    /// A module with parameters is put into a model that was wrapped before.
    Attached { module: Name, wrapper: Name, wrapped: Place, put: Place, optimizer: Place },
}
