//! What makes a finding the same finding after an edit elsewhere. In: a diagnostic. Out: a key that survives moved
//! lines. Never: a line number. Next: `gitlab.rs` and `sarif.rs`, and `cli/baseline.rs`, which compares keys.

use crate::source::{Diagnostic, File, Files};
use std::collections::BTreeMap;

/// Path, code, function, and the text of the line with blanks normalised: neither moving code nor rewording a message changes it.
pub fn key(diagnostic: &Diagnostic, files: &Files) -> (String, String, String, String) {
    let file = &files[diagnostic.place.file];
    let line = file.lines().line(diagnostic.place.span.start);
    let text = file.slice(file.lines().range(line, &file.text));
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (file.path.clone(), diagnostic.code.to_owned(), enclosing(file, line), text)
}

/// The function or class around a line, as `Class.method`; empty at the top of a module. By indentation: it has to be the same for a
/// file that does not parse.
fn enclosing(file: &File, line: u32) -> String {
    let text = |line: u32| file.slice(file.lines().range(line, &file.text));
    let width = |line: &str| line.len() - line.trim_start().len();
    let own = text(line);
    let mut inside = width(own);
    let mut names: Vec<&str> = Vec::new();
    let defined = |line: &str| -> bool { ["def ", "async def ", "class "].iter().any(|word| line.starts_with(word)) };
    let name = |line: &'_ str| -> Option<usize> { line.find(['(', ':', '[']) };
    for at in (0..line).rev() {
        let current = text(at);
        let head = current.trim_start();
        if head.trim_end().is_empty() || head.starts_with('#') || width(current) >= inside {
            continue;
        }
        inside = width(current);
        if defined(head) {
            let end = name(head).unwrap_or(head.len());
            names.push(head[..end].rsplit(' ').next().unwrap_or("").trim_end());
        }
        if inside == 0 {
            break;
        }
    }
    names.reverse();
    names.join(".")
}

/// A hexadecimal fingerprint for each diagnostic, unique within the run: equal keys are numbered in order.
pub(super) fn fingerprints(diagnostics: &[Diagnostic], files: &Files) -> Vec<String> {
    let mut seen: BTreeMap<(String, String, String, String), u32> = BTreeMap::new();
    let mut out = Vec::new();
    for diagnostic in diagnostics {
        let key = key(diagnostic, files);
        let count = seen.entry(key.clone()).or_insert(0);
        *count += 1;
        out.push(hash(&format!("{}\0{}\0{}\0{}\0{count}", key.0, key.1, key.2, key.3)));
    }
    out
}

/// FNV-1a: stable across versions of Rust, which the standard hasher does not promise.
fn hash(text: &str) -> String {
    let mut state: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in text.bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{state:016x}")
}
