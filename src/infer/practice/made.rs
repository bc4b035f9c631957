//! What a value is made from, differentiably, as bits. In: nothing. Out: [`Made`], the state of one path, and how two paths join. Never:
//! code. Next: `gradient/mod.rs`, which walks; `gradient/calls.rs`, what calls do.

use super::super::trie::IdMap;
use crate::ir::{LocalId, Operand};
use crate::source::{Idx, Name, Place};

/// What a value is made from, differentiably: bits of arguments, of submodules and parameters, and two for each collective.
pub type Made = u128;
/// What each variable is made from; one that is made from nothing need not be there. Branches share what neither of them changes.
pub type State = IdMap<Made>;

/// A submodule itself, to be called.
pub const SUB: Made = 1 << 30;
/// The result of a submodule, or a parameter.
pub const MODULE: Made = 1 << 31;
/// Arguments of the function.
pub const PARAMS: Made = SUB - 1;
pub const GRADIENT: Made = MODULE | PARAMS;

/// Through a call of which nothing is known: a gradient may or may not flow back there.
pub const ASTRAY: Made = 1 << 127;

/// Through the collective.
pub fn through(k: usize) -> Made {
    1 << (32 + 2 * k)
}

/// From what the collective was given, past it.
pub fn direct(k: usize) -> Made {
    1 << (33 + 2 * k)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Communicates {
    IntoBuffer,
    InPlace,
    Differentiable,
}

/// A collective in the function or in one that it calls.
#[derive(Clone, Debug)]
pub struct Cut {
    pub place: Place,
    pub name: Name,
    pub how: Communicates,
    pub input: Made,
    /// What it is given is the result of an operation.
    pub computed: bool,
    /// The axes of its group, where they are known by name.
    pub axes: Option<Vec<Name>>,
    /// Its backward gathers parts and sums nothing.
    pub splits: bool,
    /// Its backward takes the gradient of its result for that of every rank.
    pub equal: bool,
    /// The step of the function that is looked at.
    pub step: usize,
    /// Where the function is called that holds it.
    pub call: Option<Place>,
}

pub fn join(state: &mut Option<State>, other: Option<State>) {
    match (state.as_mut(), other) {
        (Some(s), Some(other)) => {
            let mut more = Vec::new();
            s.changes(&other, &mut |local, mine, theirs| more.push((local, mine | theirs)));
            s.complete(&other);
            more.into_iter().for_each(|(local, made)| s.insert(local, made));
        }
        (None, other) => *state = other,
        (Some(_), None) => {}
    }
}

/// Whether a round of a loop changed nothing.
pub fn alike(before: Option<&State>, after: Option<&State>) -> bool {
    let (Some(before), Some(after)) = (before, after) else { return before.is_none() == after.is_none() };
    let mut same = true;
    before.differences(after, &mut |_, known, made| same &= known.copied().unwrap_or(0) == *made);
    same
}

pub fn made_from(s: &State, local: LocalId) -> Made {
    s.get(local.index() as u32).copied().unwrap_or(0)
}

pub fn set(s: &mut State, local: LocalId, made: Made) {
    if made_from(s, local) != made {
        s.insert(local.index() as u32, made);
    }
}

pub fn add(s: &mut State, local: LocalId, made: Made) {
    set(s, local, made_from(s, local) | made);
}

pub fn get(s: &State, o: &Operand) -> Made {
    match o {
        Operand::Local(l) => made_from(s, *l),
        _ => 0,
    }
}
