//! Functions of a library that reduce the gradients of an optimizer, or step with them. In: calls with a rule. Out: reduced gradients,
//! steps. Never: groups that the call is given: nothing is known of those. Next: `grads.rs`; `rules/models` for which function does what.

use super::Run;
use super::calls::Args;
use super::value::{Grad, State, Val, last};
use crate::ir::{Const, StmtId};
use crate::rules::IntrinsicRule;
use crate::types::{AxisSet, Scale};

impl<'a> Run<'a> {
    /// An optimizer of torch. A rate that is divided by a number of ranks makes good what a sum does to plain steps, and an epsilon that is
    /// multiplied with it what a sum does to those that are scaled by their moments.
    pub fn optimizer(&self, args: &Args, state: &mut State) -> Val {
        let size = |value: &Val| self.factor(value).map_or(Scale::one(), |scale| super::eval::sizes(&scale));
        let divides = |scale: &Scale| scale.known().is_some_and(|m| m.powers().any(|(_, n)| n < 0));
        let of_moments = args.keyword("eps").is_some_and(|eps| size(eps) != Scale::one());
        state.unsettled |= of_moments || args.get(1, "lr").is_some_and(|rate| divides(&size(rate)));
        Val::Optimizer
    }

    /// What a function does to the gradients of an optimizer; nothing if its rule does not say.
    pub fn optimizer_call(&mut self, id: StmtId, rule: &IntrinsicRule, args: &Args, state: &mut State) -> Option<Val> {
        let everyone = state.everyone();
        let some = args.open || args.keyword("groups").is_some_and(|g| !g.is_none());
        let all = |state: &mut State| {
            let of = state.classes_of(None);
            Grad { of, by: Scale::one(), events: Vec::new(), local: false, copy: false }
        };
        match rule.does.as_str() {
            "gradients-taken" => Some(Val::Grad(all(state))),
            "gradients-averaged" | "gradients-averaged-and-used" => {
                let all = all(state);
                match some {
                    true => state.lose(&Val::Grad(all)),
                    false => self.reduce(id, &all, &everyone, true, state),
                }
                if rule.does.ends_with("used") {
                    let place = self.place(state, id);
                    self.judge(place, state);
                }
                Some(Val::Const(Const::None))
            }
            "reduce-scaled" => Some(self.reduce_scaled(id, args, (&everyone, some), state)),
            _ => None,
        }
    }

    fn reduce_scaled(&mut self, id: StmtId, args: &Args, (everyone, some): (&AxisSet, bool), state: &mut State) -> Val {
        let unknown = Val::Named(self.text(state, id));
        let sums = match args.get(0, "reduce_type") {
            Some(Val::Const(Const::Str(word))) => word == "sum",
            Some(Val::Path(path)) => last(path) == "REDUCE_SUM",
            _ => false,
        };
        let Some(input) = args.get(1, "inputs").cloned() else { return unknown };
        let scale = match args.get(2, "scale") {
            None => Some(Scale::one()),
            Some(value) => self.factor(value),
        };
        let Some(scale) = scale.filter(|_| sums && !some) else {
            state.lose(&input);
            self.norms_lost("", args, state);
            return unknown;
        };
        let items = match &input {
            Val::List(l) => state.lists.get(*l).map(|l| l.items.clone()).unwrap_or_default(),
            one => vec![one.clone()],
        };
        for item in &items {
            let Val::Grad(g) = item else { continue };
            self.reduce(id, g, everyone, false, state);
            if scale != Scale::one() {
                let place = self.place(state, id);
                let event = state.event(super::eval::what(true, &scale), place);
                self.multiply(g, &scale, &[event], false, state);
            }
        }
        match &input {
            Val::Num(_) | Val::Tensor(_) if scale == Scale::one() => {
                self.reduced(id, false, &input, everyone, false, state)
            }
            Val::Norm(n) => self.norm_reduced(id, n, everyone, Some(false), state),
            Val::Grad(_) | Val::List(_) => input,
            _ => unknown,
        }
    }
}
