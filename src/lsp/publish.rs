//! Findings as the client shows them. In: diagnostics of a workspace. Out: diagnostics of the protocol, with related places. Never: other
//! words than the command line has. Next: `worker.rs`.

use super::text::{Encoding, Text};
use super::uri;
use super::workspace::Workspace;
use crate::source::{Diagnostic, FileId, Severity};
use lsp_types::{DiagnosticRelatedInformation, DiagnosticSeverity, DiagnosticTag, Location, NumberOrString};

/// The name under which findings appear.
pub const SOURCE: &str = "spmd-check";

/// The findings of one file.
pub fn of_file(workspace: &Workspace, file: FileId, encoding: Encoding, related: bool) -> Vec<lsp_types::Diagnostic> {
    let text = Text::new(workspace.session.text(file), encoding);
    let own = workspace.found.iter().filter(|found| found.place.file == file);
    own.map(|found| one(workspace, found, &text, encoding, related)).collect()
}

fn one(
    workspace: &Workspace,
    found: &Diagnostic,
    text: &Text<'_>,
    encoding: Encoding,
    related: bool,
) -> lsp_types::Diagnostic {
    let files = workspace.session.files();
    let labels = found.labels.iter().filter_map(|label| {
        let location = workspace.location(label.place, encoding)?;
        Some(DiagnosticRelatedInformation { location, message: label.message.clone() })
    });
    let related: Option<Vec<_>> = related.then(|| labels.collect()).filter(|list: &Vec<_>| !list.is_empty());
    lsp_types::Diagnostic {
        range: text.range(&files[found.place.file], found.place.span),
        severity: Some(match found.severity {
            Severity::Error => DiagnosticSeverity::ERROR,
            Severity::Warning => DiagnosticSeverity::WARNING,
            Severity::Note => DiagnosticSeverity::INFORMATION,
        }),
        code: Some(NumberOrString::String(found.code.to_string())),
        code_description: None,
        source: Some(SOURCE.to_string()),
        message: message(found),
        related_information: related,
        tags: (found.name == "unused-suppression").then(|| vec![DiagnosticTag::UNNECESSARY]),
        data: Some(serde_json::json!({ "name": found.name })),
    }
}

/// The title, and below it what the command line prints below it.
fn message(found: &Diagnostic) -> String {
    let mut out = found.message.clone();
    let when = found.when.iter().map(|when| format!("when {when}"));
    for line in found.notes.iter().cloned().chain(when) {
        out.push('\n');
        out.push_str(&line);
    }
    for line in &found.help {
        out.push_str("\nhelp: ");
        out.push_str(line);
    }
    out
}

/// Mistakes in a configuration: by file.
pub fn of_config(
    found: &crate::config::Diagnostics,
    root: &std::path::Path,
    encoding: Encoding,
) -> Vec<(lsp_types::Uri, Vec<lsp_types::Diagnostic>)> {
    let mut out: Vec<(lsp_types::Uri, Vec<lsp_types::Diagnostic>)> = Vec::new();
    for problem in &found.problems {
        let file = &found.files[problem.place.file];
        let text = Text::new(&file.text, encoding);
        let path = crate::source::walk::absolute(std::path::Path::new(&file.path), root);
        let Some(uri) = uri::of(&path) else { continue };
        let mut shown = lsp_types::Diagnostic::new_simple(text.range(file, problem.place.span), message(problem));
        shown.severity = Some(DiagnosticSeverity::ERROR);
        shown.code = Some(NumberOrString::String(problem.code.to_string()));
        shown.source = Some(SOURCE.to_string());
        let labels = problem.labels.iter().map(|label| DiagnosticRelatedInformation {
            location: Location { uri: uri.clone(), range: text.range(file, label.place.span) },
            message: label.message.clone(),
        });
        shown.related_information = Some(labels.collect());
        match out.iter_mut().find(|(known, _)| *known == uri) {
            Some((_, list)) => list.push(shown),
            None => out.push((uri, vec![shown])),
        }
    }
    out
}
