//! Provenance: the place that decided a type, as a chain. In: places and reasons. Out: what becomes secondary labels.
//! Never: words, which `diagnostics/` chooses from the [`Reason`]. Next: `local_type.rs`.

use super::Spmd;
use crate::source::{Name, Place};
use std::sync::Arc;

/// Why a type holds at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// An annotation comment or a configured default.
    Declared,
    /// A call that states types in the code (`assert_type` and its kin).
    Asserted,
    /// The result of a collective or conversion, by its name in the source.
    Collective(Name),
    /// The result of an operation on other values.
    Computed,
    /// A factory with equal values on every rank.
    Factory,
    /// A parameter of a module, by the rule that says how it is split.
    Parameter,
    /// A parameter, by name, that is whole on every rank and carries no mark, so that nothing sums its gradient.
    Unmarked(Name),
    /// What decides whether such a parameter is marked, in other configurations.
    MarkedWhere,
    /// A parameter, by name, that is whole on every rank beside others that are split; who sums its gradient is not known.
    Whole(Name),
    /// The use that left only this possibility.
    Narrowed(Name),
    /// A value that differs by rank.
    RankDependent,
    /// A parallel mode, by name.
    Mode(Name),
    /// The contract of a called function.
    Contract(Name),
}

/// A step in the chain of places that decided a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub place: Place,
    pub reason: Reason,
    /// The type decided there, if it was a single one.
    pub decided: Option<Spmd>,
    pub from: Option<Arc<Origin>>,
    /// Where the backward of what decided it leaves each rank its own part of the gradient.
    pub keeps_part: Option<Place>,
}

impl Origin {
    pub fn new(place: Place, reason: Reason, decided: Option<Spmd>) -> Arc<Origin> {
        Arc::new(Origin { place, reason, decided, from: None, keeps_part: None })
    }

    /// Where the parameter without a mark was made in which the chain starts, if it does.
    pub fn unmarked(self: &Arc<Origin>) -> Option<Place> {
        let mut at = self;
        loop {
            if let Reason::Unmarked(_) = &at.reason {
                return Some(at.place);
            }
            at = at.from.as_ref()?;
        }
    }

    /// Whether the chain starts so, as far as that shows in a number of steps: long chains are walked at every operation otherwise.
    pub fn is_unmarked_within(self: &Arc<Origin>, steps: usize) -> bool {
        let chain = std::iter::successors(Some(self), |at| at.from.as_ref());
        chain.take(steps).any(|at| matches!(at.reason, Reason::Unmarked(_)))
    }

    /// The earliest step of the chain that is more than a computation, else the earliest step.
    pub fn root(self: &Arc<Origin>) -> Arc<Origin> {
        let mut at = self;
        while let Some(from) = &at.from {
            at = from;
        }
        at.clone()
    }
}
