//! What ranks hold when a function has ended: groups in variables that outlive it, and the one that it returns. In: the runs of all ranks.
//! Out: a rank that holds the group of others although it is in one of its own, and two groups that are to have one rank in common and
//! have more. Never: variables of the function alone, or names that do not say which parts of a model a group is for.
//! Source: Megatron-LM, parallel_state.py: groups of data are orthogonal to those that split the model. Next: `verdict.rs`.

use super::run::{Kept, Lasts, Run};
use super::value::Group;
use super::verdict::Misfit;
use crate::source::{Name, Place};
use std::rc::Rc;

/// A group that is held, under a name or as what the function returns.
struct Held {
    name: Option<Name>,
    /// Of the entry of a dict that it is.
    key: Option<String>,
    group: Rc<Group>,
    at: Place,
}

fn held(run: &Run<'_>) -> Vec<Held> {
    let lasting = |k: &&Kept| k.lasts != Lasts::No;
    let last = |k: &&Kept| {
        let same = |o: &&Kept| o.name == k.name && o.lasts == k.lasts;
        run.kept.iter().rfind(same).is_some_and(|o| std::ptr::eq(o, *k))
    };
    let of_kept = |k: &Kept| {
        let key = if let Lasts::Under(key) = &k.lasts { Some(key.clone()) } else { None };
        Held { name: Some(k.name.clone()), key, group: k.group.clone(), at: k.at }
    };
    let kept = run.kept.iter().filter(lasting).filter(last).map(of_kept);
    let returned = run.returned.iter().map(|(group, at)| Held { name: None, key: None, group: group.clone(), at: *at });
    kept.chain(returned).collect()
}

/// A rank that holds the last of the groups that one call makes, and is in another one.
pub fn last_made(runs: &[Run<'_>]) -> Option<(Place, Misfit)> {
    // Among all groups that are kept a rank may find its own.
    if runs.iter().any(|run| run.stored) {
        return None;
    }
    runs.iter().find_map(|run| {
        held(run).into_iter().filter(|h| !h.group.ranks.contains(&run.rank)).find_map(|h| {
            let of_call = || run.made.iter().filter(|m| Some(m.at) == h.group.made && m.ranks.len() > 1);
            let own = of_call().find(|m| m.ranks.contains(&run.rank))?;
            let last = of_call().next_back().is_some_and(|m| m.ranks == h.group.ranks);
            let same = |other: &Run<'_>| held(other).iter().any(|o| o.name == h.name && o.group.ranks == h.group.ranks);
            (last && runs.iter().all(same)).then(|| {
                let (ranks, own) = (h.group.ranks.clone(), own.ranks.clone());
                (h.at, Misfit::LastMade { variable: h.name.clone(), rank: run.rank, ranks, own })
            })
        })
    })
}

/// Words of names of groups that say nothing of what they are for.
const NOTHING: &[&str] = &["group", "groups", "parallel", "process", "pg", "global", "model", "comm", "self", ""];

/// What a name says that its ranks split; with what they share.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Experts,
    /// Copies of the same experts.
    ExpertData,
    Tensors,
    Stages,
    Data,
}

fn purpose(name: &str) -> Option<For> {
    let lower = name.to_lowercase();
    let words: Vec<&str> = lower.split('_').filter(|w| !NOTHING.contains(w)).collect();
    match words.as_slice() {
        ["expert" | "ep" | "moe"] => Some(For::Experts),
        ["edp"] | ["expert" | "ep" | "moe", "data" | "dp"] => Some(For::ExpertData),
        ["tensor" | "tp"] => Some(For::Tensors),
        ["pipeline" | "pipe" | "pp"] => Some(For::Stages),
        ["data" | "dp"] => Some(For::Data),
        _ => None,
    }
}

/// Whether groups of both have at most one rank in common.
fn are_orthogonal(a: For, b: For) -> bool {
    matches!(
        (a, b),
        (For::Experts, For::ExpertData) | (For::Tensors | For::Stages, For::Data) | (For::Tensors, For::Stages)
    )
}

/// Two groups of a rank with another rank in common.
pub fn same_members(runs: &[Run<'_>]) -> Option<(Place, Misfit)> {
    runs.iter().find_map(|run| {
        let all = held(run);
        let pairs = all.iter().flat_map(|a| all.iter().map(move |b| (a, b)));
        pairs.into_iter().find_map(|(a, b)| {
            let (first, second) = (a.name.as_ref()?, b.name.as_ref()?);
            let both = |rank: &i64| a.group.ranks.contains(rank) && b.group.ranks.contains(rank);
            let everyone = |h: &Held| h.group.ranks.len() == usize::try_from(run.size).unwrap_or(0);
            let others = a.key != b.key || everyone(a) || everyone(b);
            if others || !are_orthogonal(purpose(first)?, purpose(second)?) || !both(&run.rank) {
                return None;
            }
            let member = (0..run.size).find(|rank| *rank != run.rank && both(rank))?;
            // Shown where the later one of both is made.
            let made = |h: &super::value::Group| run.made.iter().position(|m| Some(m.at) == h.made);
            let shown = if made(&a.group) > made(&b.group) { a } else { b };
            let misfit = Misfit::SameMembers {
                variables: (first.clone(), second.clone()),
                rank: run.rank,
                member,
                ranks: (a.group.ranks.clone(), b.group.ranks.clone()),
            };
            Some((shown.group.made.unwrap_or(shown.at), misfit))
        })
    })
}
