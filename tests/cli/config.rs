//! The configuration file. In: texts of `spmd-check.toml`. Out: what is accepted, and every mistake at once.
//! Never: single keys in isolation; a session shows what a user sees. Next: `src/config/schema.rs`.

use super::support::{BAD, Session, repository};
use spmd_check::config::{KEYS, KeyShape};
use std::collections::BTreeSet;

#[test]
fn every_mistake_is_reported_at_once() {
    let session = Session::new();
    session.write("good.py", "x = 1\n");
    let text = "inclde = ['*.py']\ntarget-torch = 2.10\n\n[mesh]\ndp = 2\ndp = 4\n\n[levels]\nnot-a-code = 'error'\n";
    session.write("spmd-check.toml", text);
    let ran = session.run(&["check"]);
    assert_eq!(ran.code, 2);
    assert!(ran.out.is_empty());
    for (line, message) in [
        (1, "unknown key `inclde`"),
        (2, "`target-torch` has the wrong type"),
        (6, "`dp` is set twice"),
        (9, "unknown diagnostic `not-a-code`"),
    ] {
        assert!(ran.err.contains(message), "{message}: {}", ran.err);
        assert!(ran.err.contains(&format!("spmd-check.toml:{line}:")), "{line}: {}", ran.err);
    }
    assert!(ran.err.contains("did you mean `include`?"), "{}", ran.err);
    assert!(ran.err.contains("the configuration has 4 mistakes"), "{}", ran.err);
}

#[test]
fn keys_below_a_broken_header_are_no_mistakes_of_their_own() {
    let session = Session::new();
    session.write("spmd-check.toml", "inclde = []\n[mesh\ntp = 1\n");
    let ran = session.run(&["check"]);
    assert!(ran.err.contains("unclosed table") && ran.err.contains("unknown key `inclde`"), "{}", ran.err);
    assert!(!ran.err.contains("unknown key `tp`"), "{}", ran.err);
}

#[test]
fn an_axis_of_one_rank_is_not_spoken_of() {
    let text =
        "# spmd: mesh dense = dp, tp\n\n\n# spmd: x: {tp: I}, w: {tp: S(0)}\ndef column(x, w):\n    return x @ w.t()\n";
    let session = Session::new();
    session.write("column.py", text);
    let found = |mesh: &str| {
        session.write("spmd-check.toml", mesh);
        session.run(&["check", "--output-format", "concise"]).out.contains("SPMD101")
    };
    assert!(found(""));
    assert!(found("[mesh]\ndp = 1\ntp = 2\n"));
    assert!(found("[mesh]\ndp = 1\ntp = '?'\n"));
    assert!(!found("[mesh]\ndp = 4\ntp = 1\n"));
}

#[test]
fn a_broken_configuration_is_json_for_those_who_asked_for_json() {
    let session = Session::new();
    session.write("spmd-check.toml", "colour = 1\n");
    let ran = session.run(&["check", "--output-format", "json"]);
    assert_eq!(ran.code, 2);
    let parsed: serde_json::Value = serde_json::from_str(&ran.out).expect("output is JSON");
    assert_eq!(parsed[0]["code"], "SPMD902");
    assert_eq!(parsed[0]["range"]["start"]["line"], 1);
}

#[test]
fn the_commented_file_lists_every_key_and_is_valid() {
    let sample = repository("spmd-check.toml");
    let uncommented: String = sample
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(option) if !option.starts_with(' ') => format!("{option}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let table: toml::Table = uncommented.parse().expect("the uncommented file is TOML");
    let shown: BTreeSet<&str> = table.keys().map(String::as_str).collect();
    let known: BTreeSet<&str> = KEYS.iter().map(|(name, _)| *name).collect();
    assert_eq!(shown, known);
    for (name, shape) in KEYS {
        if let (KeyShape::Table(inner), Some(table)) = (shape, table[*name].as_table()) {
            for key in *inner {
                let words = format!("{key} =");
                assert!(sample.contains(&words), "`[{name}]` does not show `{key}`");
            }
            assert!(table.keys().all(|key| inner.contains(&key.as_str())), "{name}");
        }
    }
    let session = Session::new();
    session.write("bad.py", BAD);
    session.write("spmd-check.toml", &uncommented);
    let ran = session.run(&["check"]);
    assert_eq!(ran.code, 1, "the defaults change nothing: {ran:?}");
}

#[test]
fn pyproject_isolated_and_config_choose_the_file() {
    let session = Session::new();
    session.write("p/pyproject.toml", "[tool.other]\nx = 1\n[tool.spmd-check]\nignore = ['SPMD5']\n");
    session.write("p/src/bad.py", BAD);
    session.write("strict.toml", "select = ['all']\n");
    assert_eq!(session.run(&["check", "p"]).code, 0);
    assert_eq!(session.run(&["check", "p/src/bad.py"]).code, 0);
    assert_eq!(session.run(&["check", "--isolated", "p"]).code, 1);
    assert_eq!(session.run(&["check", "--config", "strict.toml", "p"]).code, 1);
    assert_eq!(session.run(&["check", "--config", "none.toml", "p"]).code, 2);
    session.write("p/pyproject.toml", "[tool.spmd-check]\nignre = []\n");
    let ran = session.run(&["check", "p"]);
    assert!(ran.code == 2 && ran.err.contains("p/pyproject.toml:2:1"), "{ran:?}");
}

#[test]
fn levels_and_per_file_ignores_change_what_is_reported() {
    let session = Session::new();
    session.write("a/bad.py", BAD);
    session.write("tests/bad.py", BAD);
    session.write("spmd-check.toml", "[levels]\nSPMD5 = 'warning'\n[per-file-ignores]\n'tests/' = ['SPMD5']\n");
    let ran = session.run(&["check", "--output-format", "concise"]);
    assert_eq!(ran.code, 0, "warnings do not fail: {ran:?}");
    assert!(ran.out.starts_with("a/bad.py:1:") && ran.out.contains(": warning["), "{ran:?}");
    assert!(!ran.out.contains("tests/bad.py"), "{ran:?}");
    assert_eq!(ran.err, "found 1 warning in 1 file\n");
}
