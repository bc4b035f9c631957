//! Suppressions with a reason for what is found today. In: a project, its findings, a reason. Out: the project with `# spmd: ignore[...]`
//! comments, each of which silences what it names. Never: a comment where it would be part of a string. Next: `mod.rs`.

use super::text::apply;
use super::{Repaired, findings, new_ones, replaced};
use crate::config::Config;
use crate::diagnostics::fixes::text::{Part, edit, indent_of, line_range, newline, scan};
use crate::rules::RuleBook;
use crate::source::{Diagnostic, Edit, FileId, Files};
use std::collections::BTreeMap;

/// The ways to write the comment of one line, the usual one first.
type Ways = Vec<Edit>;

/// Adds a comment for every finding.
pub fn suppress(config: &Config, rules: &RuleBook, files: &Files, found: &[Diagnostic], reason: &str) -> Repaired {
    let lines = lines(files, found, reason);
    let run = Run { config, rules, files, found };
    let mut kept: Vec<Edit> = Vec::new();
    let mut left: Vec<&Ways> = lines.values().collect();
    for way in 0..2 {
        let tried: Vec<(usize, Edit)> =
            left.iter().enumerate().filter_map(|(i, ways)| Some((i, ways.get(way)?.clone()))).collect();
        let mut good: Vec<usize> = Vec::new();
        run.accept(&tried, &mut kept, &mut good);
        left = left.into_iter().enumerate().filter(|(i, _)| !good.contains(i)).map(|(_, w)| w).collect();
    }
    let files_after = apply(files, &kept).unwrap_or_else(|| replaced(files, &[]));
    let changed = files.ids().filter(|id| files[*id].text != files_after[*id].text).collect();
    let left = findings(config, rules, &files_after);
    let gone = found.len().saturating_sub(left.len());
    Repaired { files: files_after, left, repaired: vec!["suppression"; gone], changed, exhausted: false }
}

struct Run<'a> {
    config: &'a Config,
    rules: &'a RuleBook,
    files: &'a Files,
    found: &'a [Diagnostic],
}

impl Run<'_> {
    /// Keeps the comments that silence something and add nothing.
    fn accept(&self, tried: &[(usize, Edit)], kept: &mut Vec<Edit>, good: &mut Vec<usize>) {
        if tried.is_empty() {
            return;
        }
        let all: Vec<Edit> = kept.iter().chain(tried.iter().map(|(_, e)| e)).cloned().collect();
        if self.count(&all).is_some_and(|after| self.count(kept).is_some_and(|before| after + tried.len() <= before)) {
            kept.extend(tried.iter().map(|(_, e)| e.clone()));
            good.extend(tried.iter().map(|(i, _)| *i));
        } else if tried.len() > 1 {
            let (first, second) = tried.split_at(tried.len() / 2);
            self.accept(first, kept, good);
            self.accept(second, kept, good);
        }
    }

    /// How many findings are left with edits; nothing if there are new ones.
    fn count(&self, edits: &[Edit]) -> Option<usize> {
        let files = apply(self.files, edits)?;
        let after = findings(self.config, self.rules, &files);
        new_ones(self.found, &after, edits).is_empty().then_some(after.len())
    }
}

/// For each line with findings, the ways to write its comment.
fn lines(files: &Files, found: &[Diagnostic], reason: &str) -> BTreeMap<(FileId, usize), Ways> {
    let mut names: BTreeMap<(FileId, usize), Vec<&str>> = BTreeMap::new();
    for finding in found.iter().filter(|f| !f.code.starts_with("SPMD9") && !f.code.starts_with("SPMD52")) {
        let (start, _) = line_range(&files[finding.place.file].text, finding.place.span.start as usize);
        let names = names.entry((finding.place.file, start)).or_default();
        if !names.contains(&finding.name) {
            names.push(finding.name);
        }
    }
    let ways = names.into_iter().map(|((file, start), names)| {
        let text = &files[file].text;
        let (_, end) = line_range(text, start);
        let line = text.get(start..end).unwrap_or("");
        let comment = format!("# spmd: ignore[{}] {reason}", names.join(", "));
        let above = edit(file, start, start, format!("{}{comment}{}", indent_of(line), newline(text)));
        let code = line.trim_end();
        let inside = scan(code).last().is_some_and(|(_, _, part)| *part == Part::Quoted) && !code.contains('#');
        let mut ways = vec![above];
        if !code.ends_with('\\') && (!inside || code.ends_with(['"', '\''])) {
            ways.insert(0, edit(file, start + code.len(), start + code.len(), format!("  {comment}")));
        }
        ((file, start), ways)
    });
    ways.collect()
}
