//! What must not be lost by an edit: types that were known. In: a project before and after. Out: whether every variable in the edited
//! files is known on as many axes as before. Never: a comparison of the types themselves, which a repair changes. Next: `mod.rs`.

use crate::check::{Want, check};
use crate::config::Config;
use crate::diagnostics::fixes::text::has_word;
use crate::rules::RuleBook;
use crate::source::{Edit, Files};
use std::collections::{BTreeMap, BTreeSet};

/// Path, function and variable, with the most axes on which it is known.
pub type Known = BTreeMap<(String, String, String), usize>;

/// What is known of every variable. An edit that silences a finding by making a value unknown repairs nothing.
pub fn known(config: &Config, rules: &RuleBook, files: &Files) -> Known {
    let mut out = Known::new();
    for row in check(config, rules, files, Want::Types).types {
        let axes = out.entry((row.path, row.function, row.variable)).or_insert(0);
        *axes = row.types.len().max(*axes);
    }
    out
}

/// Whether the edited files have lost no type.
pub fn no_worse(before: &Known, after: &Known, files: &Files, edits: &[Edit]) -> bool {
    let edited: BTreeSet<_> = edits.iter().map(|edit| edit.place.file).collect();
    edited.into_iter().all(|id| {
        let file = &files[id];
        before.iter().filter(|((path, _, _), _)| *path == file.path).all(|(key, axes)| {
            let gone = || !has_word(&file.text, key.2.rsplit('.').next().unwrap_or(&key.2));
            after.get(key).map_or_else(gone, |now| now >= axes)
        })
    })
}
