//! The same bytes in, the same bytes out. In: `corpus/` and recorded programs. Out: rendered reports that are equal on any number of
//! threads, in every run, and for any order of the files. Never: what the reports say. Next: `src/check.rs`.

mod support;

use serde_json::Value;
use spmd_check::check::checked;
use spmd_check::config::Config;
use spmd_check::render::{Color, Format, render};
use spmd_check::rules::{RuleBook, builtin};
use spmd_check::source::Files;
use spmd_check::{Report, Want};
use std::fmt::Write;

const RECORDED: usize = 300;

/// Path and text of every program.
fn programs() -> Vec<(String, String)> {
    let mut programs: Vec<(String, String)> =
        support::files_below("corpus", ".py").into_iter().map(|path| (path.clone(), support::read(&path))).collect();
    for record in ["local", "structured"] {
        let text = support::read(&format!("tests/oracle/{record}.jsonl"));
        for line in text.lines().take(RECORDED) {
            let case: Value = serde_json::from_str(line).expect("a line of the record is JSON");
            let field = |name: &str| case[name].as_str().expect("the record has text here").to_owned();
            programs.push((format!("recorded/{}.py", field("id")), field("source")));
        }
    }
    programs
}

fn project(programs: &[(String, String)]) -> Files {
    support::files(programs.iter().map(|(path, text)| (path.as_str(), text.as_str())))
}

/// Everything a user can see.
fn everything(report: &Report, files: &Files) -> String {
    let mut out = Vec::new();
    for (_, format) in Format::ALL {
        render(*format, &report.diagnostics, files, Color::Ansi, &mut out).expect("a buffer can be written");
    }
    let mut text = String::from_utf8(out).expect("the output is UTF-8");
    for row in &report.types {
        writeln!(text, "{row:?}").expect("text can be written to a string");
    }
    for row in &report.coverage {
        writeln!(text, "{row:?}").expect("text can be written to a string");
    }
    text
}

fn on_threads(rules: &RuleBook, files: &Files, threads: usize) -> Report {
    support::on_threads(threads, || support::run(rules, files, Want::Types))
}

fn first_difference(a: &str, b: &str) -> Option<String> {
    let lines = a.lines().zip(b.lines()).find(|(a, b)| a != b);
    let lengths = a.len() != b.len();
    lines.map(|(a, b)| format!("{a}\n{b}")).or(lengths.then(|| "one is longer".to_owned()))
}

#[test]
fn threads_do_not_show() {
    let rules = builtin();
    let files = project(&programs());
    let one = everything(&on_threads(&rules, &files, 1), &files);
    assert!(one.contains("SPMD101"), "nothing is compared when nothing is found");
    for threads in [2, 8, 64, 8] {
        let many = everything(&on_threads(&rules, &files, threads), &files);
        assert_eq!(first_difference(&one, &many), None, "on {threads} threads");
    }
}

/// The order in which files come is that of their paths on the command line; it may not decide what is found.
#[test]
fn the_order_of_files_does_not_show() {
    let rules = builtin();
    let mut programs = programs();
    let rows = |programs: &[(String, String)]| {
        let files = project(programs);
        let report = on_threads(&rules, &files, 2);
        let mut rows: Vec<String> = Vec::new();
        for found in &report.diagnostics {
            let file = &files[found.place.file];
            let at = file.position(found.place.span.start);
            rows.push(format!("{} {at:?} {} {} {:?}", file.path, found.message, found.code, found.when));
        }
        rows.extend(report.types.iter().map(|row| format!("{row:?}")));
        rows.sort();
        rows
    };
    let sorted = rows(&programs);
    let mut random = support::Random::new(7);
    for _ in 0..2 {
        random.shuffle(&mut programs);
        let shuffled = rows(&programs);
        let difference = sorted.iter().zip(&shuffled).find(|(a, b)| a != b);
        assert_eq!(difference, None);
        assert_eq!(sorted.len(), shuffled.len());
    }
}

/// How many calls of what was executed led nowhere.
fn lost(rules: &RuleBook, texts: &[(&str, &str)]) -> u64 {
    let files = support::files(texts.iter().copied());
    let report = support::run(rules, &files, Want::Types);
    report
        .coverage
        .iter()
        .filter(|(words, _)| words == "calls that lead to nothing known")
        .map(|(_, times)| times)
        .sum()
}

#[test]
fn packages_that_know_nothing_of_each_other_are_judged_as_alone() {
    let rules = builtin();
    let first = ("first/__init__.py", "def kept(x):\n    return x.flush_all()\n");
    let sums =
        "import torch.distributed as dist\n\nclass C:\n    def flush_all(self):\n        dist.all_reduce(self.x)\n";
    let second = ("second/__init__.py", sums);
    assert_eq!(lost(&rules, &[first]), 0, "nothing in the package is worth executing");
    assert_eq!(lost(&rules, &[first, second]), 0);
    let importing = "def kept(x):\n    from second import C\n    return x.flush_all()\n";
    let times = lost(&rules, &[("first/__init__.py", importing), second]);
    assert_eq!(times, 1, "what it imports may be what it calls");
}

/// What only large trees do, in small ones: functions that nothing is likely to look at are lowered again if something does.
#[test]
fn functions_that_are_lowered_again_do_not_show() {
    let rules = builtin();
    let own =
        |folder: &str| support::files_below(folder, ".py").into_iter().map(|path| (path.clone(), support::read(&path)));
    let alone: Vec<Vec<(String, String)>> =
        own("corpus").chain(own("tests/unseen")).map(|program| vec![program]).collect();
    let mut found = 0;
    for programs in alone.into_iter().chain([programs()]) {
        let files = project(&programs);
        let reports = support::on_threads(2, || {
            [false, true].map(|sparing| checked(&Config::default(), &rules, &files, Want::Findings, sparing))
        });
        let [whole, sparing] = reports.map(|report| everything(&report, &files));
        assert_eq!(first_difference(&whole, &sparing), None, "{}", programs[0].0);
        found += whole.matches("SPMD").count();
    }
    assert!(found > 1000, "nothing is compared when nothing is found");
}
