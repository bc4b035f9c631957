//! What code leaves out that everything around it was made for, as data. In: nothing. Out: [`Omission`]. Never: prose.
//! Next: `diagnostics/words/practice_omissions.rs`.

use crate::source::{Name, Place};

/// Mistakes of which the preparation stands there, and the deed does not.
#[derive(Clone, Debug, PartialEq)]
pub enum Omission {
    /// Tensors are flattened and unflattened again, and nothing happens to the flat one. `back`: where it is taken apart.
    FlatUnchanged { flat: Name, list: Name, back: Place },
    /// A test for flat parameters, where the wrapper keeps the original ones.
    NeverFlat { parameter: Name, wrapped: Place },
    /// Overflow in the shard of the gradients that this rank has decides about its step.
    OverflowOfShard { stepped: Place },
    /// Overflow in this rank's gradients, in a job in which ranks have different ones. `looked`: where it is looked for.
    OverflowOfRank { flag: Name, looked: Place },
    /// A backward that gives what it has received, where a variable of the module says that gradients are divided.
    DivisionNotAsked { function: Name, switch: Name, set: Place, exchanged: Place },
    /// Overflow is shared with the ranks of a group, where others have different gradients too. `asked`: the test that says so.
    ScalerOfFewer { group: Name, whole: Name, asked: Place },
    /// A norm scales gradients, and the ranks with other parts of the model are given and never asked.
    RanksNotAsked { ranks: Name, given: Place, norm: Place },
    /// Gradients are divided by the number of sequence-parallel ranks too, a number that is kept and never read.
    SequenceDivided { number: Name, kept: Place, divided: Place },
    /// One of two reductions over a group is not given the number by which they divide, and divides by all of its ranks.
    SizeNotGiven { function: Name, size: Name, made: Place, divided: Place },
    /// A loss is multiplied by the number of some ranks, and counted over those whose gradients are averaged.
    SizeOfFewer { size: Name, group: Name, counted: Place },
    /// A loss is multiplied by the number of data ranks, and gradients are averaged over context ranks as well. `gathered`: where this rank's part of
    /// the sequence is put among the others.
    FewerUndone { factor: Name, mean: Place, gathered: Place },
    /// Slopes of attention heads that every rank takes from the first on.
    SlopesOfFirst { builder: Name },
    /// A module steps inside of its forward with the gradients of this rank, and sums other things. `summed`: where.
    InnerStep { backward: Place, summed: Place, ignored: bool },
}
