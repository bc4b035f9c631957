//! SARIF 2.1.0, for code scanning. In: diagnostics. Out: one log with one run. Never: an absolute path where a relative
//! one is known. Next: `fingerprint.rs`.

use super::{condition, fingerprint, positions};
use crate::diagnostics::{find, page};
use crate::source::{Diagnostic, Files, Place, Severity};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

pub(super) fn write(diagnostics: &[Diagnostic], files: &Files, out: &mut dyn Write) -> io::Result<()> {
    let rules: BTreeMap<&str, &str> = diagnostics.iter().map(|diagnostic| (diagnostic.code, diagnostic.name)).collect();
    let order: Vec<&str> = rules.keys().copied().collect();
    let rules: Vec<Value> = rules.iter().map(|(code, name)| rule(code, name)).collect();
    let fingerprints = fingerprint::fingerprints(diagnostics, files);
    let results: Vec<Value> = diagnostics
        .iter()
        .zip(fingerprints)
        .map(|(diagnostic, fingerprint)| {
            let index = order.iter().position(|code| *code == diagnostic.code);
            result(diagnostic, files, index, &fingerprint)
        })
        .collect();
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "spmd-check",
                "version": env!("CARGO_PKG_VERSION"),
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    serde_json::to_writer_pretty(&mut *out, &log)?;
    out.write_all(b"\n")
}

/// A rule with its page as help.
fn rule(code: &str, name: &str) -> Value {
    let severity = find(code).map_or(Severity::Error, |code| code.severity);
    let short = name.replace('-', " ");
    let page = page(code).unwrap_or(&short);
    let full = first_paragraph(page).unwrap_or_else(|| short.clone());
    json!({
        "id": code,
        "name": name,
        "shortDescription": {"text": short},
        "fullDescription": {"text": full},
        "help": {"text": page, "markdown": page},
        "defaultConfiguration": {"level": level(severity)},
        "properties": {"tags": ["correctness", "distributed"], "precision": "high"},
    })
}

/// What a page says first, on one line.
fn first_paragraph(page: &str) -> Option<String> {
    let body = page.split("\n\n").find(|part| !part.trim_start().starts_with('#'))?;
    Some(body.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

/// From where the types started to where they meet.
fn code_flow(diagnostic: &Diagnostic, files: &Files) -> Value {
    let step = |place: Place, message: &str| {
        let mut at = location(place, files);
        at["message"] = json!({"text": message});
        json!({"location": at})
    };
    let mut steps: Vec<Value> = diagnostic.labels.iter().rev().map(|label| step(label.place, &label.message)).collect();
    steps.push(step(diagnostic.place, &diagnostic.message));
    json!([{"threadFlows": [{"locations": steps}]}])
}

/// An edit that repairs the finding.
fn fix(diagnostic: &Diagnostic, files: &Files) -> Option<Value> {
    let fix = diagnostic.fix.as_ref()?;
    let mut changes: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for edit in &fix.edits {
        let deleted = location(edit.place, files)["physicalLocation"]["region"].clone();
        let replacement = json!({"deletedRegion": deleted, "insertedContent": {"text": edit.text}});
        changes.entry(&files[edit.place.file].path).or_default().push(replacement);
    }
    let changes: Vec<Value> = changes
        .into_iter()
        .map(|(path, replacements)| json!({"artifactLocation": {"uri": uri(path)}, "replacements": replacements}))
        .collect();
    let text = diagnostic.help.first().map_or("repair", String::as_str);
    Some(json!({"description": {"text": text}, "artifactChanges": changes}))
}

fn result(diagnostic: &Diagnostic, files: &Files, rule: Option<usize>, fingerprint: &str) -> Value {
    let mut text = diagnostic.message.clone();
    let primary = Some(&diagnostic.primary).filter(|text| !text.is_empty());
    for line in primary.into_iter().chain(condition(diagnostic).iter()).chain(&diagnostic.notes) {
        let _ = write!(text, "\n{line}");
    }
    for help in &diagnostic.help {
        let _ = write!(text, "\nhelp: {help}");
    }
    let related: Vec<Value> = diagnostic
        .labels
        .iter()
        .enumerate()
        .map(|(id, label)| {
            let mut place = location(label.place, files);
            place["id"] = json!(id);
            place["message"] = json!({"text": label.message});
            place
        })
        .collect();
    let mut out = json!({
        "ruleId": diagnostic.code,
        "ruleIndex": rule,
        "level": level(diagnostic.severity),
        "message": {"text": text},
        "locations": [location(diagnostic.place, files)],
        "relatedLocations": related,
        "partialFingerprints": {"spmdCheck/v1": fingerprint},
    });
    if !diagnostic.labels.is_empty() {
        out["codeFlows"] = code_flow(diagnostic, files);
    }
    if let Some(fix) = fix(diagnostic, files) {
        out["fixes"] = json!([fix]);
    }
    out
}

fn location(place: Place, files: &Files) -> Value {
    let (file, start, end) = positions(place, files);
    json!({"physicalLocation": {
        "artifactLocation": {"uri": uri(&file.path)},
        "region": {
            "startLine": start.line, "startColumn": start.column, "endLine": end.line, "endColumn": end.column,
        },
    }})
}

/// A path as a relative reference, or as a `file:` URI when it is absolute.
fn uri(path: &str) -> String {
    let mut out = if path.starts_with('/') { "file://".to_owned() } else { String::new() };
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}
