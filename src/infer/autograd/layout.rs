//! A gradient that is used before it is in the layout of what it is multiplied with. In: the terms of a case and where its products were
//! made. Out: the argument whose gradient is wrong, and the product. Never: types. Source: DESIGN.md section 6. Next: `derive.rs`.

use crate::source::Place;
use crate::types::Term;
use std::sync::Arc;

/// The first argument whose gradient multiplies the gradient of the result, as it comes, with what the forward computed before it
/// exchanged its parts among the ranks; elsewhere the backward exchanges that gradient first.
pub fn before_exchange(
    forward: &Term,
    gradients: &[(usize, Arc<Term>)],
    products: &[(Place, Arc<Term>)],
) -> Option<(usize, Place)> {
    let Term::AllToAll { x, .. } = forward else { return None };
    if !matches!(x.as_ref(), Term::Math { .. }) || !gradients.iter().any(|(_, t)| exchanges(t)) {
        return None;
    }
    gradients.iter().find_map(|(argument, term)| {
        let product = mixing(term)?;
        let (place, _) = products.iter().find(|(_, t)| **t == *product)?;
        Some((*argument, *place))
    })
}

/// Whether the gradient of the result is sent to other ranks in a term.
fn exchanges(term: &Term) -> bool {
    let steps = term.steps();
    steps.iter().any(|s| matches!(s, Term::AllToAll { x, .. } if leaves(x).0))
}

/// Whether the gradient of the result, and whether an argument, are in a term as they are on the rank.
fn leaves(term: &Term) -> (bool, bool) {
    match term {
        Term::Grad(_) => (true, false),
        Term::Arg(_) => (false, true),
        Term::Math { operands, .. } => {
            operands.iter().map(|o| leaves(o)).fold((false, false), |a, b| (a.0 || b.0, a.1 || b.1))
        }
        Term::Swapped { x, .. } | Term::Fixed { x, .. } => leaves(x),
        _ => (false, false),
    }
}

/// The innermost product of both in a term, if nothing is sent after it.
fn mixing(term: &Term) -> Option<&Term> {
    let inner = match term {
        Term::Math { operands, .. } => operands.iter().find_map(|o| mixing(o)),
        Term::Swapped { x, .. } | Term::Fixed { x, .. } => mixing(x),
        _ => None,
    };
    let product = |t: &Term| matches!(t, Term::Math { .. }) && leaves(t) == (true, true);
    inner.or_else(|| Some(term).filter(|t| product(t)))
}
