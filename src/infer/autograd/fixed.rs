//! Backwards that give every rank the same part of a gradient, of an argument that the forward gathers along that dim. In: parts at places
//! that are written down, while a backward runs; the terms of a case. Out: whether with each rank's own part the pair would fit. Never:
//! types. Source: DESIGN.md section 6. Next: `derive.rs`.

use super::super::expr::CallArgs;
use super::super::formula::{Atom, Facts};
use super::super::machine::Machine;
use super::super::ops::OpCall;
use super::super::value::Value;
use super::decide::decide;
use super::derive::{Case, Trouble};
use crate::ir::{Const, Operand};
use crate::source::Place;
use crate::types::{TensorType, Term};
use std::sync::Arc;

/// Parts that are kept of one derivation.
const MOST_PARTS: usize = 64;

/// What a derivation knows of parts.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// The terms of parts of which there is one for each rank, as they were made.
    each: Vec<Arc<Term>>,
    /// The terms of such parts along a dim of their own.
    stacked: Vec<Arc<Term>>,
    /// Parts that are the same on every rank, and where they are taken.
    fixed: Vec<(Place, Arc<Term>)>,
    /// Whether the forward takes a part of what it gathers, which may be another one on each rank.
    cut: bool,
}

impl Machine<'_> {
    /// Notes that a tensor is cut into one part for each rank, or into parts of a size that is not written down.
    pub fn note_parts(&mut self, call: &OpCall<'_>, args: &CallArgs, part: &Arc<Term>) {
        let given = call.bound.first(1).map(|i| &args.args[i].value);
        let last = call.rule.name.rsplit('.').next().unwrap_or(&call.rule.name);
        let each = match given {
            Some(Value::Size(_)) => last != "split",
            Some(Value::Number(None) | Value::Share(_)) => last == "split",
            _ => false,
        };
        if each {
            self.note_part(part);
        }
    }

    /// Notes that a tensor is a part of which there is one for each rank.
    pub fn note_each(&mut self, part: &Value) {
        let Value::Tensor(id) = part else { return };
        if let Some(term) = self.w.heap.tensor(*id).and_then(|t| t.term.clone()) {
            self.note_part(&term);
        }
    }

    fn note_part(&mut self, part: &Arc<Term>) {
        if let Some(parts) = self.deriving.as_mut().map(|d| &mut d.parts).filter(|p| p.each.len() < MOST_PARTS) {
            parts.each.push(part.clone());
        }
    }

    /// Notes that parts of which there is one for each rank were stacked along the first dim.
    pub fn note_stack(&mut self, part: &Arc<Term>, stack: &Arc<Term>) {
        let Some(parts) = self.deriving.as_mut().map(|d| &mut d.parts) else { return };
        let known = parts.each.iter().any(|p| Arc::ptr_eq(p, part)) && parts.stacked.len() < MOST_PARTS;
        if known && **stack != Term::Unknown {
            parts.stacked.push(stack.clone());
        }
    }

    /// `parts[0]` of a gradient, with a number that is written there: the same part on every rank.
    pub fn fixed_element(&mut self, index: &Operand, element: Value) -> Value {
        let (Operand::Const(Const::Int(at)), Value::Tensor(id)) = (index, &element) else { return element };
        let Some(t) = self.w.heap.tensor(*id).cloned() else { return element };
        let Some(part) = &t.term else { return element };
        let known = self.deriving.as_ref().is_some_and(|d| d.parts.each.iter().any(|p| Arc::ptr_eq(p, part)));
        let Term::Chunk { dim, x } = part.as_ref() else { return element };
        match self.fixed(x, *dim, *at).filter(|_| known) {
            Some(term) => self.new_tensor(TensorType { term: Some(term), ..t }),
            None => element,
        }
    }

    /// A slice that starts where the tensor does, along one dim and on every rank; one of stacked parts, by a number that is written there.
    pub fn fixed_slice(&mut self, x: &Arc<Term>, index: &Value) -> Option<Arc<Term>> {
        self.note_cut(x);
        let items: Vec<Value> = match index {
            Value::Tuple(items) => items.to_vec(),
            one => vec![one.clone()],
        };
        if let [Value::Const(Const::Int(at))] = items.as_slice() {
            let stacked = &self.deriving.as_ref()?.parts.stacked;
            // As it is, or summed: what a selection makes of the parts may have another first one on each rank.
            let parts = match x.as_ref() {
                Term::AllReduce { x, .. } => x,
                _ => x,
            };
            let of_ranks = stacked.iter().any(|s| s == parts);
            return of_ranks.then(|| self.fixed(x, 0, *at))?;
        }
        let rank = self.deriving.as_ref()?.rank;
        let ellipsis = items.iter().position(|v| matches!(v, Value::Const(Const::Ellipsis)));
        let mut found = None;
        for (i, item) in items.iter().enumerate() {
            let Value::Slice(bounds) = item else {
                match Some(i) == ellipsis {
                    true => continue,
                    false => return None,
                }
            };
            let [start, end, step] = bounds.as_ref();
            let starts = start.is_none() || *start == Value::int(0);
            if !starts || !step.is_none() || !(end.is_none() || is_length(end)) {
                return None;
            }
            if !end.is_none() {
                let dim = match ellipsis {
                    Some(at) if i > at => rank.checked_sub(items.len() - i)?,
                    _ => i,
                };
                if found.replace(dim).is_some() {
                    return None;
                }
            }
        }
        self.fixed(x, found?, 0)
    }

    /// `narrow` from the start, on every rank.
    pub fn fixed_narrow(
        &mut self,
        x: &Arc<Term>,
        dim: Option<usize>,
        start: &Value,
        length: &Value,
    ) -> Option<Arc<Term>> {
        self.note_cut(x);
        let starts = *start == Value::int(0) && is_length(length);
        dim.filter(|_| starts).and_then(|dim| self.fixed(x, dim, 0))
    }

    fn note_cut(&mut self, x: &Term) {
        if let Some(deriving) = &mut self.deriving {
            let whole = x.steps();
            let gathered = whole.iter().any(|s| matches!(s, Term::AllGather { .. }));
            deriving.parts.cut |= gathered && !whole.iter().any(|s| matches!(s, Term::Grad(_)));
        }
    }

    /// The same part on every rank, of what is made of a gradient.
    fn fixed(&mut self, x: &Arc<Term>, dim: usize, at: i64) -> Option<Arc<Term>> {
        if !x.steps().iter().any(|s| matches!(s, Term::Grad(_))) || self.rank_restricted.iter().next().is_some() {
            return None;
        }
        let term = Arc::new(Term::through(x, &[dim], |x, dims| match x.as_ref() {
            // What a loop cuts again comes to an end.
            Term::Fixed { dim, at: before, .. } if (*dim, *before) == (dims[0], at) => x.as_ref().clone(),
            _ => Term::Fixed { dim: dims[0], at, x: x.clone() },
        }));
        let deriving = self.deriving.as_mut()?;
        if let Some(place) = deriving.at.filter(|_| deriving.parts.fixed.len() < MOST_PARTS) {
            deriving.parts.fixed.push((place, term.clone()));
        }
        Some(term)
    }

    /// A gradient of which every rank gets the same part, where the pair would fit with each rank's own.
    pub fn same_part_everywhere(&self, case: &mut Case) {
        let Some(deriving) = self.deriving.as_ref().filter(|d| !d.parts.cut) else { return };
        if case.trouble.is_some() || !case.legal.is_empty() || case.axes.iter().next().is_none() || by_rank(&case.facts)
        {
            return;
        }
        let known = |t: &Term| !t.steps().iter().any(|s| matches!(s, Term::Unknown));
        if !known(&case.forward) || !case.backward.iter().all(|t| known(t)) {
            return;
        }
        let parts = |(i, t): (&usize, &'_ Arc<Term>)| {
            let wrong = |s: &&Term| matches!(s, Term::Fixed { dim, .. } if gathers(&case.forward, *i, *dim));
            t.steps().into_iter().find(wrong).cloned()
        };
        let Some(part) = case.gradients.iter().zip(&case.backward).find_map(parts) else { return };
        let mut own = Case { inputs: case.gradients.clone(), ..case.clone() };
        own.backward = case.backward.iter().map(|t| Arc::new(t.with_own_parts(&case.axes))).collect();
        decide(&mut own, None);
        if !own.legal.is_empty() && own.trouble.is_none() {
            let at = deriving.parts.fixed.iter().rev().find(|(_, t)| t.steps().contains(&&part)).map(|(at, _)| *at);
            case.backward_at = at.unwrap_or(case.backward_at);
            case.trouble = Some(Trouble::NotAdjoint);
        }
    }
}

/// The gradient that a pair is said not to fit for: the one of which every rank gets the same part, else the first.
pub fn of_interest(case: &Case) -> &Arc<Term> {
    case.backward.iter().find(|t| !places(t).is_empty()).unwrap_or(&case.backward[0])
}

/// Ways through a backward of which one gives this part and another one that, or something that does not fit either: what tells them apart
/// may be the rank.
pub fn apart_by_rank(cases: &mut [Case]) {
    let fixed = |c: &Case| c.trouble == Some(Trouble::NotAdjoint) && c.backward.iter().any(|t| !places(t).is_empty());
    let at = |c: &Case| c.backward.iter().flat_map(|t| places(t)).collect::<Vec<i64>>();
    let Some(first) = cases.iter().find(|c| fixed(c)).map(at) else { return };
    let fits = |c: &Case| match fixed(c) {
        true => at(c) == first,
        false => !c.legal.is_empty() || c.trouble.is_some() || !(c.communicates() || c.splits()),
    };
    if !cases.iter().all(fits) {
        cases.iter_mut().filter(|c| fixed(c)).for_each(|c| c.trouble = None);
    }
}

/// Which parts are given to every rank.
fn places(term: &Term) -> Vec<i64> {
    let at = |s: &Term| match s {
        Term::Fixed { at, .. } => Some(*at),
        _ => None,
    };
    term.steps().into_iter().filter_map(at).collect()
}

/// Whether a forward gathers what is made of an argument along a dim.
fn gathers(forward: &Term, argument: usize, along: usize) -> bool {
    forward.steps().into_iter().any(|s| match s {
        Term::AllGather { dim, x, .. } if *dim == along => x.steps().contains(&&Term::Arg(argument)),
        _ => false,
    })
}

/// Whether a number may be the size of a part: one that is not written down, and is the same on every rank.
fn is_length(value: &Value) -> bool {
    matches!(value, Value::Number(None) | Value::Share(_))
}

/// Whether a configuration may be one rank's.
fn by_rank(facts: &Facts) -> bool {
    facts.iter().any(|(atom, holds)| {
        let (name, one) = match atom {
            Atom::True(name) | Atom::IsNone(name) => (name, false),
            Atom::Equals(name, value) => (name, holds && matches!(value, Const::Int(_))),
        };
        let short = name.rsplit('.').next().unwrap_or(name);
        let words = ["rank", "first", "last", "index", "idx", "main", "master"];
        one && !short.contains("dim") || short.split('_').any(|w| words.contains(&w))
    })
}
