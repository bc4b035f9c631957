//! The pipeline of one file on one screen: depth check, parser, comments, lowering.
//!
//! In: text. Out: [`Parsed`]. Never: panicking: a failure of the parser is a problem of the file. Next: `comments.rs`,
//! `lower/mod.rs`.

use super::comments::{self, Comments};
use super::{Parsed, ProblemKind, SyntaxProblem, depth, lower};
use crate::ir::{Code, FileIr, FuncId, FuncKind};
use crate::source::Span;
use ruff_python_parser::{Mode, ParseError, ParseOptions, parse_unchecked};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Errors after these are mostly consequences of the first.
const MAX_SYNTAX_ERRORS: usize = 5;

pub(super) fn parse(text: &str) -> Parsed {
    if let Some(deep) = depth::check(text) {
        return rejected(ProblemKind::TooDeep, deep.span, deep.detail);
    }
    let attempt = catch_unwind(AssertUnwindSafe(|| parse_module(text)));
    attempt.unwrap_or_else(|_| {
        rejected(ProblemKind::SyntaxError, Span::new(0, 0), "the parser failed on this file".to_string())
    })
}

/// The statements of one function of a text that was parsed before.
pub(super) fn function(text: &str, func: FuncId, span: Span) -> Code {
    let alone = || {
        let mut own = parse(text.get(span.start as usize..span.end as usize)?);
        let mut found = own.ir.funcs.ids().filter(|id| own.ir.funcs[*id].kind == FuncKind::Function);
        let (one, others) = (found.next()?, found.next());
        let is_whole = own.problems.is_empty() && others.is_none();
        is_whole.then(|| std::mem::take(&mut own.ir.funcs[one].code).shifted(span.start))
    };
    alone().unwrap_or_else(|| std::mem::take(&mut parse(text).ir.funcs[func].code))
}

/// The answer for a file that was not parsed: an empty module.
fn rejected(kind: ProblemKind, span: Span, detail: String) -> Parsed {
    let mut parsed = parse_module("");
    parsed.problems.push(SyntaxProblem::new(kind, span, detail));
    parsed
}

fn parse_module(text: &str) -> Parsed {
    let Some(tree) = parse_unchecked(text, ParseOptions::from(Mode::Module)).try_into_module() else {
        return Parsed::default();
    };
    let mut problems: Vec<_> = tree.errors().iter().take(MAX_SYNTAX_ERRORS).map(syntax_error).collect();
    let Comments { claims, directives, suppressions, problems: bad_comments } = comments::collect(text, tree.tokens());
    problems.extend(bad_comments);
    let lower::Lowered { mut funcs, classes, too_deep, claims } = lower::lower(text, tree.syntax(), claims);
    if let Some(span) = too_deep {
        let detail = "nested too deep; the inner part is not checked";
        problems.push(SyntaxProblem::new(ProblemKind::TooDeep, span, detail));
    }
    claims.finish(&mut funcs, &mut problems);
    problems.sort_by_key(|p| (p.span, p.kind));
    Parsed { ir: FileIr { funcs, classes, directives, suppressions }, problems }
}

fn syntax_error(error: &ParseError) -> SyntaxProblem {
    let range = error.location;
    let span = Span::new(range.start().to_u32(), range.end().to_u32());
    SyntaxProblem::new(ProblemKind::SyntaxError, span, lowercase_first(&error.error.to_string()))
}

/// Lowers the first letter, unless the first word is a name or a type as written.
fn lowercase_first(message: &str) -> String {
    let message = message.trim_end_matches('.');
    let mut chars = message.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), second) if !second.is_some_and(char::is_uppercase) => first.to_lowercase().chain(chars).collect(),
        _ => message.to_string(),
    }
}
