//! Who takes part in a sum, as data: groups that are asked and not used, copies in sums, ranks that are left out. In: nothing.
//! Out: [`Membership`]. Never: prose. Next: `diagnostics/words/practice_groups.rs`.

use crate::source::{Name, Place};

/// Mistakes about who takes part in a sum.
#[derive(Clone, Debug, PartialEq)]
pub enum Membership {
    /// The guard asks for the size of one group, and what it guards runs over another.
    OtherAsked { collective: Name, asked: Vec<Name>, over: Vec<Name>, guard: Place },
    /// A sum is divided by a count that was summed over more or other ranks.
    OtherCount { summed: Vec<Name>, counted: Vec<Name>, count: Place, divided: Place },
    /// What all ranks have alike is added to parts before both are summed.
    CopiesSummed { over: Vec<Name>, copies: Place, added: Place },
    /// A norm of gradients that are equal on some ranks is summed over them; what has made them equal.
    CopiesCounted { over: Vec<Name>, equal: Place },
    /// A norm of parts is summed over the ranks that have the same part too; where it is taken, and where the group is chosen.
    ReplicasCounted { over: Vec<Name>, taken: Place, group: Option<Place> },
    /// The same, of the dim of a mesh along which gradients are replicas. `alone`: the sum is not over the dim of shards at all; `asked`: the test for
    /// the dim under which the group is chosen.
    NormOfReplicas {
        replicas: Name,
        shards: Name,
        alone: bool,
        taken: Place,
        group: Option<Place>,
        asked: Option<Place>,
    },
    /// A class is given the ranks with replicas of its shards and never reads them; where they are kept.
    ReplicasLeftOut { collective: Name, group: Name, shards: Name, kept: Place },
    /// A norm of all handles of a list is summed over ranks, where a field of theirs that nobody asks says which are sharded.
    WholeHandles { flag: Name, list: Name, told: Place, taken: Place },
    /// A parameter of experts without the mark that another one of the layer has.
    ExpertNotMarked { parameter: Name, sibling: Name, mark: Name, marked: Place },
    /// Parameters that are of no expert get the mark, and those of experts do not; where the two are told apart.
    ExpertsNotMarked { mark: Name, told: Place },
    /// A norm that a hook sums, and one made alike that it leaves out.
    SiblingNotHooked { module: Name, summed: Name, hooked: Place },
    /// A sum is for norms of one class, where a function of the file may give those of another.
    ClassLeftOut { asked: Name, left: Name, function: Name, returned: Place, sum: Place },
    /// Sums of gradients run where the sequence is whole, by a flag that says so.
    GateInverted { flag: Name, over: Vec<Name> },
    /// A buffer of gradients is overwritten where the other branch asks a flag whether to add.
    Overwritten { buffer: Name, flag: Name, added: Place },
    /// An autograd function is called for its effect on a value of which it makes a copy.
    CopyWritten { function: Name, value: Name },
    /// A mean over ranks of means of different numbers of rows; the forward counts them.
    MeanOfMeans { counted: Place },
    /// A loss is divided by this rank's count of targets, and then averaged over the ranks that have the other parts.
    MeanOfOwnMeans { loss: Name, divided: Place, counted: Place },
    /// A function that reduces over the stages of a pipeline is not told of them.
    StagesLeftOut { function: Name, parameter: Name, schedule: Place },
    /// A mean over ranks is divided by their number.
    AveragedTwice { collective: Name, averaged: Place },
    /// A sum over ranks is divided by their number after it, and was before; where.
    DividedAgain { collective: Name, first: Place, summed: Place },
    /// A variable of a loop is bound to what was to be written into it.
    Rebound { variable: Name, value: Name },
    /// Exponentials are added up over ranks that have taken off different numbers.
    OwnLargest { reduced: Place },
    /// A loss is weighed by a ratio of counts of this rank, where gradients are divided by a count that is summed over the ranks.
    RatioOfCounts { over: Place, under: Place, summed: Place, divided: Place },
    /// A mean over the dim of which sums are added up over ranks stays that of this rank.
    /// `size`: where a variable for its length is set.
    PartMean { reduced: Place, size: Option<Place> },
    /// Positions of a part of a sequence start at 0.
    PositionsRestart { tokens: Name, cut: Place },
    /// The rank among all ranks says where a part of a sequence begins that is split over another group; where that is given, and the use.
    PositionsOfAll { group: Name, at: Place, used: Place },
    /// The rank among all ranks, divided by the size of an inner group, picks a part of an outer one: other replicas have none; where.
    QuotientOfAll { picked: Place },
    /// The sum of the means of all ranks is taken off as if it were their mean.
    SummedMean { mean: Name, made: Place, taken: Place },
    /// Squares of distances from the mean of this rank are summed over ranks; where the sum that it is made of is summed, and where they are.
    OwnCentre { squares: Name, summed: Place, reduced: Place },
    /// The mean of the variances of the ranks scales data as that of all would; where its root is taken.
    MeanOfVariances { root: Place },
    /// A gather takes the gradient for parts, where all ranks compute alike; the argument that tells it so, what cuts the result again, and
    /// the comment.
    /// `layer`: the layer that is whole on every rank, where that is what the place stands for.
    CopiesGathered { collective: Name, argument: Name, over: Vec<Name>, cut: Place, said: Place, layer: Option<Name> },
    /// A parameter is a part in some modes of its layer, whole where the mode is none, and marked as a part in all; where it is divided.
    WholeMarked { parameter: Name, mode: Name, divided: Place },
    /// Labels of this rank's rows count from 0 among the columns of all ranks.
    LabelsOfFirst { columns: Option<Name>, gathered: Place },
    /// A sampler shuffles with a seed of this rank, and slices by the rank.
    SeedOfRank { sampler: Name, sliced: Place },
    /// A generator is seeded by the rank among all ranks, and numbers of a sample are drawn from it of which each rank of a group has a part.
    SeedOfSample { drawn: Place, cut: Place },
    /// A loader goes through a sampler that shuffles by the epoch, and nothing tells it which epoch it is.
    EpochNeverSet { loader: Name, sampler: Place, epochs: Place },
    /// A collective runs only where there is one rank.
    OneRank { collective: Name, reached: Place },
    /// A sum of squares is taken over ranks past autograd, and scales what a forward returns.
    StatisticCut { collective: Name, made: Place, used: Place },
    /// A loss is multiplied by the number of ranks, and a wrapper is told to sum gradients.
    SummedAndScaled { summed: Place },
    /// A hook divides gradients by a number of ranks, and their reduction by that of all.
    HookDivides { divided: Place },
    /// Parameters are replaced after hooks were registered on them.
    HooksLost { model: Name, method: Name, registered: Place },
    /// Parameters are replaced after marks were put on them; where a mark is asked for.
    MarksLost { model: Name, method: Name, mark: Name, replaced: Place, asked: Place },
    /// A loss is divided by the number of microbatches, and the schedule that runs its backward divides gradients by it.
    ScheduleDivides { by: Name, schedule: Place },
    /// A schedule that scales gradients runs in several rounds before a step. `loss`: the loss that it is given.
    ScheduleDividesAgain { loss: Place, round: Place },
    /// A schedule divides a loss by the number of micro-batches that is normalised by what all of them weigh; where that is summed, and where
    /// the schedule divides, if it is in view.
    RoundsDivided { count: Name, schedule: Place, total: Place, divides: Option<Place> },
    /// Tokens are shifted along a dim of which each rank has cut out a part.
    ShiftedPart { cut: Place },
    /// Labels lose their first entry after the sequence was cut.
    DroppedAtCut { cut: Place },
    /// A mean over ranks with other samples, of what each has of a part of the sequence.
    MeanOfParts { axis: Name, cut: Place, taken: Place },
    /// A norm of all gradients is summed over ranks of which each has some parameters whole.
    WholeCounted { over: Vec<Name>, taken: Place },
    /// A group of experts is kept and never used, and their parameters go another way.
    UnusedGroup { group: Name, stored: Place, reduced: Place },
    /// All parameters are sent over a group of data ranks, where those of experts are told apart and reduced over a group of their own.
    ExpertsBroadcast { group: Name, told: Place, reduced: Place },
    /// Parameters of experts take the way of the others, and those the way of experts.
    Swapped { mark: Name, group: Name, test: Place },
    /// A variable that is called experts is a mark that is true on the others.
    NamedOtherwise { variable: Name, mark: Name },
    /// A plan makes an embedding whole on every rank, and its norms take what they get for parts of the sequence.
    WholeInput { module: Name, norm: Name, taken: Place },
    /// A plan leaves the result of one block whole on every rank, and that of another as parts of the sequence.
    WholeOutput { module: Name, other: Name, parts: Place },
    /// A plan splits one of two modules whose results are multiplied by columns, and the other by rows.
    SplitApart { module: Name, other: Name, splits: Place, multiplied: Place },
    /// A plan leaves a norm out, and a norm of the same class takes parts of the sequence.
    NormLeftOut { module: Name, sister: Name, made: Place },
    /// Accumulated gradients are reduced in another round than that of the step.
    OtherRound { round: Place, step: Place, stepped: Place },
    /// Accumulated gradients are scaled in every round and reduced in some.
    ScaledEachRound { round: Place, reduced: Place },
    /// A weight is made equal over a group, and its gradient is never summed over it.
    TiedNotSummed { group: Name, made: Place, reduced: Place, called: Option<Place> },
    /// torch cuts the sequence of a batch, and a model reads its table of positions from the start.
    UncutBuffer { table: Name, read: Place },
    /// A wrapper is given one dim of a mesh; nothing sums over the other one.
    LeftDim { wrapper: Name, dim: Name, mesh: Place },
}
