//! Byte ranges. In: offsets from the parser. Out: [`Span`] (within one file) and [`Place`] (with its file).
//! Never: line numbers, which [`super::LineIndex`] computes on demand. Next: `files.rs`.

use super::FileId;

/// A half-open byte range in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    pub fn new(start: u32, end: u32) -> Self {
        Span { start, end }
    }
    pub fn contains(self, offset: u32) -> bool {
        self.start <= offset && offset < self.end
    }
    /// The smallest span that covers both.
    pub fn cover(self, other: Span) -> Span {
        Span { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
    pub fn len(self) -> u32 {
        self.end - self.start
    }
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// A span and the file it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub file: FileId,
    pub span: Span,
}

impl Place {
    /// Whether another place lies in this one.
    pub fn contains(self, other: Place) -> bool {
        self.file == other.file && self.span.start <= other.span.start && other.span.end <= self.span.end
    }
}
