//! Diagnostics to bytes. In: finished diagnostics in their final order, and the files they point into. Out: one output
//! format, written. Never: sorting, filtering, or choosing words. Next: one file per format; `text.rs` is what people
//! read.

mod concise;
mod fingerprint;
mod github;
mod gitlab;
pub mod graph;
mod json;
mod json_lines;
mod junit;
pub mod report;
mod sarif;
mod text;

pub use fingerprint::key;

use crate::source::{Diagnostic, File, Files, Place, Position};
use std::borrow::Cow;
use std::io::{self, Write};

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Full,
    Concise,
    Json,
    JsonLines,
    Github,
    Gitlab,
    Sarif,
    Junit,
}

impl Format {
    /// Every format with its name on the command line.
    pub const ALL: &[(&str, Format)] = &[
        ("full", Format::Full),
        ("concise", Format::Concise),
        ("json", Format::Json),
        ("json-lines", Format::JsonLines),
        ("github", Format::Github),
        ("gitlab", Format::Gitlab),
        ("sarif", Format::Sarif),
        ("junit", Format::Junit),
    ];

    pub fn from_name(name: &str) -> Option<Format> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, format)| *format)
    }
}

/// Whether text is coloured. Formats for machines never are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    Plain,
    Ansi,
}

/// Writes diagnostics in a format.
pub fn render(
    format: Format,
    diagnostics: &[Diagnostic],
    files: &Files,
    color: Color,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Full => text::write(diagnostics, files, color, out),
        Format::Concise => concise::write(diagnostics, files, out),
        Format::Json => json::write(diagnostics, files, out),
        Format::JsonLines => json_lines::write(diagnostics, files, out),
        Format::Github => github::write(diagnostics, files, out),
        Format::Gitlab => gitlab::write(diagnostics, files, out),
        Format::Sarif => sarif::write(diagnostics, files, out),
        Format::Junit => junit::write(diagnostics, files, out),
    }
}

/// Start and end of a place, in lines and characters from 1.
fn positions(place: Place, files: &Files) -> (&File, Position, Position) {
    let file = &files[place.file];
    let end = place.span.end.max(place.span.start);
    (file, file.position(place.span.start), file.position(end))
}

/// Text that cannot steer a terminal or break a line: control characters are replaced.
fn plain(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) {
        Cow::Owned(text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// The conditions of a finding as one phrase; none when it always holds.
fn condition(diagnostic: &Diagnostic) -> Option<String> {
    let conditions: Vec<&str> = diagnostic.when.iter().map(|when| when.strip_prefix("when ").unwrap_or(when)).collect();
    (!conditions.is_empty()).then(|| format!("when {}", conditions.join(", or when ")))
}
