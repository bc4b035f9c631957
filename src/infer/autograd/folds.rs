//! Dims that a forward reduces on each rank and then over the ranks: the dim along which its argument is split. In: reductions along a
//! dim, and all-reduces of what they give. Out: arguments with that dim. Never: types; it only tells which dim a Varying argument has.
//! Source: DESIGN.md section 6. Next: `terms.rs`, which notes both.

use super::super::machine::Machine;
use crate::types::Term;
use std::sync::Arc;

/// Operations that reduce along the dim that they are given.
const FOLDS: &[&str] = &["max", "amax", "min", "amin", "sum", "logsumexp"];
/// Reductions that are kept of one body.
const MOST_FOLDS: usize = 32;

/// What a derivation knows of reductions.
#[derive(Clone, Debug, Default)]
pub struct Folds {
    /// Results of reductions along a dim.
    local: Vec<(Arc<Term>, usize)>,
    /// Arguments that are reduced along a dim and then over the ranks; `None` where two dims are.
    pub over_ranks: Vec<(usize, Option<usize>)>,
    /// Whether the forward is done.
    pub done: bool,
}

/// Whether an operation reduces along the dim that it is given.
pub fn is_fold(operation: &str) -> bool {
    FOLDS.contains(&operation)
}

impl Machine<'_> {
    /// Notes what a reduction along a dim gives.
    pub fn note_fold(&mut self, dim: Option<usize>, result: &Arc<Term>) {
        let Some(folds) = self.deriving.as_mut().map(|d| &mut d.folds) else { return };
        if let Some(dim) = dim.filter(|_| folds.local.len() < MOST_FOLDS) {
            folds.local.push((result.clone(), dim));
        }
    }

    /// Notes an all-reduce: of what was reduced along a dim, and is made of one argument.
    pub fn note_all_reduced(&mut self, x: &Arc<Term>) {
        let Some(folds) = self.deriving.as_mut().map(|d| &mut d.folds).filter(|f| !f.done) else { return };
        let Some((_, dim)) = folds.local.iter().rev().find(|(t, _)| t == x) else { return };
        let dim = *dim;
        let steps = x.steps();
        let mut arguments: Vec<usize> = steps
            .iter()
            .filter_map(|s| match s {
                Term::Arg(i) => Some(*i),
                _ => None,
            })
            .collect();
        arguments.sort_unstable();
        arguments.dedup();
        let [argument] = arguments.as_slice() else { return };
        match folds.over_ranks.iter_mut().find(|(a, _)| a == argument) {
            Some((_, known)) => *known = known.filter(|d| *d == dim),
            None => folds.over_ranks.push((*argument, Some(dim))),
        }
    }
}
