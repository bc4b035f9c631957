//! Programs as people write them. In: `corpus/`: real bugs with their repairs, programs without a mistake, those of guides,
//! the tour of the README.
//! Out: every finding, compared with `corpus/expected.txt`, and the number of bugs found, which may only rise.
//! Never: an error in a program that is right. Next: `corpus/expected.txt`; `UPDATE=1 cargo test` rewrites it and the README's output.

mod support;

use spmd_check::Want;
use spmd_check::render::{Color, Format, render};
use spmd_check::rules::{RuleBook, builtin};
use spmd_check::source::{Diagnostic, Files, Severity};
use std::fmt::Write;

const EXPECTED: &str = "corpus/expected.txt";
/// The first two lines of `expected.txt`; the number follows.
const REPORTED: &str = "# Bugs with an error: ";
const ON_LINE: &str = "# Bugs with an error on their marked line: ";
/// The README shows what the program prints for this file, between a line with this mark and the end of the block.
const SHOWN: &str = "corpus/tour/block.py";

struct Checked {
    path: String,
    files: Files,
    found: Vec<Diagnostic>,
}

impl Checked {
    fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.found.iter().filter(|found| found.severity == Severity::Error)
    }
    /// Line of the `# BUG` mark, from 1.
    fn marked(&self) -> Option<u32> {
        support::marked(&self.files)
    }
    fn is_reported_on_its_line(&self) -> bool {
        self.errors().any(|found| Some(support::line(&self.files, found)) == self.marked())
    }
    fn rows(&self) -> Vec<String> {
        let row = |found: &Diagnostic| {
            let at = self.files[found.place.file].position(found.place.span.start);
            let when = if found.when.is_empty() { String::new() } else { format!(" {}", found.when.join(", ")) };
            let (severity, code, name) = (found.severity.as_str(), found.code, found.name);
            format!("{}:{}:{}: {severity} {code} {name}{when}", self.path, at.line, at.column)
        };
        self.found.iter().map(row).collect()
    }
}

fn check_alone(rules: &RuleBook, path: String) -> Checked {
    let text = support::read(&path);
    let files = support::files([(path.as_str(), text.as_str())]);
    let found = support::run(rules, &files, Want::Findings).diagnostics;
    found.iter().for_each(support::assert_title);
    Checked { path, files, found }
}

fn corpus(folder: &str, ending: &str) -> Vec<Checked> {
    let rules = builtin();
    let paths = support::files_below(folder, ending);
    assert!(!paths.is_empty(), "{folder} has no files that end with {ending}");
    support::on_threads(1, || paths.into_iter().map(|path| check_alone(&rules, path)).collect())
}

#[test]
fn programs_without_a_mistake_are_silent() {
    let clean = corpus("corpus/clean", ".py");
    let found: Vec<String> = clean.iter().flat_map(Checked::rows).collect();
    assert!(found.is_empty(), "false alarms:\n{}", found.join("\n"));
    println!("{} programs without a mistake: silent", clean.len());
}

#[test]
fn repaired_programs_are_silent() {
    let fixed = corpus("corpus/bugs", "/fixed.py");
    let loud: Vec<String> = fixed.iter().filter(|one| one.errors().next().is_some()).flat_map(Checked::rows).collect();
    assert!(loud.is_empty(), "false alarms:\n{}", loud.join("\n"));
    println!("{} repaired programs: silent", fixed.len());
}

#[test]
fn findings_are_the_expected_ones() {
    let bugs = corpus("corpus/bugs", "/buggy.py");
    let unmarked: Vec<&str> = bugs.iter().filter(|one| one.marked().is_none()).map(|one| one.path.as_str()).collect();
    assert!(unmarked.is_empty(), "no `# BUG` mark: {unmarked:?}");
    let reported = bugs.iter().filter(|one| one.errors().next().is_some()).count();
    let on_line = bugs.iter().filter(|one| one.is_reported_on_its_line()).count();
    println!("{reported} of {} bugs are reported, {on_line} on their marked line", bugs.len());
    let mut rows: Vec<String> = corpus("corpus", ".py").iter().flat_map(Checked::rows).collect();
    rows.sort();
    let mut now = format!("{REPORTED}{reported}\n{ON_LINE}{on_line}\n");
    for row in &rows {
        writeln!(now, "{row}").expect("text can be written to a string");
    }
    let expected = support::read(EXPECTED);
    for (head, count) in [(REPORTED, reported), (ON_LINE, on_line)] {
        let before = expected.lines().find_map(|line| line.strip_prefix(head)).expect("expected.txt has both counts");
        let before: usize = before.trim().parse().expect("a count is a number");
        assert!(count >= before, "`{head}` was {before}, is {count}: it may only rise");
    }
    if support::updating() {
        std::fs::write(support::path(EXPECTED), now).expect("expected.txt can be written");
        return;
    }
    let gone: Vec<&str> = expected.lines().filter(|line| !now.lines().any(|other| other == *line)).collect();
    let news: Vec<&str> = now.lines().filter(|line| !expected.lines().any(|other| other == *line)).collect();
    let text = format!("no longer found:\n{}\nfound now:\n{}", gone.join("\n"), news.join("\n"));
    assert!(
        gone.is_empty() && news.is_empty(),
        "{text}\nif that is right: UPDATE=1 cargo test --profile fast --test corpus"
    );
}

#[test]
fn the_tour_finds_what_it_shows() {
    let tour = corpus("corpus/tour", ".py");
    for one in &tour {
        let is_right = one.path.ends_with("/right.py");
        assert_eq!(one.found.is_empty(), is_right, "{}: {:?}", one.path, one.rows());
    }
    // Together they are a project; what is found does not change.
    let texts: Vec<(String, String)> = tour.iter().map(|one| (one.path.clone(), support::read(&one.path))).collect();
    let files = support::files(texts.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    let together = support::on_threads(1, || support::run(&builtin(), &files, Want::Findings)).diagnostics;
    assert_eq!(together.len(), tour.iter().map(|one| one.found.len()).sum::<usize>());
}

#[test]
fn the_readme_shows_the_real_output() {
    let shown = check_alone(&builtin(), SHOWN.to_owned());
    let mut out = Vec::new();
    render(Format::Full, &shown.found, &shown.files, Color::Plain, &mut out).expect("a buffer can be written");
    let output = String::from_utf8(out).expect("the output is UTF-8");
    let readme = support::read("README.md");
    let mark = format!("<!-- what `spmd-check check {SHOWN}` prints -->\n```text\n");
    let (head, rest) = readme.split_once(&mark).expect("the README has the mark");
    let (block, tail) = rest.split_once("```").expect("the block ends");
    if support::updating() {
        let text = format!("{head}{mark}{}\n```{tail}", output.trim_end());
        std::fs::write(support::path("README.md"), text).expect("the README can be written");
        return;
    }
    assert_eq!(block.trim_end(), output.trim_end(), "UPDATE=1 cargo test --profile fast --test corpus rewrites it");
}

/// The annotations that the README shows are ones the checker takes.
#[test]
fn the_readme_annotates_rightly() {
    let readme = support::read("README.md");
    let block =
        readme.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).expect("there is an example");
    let files = support::files([("readme.py", block)]);
    let found = support::run(&builtin(), &files, Want::Findings).diagnostics;
    let errors: Vec<&str> =
        found.iter().filter(|found| found.severity == Severity::Error).map(|found| found.message.as_str()).collect();
    assert!(errors.is_empty(), "{errors:?}");
}
