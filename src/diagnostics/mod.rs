//! Words: from findings to diagnostics. In: findings, syntax problems, suppressions. Out: sorted [`Diagnostic`]s, suppressed ones
//! removed. Never: detection. One table lists every code; one Markdown page explains each. Next: `words/`.

mod codes;
mod suppress;
mod when;
mod words;

pub use codes::{CODES, Code, find, page};
pub use suppress::suppress;
pub use when::conditions;
pub use words::{describe, describe_syntax};

use crate::source::Diagnostic;

/// The order of diagnostics: by place, then code, then text.
pub fn sort(diagnostics: &mut Vec<Diagnostic>) {
    diagnostics.sort_by(|a, b| (a.place, a.code, &a.message).cmp(&(b.place, b.code, &b.message)));
    diagnostics.dedup();
}
