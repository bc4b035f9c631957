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
    /// Of gradients and dims of distributed tensors.
    Placements(Placements),
}

/// Mistakes about placements of distributed tensors.
#[derive(Clone, Debug, PartialEq)]
pub enum Placements {
    /// `to_local()` or `full_tensor()` of a weight that meets values of one rank, without gradient placements.
    BareLocal { method: Name, weight: Name, meets: Place, evidence: Option<Place> },
    /// `local_map` whose input gradients are partial, without gradient placements, always or under a condition.
    RegionGradient { conditional: bool },
    /// A style that returns local tensors, used for a router without gradient placements.
    StyleGradient { style: Name, module: Name, parameter: Name, returns: Place },
    /// Another number of placements than the mesh has dims.
    Count { api: Name, given: usize, dims: usize, why: Option<Place> },
    /// A gather or a placement about another dim than the one that comments call the sequence.
    ShardDim { dim: usize, sequence: usize, why: Option<Place> },
}
