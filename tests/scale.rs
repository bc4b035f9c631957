//! Factors of gradients. In: the programs of `corpus/clean/scale`, and one mistake in each row of `tests/scale/mutants.txt`. Out: the
//! share of mistakes that are reported with the right factor, which must be 95 % or more. Never: an error in a program that is right.
//! Next: `src/infer/scale/mod.rs`; `scripts/scale_mutants.py` does the same with a binary.

mod support;

use spmd_check::Want;
use spmd_check::rules::{RuleBook, builtin};
use spmd_check::source::Severity;

const FOLDER: &str = "corpus/clean/scale";

/// The share of mistakes that have to be reported, in percent.
const LEAST: usize = 95;

struct Mutant {
    file: String,
    old: String,
    new: String,
    says: Vec<String>,
}

fn mutants() -> Vec<Mutant> {
    let text = support::read("tests/scale/mutants.txt");
    let rows = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(|line| {
        let parts: Vec<String> = line.split(" | ").map(|part| part.replace("\\n", "\n")).collect();
        let [file, old, new, says] = parts.as_slice() else { panic!("a row has four parts: {line}") };
        let says = says.split(" or ").map(|word| word.replace('`', "")).collect();
        Mutant { file: file.clone(), old: old.clone(), new: new.clone(), says }
    })
    .collect()
}

fn errors(rules: &RuleBook, text: &str) -> Vec<String> {
    let files = support::files([("mutant.py", text)]);
    let found = support::run(rules, &files, Want::Findings).diagnostics;
    found.iter().filter(|f| f.severity == Severity::Error).map(|f| f.message.replace('`', "")).collect()
}

#[test]
fn mistakes_are_reported_with_their_factor() {
    let (mutants, rules) = (mutants(), builtin());
    assert!(mutants.len() >= 60, "{} mistakes", mutants.len());
    let mut missed = Vec::new();
    for m in &mutants {
        let text = support::read(&format!("{FOLDER}/{}", m.file));
        assert!(text.contains(&m.old), "{}: `{}` is not there", m.file, m.old);
        let told = errors(&rules, &text.replacen(&m.old, &m.new, 1));
        let is_right = |message: &String| {
            m.says.iter().any(|word| {
                message.contains(&format!("arrive {word} compared"))
                    || word.starts_with("are ") && message.contains(word)
            })
        };
        if !told.iter().any(is_right) {
            missed.push(format!("{}: {:?} -> {:?}: wants {:?}, got {told:?}", m.file, m.old, m.new, m.says));
        }
    }
    let found = mutants.len() - missed.len();
    println!("{found} of {} mistakes are reported with the right factor", mutants.len());
    assert!(found * 100 >= mutants.len() * LEAST, "missed:\n{}", missed.join("\n"));
}

#[test]
fn programs_that_are_right_are_silent() {
    let paths = support::files_below(FOLDER, ".py");
    assert!(paths.len() >= 20, "{} programs", paths.len());
    let rules = builtin();
    for path in paths {
        let found = errors(&rules, &support::read(&path));
        assert!(found.is_empty(), "{path}: {found:?}");
    }
}
