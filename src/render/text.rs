//! The full text format: message, source lines with labels, notes, help. In: diagnostics. Out: text in the style of
//! rustc. Never: a trailing space, or an escape code that was not asked for. Next: `codespan_reporting`, which only
//! this file names.

use super::{Color, condition, plain};
use crate::source::{Diagnostic, FileId, Files, Place, Severity};
use codespan_reporting::diagnostic::{Diagnostic as Drawn, Label, Severity as DrawnSeverity};
use codespan_reporting::files::{Error, Files as DrawnFiles};
use codespan_reporting::term::termcolor::Buffer;
use codespan_reporting::term::{Config, emit};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;

pub(super) fn write(diagnostics: &[Diagnostic], files: &Files, color: Color, out: &mut dyn Write) -> io::Result<()> {
    let config = Config { tab_width: 4, ..Config::default() };
    let view = View::new(diagnostics, files);
    for diagnostic in diagnostics {
        let mut buffer = match color {
            Color::Plain => Buffer::no_color(),
            Color::Ansi => Buffer::ansi(),
        };
        emit(&mut buffer, &config, &view, &draw(diagnostic, files)).map_err(io::Error::other)?;
        match color {
            Color::Ansi => out.write_all(buffer.as_slice())?,
            Color::Plain => write_trimmed(&String::from_utf8_lossy(buffer.as_slice()), out)?,
        }
    }
    Ok(())
}

/// Lines of an empty label or a blank source line end in spaces, which would make recorded output fragile.
fn write_trimmed(text: &str, out: &mut dyn Write) -> io::Result<()> {
    for line in text.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn draw(diagnostic: &Diagnostic, files: &Files) -> Drawn<FileId> {
    let severity = match diagnostic.severity {
        Severity::Error => DrawnSeverity::Error,
        Severity::Warning => DrawnSeverity::Warning,
        Severity::Note => DrawnSeverity::Note,
    };
    let mut labels = vec![
        Label::primary(diagnostic.place.file, range(diagnostic.place, files)).with_message(plain(&diagnostic.primary)),
    ];
    for label in &diagnostic.labels {
        labels.push(Label::secondary(label.place.file, range(label.place, files)).with_message(plain(&label.message)));
    }
    let mut notes: Vec<String> = diagnostic.notes.iter().map(|note| plain_lines(note)).collect();
    notes.extend(condition(diagnostic).map(|when| plain_lines(&when)));
    notes.extend(diagnostic.help.iter().map(|help| format!("help: {}", plain_lines(help))));
    Drawn::new(severity)
        .with_code(diagnostic.code)
        .with_message(plain(&diagnostic.message))
        .with_labels(labels)
        .with_notes(notes)
}

/// Notes may have several lines; nothing else that controls a terminal.
fn plain_lines(text: &str) -> String {
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}

/// The byte range of a place, moved to the boundaries of characters so that drawing cannot fail.
fn range(place: Place, files: &Files) -> Range<usize> {
    let text = &files[place.file].text;
    let mut start = (place.span.start as usize).min(text.len());
    let mut end = (place.span.end as usize).clamp(start, text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    while !text.is_char_boundary(end) {
        end += 1;
    }
    start..end
}

/// Files as the drawing library asks for them.
struct View<'a> {
    files: &'a Files,
    /// Text without control characters, each replaced by one byte so that offsets hold.
    texts: BTreeMap<FileId, Cow<'a, str>>,
}

impl<'a> View<'a> {
    fn new(diagnostics: &[Diagnostic], files: &'a Files) -> Self {
        let mut texts = BTreeMap::new();
        for diagnostic in diagnostics {
            let labels = diagnostic.labels.iter().map(|label| label.place);
            for place in labels.chain([diagnostic.place]) {
                texts.entry(place.file).or_insert_with(|| printable(&files[place.file].text));
            }
        }
        View { files, texts }
    }
}

fn printable(text: &str) -> Cow<'_, str> {
    let unsafe_character = |c: char| c.is_ascii_control() && !matches!(c, '\n' | '\r' | '\t');
    if text.contains(unsafe_character) { Cow::Owned(text.replace(unsafe_character, "?")) } else { Cow::Borrowed(text) }
}

impl<'a> DrawnFiles<'a> for View<'a> {
    type FileId = FileId;
    type Name = Cow<'a, str>;
    type Source = &'a str;

    fn name(&'a self, id: FileId) -> Result<Self::Name, Error> {
        Ok(plain(&self.files[id].path))
    }

    fn source(&'a self, id: FileId) -> Result<&'a str, Error> {
        self.texts.get(&id).map(Cow::as_ref).ok_or(Error::FileMissing)
    }

    fn line_index(&'a self, id: FileId, byte: usize) -> Result<usize, Error> {
        Ok(self.files[id].lines().line(u32::try_from(byte).unwrap_or(u32::MAX)) as usize)
    }

    fn line_range(&'a self, id: FileId, line: usize) -> Result<Range<usize>, Error> {
        let file = &self.files[id];
        if line >= file.lines().count() {
            return Err(Error::LineTooLarge { given: line, max: file.lines().count().saturating_sub(1) });
        }
        let span = file.lines().range(u32::try_from(line).unwrap_or(u32::MAX), &file.text);
        Ok(span.start as usize..span.end as usize)
    }
}
