//! Mapping functions whose backward is replaced: each pair of `corpus/autograd_pairs` is right and silent, and with any other collective, or
//! none, in its backward it is reported. In: the corpus. Out: mutants that pass. Never: a mutant that is skipped.

mod support;

use spmd_check::config::Config;
use spmd_check::rules::builtin;
use spmd_check::source::Severity;
use spmd_check::{Want, check};

const PROGRAM: &str = "corpus/autograd_pairs/mappings.py";
/// What a backward may do; the helpers of the program.
const STEPS: [&str; 9] = [
    "_keep",
    "_reduce",
    "_split_last",
    "_split_first",
    "_gather_last",
    "_gather_first",
    "_reduce_scatter_first",
    "_reduce_scatter_last",
    "_exchange",
];

fn errors(text: &str) -> Vec<String> {
    let files = support::files([(PROGRAM, text)]);
    let report = support::on_threads(1, || check(&Config::default(), &builtin(), &files, Want::Findings));
    let found = report.diagnostics.iter().filter(|d| d.severity == Severity::Error);
    found.map(|d| format!("{} {}", d.name, d.message)).collect()
}

#[test]
fn the_pairs_are_right() {
    let found = errors(&support::read(PROGRAM));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_other_backward_is_reported() {
    let text = support::read(PROGRAM);
    let (mut mutants, mut passed) = (0, Vec::new());
    for (at, line) in text.lines().enumerate() {
        let Some(step) = line.trim().strip_prefix("return ").and_then(|l| l.strip_suffix("(grad, ctx.group), None"))
        else {
            continue;
        };
        for other in STEPS.iter().filter(|s| **s != step) {
            let changed = line.replace(&format!("{step}("), &format!("{other}("));
            let lines: Vec<&str> =
                text.lines().enumerate().map(|(i, l)| if i == at { changed.as_str() } else { l }).collect();
            mutants += 1;
            if errors(&lines.join("\n")).is_empty() {
                passed.push(format!("{PROGRAM}:{}: {step} replaced by {other}", at + 1));
            }
        }
    }
    println!("{} of {mutants} mutants are reported", mutants - passed.len());
    assert!(mutants >= 80, "the program has too few backwards: {mutants} mutants");
    assert!(passed.is_empty(), "{}", passed.join("\n"));
}
