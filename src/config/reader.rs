//! Typed access to parsed TOML. In: values with spans. Out: plain values, and a diagnostic for each that does not fit.
//! Never: stopping at the first mistake. Next: `schema.rs`, which knows the keys.

use super::suggest::closest;
use crate::source::{Diagnostic, FileId, Place, Severity, Span};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value is wrong: its type, its text, or its relation to another.
pub const INVALID_CONFIG: (&str, &str) = ("SPMD901", "invalid-config");
/// A key does not exist.
pub const UNKNOWN_CONFIG_KEY: (&str, &str) = ("SPMD902", "unknown-config-key");

/// What the configuration needs to know of the layers above it.
pub struct Checks<'a> {
    /// Every code with its name.
    pub codes: &'a [(&'static str, &'static str)],
    /// Whether a text is a type; the grammar lives in `syntax/`.
    pub type_text: &'a dyn Fn(&str) -> Result<(), String>,
    /// Whether a text is the name of a parallel mode; the names that there are, if not.
    pub mode: &'a dyn Fn(&str) -> Result<(), Vec<&'static str>>,
}

pub(super) type Value<'i> = Spanned<DeValue<'i>>;

/// One `key = value`, in the order of writing.
pub(super) struct Entry<'v, 'i> {
    pub key: String,
    pub span: Range<usize>,
    pub value: &'v Value<'i>,
}

/// Collects what is wrong while values are read.
pub(super) struct Reader<'a> {
    pub file: FileId,
    pub checks: &'a Checks<'a>,
    pub problems: Vec<Diagnostic>,
}

/// The codes a text stands for: a code, a name, or the beginning of a code.
pub fn resolve_codes(text: &str, known: &[(&'static str, &'static str)]) -> Option<Vec<&'static str>> {
    if text.eq_ignore_ascii_case("all") {
        return Some(known.iter().map(|(code, _)| *code).collect());
    }
    let upper = text.to_ascii_uppercase();
    let exact = known.iter().find(|(code, name)| *code == upper || *name == text);
    if let Some((code, _)) = exact {
        return Some(vec![code]);
    }
    // A prefix has to reach the digits, or be the whole word: `S` would select everything by accident.
    if !upper.starts_with("SPMD") {
        return None;
    }
    let codes: Vec<_> = known.iter().map(|(code, _)| *code).filter(|code| code.starts_with(&upper)).collect();
    (!codes.is_empty()).then_some(codes)
}

/// The known code or name closest to a mistyped one.
pub(super) fn closest_code(text: &str, known: &[(&'static str, &'static str)]) -> Option<&'static str> {
    // Another number is never what was meant: suggest codes only for words, names for the rest.
    closest(text, known.iter().map(|(_, name)| *name)).or_else(|| closest(text, known.iter().map(|(code, _)| *code)))
}

pub(super) fn span_of(range: &Range<usize>) -> Span {
    let clamp = |offset: usize| u32::try_from(offset).unwrap_or(u32::MAX);
    Span::new(clamp(range.start), clamp(range.end))
}

impl Reader<'_> {
    pub fn report(
        &mut self,
        code: (&'static str, &'static str),
        span: &Range<usize>,
        message: String,
        primary: &str,
    ) -> &mut Diagnostic {
        self.problems.push(Diagnostic {
            code: code.0,
            name: code.1,
            severity: Severity::Error,
            message,
            place: Place { file: self.file, span: span_of(span) },
            primary: primary.to_owned(),
            labels: Vec::new(),
            notes: Vec::new(),
            help: Vec::new(),
            when: Vec::new(),
            fix: None,
        });
        self.problems.last_mut().expect("a diagnostic was just pushed")
    }

    pub fn invalid(&mut self, span: &Range<usize>, message: String, primary: &str) -> &mut Diagnostic {
        self.report(INVALID_CONFIG, span, message, primary)
    }

    pub fn unknown_key(&mut self, entry: &Entry, section: Option<&str>, known: &[&str]) {
        let place = section.map_or(String::new(), |section| format!(" in `[{section}]`"));
        let message = format!("unknown key `{}`{place}", entry.key);
        let suggestion = closest(&entry.key, known.iter().copied());
        let list = known.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        let problem = self.report(UNKNOWN_CONFIG_KEY, &entry.span, message, "not a configuration key");
        match suggestion {
            Some(key) => problem.help.push(format!("did you mean `{key}`?")),
            None => problem.help.push(format!("known keys: {list}")),
        }
    }

    pub fn wrong_type(&mut self, key: &str, value: &Value, expected: &str) {
        let found = value.get_ref().type_str();
        let message = format!("`{key}` has the wrong type: expected {expected}, found {}", with_article(found));
        self.invalid(&value.span(), message, &format!("expected {expected}"));
    }

    pub fn string(&mut self, key: &str, value: &Value) -> Option<String> {
        match value.get_ref().as_str() {
            Some(text) => Some(text.to_owned()),
            None => {
                self.wrong_type(key, value, "a string");
                None
            }
        }
    }

    pub fn boolean(&mut self, key: &str, value: &Value) -> Option<bool> {
        let read = value.get_ref().as_bool();
        if read.is_none() {
            self.wrong_type(key, value, "`true` or `false`");
        }
        read
    }

    /// An array of strings, each with its span.
    pub fn strings(&mut self, key: &str, value: &Value) -> Vec<(String, Range<usize>)> {
        let Some(items) = value.get_ref().as_array() else {
            self.wrong_type(key, value, "an array of strings");
            return Vec::new();
        };
        items.iter().filter_map(|item| Some((self.string(key, item)?, item.span()))).collect()
    }

    /// One string or an array of strings.
    pub fn string_or_strings(&mut self, key: &str, value: &Value) -> Vec<(String, Range<usize>)> {
        match value.get_ref() {
            DeValue::String(text) => vec![(text.to_string(), value.span())],
            DeValue::Array(_) => self.strings(key, value),
            _ => {
                self.wrong_type(key, value, "a string or an array of strings");
                Vec::new()
            }
        }
    }

    /// The entries of a table, in the order of writing.
    pub fn table<'v, 'i>(&mut self, key: &str, value: &'v Value<'i>) -> Vec<Entry<'v, 'i>> {
        match value.get_ref().as_table() {
            Some(table) => entries(table),
            None => {
                self.wrong_type(key, value, "a table");
                Vec::new()
            }
        }
    }

    /// The entries of a table whose keys are dotted names: `a.b = 1`, which TOML nests, reads as the key `a.b`.
    pub fn dotted_table<'v, 'i>(&mut self, key: &str, value: &'v Value<'i>) -> Vec<Entry<'v, 'i>> {
        let mut out = Vec::new();
        for entry in self.table(key, value) {
            flatten(entry, &mut out);
        }
        out.sort_by_key(|entry| entry.span.start);
        out
    }

    /// Codes by code, name or prefix; an unknown one is reported.
    pub fn codes(&mut self, items: Vec<(String, Range<usize>)>) -> Vec<&'static str> {
        let mut out = Vec::new();
        for (text, span) in items {
            match resolve_codes(&text, self.checks.codes) {
                Some(codes) => out.extend(codes),
                None => self.unknown_code(&text, &span),
            }
        }
        out
    }

    pub fn unknown_code(&mut self, text: &str, span: &Range<usize>) {
        let suggestion = closest_code(text, self.checks.codes);
        let problem = self.invalid(span, format!("unknown diagnostic `{text}`"), "neither a code, a name nor a prefix");
        match suggestion {
            Some(known) => problem.help.push(format!("did you mean `{known}`?")),
            None => problem.help.push("`spmd-check explain` lists every code".to_owned()),
        }
    }
}

/// The entries of a table by position; the parser keeps them sorted by name.
pub(super) fn entries<'v, 'i>(table: &'v DeTable<'i>) -> Vec<Entry<'v, 'i>> {
    let mut out: Vec<_> =
        table.iter().map(|(key, value)| Entry { key: key.get_ref().to_string(), span: key.span(), value }).collect();
    out.sort_by_key(|entry| entry.span.start);
    out
}

fn flatten<'v, 'i>(entry: Entry<'v, 'i>, out: &mut Vec<Entry<'v, 'i>>) {
    match entry.value.get_ref().as_table() {
        Some(table) => {
            for inner in entries(table) {
                let key = format!("{}.{}", entry.key, inner.key);
                flatten(Entry { key, span: inner.span, value: inner.value }, out);
            }
        }
        None => out.push(entry),
    }
}

fn with_article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" };
    format!("{article} {kind}")
}
