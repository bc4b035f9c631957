//! Signatures of functions with local mathematics between their collectives: whether values are equal, different or a pending sum.
//!
//! In: terms of forward and backward and a type for each tensor argument. Out: whether the gradient of every argument is what its type
//! demands. Never: numbers; local mathematics is assumed right. Source: DESIGN.md section 6. Next: `derive.rs`.

use crate::types::{Linearity, Reduction, Spmd, Term};
use std::sync::Arc;

/// What the values of the ranks are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Meaning {
    Equal,
    Different,
    /// Terms of a sum.
    Sum,
}

impl Meaning {
    pub fn of(t: Spmd) -> Meaning {
        match t {
            Spmd::Replicate | Spmd::Invariant => Meaning::Equal,
            Spmd::Varying => Meaning::Different,
            Spmd::Partial => Meaning::Sum,
        }
    }
}

/// The meaning of a term; `None` if it has none, or reduces what is equal already.
pub fn meaning(term: &Term, args: &dyn Fn(usize) -> Meaning, grad: Meaning) -> Option<Meaning> {
    let of = |t: &Term| meaning(t, args, grad);
    Some(match term {
        Term::Arg(i) => args(*i),
        Term::Grad(_) => grad,
        Term::Equal | Term::Fresh => Meaning::Equal,
        Term::AllReduce { by: Reduction::Sum, x, .. } | Term::ReduceScatter { by: Reduction::Sum, x, .. }
            if adds_equal(x, &of) =>
        {
            return None;
        }
        Term::AllReduce { by, x, .. } => match (of(x)?, by) {
            (Meaning::Equal, Reduction::Sum) => return None,
            (Meaning::Sum, Reduction::Other) => return None,
            _ => Meaning::Equal,
        },
        Term::AllGather { x, .. } => match of(x)? {
            Meaning::Different => Meaning::Equal,
            Meaning::Equal | Meaning::Sum => return None,
        },
        Term::ReduceScatter { by, x, .. } => match (of(x)?, by) {
            (Meaning::Equal, Reduction::Sum) => return None,
            _ => Meaning::Different,
        },
        Term::AllToAll { x, .. } => match of(x)? {
            Meaning::Different => Meaning::Different,
            Meaning::Equal | Meaning::Sum => return None,
        },
        Term::Split { x, .. } => match of(x)? {
            Meaning::Equal => Meaning::Different,
            Meaning::Different | Meaning::Sum => return None,
        },
        Term::Mask { x, .. } => match of(x)? {
            Meaning::Equal => Meaning::Sum,
            other => other,
        },
        Term::Broadcast { .. } => Meaning::Equal,
        Term::Scale { x, .. } | Term::Moved { x, .. } | Term::Swapped { x, .. } => of(x)?,
        Term::Chunk { x, .. } | Term::Fixed { x, .. } => of(x)?,
        Term::Gathered { .. } | Term::Exchanged { .. } | Term::Stacked { .. } => return None,
        Term::Math { linearity, operands } => {
            let operands: Option<Vec<Meaning>> = operands.iter().map(|o| of(o)).collect();
            return combined(*linearity, &operands?);
        }
        Term::Unknown => return None,
    })
}

/// Whether a value that all ranks have alike is added to what differs, before a sum over the ranks: it would count once for each of them.
fn adds_equal(term: &Term, of: &dyn Fn(&Term) -> Option<Meaning>) -> bool {
    // A bias, and no statistic of all ranks, which a mask may leave out on all ranks but one.
    let is_given = |t: &Term| {
        let own = |s: &&Term| matches!(s, Term::Arg(_) | Term::Moved { .. });
        t.steps().iter().all(own)
    };
    match term {
        Term::Math { linearity: Linearity::Linear, operands } => {
            let equal = |o: &Arc<Term>| of(o) == Some(Meaning::Equal) && is_given(o);
            let mixed = operands.iter().any(equal) && operands.iter().any(|o| of(o) != Some(Meaning::Equal));
            mixed || operands.iter().any(|o| adds_equal(o, of))
        }
        Term::Scale { x, .. } | Term::Moved { x, .. } => adds_equal(x, of),
        _ => false,
    }
}

fn combined(linearity: Linearity, operands: &[Meaning]) -> Option<Meaning> {
    let has = |m: Meaning| operands.contains(&m);
    let sums = operands.iter().filter(|m| **m == Meaning::Sum).count();
    if sums == 0 {
        return Some(if has(Meaning::Different) { Meaning::Different } else { Meaning::Equal });
    }
    match linearity {
        Linearity::Linear if sums == operands.len() => Some(Meaning::Sum),
        // What differs is taken for the terms of a sum.
        Linearity::Linear if !has(Meaning::Equal) => Some(Meaning::Different),
        Linearity::Multilinear if sums == 1 && !has(Meaning::Different) => Some(Meaning::Sum),
        Linearity::Linear | Linearity::Multilinear | Linearity::Nonlinear => None,
    }
}

/// Whether a gradient of this meaning is what a value of this type needs.
fn serves(gradient: Meaning, t: Spmd) -> bool {
    match t {
        // What differs is taken for the terms of the sum that is due.
        Spmd::Replicate => gradient != Meaning::Equal,
        Spmd::Invariant | Spmd::Partial => gradient == Meaning::Equal,
        Spmd::Varying => gradient == Meaning::Different,
    }
}

/// Arguments of which a function may have so many; more are not enumerated.
pub const MOST_ARGUMENTS: usize = 6;

/// The arguments that terms are made of.
fn arguments(terms: &[&Term]) -> Vec<usize> {
    let mut out: Vec<usize> = Vec::new();
    for step in terms.iter().flat_map(|t| t.steps()) {
        if let Term::Arg(i) = step
            && !out.contains(i)
        {
            out.push(*i);
        }
    }
    out.sort_unstable();
    out
}

/// The arguments, and types of each with that of the result.
pub type Typings = (Vec<usize>, Vec<(Vec<Spmd>, Spmd)>);

/// Every typing of the arguments and the result: the forward has a meaning, and the backward gives each argument its gradient. Of an
/// argument without a gradient, which is not `tracked`, any type will do that needs none; that of one whose parts have `met` may happen to be equal. Also the arguments, in the order of the types.
pub fn signatures(forward: &Term, gradients: &[(usize, &Term)], tracked: &[usize], met: &[usize]) -> Typings {
    let mut out = Vec::new();
    let mut terms: Vec<&Term> = gradients.iter().map(|(_, t)| *t).collect();
    terms.push(forward);
    let mut inputs = arguments(&terms);
    inputs.extend(gradients.iter().map(|(i, _)| *i));
    inputs.sort_unstable();
    inputs.dedup();
    if inputs.is_empty() || inputs.len() > MOST_ARGUMENTS || gradients.is_empty() {
        return (inputs, out);
    }
    let free = |i: usize| !tracked.contains(&i);
    for code in 0..4_usize.pow(u32::try_from(inputs.len()).unwrap_or(0)) {
        let types: Vec<Spmd> = (0..inputs.len()).map(|k| Spmd::ALL[code / 4_usize.pow(k as u32) % 4]).collect();
        if inputs.iter().zip(&types).any(|(i, t)| free(*i) && matches!(t, Spmd::Invariant | Spmd::Partial)) {
            continue;
        }
        let at = |i: usize| inputs.iter().position(|arg| *arg == i);
        let of = |i: usize| at(i).map_or(Meaning::Equal, |k| Meaning::of(types[k]));
        let Some(result) = meaning(forward, &of, Meaning::Equal) else { continue };
        let results: &[Spmd] = match result {
            Meaning::Equal => &[Spmd::Replicate, Spmd::Invariant],
            Meaning::Different => &[Spmd::Varying, Spmd::Partial],
            Meaning::Sum => &[Spmd::Partial],
        };
        for d in results {
            let dual = Meaning::of(d.dual());
            let right = gradients.iter().all(|(i, term)| {
                let t = at(*i).map_or(Spmd::Replicate, |k| types[k]);
                let alike = |g| t == Spmd::Varying && g == Meaning::Equal && met.contains(i);
                meaning(term, &of, dual).is_some_and(|g| serves(g, t) || alike(g))
            });
            if right {
                out.push((types.clone(), *d));
            }
        }
    }
    // What reaches the result through a sum or an exchange alone has a part of its gradient on every rank.
    let known = |(types, d): &(Vec<Spmd>, Spmd)| {
        gradients.iter().all(|(i, term)| {
            at_all(&inputs, types, *i) != Some(Spmd::Varying)
                || !lacks_exchange(forward, *i, term, Meaning::of(d.dual()))
        })
    };
    let sound: Vec<_> = out.iter().filter(|typing| known(typing)).cloned().collect();
    (inputs, if sound.is_empty() { out } else { sound })
}

/// The type of an argument in a typing.
fn at_all(inputs: &[usize], types: &[Spmd], i: usize) -> Option<Spmd> {
    inputs.iter().position(|arg| *arg == i).map(|k| types[k])
}

/// Whether the result depends on an argument of other ranks alone through collectives, each rank has a gradient of its own, and the gradient of
/// the argument is made without any.
fn lacks_exchange(forward: &Term, i: usize, gradient: &Term, given: Meaning) -> bool {
    let exchanged =
        |t: &&Term| t.communicates() || matches!(t, Term::Gathered { .. } | Term::Exchanged { .. } | Term::Unknown);
    let (all, apart) = uses(forward, i, false);
    given != Meaning::Equal && all > 0 && all == apart && !gradient.steps().iter().any(exchanged)
}

/// How often an argument occurs in a term, and how often below a sum or a gather over ranks.
fn uses(term: &Term, i: usize, below: bool) -> (usize, usize) {
    match term {
        Term::Arg(arg) => (usize::from(*arg == i), usize::from(*arg == i && below)),
        Term::Math { operands, .. } => {
            operands.iter().map(|o| uses(o, i, below)).fold((0, 0), |(a, b), (c, d)| (a + c, b + d))
        }
        Term::AllReduce { by: Reduction::Sum, x, .. } | Term::AllGather { x, .. } => uses(x, i, true),
        other => other.inner().map_or((0, 0), |x| uses(x, i, below)),
    }
}
