//! How long the parts of a run take. In: the programs of `corpus/` and the recorded ones. Out: one line each on standard output,
//! with a name that does not change. Never: a judgement; compare two runs on one machine. Next: `scripts/ratio.py` for whole trees.

#[path = "../tests/support/mod.rs"]
mod support;

use spmd_check::render::{Color, Format, render};
use spmd_check::rules::builtin;
use spmd_check::source::Files;
use spmd_check::{Want, syntax};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Each name is measured for so long.
const SPAN: Duration = Duration::from_secs(2);
const FEWEST: usize = 5;

struct Input {
    name: &'static str,
    files: Files,
    lines: usize,
}

fn input(name: &'static str, sources: Vec<(String, String)>) -> Input {
    let lines = sources.iter().map(|(_, text)| text.lines().count()).sum();
    Input { name, files: support::files(sources.iter().map(|(path, text)| (path.as_str(), text.as_str()))), lines }
}

fn corpus() -> Input {
    let paths = support::files_below("corpus", ".py");
    input("corpus", paths.into_iter().map(|path| (path.clone(), support::read(&path))).collect())
}

fn recorded() -> Input {
    let text = support::read("tests/oracle/structured.jsonl");
    let program = |line: &str| {
        let case: serde_json::Value = serde_json::from_str(line).expect("a line of the record is JSON");
        let field = |name: &str| case[name].as_str().expect("the record has text here").to_owned();
        (format!("{}.py", field("id")), field("source"))
    };
    input("recorded", text.lines().map(program).collect())
}

/// Prints the median and the fastest of the runs that fit in the span. Words on the command line select names.
fn measure(name: &str, lines: usize, mut body: impl FnMut()) {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if !words.is_empty() && !words.iter().any(|word| name.contains(word.as_str())) {
        return;
    }
    body();
    let started = Instant::now();
    let mut times = Vec::new();
    while times.len() < FEWEST || started.elapsed() < SPAN {
        let begin = Instant::now();
        body();
        times.push(begin.elapsed());
    }
    times.sort();
    let median = times[times.len() / 2];
    let each = median.as_nanos() / lines.max(1) as u128;
    println!(
        "{name:<16} median {median:>10.3?}  fastest {:>10.3?}  {each:>6} ns a line  {} runs",
        times[0],
        times.len()
    );
}

fn main() {
    measure("rules/load", 1, || drop(black_box(builtin())));
    let rules = builtin();
    for Input { name, files, lines } in [corpus(), recorded()] {
        support::on_threads(1, || {
            measure(&format!("{name}/parse"), lines, || {
                for (_, file) in files.iter() {
                    black_box(syntax::parse(&file.text));
                }
            });
            measure(&format!("{name}/check"), lines, || drop(black_box(support::run(&rules, &files, Want::Findings))));
            measure(&format!("{name}/types"), lines, || drop(black_box(support::run(&rules, &files, Want::Types))));
            let report = support::run(&rules, &files, Want::Findings);
            measure(&format!("{name}/render"), lines, || {
                let mut out = Vec::new();
                render(Format::Full, &report.diagnostics, &files, Color::Plain, &mut out).expect("a buffer is written");
                black_box(out);
            });
        });
    }
}
