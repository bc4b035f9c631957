//! Inferred signatures as comments above their functions. In: a project. Out: the project with `# spmd:` comments that its check agrees with.
//! Never: a signature of which a part is unknown, or that changes a type or a finding. Next: `diagnostics/signature.rs` for the texts.

use super::text::apply;
use super::{Repaired, at_levels, new_ones, replaced};
use crate::check::{Report, Want, check};
use crate::config::Config;
use crate::diagnostics::fixes::text::{edit, indent_of, line_range, newline};
use crate::rules::RuleBook;
use crate::source::{Diagnostic, Edit, Files};

/// Writes the signatures of all functions of which everything is known.
pub fn annotate(config: &Config, rules: &RuleBook, files: &Files) -> Repaired {
    let before = check(config, rules, files, Want::Types);
    let mut edits: Vec<Edit> = Vec::new();
    for line in &before.signatures {
        let (Some(place), Some(text)) = (line.place, &line.annotation) else { continue };
        let file = &files[place.file];
        let (start, end) = line_range(&file.text, place.span.start as usize);
        let head = file.text.get(start..end).unwrap_or("");
        // Several functions on a line, or a `def` that is not the first on it, stay as they are.
        if !head.trim_start().starts_with("def ") && !head.trim_start().starts_with("async def ") {
            continue;
        }
        let comment = format!("{}# spmd: {text}{}", indent_of(head), newline(&file.text));
        edits.push(edit(place.file, start, start, comment));
    }
    let mut kept: Vec<Edit> = Vec::new();
    accept(&Run { config, rules, files, before: &before }, &edits, &mut kept);
    let files_after = apply(files, &kept).unwrap_or_else(|| replaced(files, &[]));
    let changed = files.ids().filter(|id| files[*id].text != files_after[*id].text).collect();
    let left = at_levels(config, &files_after, check(config, rules, &files_after, Want::Findings).diagnostics);
    let repaired = kept.iter().map(|_| "signature").collect();
    Repaired { files: files_after, left, repaired, changed, exhausted: false }
}

struct Run<'a> {
    config: &'a Config,
    rules: &'a RuleBook,
    files: &'a Files,
    before: &'a Report,
}

/// Keeps the edits that change nothing else: all at once if that goes, else the halves.
fn accept(run: &Run<'_>, edits: &[Edit], kept: &mut Vec<Edit>) {
    if edits.is_empty() {
        return;
    }
    let all: Vec<Edit> = kept.iter().chain(edits).cloned().collect();
    if agrees(run, &all) {
        kept.extend_from_slice(edits);
    } else if edits.len() > 1 {
        let (first, second) = edits.split_at(edits.len() / 2);
        accept(run, first, kept);
        accept(run, second, kept);
    }
}

/// Whether findings and types are the same with the edits.
fn agrees(run: &Run<'_>, edits: &[Edit]) -> bool {
    let Some(files) = apply(run.files, edits) else { return false };
    let after = check(run.config, run.rules, &files, Want::Types);
    let levels = |report: &Report, files: &Files| -> Vec<Diagnostic> {
        at_levels(run.config, files, report.diagnostics.clone())
    };
    let (old, new) = (levels(run.before, run.files), levels(&after, &files));
    old.len() == new.len() && new_ones(&old, &new, edits).is_empty() && keeps(&types(run.before), &types(&after))
}

/// Path, function, variable, type, conditions.
type Typed<'a> = (&'a str, &'a str, &'a str, &'a [(String, String)], &'a [String]);

/// Whether every type is still there. Parameters whose type was known at their uses only may come in addition.
fn keeps(old: &[Typed<'_>], new: &[Typed<'_>]) -> bool {
    let mut rest = new.iter();
    old.iter().all(|row| rest.any(|other| other == row))
}

/// The types of variables, without their lines, in order.
fn types(report: &Report) -> Vec<Typed<'_>> {
    let mut rows: Vec<_> = report
        .types
        .iter()
        .map(|r| (r.path.as_str(), r.function.as_str(), r.variable.as_str(), r.types.as_slice(), r.when.as_slice()))
        .collect();
    rows.sort();
    rows
}
