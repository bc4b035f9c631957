//! A finished diagnostic, ready to render. In: words chosen by `diagnostics/` (or by `config/`, `rules/`, `syntax/`
//! about their own files). Out: what every renderer prints. Never: formatting. Next: `render/`.

use super::Place;

/// How bad a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    Error,
    Warning,
    Note,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

/// A secondary place and why it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub place: Place,
    pub message: String,
}

/// Whether a repair may be applied without a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applicability {
    Safe,
    Unsafe,
}

/// One replacement of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub place: Place,
    pub text: String,
}

/// A repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    pub applicability: Applicability,
    pub edits: Vec<Edit>,
    /// Other places and spellings of the same repair, for where the first one does not re-check.
    pub variants: Vec<Vec<Edit>>,
    /// Other repairs of the same mistake: where one of them re-checks as well, none is certain.
    pub rivals: Vec<Vec<Edit>>,
}

/// One diagnostic: code, words, places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// `SPMD101`
    pub code: &'static str,
    /// `invariant-mixed`
    pub name: &'static str,
    pub severity: Severity,
    /// One line that stands alone: lowercase, no final period.
    pub message: String,
    pub place: Place,
    /// Words under the primary span; may be empty.
    pub primary: String,
    /// Secondary labels, in the order in which they explain.
    pub labels: Vec<Label>,
    pub notes: Vec<String>,
    pub help: Vec<String>,
    /// Conditions under which the finding holds; empty: always.
    pub when: Vec<String>,
    pub fix: Option<Fix>,
}
