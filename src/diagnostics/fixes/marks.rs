//! The mark of a parameter whose gradient has to be summed. In: a finding about a parameter without a mark. Out: a `setattr` after the
//! statement that makes it, with the condition under which it is needed. Never: a mark that nothing in the file or the finding names.
//! Next: `text.rs`.

use super::text::{edit, function_before, has_word, indent_of, is_name, line_range, newline, whole_line};
use super::{Edits, Planned};
use crate::diagnostics::when::configurations;
use crate::infer::finding::{Finding, FindingKind};
use crate::source::{Applicability, Files, Fix};

/// Marks the parameter in the configurations of the finding.
pub fn mark(files: &Files, finding: &Finding) -> Option<Fix> {
    let name = finding.kind.unmarked()?;
    let FindingKind::Operator { .. } = &finding.kind else { return None };
    let place = finding.kind.unmarked_source()?;
    let file = &files[place.file];
    let (_, to, target) = whole_line(file, place)?;
    let (target, last) = (target?, name.rsplit('.').next().unwrap_or(name));
    let target = if target.rsplit('.').next() == Some(last) { target.to_string() } else { format!("{target}.{last}") };
    let when = configurations(finding).when;
    let flag = match when.as_slice() {
        [] => None,
        [one] => Some(one.strip_suffix(" is true")?.trim_matches('`').rsplit('.').next()?.to_string()),
        _ => return None,
    };
    let (condition, is_bound) = match &flag {
        Some(flag) => bound(&file.text, place.span.start as usize, flag)?,
        None => ("True".to_string(), true),
    };
    let (from, end) = line_range(&file.text, place.span.start as usize);
    let indent = indent_of(file.text.get(from..end).unwrap_or(""));
    let mut ways: Vec<Edits> = marks(&file.text)
        .into_iter()
        .chain(flag)
        .map(|mark| {
            let line = format!("{}{indent}setattr({target}, \"{mark}\", {condition})", newline(&file.text));
            vec![edit(place.file, to, to, line)]
        })
        .collect();
    ways.dedup();
    let mut ways = ways.into_iter();
    let Planned { edits, .. } = Planned::certain(ways.next()?);
    let applicability = if is_bound { Applicability::Safe } else { Applicability::Unsafe };
    Some(Fix { applicability, edits, variants: ways.collect(), rivals: Vec::new() })
}

/// How the function writes a flag: its own parameter, or an attribute of its configuration; and whether that is sure to be there, as the
/// file reads it elsewhere.
fn bound(text: &str, at: usize, flag: &str) -> Option<(String, bool)> {
    let (_, function) = function_before(text, at);
    let head = function.split_once("):").map_or(function, |(head, _)| head);
    if has_word(head, flag) {
        return Some((flag.to_string(), true));
    }
    let holder = ["config", "args", "cfg"].into_iter().find(|holder| has_word(head, holder))?;
    let read = format!("{holder}.{flag}");
    let is_read = text.contains(read.as_str());
    Some((read, is_read))
}

/// The marks that a file sets or asks for by name.
fn marks(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for call in ["setattr(", "getattr("] {
        for (at, _) in text.match_indices(call) {
            let rest = text.get(at + call.len()..).unwrap_or("");
            let Some((_, rest)) = rest.split_once(',') else { continue };
            let quoted = rest.trim_start();
            let Some(name) = quoted.strip_prefix(['"', '\'']).and_then(|r| r.split(['"', '\'']).next()) else {
                continue;
            };
            if is_name(name) && !out.iter().any(|known| known == name) {
                out.push(name.to_string());
            }
        }
    }
    out
}
