//! Who comes to a collective, how often and in which order, as data. In: nothing. Out: [`Coming`]. Never: prose.
//! Next: `diagnostics/words/practice_coming.rs`.

use crate::source::{Name, Place};

/// Ranks that do not come to the same collective.
#[derive(Clone, Debug, PartialEq)]
pub enum Coming {
    /// A group is made by the ranks for which a test on the rank holds; `exit`: because the others have left.
    MadeBySome { maker: Name, condition: Place, exit: bool },
    /// A group is made of ranks that the own rank has chosen; where.
    MadeOfOwn { maker: Name, ranks: Name, chosen: Place },
    /// The clock of each rank decides; what reads it, and `exit`: because the others leave.
    ByClock { collective: Name, clock: Name, call: Place, exit: bool },
    /// The loss of each rank decides whether it reaches a sum of gradients: a collective, or the backward pass of a wrapper.
    ByOwnLoss { collective: Name, loss: Name, call: Place },
    /// What this rank's samples contain decides whether it reaches a reduction; by which variable, and what it reaches.
    ByOwnData { collective: Name, tested: Name, call: Place },
    /// All ranks decide by a sum that `rank` alone has whether they come to a call: the reduction, where they decide, and what they come to.
    ByPartialSum { collective: Name, rank: i64, test: Place, call: Name, at: Place },
    /// Each rank looks at its own gradients whether to step; the group that is kept and never read.
    ByOwnGradients { group: Name, stored: Place },
    /// A scaler of losses looks at this rank's part of the gradients; the wrapper that splits them, and where; the scaler that asks all ranks.
    ByOwnPart { scaler: Name, wrapper: Name, wrapped: Place, instead: Name },
    /// A rank whose data has nothing to count has a constant for its loss; the backward pass, and the wrapper that sums in it.
    ConstantLoss { collective: Name, function: Name, tested: Name, call: Place },
    /// The ranks reach a sum that have put something into a list; where, and the ranks over which it is.
    OwnList { collective: Name, list: Name, over: Vec<Name>, put: Place, condition: Place },
    /// Ranks whose list of gradients is empty return before a sum over a group whose ranks have other parameters.
    NothingToAdd { collective: Name, list: Name, group: Name, reduced: Place, condition: Place },
    /// The order is that of a set, also where it is sorted by a key that is the same for many.
    SetOrder { collective: Name, call: Place, sorted: Option<Place> },
    /// On one side of a test of the rank the same collectives come in another order: what meets the first that differs.
    OtherOrder { collective: Name, other: (Name, Place), condition: Place },
    /// The rank that executes a call is its root; where it is asked for.
    OwnRoot { collective: Name, argument: Name, rank: Option<Place> },
    /// An operator is given as something else.
    OperatorAs { collective: Name, argument: Name },
    /// A rank in a group is given where one among all ranks is expected; where it is asked for.
    GroupRoot { collective: Name, argument: Name, rank: Place },
    /// The first rank alone sets a flag by which each rank leaves its loop; where, under which condition, and whether all meet at the place.
    StopOfOne { flag: Name, set: Place, condition: Place, waits: bool },
    /// A rank to which nothing was dealt out never comes to a collective of those among whom it was; where it is chosen, and what it misses.
    OwnsNone { collective: Name, list: Name, chosen: Place, call: Place },
    /// The number of a worker of a data loader is given as the rank among all.
    WorkerAsRank { function: Name, given: Name },
}
