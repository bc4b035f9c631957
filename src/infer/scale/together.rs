//! Which classes of parameters there must be. In: the classes of modules, each with what code asks of its parameters, and which two of
//! them are at odds. Out: whether every set of parameters that makes each question worth asking has two at odds. Never: a class taken
//! for real because two questions, asked apart, allow it: a loop over marked parameters and one over norms are about no parameter that
//! is both unless the program has one. Next: `verdict.rs`.

use super::value::{Class, ModId};
use crate::source::Name;
use std::collections::BTreeSet;

/// The most classes of which all sets are tried; of more, two at odds are taken to be real.
const MOST_CLASSES: usize = 8;

/// Whether two classes at odds are sure to be there.
///
/// `classes`: those of the modules in question; `at_odds`: for two of them, whether they contradict each other.
pub fn are_sure(classes: &[&Class], at_odds: &dyn Fn(usize, usize) -> bool) -> bool {
    let questions = questions(classes);
    if questions.len() < 2 || classes.len() > MOST_CLASSES {
        return true;
    }
    let all: Vec<usize> = (0..classes.len()).collect();
    // A class of which a question is not asked has parameters of both kinds.
    let answers = |set: &[usize]| -> BTreeSet<(usize, Option<bool>)> {
        let of = |c: &usize| {
            let (class, at) = (classes[*c], 0..questions.len());
            at.filter(|q| questions[*q].0 == class.module).map(|q| (q, class.facts.get(questions[q].1).copied()))
        };
        set.iter().flat_map(of).collect()
    };
    let wanted = answers(&all);
    let pairs = all.iter().flat_map(|a| (0..*a).map(move |b| (*a, b)));
    let odd: Vec<(usize, usize)> = pairs.filter(|(a, b)| at_odds(*a, *b)).collect();
    (1_u32..1 << classes.len()).all(|bits| {
        let set: Vec<usize> = all.iter().copied().filter(|c| bits >> c & 1 == 1).collect();
        odd.iter().any(|(a, b)| set.contains(a) && set.contains(b)) || answers(&set) != wanted
    })
}

/// What is asked of the parameters of each module.
fn questions<'c>(classes: &[&'c Class]) -> Vec<(Option<ModId>, &'c Name)> {
    let mut out: Vec<_> = classes.iter().flat_map(|c| c.facts.keys().map(|key| (c.module, key))).collect();
    out.sort_unstable();
    out.dedup();
    out
}
