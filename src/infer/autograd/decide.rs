//! Which signatures the terms of a forward and a backward leave, and which of them tells most. In: a [`Case`] with its terms. Out: the
//! same with its signatures, or with what is wrong. Never: execution. Source: DESIGN.md section 6. Next: `apply.rs`.

use super::super::finding::Adjoint;
use super::super::formula::Facts;
use super::derive::{Case, Derived, Further, Signature, Trouble};
use super::numeric;
use super::outputs::Apart;
use crate::types::{AxisSet, Reduction, Spmd, Term};
use std::sync::Arc;

impl Derived {
    /// Whether each case has a signature, or shows what is wrong.
    pub fn is_conclusive(&self) -> bool {
        !self.cases.is_empty() && self.cases.iter().all(|c| !c.legal.is_empty() || c.trouble.is_some())
    }
}

/// Finds the signatures of a case.
pub fn decide(case: &mut Case, mesh: Option<AxisSet>) {
    let (forward, backward) = (axes_of([&case.forward]), axes_of(case.backward.iter()));
    let pure = case.backward.len() == 1
        && numeric::is_chain(&case.forward)
        && numeric::is_chain(&case.backward[0])
        && matches!(start(&case.backward[0]), Some(Term::Grad(i)) if *i == case.output)
        && matches!(start(&case.forward), Some(Term::Arg(i)) if *i == case.inputs[0]);
    let sets: Vec<&AxisSet> = forward.iter().chain(&backward).collect();
    match sets.as_slice() {
        [] if pure => case.axes = mesh.unwrap_or_default(),
        [] => {}
        [first, rest @ ..] if rest.iter().all(|s| s == first) => case.axes = (*first).clone(),
        _ => {
            let concrete = |sets: &[AxisSet]| match sets {
                [one] if one.iter().all(|a| !a.is_variable()) => Some(one.clone()),
                _ => None,
            };
            match (pure, concrete(&forward), concrete(&backward)) {
                (true, Some(f), Some(b)) => case.trouble = Some(Trouble::OtherGroup(f, b)),
                _ => decide_each(case, &sets.into_iter().cloned().collect::<Vec<_>>()),
            }
            return;
        }
    }
    if pure {
        let pairs = numeric::signatures(&case.forward, &case.backward[0]);
        let (from, to) = dims(&case.forward);
        case.legal = pairs
            .into_iter()
            .map(|(s, d)| Signature {
                sources: vec![(s, from.filter(|_| s == Spmd::Varying))],
                result: (d, to.filter(|_| d == Spmd::Varying)),
                others: Vec::new(),
            })
            .collect();
        if case.legal.is_empty() && (case.communicates() || case.splits()) {
            case.trouble = Some(Trouble::NotAdjoint);
        }
    } else {
        let unknown = |t: &Arc<Term>| {
            let steps = t.steps();
            steps.iter().any(|s| matches!(s, Term::Unknown))
        };
        // A gradient that is not followed, such as one that a kernel accumulates, says nothing; that of the first argument has to.
        let known: Vec<(usize, &Term)> = case
            .inputs
            .iter()
            .copied()
            .zip(&case.backward)
            .filter(|(_, t)| !unknown(t))
            .map(|(i, t)| (i, t.as_ref()))
            .collect();
        if unknown(&case.forward) || known.first().map(|(i, _)| *i) != case.inputs.first().copied() {
            return;
        }
        let tracked: Vec<usize> = known.iter().map(|(i, _)| *i).collect();
        let apart = super::outputs::typings(case, &known, &axes_of(case.others.iter().map(|(_, t)| t)));
        let ((inputs, legal), others) = match apart {
            Some(Apart { typings, others, conflict }) => {
                if conflict && known.len() == case.backward.len() && case.communicates() {
                    case.trouble = Some(Trouble::NotAdjoint);
                }
                (typings, others)
            }
            None => (super::meaning::signatures(&case.forward, &known, &tracked, &[]), Vec::new()),
        };
        case.legal = legal
            .into_iter()
            .zip(others.into_iter().chain(std::iter::repeat(Vec::new())))
            .map(|((sources, d), others)| Signature {
                sources: sources.into_iter().map(|s| (s, None)).collect(),
                result: (d, None),
                others,
            })
            .collect();
        case.inputs = inputs;
    }
    case.principal = principal(case, pure);
}

/// Whether a chain keeps the whole tensor under some signature once factors are left out, and does not with them.
pub fn fits_without_factor(case: &Case) -> bool {
    let [backward] = case.backward.as_slice() else { return false };
    if !(numeric::is_chain(&case.forward) && numeric::is_chain(backward)) {
        return false;
    }
    let (from, to) = dims(&case.forward);
    let whole = |forward: &Term, backward: &Term| {
        let dim = |t: Spmd, d: Option<usize>| d.filter(|_| t == Spmd::Varying);
        numeric::signatures(forward, backward)
            .into_iter()
            .any(|(s, d)| numeric::keeps_whole(forward, s, dim(s, from), d, dim(d, to)))
    };
    !whole(&case.forward, backward) && whole(&case.forward.without_factors(), &backward.without_factors())
}

/// Whether rows are exchanged, or sums of parts are given to whose rows they are, and their gradients come back the same way, divided by the
/// number of ranks.
pub fn returns_divided(case: &Case, backward: &Term) -> bool {
    let exchanged =
        case.forward.steps().iter().any(|s| matches!(s, Term::AllToAll { .. } | Term::ReduceScatter { .. }));
    let (forward, back) = (case.forward.without_factors(), backward.without_factors());
    exchanged && is_divided(backward) && !numeric::signatures(&forward, &back).is_empty()
}

/// Whether a step divides by a number of ranks.
pub fn is_divided(term: &Term) -> bool {
    term.steps().iter().any(|s| matches!(s, Term::Scale { up: false, .. }))
}

/// Whether a backward takes the mean over ranks of a gradient that its forward does not make with one.
pub fn is_mean(case: &Case, backward: &Term) -> bool {
    let by = |term: &Term, wanted: Reduction| {
        term.steps()
            .iter()
            .any(|s| matches!(s, Term::AllReduce { by, .. } | Term::ReduceScatter { by, .. } if *by == wanted))
    };
    let divided = by(backward, Reduction::Sum) && is_divided(backward);
    (by(backward, Reduction::Mean) || divided) && !by(&case.forward, Reduction::Mean)
}

/// Finds the signatures of a case on each of several groups. On one of them, what goes over another is local.
fn decide_each(case: &mut Case, sets: &[AxisSet]) {
    let mut groups: Vec<&AxisSet> = Vec::new();
    for set in sets {
        if !groups.contains(&set) {
            groups.push(set);
        }
    }
    let shared = |a: &AxisSet, b: &AxisSet| a.iter().any(|axis| b.contains(axis));
    if groups.iter().enumerate().any(|(i, a)| groups[..i].iter().any(|b| shared(a, b))) {
        return;
    }
    let mut found = Vec::new();
    for group in groups {
        let mut on = Case { further: Vec::new(), ..case.clone() };
        on.forward = Arc::new(case.forward.only_over(group));
        on.backward = case.backward.iter().map(|t| Arc::new(t.only_over(group))).collect();
        decide(&mut on, Some(group.clone()));
        let Some(principal) = on.principal else { return };
        on.axes = group.clone();
        found.push((on.axes, on.inputs, on.legal, principal));
    }
    let Some((axes, inputs, legal, principal)) = found.first().cloned() else { return };
    (case.axes, case.inputs, case.legal, case.principal) = (axes, inputs, legal, Some(principal));
    let further = found.into_iter().skip(1);
    case.further = further.map(|(axes, _, legal, principal)| Further { axes, legal, principal }).collect();
}

/// Ways through the bodies that nothing tells apart: those that fit, and of them those that communicate. Where none fits, all are kept.
/// `lost`: what is known on the ways that are not followed to their end.
pub fn told_apart(cases: Vec<Case>, lost: &[Facts]) -> Vec<Case> {
    let fits = |c: &Case| !c.legal.is_empty();
    let same = |a: &Case, b: &Case| (&a.axes, &a.inputs, &a.legal) == (&b.axes, &b.inputs, &b.legal);
    let mut out: Vec<Case> = Vec::new();
    for (i, case) in cases.iter().enumerate() {
        if cases[..i].iter().any(|c| c.facts == case.facts) {
            continue;
        }
        let twins: Vec<&Case> = cases[i..].iter().filter(|c| c.facts == case.facts).collect();
        let mut right: Vec<&Case> = twins.iter().copied().filter(|c| fits(c)).collect();
        if right.iter().any(|c| c.communicates()) {
            right.retain(|c| c.communicates());
        }
        let chosen = if right.is_empty() { twins } else { right.clone() };
        let unlike = chosen.iter().any(|c| !same(c, chosen[0]));
        // The way that is taken may be one of those that are not followed.
        let goes_here = |way: &Facts| way.iter().all(|(atom, value)| case.facts.get(atom) == Some(value));
        let elsewhere = lost.iter().any(goes_here);
        let open = elsewhere || chosen.iter().any(|c| c.legal.is_empty() && c.trouble.is_none());
        // What is known here says too little to tell this way from one that fits.
        let blurred = right.is_empty() && cases.iter().any(|c| fits(c) && c.facts.may_hold_with(&case.facts));
        let wrong = |c: &Case| {
            if (unlike || open || blurred) && c.legal.is_empty() && c.trouble == Some(Trouble::NotAdjoint) {
                None
            } else {
                c.trouble.clone()
            }
        };
        for (k, case) in chosen.iter().enumerate() {
            if !chosen[..k].iter().any(|c| same(c, case) && c.trouble == case.trouble) {
                // What is not followed may communicate.
                let ambiguous = unlike || elsewhere && !case.communicates();
                out.push(Case { ambiguous, trouble: wrong(case), ..(*case).clone() });
            }
        }
    }
    out
}

/// Where a chain starts.
fn start(term: &Term) -> Option<&Term> {
    match term.inner() {
        Some(x) => start(x),
        None => Some(term),
    }
}

fn axes_of<'a>(terms: impl IntoIterator<Item = &'a Arc<Term>>) -> Vec<AxisSet> {
    let mut out: Vec<AxisSet> = Vec::new();
    for axes in terms.into_iter().flat_map(|t| t.steps()).filter_map(Term::axes) {
        if !out.contains(axes) {
            out.push(axes.clone());
        }
    }
    out
}

/// The dims along which argument and result are split, by the first and last step that says.
fn dims(forward: &Term) -> (Option<usize>, Option<usize>) {
    let steps = forward.steps();
    let from = steps.iter().rev().find_map(|t| match t {
        Term::AllGather { dim, .. } => Some(*dim),
        Term::AllToAll { concat, .. } => Some(*concat),
        _ => None,
    });
    let to = steps.iter().find_map(|t| match t {
        Term::Split { dim, .. } | Term::ReduceScatter { dim, .. } => Some(*dim),
        Term::AllToAll { split, .. } => Some(*split),
        _ => None,
    });
    (from, to)
}

/// The signature that tells most: of a chain the one that keeps the whole tensor, else the one with most that is split, arguments that receive
/// a gradient first: positions and labels are what the result needs them to be.
fn principal(case: &Case, pure: bool) -> Option<Signature> {
    let order = |t: Spmd, best: [Spmd; 4]| best.iter().position(|b| *b == t).unwrap_or(4);
    let result = |s: &Signature| order(s.result.0, [Spmd::Replicate, Spmd::Invariant, Spmd::Varying, Spmd::Partial]);
    if pure {
        let keeps = |s: &&Signature| {
            let (source, from) = s.sources[0];
            numeric::keeps_whole(&case.forward, source, from, s.result.0, s.result.1)
        };
        // A forward that gives what it is given is no reduction: where the backward leaves a gradient that all have, all had the value.
        let first = match *case.forward {
            Term::Arg(_) => [Spmd::Invariant, Spmd::Partial, Spmd::Varying, Spmd::Replicate],
            _ => [Spmd::Partial, Spmd::Invariant, Spmd::Varying, Spmd::Replicate],
        };
        let source = |s: &Signature| order(s.sources[0].0, first);
        let rank = |s: &&Signature| (!keeps(s), source(s), result(s));
        return case.legal.iter().min_by_key(rank).cloned();
    }
    let split = |s: &Signature| s.sources.iter().filter(|(t, _)| *t == Spmd::Varying).count();
    let own = |s: &Signature, wanted: Spmd| {
        let sources = case.inputs.iter().zip(&s.sources);
        sources.filter(|(i, (t, _))| *t == wanted && case.gradients.contains(i)).count()
    };
    let told = |s: &Signature| (own(s, Spmd::Varying), own(s, Spmd::Invariant));
    case.legal.iter().max_by_key(|s| (told(s), std::cmp::Reverse(result(s)), split(s))).cloned()
}

/// Cases that say the same, once; if all do, in every configuration.
pub fn merged(cases: Vec<Case>, lost: &[Facts]) -> Vec<Case> {
    let same = |a: &Case, b: &Case| {
        (&a.axes, &a.inputs, a.output, a.outputs) == (&b.axes, &b.inputs, b.output, b.outputs)
            && (&a.legal, &a.principal, &a.trouble) == (&b.legal, &b.principal, &b.trouble)
    };
    match cases.split_first() {
        // Beside a way that is not followed, the others hold where they are taken.
        Some((first, rest)) if lost.is_empty() && rest.iter().all(|c| same(first, c)) => {
            vec![Case { facts: super::super::formula::Facts::default(), ..first.clone() }]
        }
        _ => cases,
    }
}

/// Backwards of one step that fit the forward of a case, the first ones that keep the whole tensor.
pub fn nearest(case: &Case) -> Vec<Adjoint> {
    let grad = Arc::new(Term::Grad(case.output));
    let (from, to) = dims(&case.forward);
    let axes = || case.axes.clone();
    let sum = Reduction::Sum;
    let mut candidates = vec![Term::AllReduce { axes: axes(), by: sum, x: grad.clone() }, grad.as_ref().clone()];
    for dim in from.into_iter().chain(to) {
        candidates.push(Term::ReduceScatter { axes: axes(), dim, by: sum, x: grad.clone() });
        candidates.push(Term::AllGather { axes: axes(), dim, x: grad.clone() });
        candidates.push(Term::Split { axes: axes(), dim, x: grad.clone() });
    }
    if let (Some(split), Some(concat)) = (from, to) {
        candidates.push(Term::AllToAll { axes: axes(), split, concat, x: grad });
    }
    let mut out: Vec<Adjoint> = Vec::new();
    for backward in candidates {
        let pairs = numeric::signatures(&case.forward, &backward);
        let dim = |t: Spmd, d: Option<usize>| d.filter(|_| t == Spmd::Varying);
        let fits = pairs.into_iter().map(|(s, d)| ((s, dim(s, from)), (d, dim(d, to))));
        let best =
            fits.filter(|(s, d)| numeric::keeps_whole(&case.forward, s.0, s.1, d.0, d.1)).max_by_key(|(s, d)| {
                (s.0 == Spmd::Partial, s.0 == Spmd::Invariant, d.0 == Spmd::Replicate, d.0 == Spmd::Invariant)
            });
        if let Some((source, result)) = best
            && !out.iter().any(|a| *a.backward == backward)
        {
            out.push(Adjoint { backward: Arc::new(backward), source, result });
        }
    }
    out
}
