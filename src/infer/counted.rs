//! Numbers that no gradient goes through, where only their name tells: how many tokens an expert got, a mask. In: the argument of a collective of
//! which it is not known whether it has a gradient. Out: whether its name says that it counts or selects. Never: what a value is; a name
//! only keeps the checker silent. Next: `collective.rs`, which asks.

use super::machine::Machine;
use crate::ir::StmtId;

/// Last words of the names of numbers.
const LAST: &[&str] = &["count", "counts", "mask", "masks", "indices", "ids", "numel", "lengths", "seqlens"];

/// First words of the names of numbers.
const FIRST: &[&str] = &["num", "count", "counts"];

/// Whether a name is that of a number or of numbers: `num_tokens`, `local_tokens_per_expert`, `valid_token_count`, `routing_map`.
fn counts(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let of_tokens = name.contains("tokens_per_") || name.ends_with("routing_map");
    let (mut words, mut back) = (name.split('_').filter(|w| !w.is_empty()), name.rsplit('_'));
    of_tokens || words.next().is_some_and(|w| FIRST.contains(&w)) || back.next().is_some_and(|w| LAST.contains(&w))
}

impl Machine<'_> {
    /// Whether a part of a statement is a variable that goes by the name of a number.
    pub(super) fn is_counted(&self, id: StmtId, part: usize) -> bool {
        let place = self.part(id, part);
        let text = self.files[place.file].whole();
        let said = &text[place.span.start as usize..place.span.end as usize];
        let is_variable = said.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
        is_variable && said.rsplit('.').next().is_some_and(counts)
    }
}
