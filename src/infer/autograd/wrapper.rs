//! A function that hands its arguments to an autograd function, as if it were one itself. In: the function, its tensor argument, values
//! that are given. Out: the cases of the whole, from what it does before and after, and from the class. Never: types that a rule declares.
//! Source: DESIGN.md section 6. Next: `decide.rs`.

use super::super::budget::Budget;
use super::super::expr::CallArgs;
use super::super::limits::DERIVATION_STEPS;
use super::super::machine::{Activation, Eval, Machine};
use super::super::value::Value;
use super::decide::{decide, merged};
use super::derive::{Case, Derived, RANKS};
use super::terms::Deriving;
use crate::ir::Const;
use crate::project::{ClassRef, FuncRef};
use crate::source::Name;
use crate::types::Term;
use std::sync::Arc;

/// What a wrapper hands to the class that it applies.
#[derive(Clone, Debug)]
pub struct Application {
    derived: Arc<Derived>,
    /// The arguments as terms of those of the wrapper.
    arguments: Vec<Arc<Term>>,
}

impl Machine<'_> {
    /// The cases of a function that applies one class to its tensor, whose other arguments may be given.
    pub fn wrapper_cases(mut self, at: FuncRef, tensor: &Name, given: &[(Name, Const)]) -> Vec<Case> {
        self.quiet = true;
        self.stack = vec![Activation::new(self.project, at, None)];
        self.w.modes.mesh = self.settings.mesh_of(at.module);
        let start = self.w.clone();
        for rank in RANKS {
            self.w = start.clone();
            self.budget = Budget::of_steps(DERIVATION_STEPS);
            let cases = self.wrapped_cases(at, tensor, given, rank);
            if cases.iter().any(|c| c.principal.is_some()) {
                return cases;
            }
        }
        Vec::new()
    }

    fn wrapped_cases(&mut self, at: FuncRef, tensor: &Name, given: &[(Name, Const)], rank: usize) -> Vec<Case> {
        let func = self.project.func(at);
        let names: Vec<Name> = func.params.iter().map(|p| p.name.clone()).collect();
        let receives: Vec<bool> = names.iter().map(|n| n == tensor).collect();
        self.deriving =
            Some(Deriving { params: names.clone(), rank, applied: Some(Vec::new()), ..Deriving::default() });
        func.params.iter().for_each(|p| self.note_hint(at.module, p));
        let mut values = self.forward_values(at, 0, None, &receives, rank);
        for (name, value) in given {
            if let Some(i) = names.iter().position(|n| n == name) {
                values[i] = Value::Const(value.clone());
            }
        }
        let results: Vec<Arc<Term>> = self
            .body(at, &values)
            .into_iter()
            .map(|(world, v)| {
                self.w = world;
                self.term(&v)
            })
            .collect();
        let applied = self.deriving.take().and_then(|d| d.applied).unwrap_or_default();
        match (applied.as_slice(), results.split_first()) {
            ([one], Some((first, rest))) if rest.iter().all(|r| r == first) => {
                merged(one.derived.cases.iter().filter_map(|c| composed(c, one, first, rank)).collect(), &[])
            }
            _ => Vec::new(),
        }
    }

    /// `apply` inside a wrapper: what the wrapper does with the result starts from it. `None`: no wrapper is being derived.
    pub fn applied_in_wrapper(&mut self, class: ClassRef, args: &CallArgs) -> Option<Eval> {
        self.deriving.as_ref()?.applied.as_ref()?;
        let outer = self.deriving.take()?;
        let rank = outer.rank;
        // A number that is handed on is known by its name, like an argument of the class itself.
        let own = |v: &Value| match v {
            Value::Sym(path) => outer.params.iter().position(|p| p == path).map(|i| Arc::new(Term::Arg(i))),
            _ => None,
        };
        let arguments = args.args.iter().map(|a| own(&a.value).unwrap_or_else(|| self.term(&a.value))).collect();
        let derived = self.derive(class, Some(args), &RANKS).filter(|_| !args.open);
        self.deriving = Some(outer);
        let Some(derived) = derived else { return Some(Eval::One(Value::Unknown)) };
        if let Some(applied) = self.deriving.as_mut().and_then(|d| d.applied.as_mut()) {
            applied.push(Application { derived: Arc::new(derived), arguments });
        }
        Some(Eval::One(self.term_tensor(Term::Grad(0), rank)))
    }
}

/// The case of a wrapper: what it does before and after is local, and only moves parts around.
fn composed(case: &Case, applied: &Application, after: &Arc<Term>, rank: usize) -> Option<Case> {
    let only_moves = |t: &Term, start: &dyn Fn(&Term) -> bool| {
        let steps = t.steps();
        let (last, moves) = steps.split_last()?;
        let fits = moves.iter().all(|s| matches!(s, Term::Moved { .. } | Term::Swapped { .. })) && start(last);
        (fits && (moves.is_empty() || rank == case.rank)).then_some(())
    };
    only_moves(after, &|t| *t == Term::Grad(0))?;
    if case.outputs.is_some() || case.trouble.is_some() {
        return None;
    }
    // Arguments of the class in the order of the wrapper's.
    let mut backward = Vec::new();
    let mut inputs = Vec::new();
    for (position, term) in case.gradients.iter().zip(&case.backward) {
        let before = applied.arguments.get(*position)?;
        only_moves(before, &|t| matches!(t, Term::Arg(_)))?;
        let steps = before.steps();
        let Some(Term::Arg(own)) = steps.last() else { return None };
        if inputs.contains(own) {
            return None;
        }
        inputs.push(*own);
        let upstream = Arc::new(after.undone(&Arc::new(Term::Grad(0))));
        let arguments = |t: &Term| match t {
            Term::Grad(i) if *i == case.output => Some(upstream.clone()),
            Term::Arg(i) => applied.arguments.get(*i).cloned(),
            _ => None,
        };
        backward.push(Arc::new(before.undone(&Arc::new(term.on(&arguments)))));
    }
    let inside = case.forward.on(&|t| match t {
        Term::Arg(i) => applied.arguments.get(*i).cloned(),
        _ => None,
    });
    let inside = Arc::new(inside);
    let forward = after.on(&|t| (*t == Term::Grad(0)).then(|| inside.clone()));
    let plain = |i: usize| match applied.arguments.get(i)?.as_ref() {
        Term::Arg(own) => Some(*own),
        _ => None,
    };
    let mut out = Case {
        gradients: inputs.clone(),
        folded: case.folded.iter().filter_map(|(i, dim)| Some((plain(*i)?, *dim))).collect(),
        inputs,
        output: 0,
        rank: if rank == case.rank { rank } else { case.rank },
        legal: Vec::new(),
        principal: None,
        further: Vec::new(),
        forward: Arc::new(forward),
        backward,
        ..case.clone()
    };
    decide(&mut out, None);
    Some(out)
}
