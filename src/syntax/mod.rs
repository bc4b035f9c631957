//! Python text to [`FileIr`]: the only module that knows the parser.
//!
//! In: bytes or text of one file. Out: its lowered form, and what was wrong with text and comments as
//! [`SyntaxProblem`]s. Never: failing, reading files, or knowing what a type means. Next: `parse.rs` (the pipeline on
//! one screen), `lower/`, `comments.rs`.

mod annotation_lexer;
mod annotation_parser;
mod attach;
mod clauses;
mod comments;
mod conditions;
mod decode;
mod depth;
mod gaps;
mod lower;
mod parse;
mod suggest;
mod suppressions;

use crate::ir::{Code, FileIr, FuncId, annotation::TypeExpr};
use crate::source::Span;

pub use decode::{DecodeError, decode, decode_owned};
pub use gaps::gaps;

/// A lowered file and what was wrong with it.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    pub ir: FileIr,
    pub problems: Vec<SyntaxProblem>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProblemKind {
    /// The text is not Python.
    SyntaxError,
    /// Nested deeper than this program follows.
    TooDeep,
    /// A `# spmd:` comment that cannot be understood where it stands.
    BadAnnotation,
    /// An `ignore` without codes or without a reason.
    BadSuppression,
}

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxProblem {
    pub kind: ProblemKind,
    pub span: Span,
    /// A lowercase sentence fragment without a final period.
    pub detail: String,
}

impl SyntaxProblem {
    pub(crate) fn new(kind: ProblemKind, span: Span, detail: impl Into<String>) -> Self {
        SyntaxProblem { kind, span, detail: detail.into() }
    }
}

/// Parses and lowers a file. Total: whatever the text is, there is an answer. Call it on a stack of at least
/// [`BIG_STACK`] bytes: dropping the tree of a hostile file recurses.
pub fn parse(text: &str) -> Parsed {
    parse::parse(text)
}

/// The statements of one function of a text: the one with this number and span in [`parse`]. Where
/// [`FileIr::lowered_alone`] says so, the rest of the text is not parsed for it.
pub fn function(text: &str, func: FuncId, span: Span) -> Code {
    parse::function(text, func, span)
}

/// Parses a type of the annotation grammar (`{tp: P}`), for configuration files and rules. Spans count from the start
/// of `text`.
pub fn parse_type_expr(text: &str) -> Result<TypeExpr, String> {
    annotation_parser::parse_type_expr(text)
}

/// Parses a condition of the annotation grammar (`sequence_parallel and not bias`), for rules.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_cond(text: &str) -> Result<crate::ir::annotation::Cond, String> {
    annotation_parser::parse_cond(text)
}

/// Stack size that [`parse`] expects.
pub const BIG_STACK: usize = 64 << 20;

/// Runs `f` on a thread with a stack of [`BIG_STACK`] bytes and waits for it.
pub fn run_on_big_stack<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(BIG_STACK).spawn_scoped(scope, f);
        match thread.expect("the system can start a thread").join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
