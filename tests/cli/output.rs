//! Formats and streams. In: a tree with findings. Out: bytes on both streams. Never: the words of a finding, which
//! belong to `tests/spec`. Next: `src/render/`.

use super::support::{BAD, Session};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

fn session() -> Session {
    let session = Session::new();
    session.write("pkg/a.py", format!("é = 1\n{BAD}"));
    session.write("pkg/b.py", BAD);
    session
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn json_has_the_documented_shape() {
    let session = session();
    let ran = session.run(&["check", "-q", "--output-format", "json"]);
    let array: Value = serde_json::from_str(&ran.out).expect("output is JSON");
    let first = &array[0];
    let fields = ["code", "fix", "help", "labels", "message", "name", "notes", "path", "range", "severity", "when"];
    assert_eq!(keys(first), fields);
    assert_eq!(first["path"], "pkg/a.py");
    assert_eq!(first["severity"], "error");
    assert_eq!(first["range"]["start"]["line"], 2);
    assert!(first["range"]["start"]["column"].as_u64() >= Some(10));
    assert_eq!(keys(&first["range"]["end"]), ["column", "line"]);
    assert_eq!(ran.out.lines().count(), 2 + array.as_array().expect("an array").len(), "one object a line");
    let lines = session.run(&["check", "-q", "--output-format", "json-lines"]);
    let parsed: Vec<Value> =
        lines.out.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    assert_eq!(Value::Array(parsed), array);
    session.write("clean/x.py", "x = 1\n");
    assert_eq!(session.run(&["check", "--output-format", "json", "clean"]).out, "[]\n");
    assert_eq!(session.run(&["check", "--output-format", "json-lines", "clean"]).out, "");
}

#[test]
fn types_are_an_array_of_rows() {
    let session = Session::new();
    session.write("m.py", "def f(x):  # spmd: x: {tp: R} -> {tp: R}\n    return x\n");
    let ran = session.run(&["types", "--output-format", "json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let array: Value = serde_json::from_str(&ran.out).expect("output is JSON");
    for row in array.as_array().expect("an array") {
        assert_eq!(keys(row), ["function", "line", "path", "type", "variable", "when"]);
    }
    assert_eq!(session.run(&["types"]).code, 0);
}

#[test]
fn formats_for_machines_parse_and_name_each_finding() {
    let session = session();
    let sarif: Value = serde_json::from_str(&session.run(&["check", "--output-format", "sarif"]).out).expect("JSON");
    assert_eq!(sarif["version"], "2.1.0");
    let results = sarif["runs"][0]["results"].as_array().expect("results are an array");
    let paths: Vec<&Value> =
        results.iter().map(|row| &row["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]).collect();
    assert!(paths.contains(&&Value::from("pkg/a.py")) && paths.contains(&&Value::from("pkg/b.py")), "{paths:?}");
    let gitlab: Value = serde_json::from_str(&session.run(&["check", "--output-format", "gitlab"]).out).expect("JSON");
    assert_ne!(gitlab[0]["fingerprint"], gitlab[1]["fingerprint"]);
    let github = session.run(&["check", "--output-format", "github"]).out;
    assert!(github.lines().all(|line| line.starts_with("::error file=pkg/")), "{github}");
    let junit = session.run(&["check", "--output-format", "junit"]).out;
    assert!(junit.starts_with("<?xml") && junit.trim_end().ends_with("</testsuites>"), "{junit}");
}

#[test]
fn text_is_plain_unless_colour_is_asked_for() {
    let session = session();
    let plain = session.run(&["check"]);
    assert!(!plain.out.contains('\u{1b}') && plain.out.contains("pkg/a.py:2:"), "{plain:?}");
    assert!(plain.out.lines().all(|line| line == line.trim_end()), "{plain:?}");
    assert!(session.run(&["check", "--color", "always"]).out.contains('\u{1b}'));
    let dumb = session.command(&["check"]).env("TERM", "dumb").env("FORCE_COLOR", "1").output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&dumb.stdout), plain.out);
}

#[test]
fn control_characters_in_the_source_do_not_reach_the_terminal() {
    let session = Session::new();
    session.write("evil.py", BAD.replace("f()", "'\u{1b}[31m\u{7}'"));
    let ran = session.run(&["check"]);
    assert_eq!(ran.code, 1);
    assert!(!ran.out.contains(['\u{1b}', '\u{7}']), "{ran:?}");
}

#[test]
fn the_same_bytes_for_any_number_of_threads() {
    let session = Session::new();
    for number in 0..60 {
        session.write(&format!("d{}/m{number}.py", number % 7), BAD);
    }
    let one = session.run(&["check", "-j", "1"]);
    assert_eq!(one.out, session.run(&["check", "-j", "8"]).out);
    assert_eq!(one.err, "found 60 errors in 60 files\n");
}

#[test]
fn the_summary_goes_to_standard_error_and_quiet_drops_it() {
    let session = session();
    assert_eq!(session.run(&["check", "--output-format", "concise"]).err, "found 2 errors in 2 files\n");
    assert_eq!(session.run(&["check", "-q"]).err, "");
    let counted = session.run(&["check", "-q", "--statistics", "--output-format", "concise"]);
    assert!(counted.out.lines().last().is_some_and(|line| line.starts_with("2  SPMD")), "{counted:?}");
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let session = Session::new();
    session.write("many.py", BAD.repeat(5000));
    let mut child = session
        .command(&["check", "-q", "--output-format", "concise"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut line = String::new();
    let mut reader = BufReader::new(child.stdout.take().expect("output is a pipe"));
    reader.read_line(&mut line).expect("the first line arrives");
    drop(reader);
    let output = child.wait_with_output().expect("the program ends");
    assert!(line.starts_with("many.py:1:"), "{line}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(1));
}
