//! The 225 recorded pairs of forward and backward, each written out in four idioms: the derived set of signatures is the recorded one.
//! In: `oracle/autograd.jsonl`, made by `scripts/autograd_pairs.py`, which also runs every program on real ranks. Out: programs whose
//! set differs. Never: a program that is skipped.

mod support;

use serde::Deserialize;
use spmd_check::config::Config;
use spmd_check::rules::builtin;
use spmd_check::{Want, check};

#[derive(Deserialize)]
struct Pair {
    id: String,
    source: String,
    class: String,
    signatures: Vec<String>,
}

#[test]
fn derived_sets_are_the_recorded_ones() {
    let rules = builtin();
    let text = support::read("tests/oracle/autograd.jsonl");
    let pairs: Vec<Pair> = text.lines().map(|l| serde_json::from_str(l).expect("a line is a pair")).collect();
    let mut wrong = Vec::new();
    for pair in &pairs {
        let files = support::files([("pair.py", pair.source.as_str())]);
        let report = support::on_threads(1, || check(&Config::default(), &rules, &files, Want::Types));
        let found: Vec<&Vec<String>> =
            report.derived.iter().filter(|d| d.class == pair.class && d.is_call).map(|d| &d.signatures).collect();
        let mut expected = pair.signatures.clone();
        expected.sort();
        if found.is_empty() || found.iter().any(|f| **f != expected) {
            wrong.push(format!("{}: expected {expected:?}, found {found:?}", pair.id));
        }
    }
    println!("{} of {} pairs are derived as recorded", pairs.len() - wrong.len(), pairs.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
