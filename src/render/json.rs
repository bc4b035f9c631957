//! The JSON format: one array, one object a line. In: diagnostics. Out: the stable shape that tools read.
//! Never: a field that comes and goes. Next: `json_lines.rs`, the same objects without the array.

use super::positions;
use crate::source::{Applicability, Diagnostic, Files, Place, Position};
use serde::Serialize;
use std::io::{self, Write};

pub(super) fn write(diagnostics: &[Diagnostic], files: &Files, out: &mut dyn Write) -> io::Result<()> {
    if diagnostics.is_empty() {
        return out.write_all(b"[]\n");
    }
    for (index, diagnostic) in diagnostics.iter().enumerate() {
        out.write_all(if index == 0 { b"[\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *out, &object(diagnostic, files))?;
    }
    out.write_all(b"\n]\n")
}

/// A diagnostic as it is serialised.
#[derive(Serialize)]
pub(super) struct Object<'a> {
    code: &'a str,
    name: &'a str,
    severity: &'a str,
    message: &'a str,
    path: &'a str,
    range: Range,
    labels: Vec<LabelObject<'a>>,
    notes: &'a [String],
    help: &'a [String],
    when: &'a [String],
    fix: Option<FixObject<'a>>,
}

#[derive(Serialize)]
struct Range {
    start: Point,
    end: Point,
}

#[derive(Serialize)]
struct Point {
    line: u32,
    column: u32,
}

#[derive(Serialize)]
struct LabelObject<'a> {
    path: &'a str,
    range: Range,
    message: &'a str,
}

#[derive(Serialize)]
struct FixObject<'a> {
    applicability: &'a str,
    edits: Vec<EditObject<'a>>,
}

#[derive(Serialize)]
struct EditObject<'a> {
    range: Range,
    text: &'a str,
}

pub(super) fn object<'a>(diagnostic: &'a Diagnostic, files: &'a Files) -> Object<'a> {
    let labels = diagnostic.labels.iter().map(|label| LabelObject {
        path: &files[label.place.file].path,
        range: range(label.place, files),
        message: &label.message,
    });
    let fix = diagnostic.fix.as_ref().map(|fix| FixObject {
        applicability: match fix.applicability {
            Applicability::Safe => "safe",
            Applicability::Unsafe => "unsafe",
        },
        edits: fix.edits.iter().map(|edit| EditObject { range: range(edit.place, files), text: &edit.text }).collect(),
    });
    Object {
        code: diagnostic.code,
        name: diagnostic.name,
        severity: diagnostic.severity.as_str(),
        message: &diagnostic.message,
        path: &files[diagnostic.place.file].path,
        range: range(diagnostic.place, files),
        labels: labels.collect(),
        notes: &diagnostic.notes,
        help: &diagnostic.help,
        when: &diagnostic.when,
        fix,
    }
}

fn range(place: Place, files: &Files) -> Range {
    let (_, start, end) = positions(place, files);
    let point = |position: Position| Point { line: position.line, column: position.column };
    Range { start: point(start), end: point(end) }
}
