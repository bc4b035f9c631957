//! Products and exchanges in the wrong order. In: the terms of a case. Out: an argument whose gradient is multiplied before it is
//! exchanged, or after, where the forward has it the other way round; a backward that repeats the exchange of the forward as it is.
//! Never: functions whose other factor may be the same on all ranks. Source: DESIGN.md section 6. Next: `derive.rs`.

use super::super::formula::Atom;
use super::derive::Case;
use crate::types::{AxisSet, Linearity, Reduction, Term};
use std::sync::Arc;

/// A gradient with product and exchange in the wrong order.
pub struct Misordered {
    pub argument: usize,
    /// What it is multiplied with.
    pub other: usize,
    pub product: Arc<Term>,
    /// Exchanged before the product, where the sum of the products is due.
    pub early: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exchange {
    Gather(usize),
    Scatter(usize),
    Sum,
}

/// Where a factor of a product comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaf {
    Arg(usize),
    Grad,
}

struct Factor {
    exchanged: Vec<Exchange>,
    leaf: Leaf,
}

/// A product of two, what is done to each factor before it, and to the product.
struct Product {
    after: Vec<Exchange>,
    factors: [Factor; 2],
    term: Arc<Term>,
}

/// A gradient that is gathered or summed after its product with a weight of which the forward sums the products over the ranks, and so has
/// parts; or that is scattered before the product, where the forward gathers the factor.
pub fn misordered(forward: &Term, gradients: &[(usize, Arc<Term>)]) -> Option<Misordered> {
    let mut groups = Vec::new();
    std::iter::once(forward).chain(gradients.iter().map(|(_, t)| &**t)).for_each(|t| exchanged_over(t, &mut groups));
    if groups.windows(2).any(|pair| pair[0] != pair[1]) {
        // Parts of rows over one group and of columns over another: what has to be summed over which is not known here.
        return None;
    }
    let made = product(&Arc::new(forward.clone()))?;
    let backward: Vec<(usize, Product)> = gradients.iter().filter_map(|(i, t)| Some((*i, product(t)?))).collect();
    for k in 0..2 {
        let (own, other) = (&made.factors[k], &made.factors[1 - k]);
        let (Leaf::Arg(argument), Leaf::Arg(weight)) = (own.leaf, other.leaf) else { return None };
        if argument == weight || !other.exchanged.is_empty() {
            continue;
        }
        let of = |i: usize| backward.iter().find(|(arg, _)| *arg == i).map(|(_, p)| p);
        // Of a weight that all ranks have alike, somebody sums the gradient; here that would be the function itself.
        let (Some(gradient), Some(weights)) = (of(argument), of(weight)) else { continue };
        if !weights.after.is_empty() {
            continue;
        }
        let Some(upstream) = upstream(gradient, weight) else { continue };
        let early = match (made.after.as_slice(), own.exchanged.as_slice()) {
            ([Exchange::Scatter(d)], []) if is(&gradient.after, Exchange::Gather(*d)) && upstream.is_empty() => false,
            ([Exchange::Sum], []) if is(&gradient.after, Exchange::Sum) && upstream.is_empty() => false,
            ([], [Exchange::Gather(d)]) if is(upstream, Exchange::Scatter(*d)) && gradient.after.is_empty() => true,
            _ => continue,
        };
        return Some(Misordered { argument, other: weight, product: gradient.term.clone(), early });
    }
    None
}

/// The groups over which a term exchanges.
fn exchanged_over<'t>(term: &'t Term, out: &mut Vec<&'t AxisSet>) {
    let steps = term.steps();
    out.extend(steps.into_iter().filter_map(|step| match step {
        Term::AllGather { axes, .. } | Term::ReduceScatter { axes, .. } | Term::AllReduce { axes, .. } => Some(axes),
        _ => None,
    }));
}

fn is(found: &[Exchange], wanted: Exchange) -> bool {
    found == [wanted]
}

/// What is done to the gradient of the result before its product with an argument as it is.
fn upstream(gradient: &Product, other: usize) -> Option<&[Exchange]> {
    let [a, b] = &gradient.factors;
    let (grad, arg) = if a.leaf == Leaf::Grad { (a, b) } else { (b, a) };
    (grad.leaf == Leaf::Grad && arg.leaf == Leaf::Arg(other) && arg.exchanged.is_empty())
        .then_some(grad.exchanged.as_slice())
}

/// The one exchange that a step is, and what it is of.
fn exchange(term: &Term) -> Option<(Exchange, &Arc<Term>)> {
    match term {
        Term::AllGather { dim, x, .. } => Some((Exchange::Gather(*dim), x)),
        Term::ReduceScatter { dim, by: Reduction::Sum, x, .. } => Some((Exchange::Scatter(*dim), x)),
        Term::AllReduce { by: Reduction::Sum, x, .. } => Some((Exchange::Sum, x)),
        _ => None,
    }
}

/// What is left of a term without its exchanges, from the outermost on, and without what only swaps dims.
fn unexchanged<'t>(mut term: &'t Arc<Term>, exchanges: &mut Vec<Exchange>) -> &'t Arc<Term> {
    loop {
        term = match (exchange(term), term.as_ref()) {
            (Some((step, x)), _) => {
                exchanges.push(step);
                x
            }
            (None, Term::Swapped { x, .. } | Term::Fixed { x, .. }) => x,
            (None, _) => return term,
        };
    }
}

fn product(term: &Arc<Term>) -> Option<Product> {
    let mut after = Vec::new();
    let mut at = term;
    loop {
        at = unexchanged(at, &mut after);
        match at.as_ref() {
            Term::Math { linearity: Linearity::Linear, operands } => {
                let mut products = operands.iter().filter(|o| product(o).is_some());
                let (Some(one), None) = (products.next(), products.next()) else { return None };
                at = one;
            }
            Term::Math { linearity: Linearity::Multilinear, operands } => {
                let [a, b] = operands.as_slice() else { return None };
                return Some(Product { after, factors: [factor(a)?, factor(b)?], term: at.clone() });
            }
            _ => return None,
        }
    }
}

fn factor(term: &Arc<Term>) -> Option<Factor> {
    let mut exchanged = Vec::new();
    let mut at = term;
    loop {
        at = unexchanged(at, &mut exchanged);
        match at.as_ref() {
            Term::Math { linearity: Linearity::Linear, operands } => {
                let [one] = operands.as_slice() else { return None };
                at = one;
            }
            Term::Arg(i) => return Some(Factor { exchanged, leaf: Leaf::Arg(*i) }),
            Term::Grad(_) => return Some(Factor { exchanged, leaf: Leaf::Grad }),
            _ => return None,
        }
    }
}

/// Whether the backward exchanges parts along the same two dims as the forward and in the same direction: right for a single dim only,
/// for which nobody needs two.
pub fn is_repeated(case: &Case) -> bool {
    let [backward] = case.backward.as_slice() else { return false };
    match (case.forward.as_ref(), backward.as_ref()) {
        (
            Term::AllToAll { axes: a, split: s, concat: c, x: forward },
            Term::AllToAll { axes: b, split: t, concat: d, x: backward },
        ) => {
            let whole = matches!((forward.as_ref(), backward.as_ref()), (Term::Arg(_), Term::Grad(_)));
            whole && (a, s, c) == (b, t, d) && s != c
        }
        _ => false,
    }
}

/// Whether a case stands on two numbers that lie on the same side of a third one (`scatter_idx < 2` and `gather_idx < 2`): two dims of which one is
/// split where the other is put together are told apart by such a test, and callers give one on each side.
pub fn is_one_sided(case: &Case) -> bool {
    let sides: Vec<(&str, &str, bool)> = case
        .facts
        .iter()
        .filter_map(|(atom, holds)| match atom {
            Atom::True(test) => test.split_once(' ').map(|(number, side)| (number, side, holds)),
            Atom::IsNone(_) | Atom::Equals(..) => None,
        })
        .filter(|(_, side, _)| side.starts_with(['<', '>']))
        .collect();
    let alike = |a: &(&str, &str, bool), b: &(&str, &str, bool)| a.0 != b.0 && (a.1, a.2) == (b.1, b.2);
    sides.iter().enumerate().any(|(i, a)| sides[..i].iter().any(|b| alike(a, b)))
}
