//! Reductions that a condition leaves out which says nothing of ranks. In: the paths to a step. Out: a step on gradients that another path
//! to it reduces, where what tells them apart is how gradients are clipped, scaled or shown. Never: a condition that may stand for a run on
//! one rank. Next: `verdict.rs`.

use super::super::finding::{Finding, FindingKind};
use super::super::formula::{Atom, Facts};
use super::super::practice::found::{Practice, Scales};
use super::Outcome;
use super::value::{State, Val};
use crate::ir::Const;
use crate::source::{Name, Place};
use crate::types::{Axis, Scale};
use std::collections::BTreeMap;

/// Words of conditions that have nothing to do with who trains.
const OTHER: &[&str] = &["clip", "grad_norm", "max_norm", "scaler", "log_", "verbose"];
/// Words of conditions that may stand for a run on one rank, or for a library that reduces by itself.
const RANKS: &[&str] =
    &["world", "rank", "dist", "parallel", "ddp", "fsdp", "sync", "reduc", "size", "multi", "n_gpu", "engine"];

/// What has reduced the gradients of a step after a backward pass; nothing if that is not known.
pub fn reduced(state: &State) -> Option<Option<Vec<Place>>> {
    let all: Vec<_> = state.trained().collect();
    let known = !state.terms.is_empty() && !all.is_empty() && state.trainers.is_empty();
    if !known || state.modules.iter().any(|m| m.lost && !m.unused) || all.iter().any(|c| c.total().0 == Scale::Unknown)
    {
        return None;
    }
    match all.iter().all(|c| c.total().1.is_empty()) {
        true => Some(None),
        false => {
            let last = all.iter().find(|c| !c.way.is_empty())?;
            let plain = all.iter().all(|c| !c.over.is_empty() && !c.over.iter().any(Axis::is_variable));
            plain.then(|| Some(last.way.clone()))
        }
    }
}

/// The ways to a step, and those to other steps of the same run that reduce, if nothing reduces on the way to this one.
pub fn beside<'o>(here: &[&'o Outcome], all: &'o [Outcome]) -> Vec<&'o Outcome> {
    let Some(first) = here.first().filter(|_| here.iter().all(|o| matches!(o.reduced, Some(None)))) else {
        return here.to_vec();
    };
    let others = || all.iter().filter(|o| o.root == first.root && o.place != first.place);
    // What is not followed to one of them may be followed to none.
    let open = |o: &Outcome| o.reduced.is_none() && others().any(|p| p.place == o.place && p.reduced.is_some());
    let plain = others().any(|o| matches!(o.reduced, Some(None)));
    if plain || others().any(open) {
        return here.to_vec();
    }
    here.iter().copied().chain(others().filter(|o| matches!(o.reduced, Some(Some(_))))).collect()
}

/// A step that is reached with gradients that are reduced, and without.
pub fn finding(step: Place, here: &[&Outcome]) -> Option<Finding> {
    let with: Vec<&&Outcome> = here.iter().filter(|o| matches!(o.reduced, Some(Some(_)))).collect();
    let without: Vec<&&Outcome> = here.iter().filter(|o| matches!(o.reduced, Some(None))).collect();
    if without.is_empty() || with.len() + without.len() < here.len() {
        return None;
    }
    let first = with.first()?;
    let has = |text: &str, words: &[&str]| words.iter().any(|w| text.to_lowercase().contains(w));
    let (flag, holds) = first.facts.iter().find(|(flag, holds)| {
        has(flag, OTHER)
            && with.iter().all(|o| o.facts.get(*flag) == Some(holds))
            && without.iter().all(|o| o.facts.get(*flag) != Some(holds))
    })?;
    let one = |o: &Outcome| o.facts.keys().any(|flag| has(flag, RANKS));
    if here.iter().any(|o| one(o)) {
        return None;
    }
    let reduced = first.reduced.clone()??;
    let mistake = Scales::ReducedWhere { flag: flag.clone(), holds: *holds, reduced };
    Some(Finding::everywhere(step, FindingKind::Practice(Practice::Scales(mistake))))
}

/// Whether a condition, or a side of one, asks which rank this is, and not whether there are several.
pub fn asks_rank(text: &str) -> bool {
    text.contains("rank") && !text.contains("ranks") && !asks_whether(text)
}

/// Whether a comparison asks if there are ranks at all.
pub fn asks_whether(text: &str) -> bool {
    let before = text.strip_suffix("-1").map(str::trim_end);
    before.is_some_and(|before| before.ends_with(['=', '<', '>']))
}

/// Whether two ways through a constructor leave another group, or none, or a number that only one of them knows: `world_size = 1`.
pub fn differs(a: &State, b: &State) -> bool {
    let group = |v: &Val| matches!(v, Val::Group(_) | Val::Mesh(_)) || v.is_none();
    let one = |v: &Val, w: &Val| matches!(v, Val::Const(Const::Int(_))) && matches!(w, Val::Num(_) | Val::Named(_));
    a.objects.iter().zip(b.objects.iter()).any(|(x, y)| {
        let pairs = x.attrs.values().zip(y.attrs.values());
        !x.is(y) && pairs.into_iter().any(|(v, w)| v != w && (group(v) || group(w) || one(v, w) || one(w, v)))
    })
}

/// What a path says of a flag; a subject that equals one thing does not equal another.
pub fn value(facts: &BTreeMap<Name, bool>, flag: &Name) -> Option<bool> {
    facts.get(flag).copied().or_else(|| {
        let (subject, _) = flag.split_once(" == ")?;
        let other = |(f, holds): (&Name, &bool)| *holds && f.split_once(" == ").is_some_and(|(s, _)| s == subject);
        facts.iter().any(other).then_some(false)
    })
}

/// What a path has decided, as the configuration in which it is taken.
pub fn world(facts: &BTreeMap<Name, bool>) -> Facts {
    facts.iter().fold(Facts::default(), |world, (name, holds)| world.with(Atom::True(name.clone()), *holds))
}
