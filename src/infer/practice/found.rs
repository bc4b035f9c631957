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
}
