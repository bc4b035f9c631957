//! The rule files embedded in the binary. In: nothing. Out: (name, text) of each, and the book they make.
//! Never: reading from disk. Next: `load.rs`. `tests/tidy.rs` checks that no file of `rules/` is missing here.

use super::book::RuleBook;
use super::load::load;

/// Built-in rule files, in order: later ones override earlier ones.
pub const FILES: &[(&str, &str)] = &[];

/// The built-in rules.
///
/// # Panics
/// When a built-in file has a mistake, which a test excludes.
pub fn builtin() -> RuleBook {
    let (book, problems) = load(FILES);
    assert!(problems.is_empty(), "built-in rules have no mistakes: {problems:?}");
    book
}
