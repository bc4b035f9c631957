//! The source files of one run, in memory. In: paths and text. Out: ids, text, line and column positions.
//! Never: reading from disk. Next: `span.rs`.

use super::reads::{Read, note, note_text, number};
use super::{Idx, IndexVec, Span};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, OnceLock};

crate::define_id!(
    /// A file of this run.
    FileId
);

/// A file: where it is, its text (decoded to UTF-8), and the name shown to people.
#[derive(Debug)]
pub struct File {
    /// Path as it is shown, with `/` separators.
    pub path: String,
    /// Text after decoding; a leading byte order mark is kept out of it.
    pub text: Arc<String>,
    /// Whether findings in this file are reported (all files are loaded).
    pub reported: bool,
    /// Why the bytes are no text; the text is empty then.
    pub unreadable: Option<String>,
    /// Its number among the files of the run.
    id: u32,
    lines: OnceLock<LineIndex>,
}

impl File {
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        File::sharing(path, Arc::new(text.into()))
    }
    /// A file with a text that is kept elsewhere as well.
    pub fn sharing(path: impl Into<String>, text: Arc<String>) -> Self {
        File { path: path.into(), text, reported: true, unreadable: None, id: 0, lines: OnceLock::new() }
    }
    pub fn lines(&self) -> &LineIndex {
        self.lines.get_or_init(|| LineIndex::new(&self.text))
    }
    /// The whole text, for a computation whose result depends on it.
    pub fn whole(&self) -> &str {
        note(|| Read::Text(self.id));
        &self.text
    }
    /// The text under a span; empty when the span does not fit.
    pub fn slice(&self, span: Span) -> &str {
        note_text(self.id, span.start, span.end);
        self.text.get(span.start as usize..span.end as usize).unwrap_or("")
    }
    pub fn position(&self, offset: u32) -> Position {
        self.lines().position(&self.text, offset)
    }
}

/// All files of a run, in a fixed order.
#[derive(Debug, Default)]
pub struct Files {
    files: IndexVec<FileId, File>,
    /// Words that somebody looked for in all texts.
    said: Mutex<FxHashMap<u64, String>>,
    /// The texts of words that were looked for: roots ask for the same ones again and again.
    found: Box<Mutex<FxHashMap<String, Arc<[FileId]>>>>,
}

/// Whether a word occurs in a long text, by vector instructions.
fn has(text: &str, word: &str) -> bool {
    memchr::memmem::find(text.as_bytes(), word.as_bytes()).is_some()
}

impl Files {
    pub fn add(&mut self, mut file: File) -> FileId {
        file.id = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        *self.found = Mutex::default();
        self.files.push(file)
    }
    /// Puts a file in the place of another one.
    pub fn replace(&mut self, id: FileId, mut file: File) -> File {
        file.id = id.0;
        *self.found = Mutex::default();
        std::mem::replace(&mut self.files[id], file)
    }
    /// Keeps a word that somebody looks for.
    fn ask(&self, word: &str) -> u64 {
        let mut said = self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        said.entry(number(word)).or_insert_with(|| word.to_string());
        number(word)
    }
    /// Whether a word occurs in any text.
    pub fn any_says(&self, word: &str) -> bool {
        note(|| Read::Says(self.ask(word)));
        self.files.iter().any(|file| has(&file.text, word))
    }
    /// The texts in which a word occurs.
    pub fn saying(&self, word: &str) -> impl Iterator<Item = FileId> + use<> {
        note(|| Read::Says(self.ask(word)));
        let open = || self.found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let known = open().get(word).cloned();
        let found = known.unwrap_or_else(|| {
            let saying = self.files.iter_enumerated().filter(|(_, file)| has(&file.text, word));
            let found: Arc<[FileId]> = saying.map(|(id, _)| id).collect();
            open().insert(word.to_string(), found.clone());
            found
        });
        (0..found.len()).map(move |at| found[at])
    }
    /// How often a word occurs in all texts.
    pub fn times(&self, word: &str) -> usize {
        note(|| Read::Says(self.ask(word)));
        self.files.iter().map(|file| memchr::memmem::find_iter(file.text.as_bytes(), word).count()).sum()
    }
    /// Whether a word occurs in a text.
    pub fn says(&self, id: FileId, word: &str) -> bool {
        note(|| Read::SaysIn(id.0, self.ask(word)));
        has(&self.files[id].text, word)
    }
    /// The words that somebody looked for in all texts, with their numbers.
    pub fn said(&self) -> Vec<(u64, String)> {
        let said = self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        said.iter().map(|(number, word)| (*number, word.clone())).collect()
    }
    pub fn len(&self) -> usize {
        self.files.len()
    }
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
    /// The length of all texts.
    pub fn bytes(&self) -> usize {
        self.files.iter().map(|file| file.text.len()).sum()
    }
    pub fn iter(&self) -> impl Iterator<Item = (FileId, &File)> {
        self.files.iter_enumerated()
    }
    pub fn ids(&self) -> impl Iterator<Item = FileId> + use<> {
        (0..self.files.len()).map(FileId::from_index)
    }
}

impl std::ops::Index<FileId> for Files {
    type Output = File;
    fn index(&self, id: FileId) -> &File {
        &self.files[id]
    }
}

/// A line and a column, both from 1; the column counts characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

/// Byte offsets of line starts. `\n`, `\r\n` and a lone `\r` end a line, as in Python.
#[derive(Debug)]
pub struct LineIndex {
    starts: Vec<u32>,
}

impl LineIndex {
    pub fn new(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut starts = vec![0];
        for (i, &b) in bytes.iter().enumerate() {
            let lone_cr = b == b'\r' && bytes.get(i + 1) != Some(&b'\n');
            if b == b'\n' || lone_cr {
                starts.push(u32::try_from(i + 1).unwrap_or(u32::MAX));
            }
        }
        LineIndex { starts }
    }
    /// The line of an offset, from 0.
    pub fn line(&self, offset: u32) -> u32 {
        let n = self.starts.partition_point(|&s| s <= offset);
        u32::try_from(n.saturating_sub(1)).unwrap_or(u32::MAX)
    }
    pub fn count(&self) -> usize {
        self.starts.len()
    }
    /// Byte range of a line (from 0), with its line ending.
    pub fn range(&self, line: u32, text: &str) -> Span {
        let end = text.len() as u32;
        let start = self.starts.get(line as usize).copied().unwrap_or(end);
        let next = self.starts.get(line as usize + 1).copied().unwrap_or(end);
        Span::new(start, next)
    }
    pub fn position(&self, text: &str, offset: u32) -> Position {
        let line = self.line(offset);
        let start = self.starts[line as usize] as usize;
        let end = (offset as usize).clamp(start, text.len());
        let column = text.get(start..end).map_or(end - start, |s| s.chars().count());
        Position { line: line + 1, column: column as u32 + 1 }
    }
}
