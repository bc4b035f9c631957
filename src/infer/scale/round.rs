//! What a path knows of the round of a loop that it is in. In: conditions on its number, as they are asked and left. Out: under which of
//! them a statement runs, and so how many rounds have added up where a step is made. Never: the factors themselves; `verdict.rs` does
//! that. Next: `exec.rs`, which enters and leaves rounds.
//!
//! A loop runs once: a condition on the number of the round makes two paths of one. What one round adds is there so many times where the
//! condition holds, if it was added in the other rounds as well. It was not, where the statement stands under the condition, where rounds in
//! which it does not hold have ended before, where no path of these has done the same, or where each round begins with nothing.

use super::value::{Flow, State, Test};
use crate::source::Name;
use crate::types::Scale;
use std::collections::BTreeMap;

/// The round that a path is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Conditions on its number around the statement in hand.
    around: Vec<Name>,
    /// Those without which it has ended before.
    passed: Vec<Name>,
    /// It began with nothing, whatever its number.
    cleared: bool,
    /// What has been added up where a condition holds.
    since: BTreeMap<Name, Since>,
}

/// So many rounds of the innermost of these loops.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Since {
    rounds: Scale,
    loops: Vec<usize>,
}

impl Round {
    /// Under which conditions the statement in hand runs.
    pub fn conditions(&self) -> Vec<Name> {
        self.around.iter().chain(&self.passed).cloned().collect()
    }

    /// What was added up before is thrown away.
    pub fn clear(&mut self) {
        self.cleared = self.around.is_empty() && self.passed.is_empty();
    }
}

impl State {
    /// A loop is entered. Its rounds begin without conditions; those asked before are asked of a loop around it.
    pub fn enter_round(&mut self) {
        (self.round.cleared, self.round.passed) = (false, Vec::new());
    }

    /// A loop is left to where it was entered; what was asked in it is forgotten.
    pub fn leave_round(&mut self, entered: &Round) {
        (self.round.cleared, self.round.passed) = (entered.cleared, entered.passed.clone());
        for name in std::mem::take(&mut self.round.since).into_keys() {
            self.facts.remove(&name);
        }
    }

    /// A condition on the round holds on this path.
    pub fn holds_in_round(&mut self, name: &Name, rounds: &Scale) {
        let loops = self.loops.iter().map(|(key, _)| *key).collect();
        self.round.since.insert(name.clone(), Since { rounds: rounds.clone(), loops });
    }

    /// What follows runs under these conditions.
    pub fn guard(&mut self, names: &[Name]) {
        if !names.is_empty() {
            self.round.around.extend_from_slice(names);
        }
    }

    /// The end of what runs under them.
    pub fn unguard(&mut self, names: &[Name]) {
        if !names.is_empty() {
            let around = self.round.around.len().saturating_sub(names.len());
            self.round.around.truncate(around);
        }
    }

    /// Forgets that a condition on the round holds: what is divisible here says nothing of what is asked of the round elsewhere.
    fn forget_round(&mut self, name: &Name) {
        if self.round.since.contains_key(name) {
            self.round.since.remove(name);
            self.facts.remove(name);
        }
    }

    /// A path is another one as well: what both have decided is decided.
    pub fn stands_for(&mut self, other: &State) {
        let differs = |(k, v): (&Name, &bool)| other.facts.get(k) != Some(v);
        if !self.facts.is(&other.facts) && self.facts.iter().any(differs) {
            self.facts.retain(|k, v| other.facts.get(k) == Some(v));
        }
        self.forget_undecided();
        self.next = self.next.max(other.next);
    }

    /// Conditions that are not decided any more, since paths on which they hold and do not hold are one.
    fn forget_undecided(&mut self) {
        if self.round.since.keys().any(|k| !self.facts.contains_key(k)) {
            let facts = self.facts.clone();
            self.round.since.retain(|k, _| facts.contains_key(k));
        }
    }

    /// How many rounds of a loss have added up where a step is made, by the conditions that hold on this path. The loss was taken under the
    /// conditions `every`, within `loops`.
    pub fn rounds_since(&self, every: &[Name], loops: &[(usize, Scale)]) -> Scale {
        let mut all = Scale::one();
        for (name, since) in self.round.since.iter().filter(|_| !self.round.cleared) {
            // Asked before the loop in which both the gradient is taken and the step is made: not of its rounds.
            let outside = |key: &usize| !since.loops.contains(key) && loops.iter().any(|(k, _)| k == key);
            let of_others = self.loops.iter().any(|(key, _)| outside(key));
            if self.facts.get(name) == Some(&true) && !every.contains(name) && !of_others {
                all = all.times(&since.rounds);
            }
        }
        all
    }
}

/// Paths after a condition was asked: where all on which it does not hold have ended, the others go on under it.
pub fn pass(test: &Test, paths: &mut [State]) {
    for name in test.every() {
        let others: Vec<&State> = paths.iter().filter(|s| s.facts.get(&name) == Some(&false)).collect();
        if others.is_empty() || others.iter().any(|s| s.flow == Flow::Next) {
            continue;
        }
        // Who refuses to go on otherwise counts no rounds.
        if others.iter().all(|s| s.flow == Flow::Raise) {
            forget(&name, paths);
        } else if others.iter().all(|s| s.terms.is_empty()) {
            paths.iter_mut().filter(|s| s.flow == Flow::Next).for_each(|s| s.round.passed.push(name.clone()));
        }
    }
}

/// Forgets a condition on the round on all paths that go on.
pub fn forget(name: &Name, paths: &mut [State]) {
    paths.iter_mut().filter(|s| s.flow == Flow::Next).for_each(|s| s.forget_round(name));
}

/// Paths after a statement: a gradient that is taken where a condition on the round holds, and nowhere else, is taken under it. So it is where
/// a variable carries the answer to the statement that takes it.
pub fn compare(paths: &mut [State]) {
    if paths.len() < 2 || paths.iter().all(|s| s.terms.is_empty()) || paths.iter().all(|s| !s.terms.is_empty()) {
        return;
    }
    let names: Vec<Name> = paths.iter().flat_map(|s| s.round.since.keys().cloned()).collect();
    for name in names {
        let mut others = paths.iter().filter(|s| s.facts.get(&name) == Some(&false)).peekable();
        if others.peek().is_none() || others.any(|s| !s.terms.is_empty()) {
            continue;
        }
        for state in paths.iter_mut().filter(|s| s.facts.get(&name) == Some(&true)) {
            let open = |s: &State| s.terms.iter().any(|t| !t.every.contains(&name));
            if open(state) {
                state.terms.iter_mut().filter(|t| !t.every.contains(&name)).for_each(|t| t.every.push(name.clone()));
            }
        }
    }
}
