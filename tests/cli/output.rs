//! Formats and streams. In: a tree with findings. Out: bytes on both streams. Never: the words of a finding, which
//! belong to `tests/spec`. Next: `src/render/`.

use super::schema::problems;
use super::support::{BAD, Session, repository};
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

/// A program with a finding that has labels, an edit, and a path that needs escapes.
fn tour() -> Session {
    let session = Session::new();
    session.write("my tree/100%,a:b.py", repository("corpus/tour/block.py"));
    session
}

/// The schema is that of OASIS (2.1.0, errata 5), as it is published on npm with `@microsoft/jest-sarif`.
#[test]
fn sarif_is_as_its_schema_says() {
    let schema: Value = serde_json::from_str(&repository("tests/schemas/sarif-2.1.0.json")).expect("JSON");
    for session in [tour(), session(), Session::new()] {
        let log: Value = serde_json::from_str(&session.run(&["check", "--output-format", "sarif"]).out).expect("JSON");
        assert_eq!(problems(&schema, &log), Vec::<String>::new());
    }
    let log: Value = serde_json::from_str(&tour().run(&["check", "--output-format", "sarif"]).out).expect("JSON");
    let (result, rule) = (&log["runs"][0]["results"][0], &log["runs"][0]["tool"]["driver"]["rules"][0]);
    assert_eq!(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "my%20tree/100%25%2Ca%3Ab.py");
    assert!(rule["help"]["markdown"].as_str().is_some_and(|text| text.starts_with("# invariant-mixed")), "{rule}");
    let flow = result["codeFlows"][0]["threadFlows"][0]["locations"].as_array().expect("a flow has steps");
    assert!(
        flow.len() > 2
            && flow.last().map(|s| &s["location"]["message"]["text"])
                == Some(&Value::from(result["message"]["text"].as_str().and_then(|t| t.lines().next()).unwrap_or(""))),
        "{flow:?}"
    );
    assert!(result["fixes"][0]["artifactChanges"][0]["replacements"][0]["insertedContent"].is_object(), "{result}");
}

#[test]
fn fingerprints_survive_moved_lines_and_not_another_function() {
    let session = Session::new();
    let print = |text: &str, format: &str| -> String {
        session.write("m.py", text);
        let value: Value = serde_json::from_str(&session.run(&["check", "--output-format", format]).out).expect("JSON");
        let row = if format == "sarif" {
            &value["runs"][0]["results"][0]["partialFingerprints"]["spmdCheck/v1"]
        } else {
            &value[0]["fingerprint"]
        };
        row.as_str().expect("a fingerprint").to_owned()
    };
    for format in ["sarif", "gitlab"] {
        let first = print(&format!("def f():\n    {BAD}"), format);
        assert_eq!(first, print(&format!("import os\n\n\ndef f():\n    y = 1\n      \n    {BAD}"), format));
        assert_ne!(first, print(&format!("def g():\n    {BAD}"), format));
    }
}

#[test]
fn gitlab_has_the_fields_of_a_code_quality_report() {
    let rows: Value = serde_json::from_str(&tour().run(&["check", "--output-format", "gitlab"]).out).expect("JSON");
    for row in rows.as_array().expect("an array") {
        assert_eq!(keys(row), ["check_name", "description", "fingerprint", "location", "severity"]);
        assert!(["info", "minor", "major", "critical", "blocker"].contains(&row["severity"].as_str().unwrap_or("")));
        assert_eq!(row["location"]["path"], "my tree/100%,a:b.py");
        assert!(row["location"]["lines"]["begin"].as_u64() > Some(0));
    }
    assert_eq!(Session::new().run(&["check", "--output-format", "gitlab"]).out, "[]\n");
}

#[test]
fn github_annotations_are_escaped_and_one_line_each() {
    let out = tour().run(&["check", "--output-format", "github"]).out;
    assert_eq!(out.lines().count(), 1, "{out}");
    assert!(out.starts_with("::error file=my tree/100%25%2Ca%3Ab.py,line="), "{out}");
    assert!(out.contains(",title=SPMD101 invariant-mixed::") && out.contains("%0Ahelp: "), "{out}");
}

#[test]
fn junit_has_only_what_its_schema_allows() {
    let allowed = [
        ("testsuites", &["name", "tests", "failures", "errors"][..]),
        ("testsuite", &["name", "tests", "failures", "errors"]),
        ("testcase", &["name", "classname"]),
        ("failure", &["type", "message"]),
    ];
    for session in [tour(), Session::new()] {
        let out = session.run(&["check", "--output-format", "junit"]).out;
        let elements = out.split('<').skip(2).filter(|e| !e.starts_with('/'));
        for element in elements {
            let (head, _) = element.split_once('>').expect("elements end");
            let (name, rest) = head.split_once(' ').expect("elements have attributes");
            let (_, attributes) = allowed.iter().find(|(known, _)| *known == name).expect("a known element");
            // Values hold no quotes and no equals signs before one.
            let found = rest
                .split("=\"")
                .filter_map(|part| part.rsplit([' ', '"']).next())
                .filter(|n| !n.is_empty() && *n != "/");
            let names: Vec<&str> = found.collect();
            assert!(names.iter().all(|n| attributes.contains(n)), "{name}: {names:?}");
        }
    }
}
