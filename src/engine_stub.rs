//! Stand-in for the engine until the lead wires it in. In: files. Out: a finding for each annotation comment that plainly
//! does not parse. Never: typing anything. Next: `cli/engine.rs`, the only file that names this one.

use crate::config::Config;
use crate::source::{Diagnostic, Files, Place, Severity, Span};

pub struct RuleBook;

pub struct Report {
    /// Sorted; suppressed ones removed.
    pub diagnostics: Vec<Diagnostic>,
    pub coverage: Coverage,
    pub types: Vec<TypeRow>,
}

#[derive(Default)]
pub struct Coverage {
    /// A label and a count.
    pub rows: Vec<(String, u64)>,
}

pub struct TypeRow {
    pub path: String,
    pub function: String,
    pub line: u32,
    pub variable: String,
    /// Axis and type.
    pub types: Vec<(String, String)>,
    pub when: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Want {
    Findings,
    Types,
}

pub const CODES: &[(&str, &str)] = &[
    ("SPMD101", "invariant-mixed"),
    ("SPMD201", "reduced-twice"),
    ("SPMD501", "invalid-annotation"),
    ("SPMD901", "invalid-config"),
    ("SPMD902", "unknown-config-key"),
];

pub fn page(code_or_name: &str) -> Option<&'static str> {
    let known = CODES.iter().any(|(code, name)| *code == code_or_name || *name == code_or_name);
    known.then_some("# a page\n")
}

pub fn type_text(text: &str) -> Result<(), String> {
    if text.trim().is_empty() { Err("it is empty".to_owned()) } else { Ok(()) }
}

pub fn rule_book(_config: &Config) -> Result<RuleBook, crate::config::Diagnostics> {
    Ok(RuleBook)
}

/// Rule files and how many entries each has.
pub fn rule_files(_rules: &RuleBook) -> Vec<(String, usize)> {
    Vec::new()
}

pub fn dump_ir(_files: &Files) -> String {
    String::new()
}

pub fn check(_config: &Config, _rules: &RuleBook, files: &Files, want: Want) -> Report {
    let mut report = Report { diagnostics: Vec::new(), coverage: Coverage::default(), types: Vec::new() };
    for (file, source) in files.iter().filter(|(_, source)| source.reported) {
        report.coverage.rows.push((source.path.clone(), source.lines().count() as u64));
        if want == Want::Types
            && let Some(at) = source.text.find("def ")
        {
            let rest = &source.text[at + 4..];
            report.types.push(TypeRow {
                path: source.path.clone(),
                function: rest.split('(').next().unwrap_or("").to_owned(),
                line: source.position(at as u32).line,
                variable: "return".to_owned(),
                types: vec![("dp".to_owned(), "R".to_owned())],
                when: Vec::new(),
            });
        }
        for (at, text) in source.text.match_indices("# spmd: {{") {
            report.diagnostics.push(Diagnostic {
                code: "SPMD501",
                name: "invalid-annotation",
                severity: Severity::Error,
                message: "the annotation does not parse".to_owned(),
                place: Place { file, span: Span::new(at as u32, (at + text.len()) as u32) },
                primary: "expected an axis".to_owned(),
                labels: Vec::new(),
                notes: Vec::new(),
                help: Vec::new(),
                when: Vec::new(),
                fix: None,
            });
        }
    }
    report
}
