//! `ignore[codes] reason`, `ignore-file[codes] reason`, `skip-file reason`.
//!
//! In: the text from the word on. Out: a [`Suppression`], or what it lacks. Never: knowing which codes exist. Next:
//! `comments.rs`.

use super::{ProblemKind, SyntaxProblem};
use crate::ir::annotation::{Suppression, SuppressionScope};
use crate::source::{Name, Span};

/// Parses a suppression that starts at `base`; `line` is the logical line that a plain `ignore` is about.
pub(super) fn parse(text: &str, base: u32, line: Span) -> Result<Suppression, SyntaxProblem> {
    let text = text.trim_end();
    let span = Span::new(base, base + text.len() as u32);
    let bad = |span, detail: &str| Err(SyntaxProblem::new(ProblemKind::BadSuppression, span, detail));
    let (scope, rest) = if let Some(rest) = text.strip_prefix("ignore-file") {
        (SuppressionScope::File, rest)
    } else if let Some(rest) = text.strip_prefix("skip-file") {
        (SuppressionScope::Skip, rest)
    } else {
        (SuppressionScope::Line(line), text.strip_prefix("ignore").unwrap_or(text))
    };
    let mut codes = Vec::new();
    let mut rest = rest.trim_start();
    if scope != SuppressionScope::Skip {
        let Some(inner) = rest.strip_prefix('[') else {
            return bad(span, "say what to ignore in brackets, as in `ignore[invariant-mixed] reason`");
        };
        let Some(close) = inner.find(']') else { return bad(span, "the list of codes is not closed with `]`") };
        let start = base as usize + (text.len() - inner.len());
        let mut offset = start;
        for code in inner[..close].split(',') {
            let at = offset + (code.len() - code.trim_start().len());
            let name = code.trim();
            if !name.is_empty() {
                codes.push((Name::from(name), Span::new(at as u32, (at + name.len()) as u32)));
            }
            offset += code.len() + 1;
        }
        if codes.is_empty() {
            let brackets = Span::new(start as u32 - 1, (start + close + 1) as u32);
            return bad(
                brackets,
                "the list of codes is empty; name what to ignore, as in `ignore[invariant-mixed] reason`",
            );
        }
        rest = inner[close + 1..].trim_start();
    }
    let reason = rest.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ':' | '-' | '–' | '—')).trim();
    if reason.is_empty() {
        return bad(span, "a reason is missing; say at the end why this is right");
    }
    Ok(Suppression { span, scope, codes, reason: Name::from(reason) })
}
