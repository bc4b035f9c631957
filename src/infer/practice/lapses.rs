//! Lapses in hooks, handles and arguments, as data. In: nothing. Out: [`Lapse`]. Never: prose. Next: `diagnostics/words/practice_lapses.rs`.

use crate::source::{Name, Place};

/// What is written a little otherwise than it is meant.
#[derive(Clone, Debug, PartialEq)]
pub enum Lapse {
    /// A hook that is made in a loop and communicates what a variable of the loop holds when it runs.
    LateHook { variable: Name, collective: Name, round: Place },
    /// A function that is to reduce gradients, by its name, reduces the parameters.
    ParameterReduced { function: Name, parameter: Name, collective: Name },
    /// Gradients are summed, and what is divided by the number of ranks is the parameter.
    ParameterDivided { parameter: Name, collective: Name, summed: Place },
    /// A function starts a collective and returns its handle, and this call drops it; a call that keeps it.
    HandleDropped { function: Name, started: Place, kept: Place },
    /// The forward of an autograd function keeps arguments for its backward and leaves them out where it communicates itself.
    NotHandedOn { class: Name, function: Name, arguments: Vec<Name>, kept: Place },
    /// What an autograd function does in its forward is called around it on the other side of a test.
    AroundFunction { class: Name, collective: Name, call: Place, applied: Place },
    /// A sum over all ranks in a loss passes the gradient of each rank on as it is; what makes something of it that is not linear.
    SumInLoss { collective: Name, value: Name, bends: Place },
    /// Weights are gathered without gradients, where a variable is the weights themselves on the other side of a test.
    WeightsCut { collective: Name, value: Name, kept: Place },
    /// A sum over ranks without a sum in its backward meets the parts that it was made of.
    /// `backward`: what its backward returns, where the sum is a function of the project.
    StatisticMeets { collective: Name, made: Place, meets: Place, backward: Option<Place> },
    /// A list has one tensor many times, and a collective writes to each of its entries; where that is called.
    OneBuffer { collective: Name, list: Option<Name>, call: Place },
    /// A gradient is computed where that of another input is asked for: the input that is asked for, the one that it is returned for, and where.
    NeededOther { gradient: Name, asked: usize, returned: usize, input: Name, at: Place },
    /// A buffer is computed with, or returned from what is named after a collective, and nothing writes to it; what makes it and where.
    NeverFilled { buffer: Name, by: Name, made: Place, returned: bool },
    /// What a buffer holds is divided by the number of ranks in each round, and what is summed over them and added to it is not.
    HeldScaled { held: Name, reduced: Name, summed: Place, added: Place },
    /// An input goes on as it is on one side of a flag, and through a gather whose backward sums on the other; the weight that it meets, and
    /// where the output is summed all the same. `flag`: with its value where the gather runs.
    PlainInput {
        input: Name,
        flag: (Name, bool),
        weight: Name,
        collective: Name,
        gathered: Place,
        used: Place,
        summed: Place,
        repair: Option<Name>,
    },
    /// Weights that come of an input as it was are multiplied with what comes of its copy, whose gradient is summed; where the copy is made,
    /// and where the products are summed over the ranks.
    BesideCopy { input: Name, weights: Name, function: Name, copied: Place, summed: Place },
    /// A loss is a mean over the tokens of one rank, and the gradient of a weight is summed over the ranks that have the others.
    MeansSummed {
        loss: Option<Name>,
        weight: Name,
        mark: Name,
        axes: Vec<Name>,
        mean: Place,
        marked: Place,
        attached: Place,
    },
    /// A bias that every rank has in full is added before a sum over the ranks; where the weight beside it is cut for them.
    WholeBias { bias: Name, summed: Place, cut: Place },
    /// A function returns the mean over the tokens of one rank, and never reads the count of all of them that it is given.
    CountUnread { function: Name, parameter: Name, summed: Place, given: Place },
    /// A rank's share of a loss over the tokens of a group is multiplied by the tokens of this rank; what says that it is a share,
    /// and where these are counted, if that is elsewhere.
    OwnTokens { loss: Option<Name>, count: Option<Name>, group: Name, shared: Place, counted: Option<Place> },
}
