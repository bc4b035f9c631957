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
    /// A collective that is reached only where its subject is None; where the subject is used.
    InvertedGuard { variable: Name, used: Place, collective: Name },
    /// An output buffer between a submodule and the result; where the function that holds it is called.
    GradientCut { collective: Name, call: Option<Place> },
    /// A raw reduction of what a differentiable collective reduces elsewhere.
    MixedGradient { collective: Name, differentiable: Name, other: Place },
    /// A buffer is read while a collective in the background may still write it.
    ReadInFlight { collective: Name, launched: Place, waited: Option<Place>, buffer: Name },
    /// A collective over all ranks that only some reach; `exit`: because the others have left.
    SomeRanks { collective: Name, condition: Place, exit: bool },
    /// A sum is divided by a count of one rank: a sum that was reduced, or a loss whose gradients a comment says are averaged.
    LocalCount { divided: Place, reduced: Option<Place>, comment: Option<Place> },
    /// Gradients are reduced when it is too late; where they are taken, and what came before.
    LateReduction { why: Late, gradients: Place, before: Place },
}

/// What comes before a reduction and should come after it.
#[derive(Clone, Debug, PartialEq)]
pub enum Late {
    Used,
    Cleared,
    Clipped,
    /// A method has added the gradients to others and cleared them.
    Moved {
        method: Name,
        call: Place,
    },
}
