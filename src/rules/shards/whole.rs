//! Dims along which an operation couples or places elements (`whole` of a rule). In: the entries of a rule, a call.
//! Out: whether a split dim is one of them. Never: a guess, a dim that is not known couples nothing. Next: `mod.rs`.

use super::ShardCall;
use crate::rules::shapes::Given;
use crate::source::Name;
use crate::types::normalize_dim;

/// One entry of `whole`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whole {
    All,
    At(i64),
    /// The dims that an argument names.
    Argument(Name),
    /// As many last dims as an argument has entries.
    LastOf(Name),
}

/// Whether the split dim of the first tensor is one over which the operation couples elements.
pub(super) fn couples(call: &ShardCall<'_>) -> bool {
    if call.rule.whole.contains(&Whole::All) {
        return call.pieces.iter().any(|p| p.shard.is_some());
    }
    let Some(first) = call.pieces.first() else { return false };
    let (Some(shard), rank) = (first.shard, first.shape.rank()) else { return false };
    call.rule.whole.iter().any(|entry| match entry {
        Whole::All => true,
        Whole::At(dim) => normalize_dim(*dim, rank) == Some(shard),
        Whole::Argument(name) => dims_given(call, name, rank, false).is_some_and(|dims| dims.contains(&shard)),
        Whole::LastOf(name) => {
            let given = call.rule.args.index(name).and_then(|i| call.given.get(i));
            let count = match given {
                Some(Given::Ints(sizes)) => sizes.len(),
                Some(Given::Int(_)) => 1,
                _ => return false,
            };
            shard + count >= rank
        }
    })
}

/// The dims that an argument names, or its default; no dim means all of them. None if they are not known.
pub(super) fn dims_given(call: &ShardCall<'_>, name: &str, rank: usize, absent_is_all: bool) -> Option<Vec<usize>> {
    let Some(param) = call.rule.args.index(name) else { return absent_is_all.then(|| (0..rank).collect()) };
    let norm = |d: i64| normalize_dim(d, rank);
    match call.given.get(param) {
        Some(Given::Int(d)) => Some(vec![norm((*d)?)?]),
        Some(Given::Ints(list)) if list.is_empty() => Some((0..rank).collect()),
        Some(Given::Ints(list)) => list.iter().map(|d| norm((*d)?)).collect(),
        Some(Given::Nothing) => Some((0..rank).collect()),
        None | Some(Given::Absent) => match call.rule.args.params[param].default.as_deref() {
            None => absent_is_all.then(|| (0..rank).collect()),
            Some("None" | "()") => Some((0..rank).collect()),
            Some(text) => Some(vec![norm(text.parse().ok()?)?]),
        },
        Some(Given::Bool(_) | Given::Str(_) | Given::Tensor(_) | Given::Tensors(_) | Given::Unknown) => None,
    }
}
