//! What the fuzz targets share. In: the bytes of one input. Out: the checker on them, with every promise of a report examined.
//! Never: expectations about what is found; a panic anywhere in the checker ends the process, also one that the checker itself would
//! survive. Next: `../targets/`, one program for each target; `../../scripts/fuzz.sh` runs them.

pub mod bytes;
pub mod programs;

pub use bytes::Bytes;

use spmd_check::config::{Checks, Config};
use spmd_check::diagnostics::CODES;
use spmd_check::render::{Color, Format, render};
use spmd_check::rules::{RuleBook, builtin};
use spmd_check::source::{Diagnostic, File, Files};
use spmd_check::types::mode;
use spmd_check::{Report, Want, check, syntax};
use std::sync::{Once, OnceLock};

/// A parser of others that panics is a known state of a file: the checker reports it. Whatever else panics is a mistake.
const FORGIVEN: &str = "ruff_python_";

/// Before the first input: panics of the checker end the process although it would catch them.
pub fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            if panic.location().is_some_and(|at| at.file().contains(FORGIVEN)) {
                return;
            }
            eprintln!("{panic}\n{}", std::backtrace::Backtrace::force_capture());
            std::process::abort();
        }));
    });
}

/// Runs something on a thread with the stack that the program has.
pub fn on_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    static POOL: OnceLock<rayon::ThreadPool> = OnceLock::new();
    start();
    let pool = POOL.get_or_init(|| {
        let builder = rayon::ThreadPoolBuilder::new().num_threads(1).stack_size(syntax::BIG_STACK);
        builder.build().expect("a thread can be started")
    });
    pool.install(work)
}

/// The built-in rules, read once.
pub fn rules() -> &'static RuleBook {
    static RULES: OnceLock<RuleBook> = OnceLock::new();
    RULES.get_or_init(builtin)
}

/// What a configuration is checked with, as on the command line.
pub fn with_checks<T>(work: impl FnOnce(&Checks) -> T) -> T {
    let codes: Vec<(&'static str, &'static str)> = CODES.iter().map(|code| (code.code, code.name)).collect();
    let mode = |name: &str| mode::mode(name).map(drop).ok_or_else(|| mode::MODES.iter().map(|m| m.name()).collect());
    let type_text = |text: &str| syntax::parse_type_expr(text).map(drop);
    work(&Checks { codes: &codes, type_text: &type_text, mode: &mode })
}

/// Files in memory, from bytes as they lie on a disk.
pub fn files<'a>(sources: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Files {
    let mut files = Files::default();
    for (path, bytes) in sources {
        match syntax::decode(bytes) {
            Ok(text) => files.add(File::new(path, text)),
            Err(_) => {
                let mut file = File::new(path, "");
                file.unreadable = Some("these bytes are no text".to_owned());
                files.add(file)
            }
        };
    }
    files
}

/// Checks files and examines what comes of it. The report is that of `check --output-format ...` in every format.
pub fn examine(config: &Config, rules: &RuleBook, files: &Files) -> Report {
    let report = check(config, rules, files, Want::Types);
    // A failure of the checker is a finding of its own; the hook above ends the process before that.
    assert!(report.diagnostics.iter().all(|found| found.name != "internal-error"), "internal-error");
    rendered(&report.diagnostics, files);
    for found in &report.diagnostics {
        let text = &files[found.place.file].text;
        let places = std::iter::once(found.place).chain(found.labels.iter().map(|label| label.place));
        for place in places {
            let text = if place.file == found.place.file { text } else { &files[place.file].text };
            let (start, end) = (place.span.start as usize, place.span.end as usize);
            assert!(start <= end && end <= text.len(), "a place outside of its file: {start}..{end} of {}", text.len());
            assert!(text.is_char_boundary(start) && text.is_char_boundary(end), "a place inside a character");
        }
        assert!(!found.message.is_empty() && !found.message.contains('\n'), "a title of several lines: {}", found.message);
    }
    report
}

/// The same findings, however often they are looked for and whether or not types are wanted beside them.
pub fn examine_again(config: &Config, rules: &RuleBook, files: &Files, first: &Report) {
    let again = check(config, rules, files, Want::Findings);
    assert_eq!(rendered(&again.diagnostics, files), rendered(&first.diagnostics, files), "another report");
}

/// Findings in every format, one after the other; those for programs have to be well formed.
pub fn rendered(diagnostics: &[Diagnostic], files: &Files) -> String {
    let mut all = String::new();
    for (name, format) in Format::ALL {
        let mut out = Vec::new();
        render(*format, diagnostics, files, Color::Ansi, &mut out).expect("a buffer can be written");
        let text = String::from_utf8(out).expect("the output is UTF-8");
        let is_json = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok();
        match format {
            Format::Json | Format::Gitlab | Format::Sarif => assert!(is_json(&text), "{name} is no JSON:\n{text}"),
            Format::JsonLines => assert!(text.lines().all(is_json), "a line of {name} is no JSON:\n{text}"),
            Format::Concise => assert_eq!(text.lines().count(), diagnostics.len(), "a line for each finding:\n{text}"),
            _ => {}
        }
        all += &text;
    }
    all
}
