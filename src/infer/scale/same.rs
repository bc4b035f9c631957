//! Two names of one thing: a group that a parameter brings and an attribute names; the tokens of a whole batch and those of the parts that
//! a loop takes one after another. In: states. Out: states in which they are one. Never: a guess; without such an assignment or loop two
//! names are two things. Next: `verdict.rs`.

use super::eval::TOKENS;
use super::value::{Num, State, Tensor, Term, Val};
use crate::source::Name;
use crate::types::{Axis, AxisSet, Factor, Scale};

/// What the tokens are called that were counted before a loop, inside it.
fn whole(key: usize) -> Factor {
    Factor::Count(Name::from(format!("{TOKENS} before {key}")))
}

fn tokens() -> Factor {
    Factor::Count(Name::from(TOKENS))
}

/// The loop before which tokens were counted.
fn before(factor: &Factor) -> Option<usize> {
    match factor {
        Factor::Count(name) => name.strip_prefix(TOKENS)?.strip_prefix(" before ")?.parse().ok(),
        _ => None,
    }
}

fn each_set(set: &AxisSet, old: &Axis, new: &AxisSet) -> AxisSet {
    let of = |a: &Axis| if a == old { new.iter().cloned().collect() } else { vec![a.clone()] };
    set.iter().flat_map(of).collect()
}

impl State {
    /// A group that is known by one name gets another one that says more: both are the same from now on.
    pub fn name_group(&mut self, old: &Val, new: &Val) {
        let (Val::Named(text), Val::Named(_)) = (old, new) else { return };
        if old == new {
            return;
        }
        let plain = text != "call" && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
        let (true, Some(axes)) = (plain, self.axes(new)) else { return };
        let variable = Axis::variable(text);
        if axes.iter().any(Axis::is_variable) || self.axes(old) != Some(AxisSet::one(variable.clone())) {
            return;
        }
        self.same.insert(text.clone(), axes.clone());
        self.unify(&variable, &axes);
    }

    fn unify(&mut self, old: &Axis, new: &AxisSet) {
        let (factor, size) = (Factor::Size(old.clone()), Scale::size(new));
        let scale = |s: &Scale| s.replace(&factor, &size);
        for module in self.modules.iter_mut() {
            for (axes, divisor, _) in &mut module.wraps {
                (*axes, *divisor) = (each_set(axes, old, new), scale(divisor));
            }
        }
        for class in self.classes.iter_mut() {
            (class.after, class.over) = (scale(&class.after), each_set(&class.over, old, new));
            class.shards = each_set(&class.shards, old, new);
            (class.always.0, class.always.1) = (scale(&class.always.0), each_set(&class.always.1, old, new));
        }
        for (axes, _) in self.counted.iter_mut() {
            *axes = each_set(axes, old, new);
        }
        for term in self.terms.iter_mut() {
            (term.part.grad, term.part.value) = (scale(&term.part.grad), scale(&term.part.value));
        }
        self.rescale(&scale);
    }

    /// Every number and loss with another factor.
    fn rescale(&mut self, scale: &dyn Fn(&Scale) -> Scale) {
        self.change(&|v| match v {
            Val::Num(n) => {
                let new = scale(&n.scale);
                (new != n.scale).then(|| Val::Num(Num { scale: new, ..n.clone() }))
            }
            Val::Tensor(t) => rescaled(t, scale),
            _ => None,
        });
    }

    /// A loop begins: what was counted before it, or one over it, is of all its rounds, if they are parts of it.
    pub fn count_whole(&mut self, key: usize) {
        let (tokens, whole) = (tokens(), whole(key));
        let direct = |s: &Scale| {
            let m = s.known()?;
            let repeated = m.powers().any(|(f, _)| matches!(f, Factor::Named(_) | Factor::Rounds(_)));
            (!repeated && m.power(&tokens).abs() == 1).then(|| s.replace(&tokens, &Scale::of(whole.clone())))
        };
        self.change(&|v| match v {
            Val::Num(n) => direct(&n.scale).map(|scale| Val::Num(Num { scale, ..n.clone() })),
            _ => None,
        });
    }

    /// The loop ends: a count is one again, and a loss was of one part.
    pub fn count_parts(&mut self, key: usize, rounds: &Scale) {
        let (tokens, whole) = (Scale::of(tokens()), whole(key));
        self.change(&|v| match v {
            Val::Num(n) => {
                let scale = n.scale.replace(&whole, &tokens);
                (scale != n.scale).then(|| Val::Num(Num { scale, ..n.clone() }))
            }
            Val::Tensor(t) => rescaled(t, &|s| s.replace(&whole, &tokens.times(rounds))),
            _ => None,
        });
        for class in self.classes.iter_mut() {
            if class.after.known().is_some_and(|m| m.power(&whole) != 0) {
                class.after = class.after.replace(&whole, &tokens);
            }
        }
    }

    /// A factor of a gradient with the tokens of one round alone.
    pub fn in_rounds(&self, term: &Term, scale: &Scale) -> Scale {
        let Some(m) = scale.known() else { return Scale::Unknown };
        let wholes: Vec<(Factor, usize)> = m.powers().filter_map(|(f, _)| Some((f.clone(), before(f)?))).collect();
        wholes.into_iter().fold(scale.clone(), |s, (factor, key)| {
            let inside = self.loops.iter().any(|(k, _)| *k == key);
            let rounds = term.loops.iter().find(|(k, _)| *k == key && !inside).map(|(_, rounds)| rounds);
            s.replace(&factor, &Scale::of(tokens()).times(rounds.unwrap_or(&Scale::one())))
        })
    }
}

fn rescaled(tensor: &Tensor, scale: &dyn Fn(&Scale) -> Scale) -> Option<Val> {
    let parts =
        tensor.parts.iter().map(|p| super::value::Part { grad: scale(&p.grad), value: scale(&p.value), ..p.clone() });
    let parts: Vec<_> = parts.collect();
    let rows = tensor.rows.as_ref().map(scale);
    (parts != tensor.parts || rows != tensor.rows).then(|| Val::Tensor(Tensor { parts, rows, ..tensor.clone() }))
}
