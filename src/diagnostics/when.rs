//! The configurations in which a finding holds, in words. In: the worlds that found it and those that did not. Out: conditions, empty
//! if it holds always. Never: atoms that no flag of the user stands for. Next: `words/mod.rs`.

use crate::infer::formula::{Atom, Facts, show_fact};

/// Conditions under which a finding holds: one conjunction for each way, without what does not matter.
pub fn conditions(found: &[Facts], silent: &[Facts]) -> Vec<String> {
    let clean = |f: &Facts| f.filtered(|a| !is_private(a));
    let found: Vec<Facts> = found.iter().map(clean).collect();
    let silent: Vec<Facts> = silent.iter().map(clean).filter(|f| !found.contains(f)).collect();
    if silent.is_empty() || found.iter().any(Facts::is_empty) {
        return Vec::new();
    }
    let mut out: Vec<String> = Vec::new();
    for facts in &found {
        let text = needed(facts, &silent);
        if text.is_empty() {
            return Vec::new();
        }
        let text = text.join(" and ");
        if !out.contains(&text) {
            out.push(text);
        }
    }
    out.sort();
    out
}

/// The facts of a world without those that no silent world contradicts in their absence.
fn needed(facts: &Facts, silent: &[Facts]) -> Vec<String> {
    let mut kept: Vec<(&Atom, bool)> = facts.iter().collect();
    let mut i = 0;
    while i < kept.len() {
        let mut without = kept.clone();
        without.remove(i);
        let covers_silent =
            silent.iter().any(|s| without.iter().all(|(a, v)| s.get(a).is_none_or(|known| known == *v)));
        if covers_silent {
            i += 1;
        } else {
            kept = without;
        }
    }
    kept.into_iter().map(|(a, v)| show_fact(a, v)).collect()
}

/// Atoms that the checker made up for tests it does not follow.
fn is_private(atom: &Atom) -> bool {
    match atom {
        Atom::True(name) | Atom::IsNone(name) | Atom::Equals(name, _) => {
            name.starts_with('?') || name.starts_with("hasattr(")
        }
    }
}
