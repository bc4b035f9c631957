//! What makes a finding the same finding after an edit elsewhere. In: a diagnostic. Out: a key that survives moved
//! lines. Never: a line number. Next: `gitlab.rs` and `sarif.rs`, and `cli/baseline.rs`, which compares keys.

use crate::source::{Diagnostic, Files};
use std::collections::BTreeMap;

/// Path, code and the text of the line with blanks normalised: neither moving code nor rewording a message changes it.
pub fn key(diagnostic: &Diagnostic, files: &Files) -> (String, String, String) {
    let file = &files[diagnostic.place.file];
    let line = file.lines().line(diagnostic.place.span.start);
    let text = file.slice(file.lines().range(line, &file.text));
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (file.path.clone(), diagnostic.code.to_owned(), text)
}

/// A hexadecimal fingerprint for each diagnostic, unique within the run: equal keys are numbered in order.
pub(super) fn fingerprints(diagnostics: &[Diagnostic], files: &Files) -> Vec<String> {
    let mut seen: BTreeMap<(String, String, String), u32> = BTreeMap::new();
    let mut out = Vec::new();
    for diagnostic in diagnostics {
        let key = key(diagnostic, files);
        let count = seen.entry(key.clone()).or_insert(0);
        *count += 1;
        out.push(hash(&format!("{}\0{}\0{}\0{count}", key.0, key.1, key.2)));
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
