//! The configurations in which a finding holds, in words. In: the worlds that found it and those that did not. Out: conditions, empty
//! if it holds always. Never: atoms that no flag of the user stands for. Next: `cubes.rs`, `words/mod.rs`.

use super::cubes::{Cube, absorbed, cubes_of, merged_cubes_of};
use crate::infer::finding::{Finding, Reached};
use crate::infer::formula::{Atom, Facts, show_const, show_fact, shown};
use crate::infer::limits::MAX_EXPANDED;
use rustc_hash::FxHashSet;

/// Ways to meet a mistake that are written out; a reader who sees these finds the others.
const MOST_CONDITIONS: usize = 3;

/// The configurations of a finding.
#[derive(Clone, Debug)]
pub struct Configurations {
    /// One conjunction for each way, the shortest first; empty if it holds in all.
    pub when: Vec<String>,
    /// Whether each way needs an argument to be given or left out together with something else: callers may never do both.
    pub rests_on_callers: bool,
}

/// Configurations that were worked out before, by what they are worked out from.
#[derive(Debug, Default)]
pub struct Known {
    before: Vec<(Vec<Reached>, Configurations)>,
    now: Vec<(Vec<Reached>, Configurations)>,
}

impl Known {
    /// Forgets what was not asked for since the last time.
    pub fn turn(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }

    pub fn configurations(&mut self, finding: &Finding) -> Configurations {
        let alike = |(worlds, _): &(Vec<Reached>, Configurations)| {
            worlds.len() == finding.others.len() + 1
                && worlds[0].found == finding.worlds
                && worlds[0].silent == finding.silent_worlds
                && worlds[0].silent_right == finding.silent_right
                && worlds[1..] == finding.others
        };
        let known = self.now.iter().find(|k| alike(k)).map(|(_, found)| found.clone());
        if let Some(found) = known {
            return found;
        }
        let at = self.before.iter().position(alike);
        let entry = match at {
            Some(at) => self.before.swap_remove(at),
            None => {
                let worlds = std::iter::once(finding.reached()).chain(finding.others.iter().cloned()).collect();
                (worlds, configurations(finding))
            }
        };
        self.now.push(entry);
        self.now.last().map_or_else(|| configurations(finding), |(_, found)| found.clone())
    }
}

/// The configurations of a finding, over all roots that reach it: one that always fails decides.
pub fn configurations(finding: &Finding) -> Configurations {
    let always = Configurations { when: Vec::new(), rests_on_callers: false };
    let reached: Vec<Reached> = std::iter::once(finding.reached())
        .chain(finding.others.iter().cloned())
        .map(|r| {
            let (found, silent) = cleaned(&r.found, &r.silent);
            Reached { found, silent, ..r }
        })
        .collect();
    let mut of_roots: Vec<Vec<Cube<'_>>> = Vec::with_capacity(reached.len());
    for one in &reached {
        let Some(cubes) = cubes_of(&one.found, &one.silent) else { return always };
        of_roots.push(cubes);
    }
    let cubes = absorbed(of_roots.concat());
    let chosen = |c: &Cube<'_>| c.len() > 1 && c.iter().any(|(a, _)| matches!(a, Atom::IsNone(_)));
    let rests_on_callers = !cubes.is_empty() && cubes.iter().all(chosen);
    // What tells wrong worlds from right ones is the reason. What tells them from those of which nothing is known may be anything: it is
    // left out where the reason holds as well.
    let is_told = |one: &Reached| one.silent_right;
    let told: Vec<Cube<'_>> =
        reached.iter().zip(&of_roots).filter(|(one, _)| is_told(one)).flat_map(|(_, cubes)| cubes.clone()).collect();
    let holds = |facts: &Facts| told.iter().any(|cube| cube.iter().all(|(a, v)| facts.get(a) == Some(*v)));
    let further = reached.iter().zip(&of_roots).filter(|(one, _)| !is_told(one) && !one.found.iter().all(holds));
    let more: Vec<Cube<'_>> = further.flat_map(|(_, cubes)| cubes.clone()).collect();
    let told = absorbed(told.into_iter().chain(more).collect());
    Configurations { when: written(&told), rests_on_callers }
}

/// Conditions under which something holds that holds in some worlds and not in others.
pub fn conditions(found: &[Facts], silent: &[Facts]) -> Vec<String> {
    let (found, silent) = cleaned(found, silent);
    cubes_of(&found, &silent).map_or_else(Vec::new, |cubes| written(&absorbed(cubes)))
}

/// The same, as a reader of signatures writes it: `sequence_parallel and not bias`; with `…` at the end if there are more ways.
pub fn conditions_of(found: &[Facts], silent: &[Facts]) -> Vec<String> {
    as_signature(&clean(found), clean(silent))
}

/// The same for each of some kinds of worlds, told from all others.
pub fn conditions_of_each(kinds: &[&[Facts]]) -> Vec<Vec<String>> {
    // A function with many flags has thousands of worlds.
    let kinds: Vec<Vec<Facts>> = kinds.iter().map(|worlds| clean(worlds)).collect();
    let others =
        |at: usize| kinds.iter().enumerate().filter(move |(other, _)| *other != at).flat_map(|(_, o)| o.clone());
    kinds.iter().enumerate().map(|(at, worlds)| as_signature(worlds, others(at).collect())).collect()
}

fn as_signature(found: &[Facts], silent: Vec<Facts>) -> Vec<String> {
    let silent = without(silent, found);
    let Some(cubes) = merged_cubes_of(found, &silent) else { return Vec::new() };
    let mut out: Vec<(usize, String)> = cubes
        .iter()
        .map(|cube| (cube.len(), cube.iter().map(|(a, v)| as_code(a, *v)).collect::<Vec<_>>().join(" and ")))
        .collect();
    out.sort();
    out.dedup();
    let more = (out.len() > MOST_CONDITIONS).then(|| "…".to_string());
    out.into_iter().map(|(_, text)| text).take(MOST_CONDITIONS).chain(more).collect()
}

fn as_code(atom: &Atom, value: bool) -> String {
    match (atom, value) {
        (Atom::True(name), true) => shown(name),
        (Atom::True(name), false) => format!("not {}", shown(name)),
        (Atom::IsNone(name), true) => format!("{} is None", shown(name)),
        (Atom::IsNone(name), false) => format!("{} is not None", shown(name)),
        (Atom::Equals(name, c), true) => format!("{} == {}", shown(name), show_const(c)),
        (Atom::Equals(name, c), false) => format!("{} != {}", shown(name), show_const(c)),
    }
}

/// Without what is no flag of the user, and what both have.
fn cleaned(found: &[Facts], silent: &[Facts]) -> (Vec<Facts>, Vec<Facts>) {
    let (found, silent) = (clean(found), clean(silent));
    let silent = without(silent, &found);
    (found, silent)
}

fn clean(worlds: &[Facts]) -> Vec<Facts> {
    worlds.iter().flat_map(|f| f.expanded(MAX_EXPANDED)).map(|f| f.filtered(|a| !is_private(a))).collect()
}

fn without(mut worlds: Vec<Facts>, others: &[Facts]) -> Vec<Facts> {
    let others: FxHashSet<&Facts> = others.iter().collect();
    worlds.retain(|f| !others.contains(f));
    worlds
}

fn written(cubes: &[Cube<'_>]) -> Vec<String> {
    let mut out: Vec<(usize, String)> = cubes
        .iter()
        .map(|cube| (cube.len(), cube.iter().map(|(a, v)| show_fact(a, *v)).collect::<Vec<_>>().join(" and ")))
        .collect();
    out.sort();
    out.dedup();
    out.into_iter().map(|(_, text)| text).take(MOST_CONDITIONS).collect()
}

/// Atoms that the checker made up for tests it does not follow.
fn is_private(atom: &Atom) -> bool {
    match atom {
        Atom::True(name) | Atom::IsNone(name) | Atom::Equals(name, _) => {
            name.starts_with('?') || name.starts_with("hasattr(")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(all: &[(&str, bool)]) -> Facts {
        all.iter().fold(Facts::default(), |facts, (name, value)| facts.with(Atom::True((*name).into()), *value))
    }

    #[test]
    fn conditions_are_as_short_as_they_can_be() {
        let ways = |all: &[[bool; 3]]| -> Vec<Facts> {
            all.iter().map(|[a, b, c]| facts(&[("a", *a), ("b", *b), ("c", *c)])).collect()
        };
        let (t, f) = (true, false);
        let found = ways(&[[t, t, t], [t, f, t]]);
        let silent = ways(&[[t, t, f], [t, f, f], [f, t, t], [f, f, t]]);
        assert_eq!(conditions_of(&found, &silent), ["a and c"]);
        let found = ways(&[[t, t, t], [t, t, f], [f, f, t], [f, f, f]]);
        let silent = ways(&[[t, f, t], [f, t, f]]);
        assert_eq!(conditions_of(&found, &silent), ["a and b", "not a and not b"]);
    }
}
