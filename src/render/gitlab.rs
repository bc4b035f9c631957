//! The Code Quality report of GitLab. In: diagnostics. Out: one JSON array. Never: two equal fingerprints, which GitLab
//! drops. Next: `fingerprint.rs`.

use super::{condition, fingerprint, positions};
use crate::source::{Diagnostic, Files, Severity};
use serde_json::json;
use std::io::{self, Write};

pub(super) fn write(diagnostics: &[Diagnostic], files: &Files, out: &mut dyn Write) -> io::Result<()> {
    let fingerprints = fingerprint::fingerprints(diagnostics, files);
    let rows: Vec<_> = diagnostics
        .iter()
        .zip(fingerprints)
        .map(|(diagnostic, fingerprint)| {
            let (file, start, end) = positions(diagnostic.place, files);
            let severity = match diagnostic.severity {
                Severity::Error => "major",
                Severity::Warning => "minor",
                Severity::Note => "info",
            };
            let when = condition(diagnostic).map_or(String::new(), |when| format!(" ({when})"));
            json!({
                "check_name": diagnostic.name,
                "description": format!("{}: {}{when}", diagnostic.code, diagnostic.message),
                "severity": severity,
                "fingerprint": fingerprint,
                "location": {"path": file.path, "lines": {"begin": start.line, "end": end.line}},
            })
        })
        .collect();
    serde_json::to_writer_pretty(&mut *out, &rows)?;
    out.write_all(b"\n")
}
