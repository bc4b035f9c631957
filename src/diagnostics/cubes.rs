//! The facts that tell some worlds from others. In: the worlds that found something, and those that did not. Out: a conjunction for each way
//! to tell them, short ones first. Never: words. Next: `when.rs`.

use crate::infer::formula::{Atom, Facts};
use rustc_hash::FxHashMap;

/// A conjunction of facts.
pub type Cube<'a> = Vec<(&'a Atom, bool)>;

/// Some worlds, each by its place in a list. Functions with many flags have thousands of worlds, and each fact is asked of all of them.
#[derive(Clone)]
struct Worlds(Box<[u64]>);

impl Worlds {
    /// The places of which something holds.
    fn of(count: usize, holds: impl Fn(usize) -> bool) -> Worlds {
        let word = |start: usize| {
            let places = start..count.min(start + 64);
            places.filter(|at| holds(*at)).fold(0, |word, at| word | 1 << (at - start))
        };
        Worlds((0..count).step_by(64).map(word).collect())
    }

    fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    /// How many are in both.
    fn shared(&self, other: &Worlds) -> u32 {
        self.0.iter().zip(&other.0).map(|(a, b)| (a & b).count_ones()).sum()
    }

    fn remove(&mut self, others: &Worlds) {
        self.0.iter_mut().zip(&others.0).for_each(|(word, other)| *word &= !other);
    }

    fn places(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len() * 64).filter(|at| self.has(*at))
    }
}

/// An atom, by its number, and its truth. Comparing these is all that many worlds cost.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Fact {
    atom: u32,
    value: bool,
}

impl Fact {
    fn index(self) -> usize {
        self.atom as usize * 2 + usize::from(self.value)
    }
}

/// What the worlds that found something know, and which worlds agree with it.
struct Known<'a> {
    atoms: Vec<&'a Atom>,
    /// By fact: the worlds that found something where it holds, and the silent ones where it may; nothing of facts that no world that found
    /// something has.
    holds: Vec<Option<(Worlds, Worlds)>>,
    /// By world that found something: its facts, in order.
    own: Vec<Vec<Fact>>,
}

impl<'a> Known<'a> {
    fn new(found: &'a [Facts], silent: &[Facts]) -> Known<'a> {
        let mut numbers: FxHashMap<&Atom, u32> = FxHashMap::default();
        let mut atoms: Vec<&'a Atom> = Vec::new();
        let mut fact = |(atom, value): (&'a Atom, bool)| {
            let number = || {
                atoms.push(atom);
                atoms.len() as u32 - 1
            };
            Fact { atom: *numbers.entry(atom).or_insert_with(number), value }
        };
        let own: Vec<Vec<Fact>> = found.iter().map(|world| world.iter().map(&mut fact).collect()).collect();
        let mut holds = vec![None; atoms.len() * 2];
        for fact in own.iter().flatten() {
            let (atom, value) = (atoms[fact.atom as usize], fact.value);
            holds[fact.index()].get_or_insert_with(|| {
                let may = |at: usize| silent[at].get(atom).is_none_or(|known| known == value);
                (Worlds::of(found.len(), |at| found[at].get(atom) == Some(value)), Worlds::of(silent.len(), may))
            });
        }
        Known { atoms, holds, own }
    }

    fn of(&self, fact: Fact) -> &(Worlds, Worlds) {
        self.holds[fact.index()].as_ref().expect("it was taken from a world")
    }

    fn shown(&self, cube: &[Fact]) -> Cube<'a> {
        cube.iter().map(|fact| (self.atoms[fact.atom as usize], fact.value)).collect()
    }

    /// Whether no silent world may have all of these facts.
    fn tells(&self, cube: &[Fact]) -> bool {
        let Some((first, rest)) = cube.split_first() else { return false };
        let first = &self.of(*first).1.0;
        first
            .iter()
            .enumerate()
            .all(|(at, word)| rest.iter().fold(*word, |all, fact| all & self.of(*fact).1.0[at]) == 0)
    }

    /// The fact that no silent world may have, of most worlds; of several the first.
    fn common(&self, left: &Worlds) -> Option<Fact> {
        let mut best: Option<(Fact, u32)> = None;
        // Worlds share most of what they know.
        let mut seen = vec![false; self.holds.len()];
        for fact in left.places().flat_map(|world| self.own[world].iter().copied()) {
            if std::mem::replace(&mut seen[fact.index()], true) || !self.tells(&[fact]) {
                continue;
            }
            let worlds = self.of(fact).0.shared(left);
            if best.is_none_or(|(_, most)| worlds > most) {
                best = Some((fact, worlds));
            }
        }
        best.map(|(fact, _)| fact)
    }

    /// The facts of a world that tell it from the silent ones, of which none does alone: two if two do, else all but those that do not
    /// matter.
    fn needed(&self, world: usize) -> Vec<Fact> {
        let mut kept = self.own[world].clone();
        for (i, a) in kept.iter().enumerate() {
            if let Some(b) = kept[i + 1..].iter().find(|b| self.tells(&[*a, **b])) {
                return vec![*a, *b];
            }
        }
        let mut i = 0;
        while i < kept.len() {
            let mut without = kept.clone();
            without.remove(i);
            if !self.tells(&without) {
                i += 1;
            } else {
                kept = without;
            }
        }
        kept
    }
}

/// One conjunction for each world that found it, without what does not matter; `None` if it holds always.
pub fn cubes_of<'a>(found: &'a [Facts], silent: &[Facts]) -> Option<Vec<Cube<'a>>> {
    let (known, cubes) = ways(found, silent)?;
    Some(cubes.iter().map(|cube| known.shown(cube)).collect())
}

/// The same, as short as they are together.
pub fn merged_cubes_of<'a>(found: &'a [Facts], silent: &[Facts]) -> Option<Vec<Cube<'a>>> {
    let (known, cubes) = ways(found, silent)?;
    let cubes = merged(cubes);
    let always = cubes.iter().any(Vec::is_empty);
    (!always).then(|| absorbed(cubes).iter().map(|cube| known.shown(cube)).collect())
}

fn ways<'a>(found: &'a [Facts], silent: &[Facts]) -> Option<(Known<'a>, Vec<Vec<Fact>>)> {
    if silent.is_empty() || found.iter().any(Facts::is_empty) {
        return None;
    }
    let known = Known::new(found, silent);
    let mut cubes: Vec<Vec<Fact>> = Vec::new();
    let mut left = Worlds::of(found.len(), |_| true);
    // The fact that tells most of them from the silent ones is more likely the reason than one that happens to tell a few.
    while let Some(fact) = known.common(&left) {
        left.remove(&known.of(fact).0);
        cubes.push(vec![fact]);
    }
    for world in left.places() {
        let cube = known.needed(world);
        if cube.is_empty() {
            return None;
        }
        if !cubes.contains(&cube) {
            cubes.push(cube);
        }
    }
    Some((known, cubes))
}

/// Without conjunctions that another one covers.
pub fn absorbed<F: PartialEq + Clone>(cubes: Vec<Vec<F>>) -> Vec<Vec<F>> {
    let kept: Vec<Vec<F>> = cubes.iter().filter(|c| !cubes.iter().any(|d| covers(d, c))).cloned().collect();
    kept
}

fn covers<F: PartialEq>(a: &[F], b: &[F]) -> bool {
    a.len() < b.len() && a.iter().all(|x| b.contains(x))
}

/// `a and b or a and not b` is `a`, and `a or not a and b` is `a or b`.
fn merged(mut cubes: Vec<Vec<Fact>>) -> Vec<Vec<Fact>> {
    // What the longer one has to lose: the fact that the shorter one has the other way round, beside nothing that it lacks.
    let opposite = |short: &[Fact], long: &[Fact]| {
        let mut against = short.iter().filter(|fact| !long.contains(fact));
        let fact = against.next().map(|fact| Fact { value: !fact.value, ..*fact })?;
        let lost = long.iter().position(|known| *known == fact)?;
        against.next().is_none().then_some(lost)
    };
    let next = |cubes: &[Vec<Fact>]| {
        let pairs = cubes.iter().flat_map(|short| cubes.iter().enumerate().map(move |(at, long)| (short, at, long)));
        pairs.filter(|(short, _, long)| short.len() <= long.len()).find_map(|(s, at, l)| Some((at, opposite(s, l)?)))
    };
    // Each round makes one of them shorter, which then may cover others.
    let mut is_first = true;
    while let Some((at, fact)) = next(&cubes) {
        cubes[at].remove(fact);
        if std::mem::take(&mut is_first) {
            cubes = absorbed(cubes);
        } else {
            let shorter = cubes[at].clone();
            cubes.retain(|cube| !covers(&shorter, cube));
        }
    }
    cubes
}
