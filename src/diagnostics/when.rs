//! The configurations in which a finding holds, in words. In: the worlds that found it and those that did not. Out: conditions, empty
//! if it holds always. Never: atoms that no flag of the user stands for. Next: `words/mod.rs`.

use crate::infer::finding::{Finding, Reached};
use crate::infer::formula::{Atom, Facts, show_const, show_fact, shown};
use crate::infer::limits::MAX_EXPANDED;

/// Ways to meet a mistake that are written out; a reader who sees these finds the others.
const MOST_CONDITIONS: usize = 3;

/// A conjunction of facts.
type Cube<'a> = Vec<(&'a Atom, bool)>;

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
    let (found, silent) = cleaned(found, silent);
    let Some(cubes) = cubes_of(&found, &silent) else { return Vec::new() };
    let cubes = merged(cubes);
    if cubes.iter().any(Vec::is_empty) {
        return Vec::new();
    }
    let mut out: Vec<(usize, String)> = absorbed(cubes)
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

fn cleaned(found: &[Facts], silent: &[Facts]) -> (Vec<Facts>, Vec<Facts>) {
    let clean = |facts: &[Facts]| -> Vec<Facts> {
        facts.iter().flat_map(|f| f.expanded(MAX_EXPANDED)).map(|f| f.filtered(|a| !is_private(a))).collect()
    };
    let found = clean(found);
    let silent = clean(silent).into_iter().filter(|f| !found.contains(f)).collect();
    (found, silent)
}

/// One conjunction for each world that found it, without what does not matter; `None` if it holds always.
fn cubes_of<'a>(found: &'a [Facts], silent: &[Facts]) -> Option<Vec<Cube<'a>>> {
    if silent.is_empty() || found.iter().any(Facts::is_empty) {
        return None;
    }
    let mut cubes: Vec<Cube<'a>> = Vec::new();
    let mut left: Vec<&Facts> = found.iter().collect();
    // The fact that tells most of them from the silent ones is more likely the reason than one that happens to tell a few.
    while let Some(fact) = common(&left, silent) {
        left.retain(|facts| facts.get(fact.0) != Some(fact.1));
        cubes.push(vec![fact]);
    }
    for facts in left {
        let cube = needed(facts, silent);
        if cube.is_empty() {
            return None;
        }
        if !cubes.contains(&cube) {
            cubes.push(cube);
        }
    }
    Some(cubes)
}

/// The fact that no silent world may have, of most worlds; of several the first.
fn common<'a>(found: &[&'a Facts], silent: &[Facts]) -> Option<(&'a Atom, bool)> {
    let mut best: Option<((&Atom, bool), usize)> = None;
    let mut seen: Cube<'_> = Vec::new();
    for fact in found.iter().flat_map(|facts| facts.iter()) {
        // Worlds share most of what they know.
        if seen.contains(&fact) {
            continue;
        }
        seen.push(fact);
        if !tells(&[fact], silent) {
            continue;
        }
        let worlds = found.iter().filter(|facts| facts.get(fact.0) == Some(fact.1)).count();
        if best.is_none_or(|(_, most)| worlds > most) {
            best = Some((fact, worlds));
        }
    }
    best.map(|(fact, _)| fact)
}

/// Whether no silent world may have all of these facts.
fn tells(cube: &[(&Atom, bool)], silent: &[Facts]) -> bool {
    !silent.iter().any(|s| cube.iter().all(|(a, v)| s.get(a).is_none_or(|known| known == *v)))
}

/// Without conjunctions that another one covers.
fn absorbed(cubes: Vec<Cube<'_>>) -> Vec<Cube<'_>> {
    let covers = |a: &Cube<'_>, b: &Cube<'_>| a.len() < b.len() && a.iter().all(|x| b.contains(x));
    let kept: Vec<Cube<'_>> = cubes.iter().filter(|c| !cubes.iter().any(|d| covers(d, c))).cloned().collect();
    kept
}

/// `a and b or a and not b` is `a`, and `a or not a and b` is `a or b`.
fn merged(mut cubes: Vec<Cube<'_>>) -> Vec<Cube<'_>> {
    // What the longer one has to lose: the fact that the shorter one has the other way round, beside nothing that it lacks.
    let opposite = |short: &Cube<'_>, long: &Cube<'_>| {
        let mut against = short.iter().filter(|fact| !long.contains(fact));
        let fact = against.next().filter(|(atom, value)| long.contains(&(*atom, !value)))?;
        against.next().is_none().then(|| long.iter().position(|(atom, _)| *atom == fact.0)).flatten()
    };
    let next = |cubes: &[Cube<'_>]| {
        let pairs = cubes.iter().flat_map(|short| cubes.iter().enumerate().map(move |(at, long)| (short, at, long)));
        pairs.filter(|(short, _, long)| short.len() <= long.len()).find_map(|(s, at, l)| Some((at, opposite(s, l)?)))
    };
    // Each round makes one of them shorter.
    while let Some((at, fact)) = next(&cubes) {
        cubes[at].remove(fact);
        cubes = absorbed(cubes);
    }
    cubes
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

/// The facts of a world that tell it from the silent ones, of which none does alone: two if two do, else all but those that do not matter.
fn needed<'a>(facts: &'a Facts, silent: &[Facts]) -> Cube<'a> {
    let mut kept: Cube<'a> = facts.iter().collect();
    for (i, a) in kept.iter().enumerate() {
        if let Some(b) = kept[i + 1..].iter().find(|b| tells(&[*a, **b], silent)) {
            return vec![*a, *b];
        }
    }
    let mut i = 0;
    while i < kept.len() {
        let mut without = kept.clone();
        without.remove(i);
        if !tells(&without, silent) {
            i += 1;
        } else {
            kept = without;
        }
    }
    kept
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
