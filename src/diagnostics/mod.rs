//! Words: from findings to diagnostics. In: findings, syntax problems, suppressions. Out: sorted [`Diagnostic`]s, suppressed ones
//! removed. Never: detection. One table lists every code; one Markdown page explains each. Next: `words/`.

mod codes;
mod cubes;
pub mod fixes;
pub mod signature;
mod suppress;
mod when;
mod words;

pub use codes::{CODES, Code, find, page};
pub use signature::SignatureLine;
pub use suppress::suppress;
pub use when::{Known, conditions, conditions_of, conditions_of_each};
pub use words::{chain, describe, describe_known, describe_syntax, reason};

use crate::source::{Diagnostic, FileId, Place, Span};

/// A file whose bytes are no text in the encoding it declares.
pub fn unreadable(file: FileId, why: &str) -> Diagnostic {
    let code = &codes::UNREADABLE;
    Diagnostic {
        code: code.code,
        name: code.name,
        severity: code.severity,
        message: format!("the file is not checked: {why}"),
        place: Place { file, span: Span::default() },
        primary: String::new(),
        labels: Vec::new(),
        notes: Vec::new(),
        help: vec!["save it as UTF-8, or declare its encoding in the first two lines as PEP 263 says".to_string()],
        when: Vec::new(),
        fix: None,
    }
}

/// A failure of the checker itself on a function; the rest of the run goes on.
pub fn internal_error(place: Place, function: &str) -> Diagnostic {
    let code = &codes::INTERNAL_ERROR;
    Diagnostic {
        code: code.code,
        name: code.name,
        severity: code.severity,
        message: format!("the checker failed on `{function}`, which is not checked"),
        place,
        primary: String::new(),
        labels: Vec::new(),
        notes: vec!["this is a mistake of spmd-check, not of the code; the rest of the run went on".to_string()],
        help: vec!["report it with the source of the function".to_string()],
        when: Vec::new(),
        fix: None,
    }
}

/// The order of diagnostics: by place, then code, then text.
pub fn sort(diagnostics: &mut Vec<Diagnostic>) {
    diagnostics.sort_by(|a, b| (a.place, a.code, &a.message).cmp(&(b.place, b.code, &b.message)));
    diagnostics.dedup();
}
