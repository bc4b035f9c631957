//! SARIF 2.1.0, for code scanning. In: diagnostics. Out: one log with one run. Never: an absolute path where a relative
//! one is known. Next: `fingerprint.rs`.

use super::{condition, fingerprint, positions};
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
            "tool": {"driver": {"name": "spmd-check", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    serde_json::to_writer_pretty(&mut *out, &log)?;
    out.write_all(b"\n")
}

fn rule(code: &str, name: &str) -> Value {
    json!({"id": code, "name": name, "shortDescription": {"text": name.replace('-', " ")}})
}

fn result(diagnostic: &Diagnostic, files: &Files, rule: Option<usize>, fingerprint: &str) -> Value {
    let level = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    let mut text = diagnostic.message.clone();
    for line in condition(diagnostic).iter().chain(&diagnostic.notes) {
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
    json!({
        "ruleId": diagnostic.code,
        "ruleIndex": rule,
        "level": level,
        "message": {"text": text},
        "locations": [location(diagnostic.place, files)],
        "relatedLocations": related,
        "partialFingerprints": {"spmdCheck/v1": fingerprint},
    })
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
