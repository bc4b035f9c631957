//! Agreement with recorded verdicts of the run-time checkers. In: `tests/oracle/*.jsonl`, programs with what the run-time
//! checker of spmd_types 0.3.1 said about them. Out: the agreement, printed; a failure when it falls.
//! Never: a disagreement that `tests/oracle/known.toml` does not give a reason for. Next: `known.toml`.
//!
//! A line of a file is `{"id", "source", "verdict": "ok"|"error", "lines": [lines of the stack, outermost first], "message",
//! "types": [[line, variable, {axis: type}], ...]}`, the types up to the first error.

mod support;

use serde::Deserialize;
use spmd_check::rules::builtin;
use spmd_check::source::Severity;
use spmd_check::{Report, Want};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Deserialize)]
struct Case {
    id: String,
    source: String,
    verdict: String,
    #[serde(default)]
    lines: Vec<u32>,
    #[serde(default)]
    types: Vec<(u32, String, BTreeMap<String, String>)>,
}

impl Case {
    fn path(&self) -> String {
        format!("{}.py", self.id)
    }
    fn is_wrong(&self) -> bool {
        self.verdict == "error"
    }
}

/// The least agreement accepted. Percentages in hundredths of one per cent.
struct Floor {
    verdict: usize,
    line: usize,
    types_known: usize,
}

#[derive(Default)]
struct Score {
    cases: usize,
    right: usize,
    /// Programs without a mistake in which an error is reported.
    false_alarms: usize,
    /// Programs with a mistake, and those of them in which an error is reported on a line of the recorded stack.
    reported: usize,
    on_line: usize,
    missed: usize,
    types: usize,
    types_known: usize,
    types_wrong: usize,
    /// Every case that does not agree, and how.
    disagreeing: BTreeMap<String, String>,
}

/// In hundredths of one per cent, rounded down.
fn share(part: usize, whole: usize) -> usize {
    10_000 * part / whole.max(1)
}

impl Score {
    fn verdict(&mut self, case: &Case, errors: Option<&BTreeSet<u32>>) {
        self.cases += 1;
        match (case.is_wrong(), errors) {
            (false, None) => self.right += 1,
            (false, Some(lines)) => {
                self.false_alarms += 1;
                self.disagreeing.insert(case.id.clone(), format!("false alarm on {lines:?}"));
            }
            (true, None) => {
                self.missed += 1;
                self.disagreeing.insert(case.id.clone(), format!("missed on {:?}", case.lines));
            }
            (true, Some(lines)) => {
                self.right += 1;
                self.reported += 1;
                if case.lines.iter().any(|line| lines.contains(line)) {
                    self.on_line += 1;
                } else {
                    let text = format!("reported on {lines:?}, recorded on {:?}", case.lines);
                    self.disagreeing.insert(case.id.clone(), text);
                }
            }
        }
    }

    fn types(&mut self, case: &Case, inferred: &BTreeMap<(&str, u32, &str), BTreeMap<&str, &str>>) {
        let path = case.path();
        for (line, variable, recorded) in case.types.iter().filter(|(_, _, recorded)| !recorded.is_empty()) {
            self.types += 1;
            let Some(found) = inferred.get(&(path.as_str(), *line, variable.as_str())) else { continue };
            // What follows `#` is the recorder's own remark.
            let recorded: BTreeMap<&str, &str> =
                recorded.iter().map(|(axis, ty)| (axis.as_str(), ty.split('#').next().unwrap_or(ty))).collect();
            if *found == recorded {
                self.types_known += 1;
            } else {
                self.types_wrong += 1;
                let text = format!("`{variable}` on line {line} is {found:?}, recorded {recorded:?}");
                self.disagreeing.insert(case.id.clone(), text);
            }
        }
    }

    fn print(&self, name: &str) {
        let percent = |part, whole| share(part, whole) as f64 / 100.0;
        println!(
            "{name}: {} programs, verdict {}%, false alarms {}, missed {}, line {}%, types known {}%, wrong {}",
            self.cases,
            percent(self.right, self.cases),
            self.false_alarms,
            self.missed,
            percent(self.on_line, self.reported),
            percent(self.types_known, self.types),
            self.types_wrong
        );
    }
}

fn score(cases: &[Case]) -> Score {
    let paths: Vec<String> = cases.iter().map(Case::path).collect();
    let files = support::files(paths.iter().zip(cases).map(|(path, case)| (path.as_str(), case.source.as_str())));
    let rules = builtin();
    let Report { diagnostics, types, .. } = support::on_threads(0, || support::run(&rules, &files, Want::Types));
    let mut errors: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for found in &diagnostics {
        support::assert_title(found);
        if found.severity == Severity::Error {
            let path = files[found.place.file].path.as_str();
            errors.entry(path).or_default().insert(support::line(&files, found));
        }
    }
    let mut inferred: BTreeMap<(&str, u32, &str), BTreeMap<&str, &str>> = BTreeMap::new();
    for row in &types {
        let ty = row.types.iter().map(|(axis, ty)| (axis.as_str(), ty.as_str())).collect();
        inferred.insert((&row.path, row.line, &row.variable), ty);
    }
    let mut score = Score::default();
    for (case, path) in cases.iter().zip(&paths) {
        score.verdict(case, errors.get(path.as_str()));
        score.types(case, &inferred);
    }
    score
}

fn compare(name: &str, floor: &Floor) {
    let text = support::read(&format!("tests/oracle/{name}.jsonl"));
    let cases: Vec<Case> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line of the record is a case")).collect();
    let score = score(&cases);
    score.print(name);
    let known: BTreeMap<String, BTreeMap<String, String>> =
        toml::from_str(&support::read("tests/oracle/known.toml")).expect("the list of known disagreements is TOML");
    let known = &known[name];
    let news: Vec<_> = score.disagreeing.iter().filter(|(id, _)| !known.contains_key(*id)).collect();
    assert!(news.is_empty(), "{name}: disagreements that known.toml does not list: {news:#?}");
    let gone: Vec<_> = known.keys().filter(|id| !score.disagreeing.contains_key(*id)).collect();
    assert!(gone.is_empty(), "{name}: these agree now, take them out of known.toml: {gone:?}");
    assert!(known.values().all(|reason| !reason.trim().is_empty()), "{name}: a disagreement has no reason");
    assert_eq!(score.false_alarms, 0, "{name}: false alarms");
    assert_eq!(score.types_wrong, 0, "{name}: wrong types");
    assert!(share(score.right, score.cases) >= floor.verdict, "{name}: verdict");
    assert!(share(score.on_line, score.reported) >= floor.line, "{name}: line");
    assert!(share(score.types_known, score.types) >= floor.types_known, "{name}: types known");
}

/// Straight-line programs: one operation, collective or conversion after the other.
#[test]
fn straight_line_programs_agree() {
    compare("local", &Floor { verdict: 9_980, line: 9_980, types_known: 9_900 });
}

/// The same operations inside functions, classes, loops, conditionals and containers.
#[test]
fn structured_programs_agree() {
    compare("structured", &Floor { verdict: 9_980, line: 9_980, types_known: 9_600 });
}

/// Straight-line programs with partition specs, under `typecheck(local=False)`.
#[test]
fn programs_with_global_types_agree() {
    compare("global", &Floor { verdict: 9_950, line: 9_950, types_known: 9_900 });
}

/// Programs of other seeds of the generator on which the checker was wrong once.
#[test]
fn programs_that_were_wrong_once_agree() {
    compare("fresh", &Floor { verdict: 10_000, line: 10_000, types_known: 9_900 });
}

/// Constructs beyond the generator's grammar, one by one: regions, forms of assertions, in-place changes, hooks, modules. Where the checker says
/// something else than the run time, `wide.txt` says what; most of it is silence. `UPDATE=1` writes the file.
#[test]
fn other_constructs_are_as_recorded() {
    let text = support::read("tests/oracle/wide.jsonl");
    let cases: Vec<Case> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line of the record is a case")).collect();
    let score = score(&cases);
    score.print("wide");
    let mut now = format!("# {} of {} verdicts agree, {} false alarms\n", score.right, score.cases, score.false_alarms);
    score.disagreeing.iter().for_each(|(id, how)| now += &format!("{id}: {how}\n"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(support::path("tests/oracle/wide.txt"), &now).expect("the record can be written");
    }
    assert_eq!(support::read("tests/oracle/wide.txt"), now, "UPDATE=1 records it");
}

/// Programs of PyTorch/XLA: meshes and partition specs against the library's own assertions.
#[test]
fn annotated_programs_agree() {
    compare("xla", &Floor { verdict: 9_900, line: 9_900, types_known: 0 });
}
