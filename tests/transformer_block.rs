//! A whole transformer with tensor and sequence parallelism, and single mistakes in it. In: `transformer_block/model/*.py`, which is
//! right in all configurations, and `transformer_block/mistakes.toml`. Out: every mistake that is not found as the table says: one
//! error, on its line, of its kind, in its configurations. Never: expectations that follow the checker.
//! Next: `scripts/transformer_block.py`, which does the same with a binary.

mod support;

use serde::Deserialize;
use spmd_check::config::{Config, Flag, FlagValue};
use spmd_check::rules::{RuleBook, builtin};
use spmd_check::source::{Diagnostic, Files, Severity, Span};
use spmd_check::{Want, check};

const MODEL: &str = "tests/transformer_block/model";
const TABLE: &str = "tests/transformer_block/mistakes.toml";
/// The switches of the model; it is right whatever their values.
const FLAGS: [&str; 2] = ["sequence_parallel", "gather_output"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    mistake: Vec<Mistake>,
    beyond: Vec<Beyond>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mistake {
    name: String,
    file: String,
    /// Occurs once in `file`.
    find: String,
    replace: String,
    /// Part of exactly one line of the mutated file.
    line: String,
    /// The file of that line, if it is not `file`.
    file_of_line: Option<String>,
    /// Names that the error may have.
    error: Vec<String>,
    /// Configurations in which it holds; empty: all.
    when: Vec<String>,
    why: String,
    /// Why it is not found as it should be; a mistake that is found must not have this.
    bug: Option<String>,
}

/// A mistake in which no types contradict each other.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Beyond {
    name: String,
    file: String,
    find: String,
    replace: String,
    why: String,
}

/// Name and text of a file of the model.
type Source = (String, String);

fn model() -> Vec<Source> {
    let paths = support::files_below(MODEL, ".py");
    paths.iter().map(|path| (path[MODEL.len() + 1..].to_owned(), support::read(path))).collect()
}

fn table() -> Table {
    toml::from_str(&support::read(TABLE)).unwrap_or_else(|error| panic!("{TABLE}: {error}"))
}

/// The model with one piece of text replaced.
fn mutated(model: &[Source], name: &str, file: &str, find: &str, replace: &str) -> Vec<Source> {
    let mut sources = model.to_vec();
    let text = sources.iter_mut().find(|(path, _)| path == file).map(|(_, text)| text);
    let text = text.unwrap_or_else(|| panic!("{name}: no file {file}"));
    assert_eq!(text.matches(find).count(), 1, "{name}: what is replaced occurs once in {file}");
    *text = text.replace(find, replace);
    sources
}

fn in_memory(sources: &[Source]) -> Files {
    let paths: Vec<String> = sources.iter().map(|(path, _)| format!("model/{path}")).collect();
    support::files(paths.iter().zip(sources).map(|(path, (_, text))| (path.as_str(), text.as_str())))
}

fn errors(rules: &RuleBook, files: &Files, flags: &[(&str, bool)]) -> Vec<Diagnostic> {
    let fixed = |(name, value): &(&str, bool)| Flag {
        name: (*name).to_owned(),
        values: vec![FlagValue::Bool(*value)],
        span: Span::default(),
    };
    let config = Config { flags: flags.iter().map(fixed).collect(), ..Config::default() };
    let found = check(&config, rules, files, Want::Findings).diagnostics;
    found.into_iter().filter(|one| one.severity == Severity::Error).collect()
}

/// A condition with flags named by their last component, its parts in order.
fn normal(condition: &str) -> String {
    let plain = condition.replace('`', "");
    let part = |part: &str| match part.split_once(' ') {
        Some((flag, rest)) => format!("{} {rest}", flag.rsplit('.').next().unwrap_or(flag)),
        None => part.to_owned(),
    };
    let mut parts: Vec<String> = plain.split(" and ").map(part).collect();
    parts.sort();
    parts.join(" and ")
}

fn conditions(when: &[String]) -> Vec<String> {
    let mut conditions: Vec<String> = when.iter().map(|one| normal(one)).collect();
    conditions.sort();
    conditions
}

fn row(files: &Files, found: &Diagnostic) -> String {
    let path = &files[found.place.file].path;
    let line = support::line(files, found);
    let when = if found.when.is_empty() { String::new() } else { format!(" (when {})", found.when.join(", or ")) };
    format!("{path}:{line}: {}: {}{when}", found.name, found.message)
}

fn rows(files: &Files, found: &[Diagnostic]) -> String {
    match found {
        [] => "    found: nothing".to_owned(),
        found => found.iter().map(|one| format!("    found: {}", row(files, one))).collect::<Vec<_>>().join("\n"),
    }
}

/// The line that a mistake is to be reported on, from 1.
fn expected_line(sources: &[Source], mistake: &Mistake) -> u32 {
    let file = mistake.file_of_line.as_ref().unwrap_or(&mistake.file);
    let text = sources.iter().find(|(path, _)| path == file).map(|(_, text)| text.as_str());
    let text = text.unwrap_or_else(|| panic!("{}: no file {file}", mistake.name));
    let lines: Vec<usize> =
        text.lines().enumerate().filter(|(_, line)| line.contains(&mistake.line)).map(|(n, _)| n + 1).collect();
    match lines.as_slice() {
        [line] => u32::try_from(*line).expect("a file has fewer lines"),
        _ => panic!("{}: {:?} is on the lines {lines:?} of {file}", mistake.name, mistake.line),
    }
}

/// What is wrong with what was found; `None` if it is as the table says.
fn failure(rules: &RuleBook, model: &[Source], mistake: &Mistake) -> Option<String> {
    let sources = mutated(model, &mistake.name, &mistake.file, &mistake.find, &mistake.replace);
    let line = expected_line(&sources, mistake);
    let path = format!("model/{}", mistake.file_of_line.as_ref().unwrap_or(&mistake.file));
    let files = in_memory(&sources);
    let found = errors(rules, &files, &[]);
    found.iter().for_each(support::assert_title);
    if let [one] = found.as_slice() {
        let on_line = files[one.place.file].path == path && support::line(&files, one) == line;
        let named = mistake.error.iter().any(|name| name == one.name);
        if on_line && named && conditions(&one.when) == conditions(&mistake.when) {
            return None;
        }
    }
    let when = if mistake.when.is_empty() { "always".to_owned() } else { mistake.when.join(", or ") };
    let (name, error, why) = (&mistake.name, mistake.error.join(" or "), &mistake.why);
    Some(format!("{name}: {why}\n    expected: {path}:{line}: {error}, {when}\n{}", rows(&files, &found)))
}

#[test]
fn the_model_is_right_in_all_configurations() {
    let rules = builtin();
    let files = in_memory(&model());
    let values = [None, Some(false), Some(true)];
    let mut alarms = Vec::new();
    for first in values {
        for second in values {
            let flags: Vec<(&str, bool)> =
                FLAGS.into_iter().zip([first, second]).filter_map(|(name, value)| Some((name, value?))).collect();
            let found = support::on_threads(1, || errors(&rules, &files, &flags));
            if !found.is_empty() {
                alarms.push(format!("with {flags:?}:\n{}", rows(&files, &found)));
            }
        }
    }
    assert!(alarms.is_empty(), "false alarms:\n{}", alarms.join("\n"));
}

#[test]
fn every_mistake_is_one_error_on_its_line() {
    let (rules, model, table) = (builtin(), model(), table());
    let found: Vec<Option<String>> =
        support::on_threads(1, || table.mistake.iter().map(|one| failure(&rules, &model, one)).collect());
    let all = table.mistake.len();
    println!("{} of {all} mistakes are found", found.iter().filter(|f| f.is_none()).count());
    let failures: Vec<String> = table
        .mistake
        .iter()
        .zip(found)
        .filter_map(|(one, found)| match (&one.bug, found) {
            (None, found) => found,
            (Some(_), Some(_)) => None,
            (Some(_), None) => Some(format!("{}: is found now: take its `bug` away", one.name)),
        })
        .collect();
    let missed = failures.len();
    assert!(
        failures.is_empty(),
        "{missed} of {all} mistakes are not found as they should be:\n{}",
        failures.join("\n")
    );
}

/// Nothing can be demanded of these; the output says what comes of them.
#[test]
fn mistakes_beyond_the_types_are_applied() {
    let (rules, model, table) = (builtin(), model(), table());
    for one in &table.beyond {
        let files = in_memory(&mutated(&model, &one.name, &one.file, &one.find, &one.replace));
        let found = support::on_threads(1, || errors(&rules, &files, &[]));
        println!("{}: {}\n{}", one.name, one.why, rows(&files, &found));
    }
}

#[test]
fn every_name_is_one_of_the_table_of_diagnostics() {
    let table = table();
    let mut names: Vec<&str> = table.mistake.iter().map(|one| one.name.as_str()).collect();
    names.extend(table.beyond.iter().map(|one| one.name.as_str()));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "two mistakes have one name");
    for mistake in &table.mistake {
        for error in &mistake.error {
            let known = spmd_check::diagnostics::CODES.iter().any(|code| code.name == error.as_str());
            assert!(known, "{}: no diagnostic is called {error}", mistake.name);
        }
    }
}
