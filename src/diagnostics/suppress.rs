//! `# spmd: ignore[...]`: what is suppressed, and which suppressions are of no use. In: diagnostics of a file and its suppressions.
//! Out: what is left, with unused and unknown suppressions reported. Never: suppression of a suppression's own mistakes.
//! Next: `words/mod.rs`.

use super::codes::{Code, UNKNOWN_CODE, UNUSED_SUPPRESSION, find};
use super::fixes::without_comment;
use crate::ir::annotation::{Suppression, SuppressionScope};
use crate::source::{Applicability, Diagnostic, Edit, FileId, Files, Fix, Place, Span};

/// Removes what the file suppresses, and reports suppressions that name nothing or suppress nothing.
pub fn suppress(
    files: &Files,
    file: FileId,
    suppressions: &[Suppression],
    diagnostics: Vec<Diagnostic>,
) -> Vec<Diagnostic> {
    if suppressions.iter().any(|s| s.scope == SuppressionScope::Skip) {
        return Vec::new();
    }
    let mut used: Vec<Vec<bool>> = suppressions.iter().map(|s| vec![false; s.codes.len()]).collect();
    let mut out = Vec::new();
    for diagnostic in diagnostics {
        let mut hidden = false;
        for (s, used) in suppressions.iter().zip(&mut used) {
            for ((code, _), used) in s.codes.iter().zip(used.iter_mut()) {
                if find(code).is_some_and(|c| c.code == diagnostic.code) && covers(s, &diagnostic) {
                    *used = true;
                    hidden = true;
                }
            }
        }
        if !hidden {
            out.push(diagnostic);
        }
    }
    for (s, used) in suppressions.iter().zip(&used) {
        for ((code, span), used) in s.codes.iter().zip(used) {
            match find(code) {
                None => out.push(unknown(file, code, *span)),
                Some(_) if !used => out.push(unused(files, file, s, code, *span)),
                Some(_) => {}
            }
        }
    }
    out
}

fn covers(s: &Suppression, diagnostic: &Diagnostic) -> bool {
    match s.scope {
        SuppressionScope::Line(line) => {
            let at = diagnostic.place.span;
            line.start <= at.start && at.start < line.end.max(line.start + 1)
        }
        SuppressionScope::File => true,
        SuppressionScope::Skip => false,
    }
}

fn plain(code: &Code, place: Place, message: String) -> Diagnostic {
    Diagnostic {
        code: code.code,
        name: code.name,
        severity: code.severity,
        message,
        place,
        primary: String::new(),
        labels: Vec::new(),
        notes: Vec::new(),
        help: Vec::new(),
        when: Vec::new(),
        fix: None,
    }
}

fn unknown(file: FileId, code: &str, span: Span) -> Diagnostic {
    let mut d =
        plain(&UNKNOWN_CODE, Place { file, span }, format!("`{code}` is not a diagnostic: nothing is suppressed"));
    d.help.push("`spmd-check explain` lists all codes and names".to_string());
    d
}

fn unused(files: &Files, file: FileId, suppression: &Suppression, code: &str, span: Span) -> Diagnostic {
    let mut d = plain(&UNUSED_SUPPRESSION, Place { file, span }, format!("`{code}` suppresses nothing here"));
    d.help.push("remove it".to_string());
    let edits = match suppression.codes.as_slice() {
        [_] => comment(files, file, suppression.span).map(|place| without_comment(files, place)),
        several => several.iter().position(|(_, s)| *s == span).map(|at| {
            let neighbour = |at: usize| several.get(at).map(|(_, s)| *s);
            let span = match (neighbour(at + 1), at.checked_sub(1).and_then(neighbour)) {
                (Some(next), _) => Span::new(span.start, next.start),
                (None, Some(previous)) => Span::new(previous.end, span.end),
                (None, None) => span,
            };
            vec![Edit { place: Place { file, span }, text: String::new() }]
        }),
    };
    d.fix =
        edits.map(|edits| Fix { applicability: Applicability::Safe, edits, variants: Vec::new(), rivals: Vec::new() });
    d
}

/// The whole comment of a suppression, if it says nothing else.
fn comment(files: &Files, file: FileId, span: Span) -> Option<Place> {
    let head = files[file].text.get(..span.start as usize)?;
    let start = head.rfind('#')?;
    let mark: String = head[start..].chars().filter(|c| !c.is_whitespace()).collect();
    (mark == "#spmd:").then(|| Place { file, span: Span::new(start as u32, span.end) })
}
