//! What was forgotten or mistaken in a softmax that is put together from the parts of the ranks, as data. In: nothing. Out: [`Apart`]. Never: prose.
//! Next: `diagnostics/words/practice_pieces.rs`.

use crate::source::{Name, Place};

/// What each rank has of its own part, and all need of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Largest,
    /// The sum of exponentials.
    Total,
    /// The entry of the label, zero where another rank has it.
    Entry,
}

/// One of them, by the name it has in the code.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    pub what: What,
    pub name: Option<Name>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Apart {
    /// Nothing reduces it over ranks, and another is reduced; where it is made, and that one reduced.
    NotReduced { piece: Named, made: Place, other: Named, reduced: Place },
    /// The reduction is another one than it needs.
    OtherReduction { piece: Named, given: Name, other: Named, reduced: Place },
    /// It is reduced over other ranks; none: over all.
    OtherRanks { piece: Named, over: Vec<Name>, other: Named, others: Vec<Name>, reduced: Place },
}
