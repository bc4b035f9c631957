//! Functions with several results: the gradient of each result has to come back right when those of the others are zero, with the same types
//! of the arguments. In: the terms of a case. Out: the typings that all results leave. Never: a function of which a result mixes gradients in
//! a way that is not linear. Source: DESIGN.md section 6. Next: `decide.rs`.

use super::derive::Case;
use super::meaning::{MOST_ARGUMENTS, Typings, signatures};
use crate::types::{AxisSet, Linearity, Spmd, Term};
use std::sync::Arc;

/// What the results of a function leave together.
pub struct Apart {
    /// Of the arguments, and of the result that is the tensor.
    pub typings: Typings,
    /// For each typing, the other results of which one is known, with the one that tells most.
    pub others: Vec<Vec<(usize, Spmd)>>,
    /// Whether each result has typings and they have none in common.
    pub conflict: bool,
}

/// The typings of a case with several results; `None`: it has one, or they are not told apart. `axes`: what the other results go over.
pub fn typings(case: &Case, gradients: &[(usize, &Term)], axes: &[AxisSet]) -> Option<Apart> {
    if case.others.is_empty() || axes.iter().any(|a| *a != case.axes) {
        return None;
    }
    let tracked: Vec<usize> = gradients.iter().map(|(i, _)| *i).collect();
    let mut found: Vec<(usize, Typings)> = Vec::new();
    let first = (case.output, &case.forward);
    for (output, forward) in std::iter::once(first).chain(case.others.iter().map(|(i, t)| (*i, t))) {
        let mut own: Vec<(usize, Term)> = Vec::new();
        for (argument, term) in gradients {
            own.extend(of_output(term, output)?.filter(|t| asks(t, output)).map(|t| (*argument, t)));
        }
        let own: Vec<(usize, &Term)> = own.iter().map(|(i, t)| (*i, t)).collect();
        let made = signatures(forward, &own, &tracked, &met(forward));
        match (found.is_empty(), made.1.is_empty()) {
            (true, true) => return None,
            // A result without a gradient, or of which nothing is known.
            (false, true) => {}
            (_, false) => found.push((output, made)),
        }
    }
    let mut inputs: Vec<usize> = found.iter().flat_map(|(_, (inputs, _))| inputs.clone()).collect();
    inputs.sort_unstable();
    inputs.dedup();
    if inputs.len() > MOST_ARGUMENTS {
        return None;
    }
    let (legal, others): (Vec<_>, Vec<_>) = common(&inputs, &found).into_iter().unzip();
    let conflict = legal.is_empty() && gradients.iter().all(|(_, t)| is_linear(t));
    Some(Apart { typings: (inputs, legal), others, conflict })
}

/// A typing of the arguments and the first result, and the types of the other results.
type Common = ((Vec<Spmd>, Spmd), Vec<(usize, Spmd)>);

/// The typings of all arguments that each result has, with those of the first result and the one that tells most of each other.
fn common(inputs: &[usize], found: &[(usize, Typings)]) -> Vec<Common> {
    let mut out = Vec::new();
    for code in 0..4_usize.pow(u32::try_from(inputs.len()).unwrap_or(0)) {
        let types: Vec<Spmd> = (0..inputs.len()).map(|k| Spmd::ALL[code / 4_usize.pow(k as u32) % 4]).collect();
        // The types that a result may have with these of the arguments, those that tell most first.
        let results = |(output, (own, legal)): &(usize, Typings)| -> Vec<(usize, Spmd)> {
            let each = inputs.iter().zip(&types).filter(|(i, _)| own.contains(i));
            let due: Vec<Spmd> = each.map(|(_, t)| *t).collect();
            legal.iter().filter(|(sources, _)| *sources == due).map(|(_, d)| (*output, *d)).collect()
        };
        let each: Vec<Vec<(usize, Spmd)>> = found.iter().map(results).collect();
        if let Some((first, rest)) = each.split_first()
            && let Some(others) = rest.iter().map(|types| types.first().copied()).collect::<Option<Vec<_>>>()
        {
            out.extend(first.iter().map(|(_, d)| ((types.clone(), *d), others.clone())));
        }
    }
    out
}

/// The arguments of which a forward brings the parts of the ranks together.
fn met(forward: &Term) -> Vec<usize> {
    let below = forward.steps().into_iter().filter(|s| s.communicates()).flat_map(Term::steps);
    let argument = |s: &Term| match s {
        Term::Arg(i) => Some(*i),
        _ => None,
    };
    below.filter_map(argument).collect()
}

/// Whether a backward does to gradients only what keeps the terms of a sum.
fn is_linear(term: &Term) -> bool {
    let steps = term.steps();
    let bends = |s: &&Term| matches!(s, Term::Math { linearity: Linearity::Nonlinear, .. }) && of_any(s);
    !steps.iter().any(bends)
}

fn of_any(term: &Term) -> bool {
    let steps = term.steps();
    steps.iter().any(|s| matches!(s, Term::Grad(_)))
}

/// Whether the gradient of an output is in a term.
fn asks(term: &Term, output: usize) -> bool {
    let steps = term.steps();
    steps.contains(&&Term::Grad(output))
}

/// A term where the gradients of the other outputs are zero, if that is known; inside `None`: nothing is left.
fn of_output(term: &Term, output: usize) -> Option<Option<Term>> {
    let others = |t: &Term| {
        let steps = t.steps();
        steps.iter().any(|s| matches!(s, Term::Grad(i) if *i != output))
    };
    if !others(term) {
        return Some(Some(term.clone()));
    }
    match term {
        Term::Grad(_) => Some(None),
        Term::Math { linearity: Linearity::Nonlinear, .. } => None,
        Term::Math { linearity, operands } => {
            let mut left: Vec<Arc<Term>> = Vec::new();
            for operand in operands {
                match (of_output(operand, output)?, linearity) {
                    (Some(t), _) => left.push(Arc::new(t)),
                    (None, Linearity::Linear) => {}
                    (None, _) => return Some(None),
                }
            }
            Some((!left.is_empty()).then(|| Term::Math { linearity: *linearity, operands: left }))
        }
        other => {
            let inner = of_output(other.inner()?, output)?;
            Some(inner.map(|x| other.with_inner(|_| Arc::new(x.clone()))))
        }
    }
}
