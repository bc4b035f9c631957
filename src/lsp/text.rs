//! Positions in the client's encoding. In: texts, lines and columns. Out: lines and columns of the other side. Never: an offset inside a
//! character, or outside the text. Next: `publish.rs`.

use crate::source::{File, LineIndex, Span};
use lsp_types::{Position, Range, TextDocumentContentChangeEvent};

/// How the client counts columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Utf8,
    Utf16,
    Utf32,
}

impl Encoding {
    fn units(self, c: char) -> usize {
        match self {
            Encoding::Utf8 => c.len_utf8(),
            Encoding::Utf16 => c.len_utf16(),
            Encoding::Utf32 => 1,
        }
    }
}

/// A text with its lines.
pub struct Text<'a> {
    pub text: &'a str,
    lines: LineIndex,
    encoding: Encoding,
}

impl<'a> Text<'a> {
    pub fn new(text: &'a str, encoding: Encoding) -> Text<'a> {
        Text { text, lines: LineIndex::new(text), encoding }
    }

    /// A line from 0, without its ending.
    pub fn line(&self, line: u32) -> &'a str {
        let span = self.lines.range(line, self.text);
        self.text.get(span.start as usize..span.end as usize).unwrap_or("").trim_end_matches(['\n', '\r'])
    }

    fn units(&self, text: &str) -> u32 {
        u32::try_from(text.chars().map(|c| self.encoding.units(c)).sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// A line and a column from 0, the column in characters; columns beyond the line are its end.
    pub fn position(&self, line: u32, column: u32) -> Position {
        let end = self.line(line).char_indices().nth(column as usize).map_or(self.line(line).len(), |(at, _)| at);
        Position { line, character: self.units(&self.line(line)[..end]) }
    }

    /// The byte of its line at which a position lies; positions beyond the line are its end.
    pub fn byte_in_line(&self, position: Position) -> usize {
        let line = self.line(position.line);
        let mut units = 0;
        for (at, c) in line.char_indices() {
            if units >= position.character as usize {
                return at;
            }
            units += self.encoding.units(c);
        }
        line.len()
    }

    /// The byte at which a position lies; positions beyond the text are its end.
    pub fn offset(&self, position: Position) -> usize {
        if position.line as usize >= self.lines.count() {
            return self.text.len();
        }
        self.lines.range(position.line, self.text).start as usize + self.byte_in_line(position)
    }

    /// A span of a file of the session, whose lines and columns are those of this text.
    pub fn range(&self, file: &File, span: Span) -> Range {
        let at = |offset: u32| {
            let p = file.position(offset);
            self.position(p.line - 1, p.column - 1)
        };
        Range { start: at(span.start), end: at(span.end.max(span.start)) }
    }

    /// The offset in a file of the session.
    pub fn offset_in(&self, file: &File, position: Position) -> u32 {
        let start = file.lines().range(position.line, &file.text).start;
        start + u32::try_from(self.byte_in_line(position)).unwrap_or(0)
    }
}

/// A text after a change of the client's.
pub fn changed(text: &str, change: &TextDocumentContentChangeEvent, encoding: Encoding) -> String {
    let Some(range) = change.range else { return change.text.clone() };
    let lines = Text::new(text, encoding);
    let (a, b) = (lines.offset(range.start), lines.offset(range.end));
    let (a, b) = (a.min(b), a.max(b));
    let mut out = String::with_capacity(text.len() + change.text.len());
    out.push_str(text.get(..a).unwrap_or(text));
    out.push_str(&change.text);
    out.push_str(text.get(b..).unwrap_or(""));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_in_each_encoding() {
        let text = "a = 'ü😀' + b\r\nnext\n";
        for (encoding, column) in [(Encoding::Utf8, 12), (Encoding::Utf16, 9), (Encoding::Utf32, 8)] {
            let lines = Text::new(text, encoding);
            let at = lines.position(0, 8);
            assert_eq!(at.character, column, "{encoding:?}");
            assert_eq!(&text[lines.offset(at)..][..2], " +");
            assert_eq!(lines.position(1, 99).character, 4);
            assert_eq!(lines.offset(Position { line: 99, character: 0 }), text.len());
        }
    }

    #[test]
    fn changes_in_place() {
        let change = |a: (u32, u32), b: (u32, u32), text: &str| TextDocumentContentChangeEvent {
            range: Some(Range { start: Position::new(a.0, a.1), end: Position::new(b.0, b.1) }),
            range_length: None,
            text: text.to_string(),
        };
        assert_eq!(changed("ab\ncd\n", &change((0, 1), (1, 1), "X"), Encoding::Utf16), "aXd\n");
        assert_eq!(changed("ab\n", &change((9, 9), (9, 9), "X"), Encoding::Utf16), "ab\nX");
        assert_eq!(changed("😀b", &change((0, 2), (0, 3), ""), Encoding::Utf16), "😀");
    }
}
