//! The one place where the command line meets the checker. In: a configuration and files. Out: a report.
//! Never: logic of its own. Next: `check.rs`.

pub(super) use crate::check::{DerivedLine, DueLine, GradientLine, Report, ScaleLine, TypeRow, Want, check};
use crate::config::{Config, Diagnostics};
pub(super) use crate::diagnostics::SignatureLine;
pub(super) use crate::diagnostics::page;
use crate::diagnostics::{CODES as TABLE, find};
pub(super) use crate::infer::DueKind;
use crate::rules::{self, RuleBook};
use crate::source::{Diagnostic, File, Files, Place, disk};

/// Code and name of every diagnostic.
pub(crate) const CODES: &[(&str, &str)] = &{
    let mut out = [("", ""); TABLE.len()];
    let mut i = 0;
    while i < TABLE.len() {
        out[i] = (TABLE[i].code, TABLE[i].name);
        i += 1;
    }
    out
};

/// Checks the text of a type.
pub(crate) fn type_text(text: &str) -> Result<(), String> {
    crate::syntax::parse_type_expr(text).map(|_| ())
}

/// Checks the name of a parallel mode.
///
/// # Errors
/// The names that there are.
pub(crate) fn mode_name(name: &str) -> Result<(), Vec<&'static str>> {
    match crate::types::mode::mode(name) {
        Some(_) => Ok(()),
        None => Err(crate::types::mode::MODES.iter().map(|m| m.name()).collect()),
    }
}

/// The built-in rules and those that the configuration adds.
///
/// # Errors
/// Every mistake in the added files, pointing into them.
pub(crate) fn rule_book(config: &Config) -> Result<RuleBook, Diagnostics> {
    if config.rules_extend.is_empty() {
        return Ok(rules::builtin());
    }
    let mut files = Files::default();
    let mut problems = Vec::new();
    let mut texts = Vec::new();
    for path in &config.rules_extend {
        let shown = path.strip_prefix(&config.cwd).unwrap_or(path).to_string_lossy().into_owned();
        let (text, error) = match disk::read_to_string(path) {
            Ok(text) => (text, None),
            Err(error) => (String::new(), Some(error.to_string())),
        };
        let id = files.add(File::new(shown.clone(), text.clone()));
        if let Some(why) = error {
            problems
                .push(invalid(Place { file: id, span: Default::default() }, format!("cannot read `{shown}`: {why}")));
        }
        texts.push((shown, text, id));
    }
    let own: Vec<(&str, &str)> = texts.iter().map(|(name, text, _)| (name.as_str(), text.as_str())).collect();
    let all: Vec<(&str, &str)> = rules::FILES.iter().copied().chain(own).collect();
    let (book, found) = rules::load(&all);
    for problem in found {
        let Some((_, _, id)) = problem.file.checked_sub(rules::FILES.len()).and_then(|i| texts.get(i)) else {
            continue;
        };
        problems.push(invalid(Place { file: *id, span: problem.span }, problem.message));
    }
    if problems.is_empty() { Ok(book) } else { Err(Diagnostics { files, problems }) }
}

fn invalid(place: Place, message: String) -> Diagnostic {
    let code = find("invalid-rules").expect("the table has the code");
    Diagnostic {
        code: code.code,
        name: code.name,
        severity: code.severity,
        message,
        place,
        primary: String::new(),
        labels: Vec::new(),
        notes: Vec::new(),
        help: Vec::new(),
        when: Vec::new(),
        fix: None,
    }
}

/// Rule files and how many entries each has: the built-in ones and those that the configuration adds.
pub(super) fn rule_files(config: &Config, _rules: &RuleBook) -> Vec<(String, usize)> {
    let heads =
        ["[[op]]", "[[module]]", "[[collective]]", "[[intrinsic]]", "[[group]]", "[[layer]]", "[[mark]]", "[[alias]]"];
    let count = |text: &str| text.lines().filter(|line| heads.contains(&line.trim())).count();
    let mut out: Vec<(String, usize)> =
        rules::FILES.iter().map(|(name, text)| ((*name).to_string(), count(text))).collect();
    for path in &config.rules_extend {
        let shown = path.strip_prefix(&config.cwd).unwrap_or(path).to_string_lossy().into_owned();
        // A file that cannot be read was reported when the rules were loaded.
        out.push((shown, disk::read_to_string(path).map_or(0, |text| count(&text))));
    }
    out
}

/// The rows of the mapping tables against a source tree.
pub(super) fn verify(config: &Config, files: &Files) -> Vec<crate::check::verify::VerifiedRow> {
    crate::check::verify::verify(config, &rules::builtin(), &rules::without_mappings(), files)
}

pub(super) fn dump_ir(files: &Files) -> String {
    files.iter().map(|(_, file)| crate::ir::display::dump(&crate::syntax::parse(&file.text).ir)).collect()
}
