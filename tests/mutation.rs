//! Files that are almost programs. In: files of `corpus/` and recorded programs, mutated in a fixed order. Out: an answer for each, in time.
//! Never: a panic, a hang, an `internal-error`. Next: `src/syntax/depth.rs`.

mod support;

use rayon::prelude::*;
use spmd_check::Want;
use spmd_check::rules::{RuleBook, builtin};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use support::Random;

/// How many, unless the environment says more: `MUTANTS=20000`.
const MUTANTS: u64 = 2_000;
/// Each takes a millisecond or so; this is for a machine under load.
const LONGEST: Duration = Duration::from_secs(20);

const GARBAGE: [&str; 28] = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "\"\"\"",
    "'",
    "f\"{",
    "\\",
    ":",
    "=",
    "**",
    "lambda",
    "yield",
    "await",
    "\u{0}",
    "\u{feff}",
    "é",
    "\u{c}",
    "\t",
    "\r",
    "# spmd: x: {tp: ",
    "# spmd: ignore[",
    "@",
    "...",
    "99999999999999999999",
    "if x:\n",
];

/// Words, numbers, runs of spaces, single marks.
fn tokens(text: &str) -> Vec<&str> {
    let kind = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => 1,
        ' ' => 2,
        _ => 0,
    };
    let mut out = Vec::new();
    let mut start = 0;
    let mut last = None;
    for (at, c) in text.char_indices() {
        if at > 0 && (kind(c) == 0 || last != Some(kind(c))) {
            out.push(&text[start..at]);
            start = at;
        }
        last = Some(kind(c));
    }
    out.push(&text[start..]);
    out
}

/// Deletes, doubles or swaps pieces, or puts garbage between them.
fn edit(pieces: &mut Vec<&str>, random: &mut Random) {
    let (at, other) = (random.below(pieces.len()), random.below(pieces.len()));
    match random.below(5) {
        _ if pieces.is_empty() => {}
        0 => drop(pieces.remove(at)),
        1 => pieces.insert(at, pieces[at]),
        2 => pieces.swap(at, other),
        3 => pieces[at] = pieces[other],
        _ => pieces.insert(at, GARBAGE[random.below(GARBAGE.len())]),
    }
}

fn mutant(text: &str, random: &mut Random) -> String {
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    for _ in 0..random.below(4) {
        edit(&mut lines, random);
    }
    let text: String = lines.concat();
    let mut pieces = tokens(&text);
    for _ in 0..=random.below(5) {
        edit(&mut pieces, random);
    }
    let mut out = pieces.concat();
    if random.below(20) == 0 {
        let cut = random.below(out.len());
        out.truncate(out.floor_char_boundary(cut));
    }
    out
}

/// What went wrong with a source, if anything did.
fn trouble(rules: &RuleBook, source: &str) -> Option<String> {
    let started = Instant::now();
    let files = support::files([("mutant.py", source)]);
    let report = catch_unwind(AssertUnwindSafe(|| support::run(rules, &files, Want::Types)));
    let Ok(report) = report else { return Some("a panic".to_owned()) };
    if let Some(found) = report.diagnostics.iter().find(|found| found.name == "internal-error") {
        return Some(found.message.clone());
    }
    (started.elapsed() > LONGEST).then(|| format!("{:?}", started.elapsed()))
}

/// Some of the recorded programs: there every line has a type.
fn recorded() -> Vec<String> {
    let text = support::read("tests/oracle/structured.jsonl");
    let source = |line: &str| {
        let case: serde_json::Value = serde_json::from_str(line).expect("a line of the record is JSON");
        case["source"].as_str().expect("a case has a source").to_owned()
    };
    text.lines().take(60).map(source).collect()
}

#[test]
fn mutants_get_an_answer() {
    let rules = builtin();
    let mut texts: Vec<String> = support::files_below("corpus", ".py").iter().map(|path| support::read(path)).collect();
    texts.extend(recorded());
    let mutants = std::env::var("MUTANTS").map_or(MUTANTS, |n| n.parse().expect("MUTANTS is a number"));
    let failed: Vec<String> = support::on_threads(0, || {
        let each = (0..mutants).into_par_iter().filter_map(|number| {
            let mut random = Random::new(number + 1);
            let text = &texts[random.below(texts.len())];
            let source = mutant(text, &mut random);
            let what = trouble(&rules, &source)?;
            Some(format!("mutant {number}: {what}\n{source}"))
        });
        each.collect()
    });
    let first = failed.iter().min_by_key(|text| text.len());
    assert!(failed.is_empty(), "{} of {mutants} mutants; the shortest:\n{}", failed.len(), first.expect("one failed"));
}
