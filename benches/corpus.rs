//! How long the parts of a run take. In: the programs of `corpus/`, the recorded ones, and a generated package (`scripts/package.py`, when
//! there is a Python). Out: one line each on standard output, with a name that does not change. Never: a judgement; compare two runs on one
//! machine. Next: `scripts/ratio.py` for whole trees, `scripts/instructions.py` for what is compared in CI.
//!
//! Names are `input/stage`. Stages: `read` (from the disk), `parse` (the parser alone), `lower` (with the parser), `resolve`, `infer`,
//! `render`, and the whole as `check` and, with the types of variables, as `types`.

#[path = "../tests/support/mod.rs"]
mod support;

use ruff_python_parser::{Mode, ParseOptions, parse_unchecked};
use spmd_check::infer::{Settings, Taken, infer};
use spmd_check::ir::FileIr;
use spmd_check::project::Project;
use spmd_check::render::{Color, Format, render};
use spmd_check::rules::{RuleBook, builtin};
use spmd_check::source::{FileId, Files};
use spmd_check::{Want, syntax};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Each name is measured for so long.
const SPAN: Duration = Duration::from_secs(2);
const FEWEST: usize = 5;

struct Input {
    name: &'static str,
    files: Files,
    lines: usize,
    /// Where the files lie.
    paths: Vec<PathBuf>,
}

fn input(name: &'static str, sources: Vec<(String, String)>, paths: Vec<PathBuf>) -> Input {
    let lines = sources.iter().map(|(_, text)| text.lines().count()).sum();
    let files = support::files(sources.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    Input { name, files, lines, paths }
}

fn corpus() -> Input {
    let names = support::files_below("corpus", ".py");
    let paths = names.iter().map(|name| support::path(name)).collect();
    input("corpus", names.into_iter().map(|name| (name.clone(), support::read(&name))).collect(), paths)
}

fn recorded() -> Input {
    let text = support::read("tests/oracle/structured.jsonl");
    let program = |line: &str| {
        let case: serde_json::Value = serde_json::from_str(line).expect("a line of the record is JSON");
        let field = |name: &str| case[name].as_str().expect("the record has text here").to_owned();
        (format!("{}.py", field("id")), field("source"))
    };
    input("recorded", text.lines().map(program).collect(), Vec::new())
}

/// A package of 20,000 lines in the style of Megatron-LM, in a temporary folder; none without a Python.
fn package(folder: &Path) -> Option<Input> {
    let script = support::path("scripts/package.py");
    let made = Command::new("python3").arg(script).arg(folder).status().is_ok_and(|status| status.success());
    if !made {
        println!("package/          not measured: there is no python3");
        return None;
    }
    let mut paths = Vec::new();
    python_files(folder, &mut paths);
    let source = |path: &PathBuf| {
        let name = path.strip_prefix(folder).unwrap_or(path).to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).expect("a file that was just made"))
    };
    let sources = paths.iter().map(source).collect();
    Some(input("package", sources, paths))
}

fn python_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("a folder that was just made");
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        match path.is_dir() {
            true => python_files(&path, found),
            false => found.push(path),
        }
    }
}

/// Prints the median and the fastest of the runs that fit in the span. Words on the command line select names.
fn measure(name: &str, lines: usize, mut body: impl FnMut()) {
    measure_after(name, lines, || (), |()| body());
}

/// The same with something that has to be there before and is not measured.
fn measure_after<T>(name: &str, lines: usize, mut before: impl FnMut() -> T, mut body: impl FnMut(T)) {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if !words.is_empty() && !words.iter().any(|word| name.contains(word.as_str())) {
        return;
    }
    body(before());
    let started = Instant::now();
    let mut times = Vec::new();
    while times.len() < FEWEST || started.elapsed() < SPAN {
        let given = before();
        let begin = Instant::now();
        body(given);
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

/// The stages of a run, one by one, on one thread.
fn stages(rules: &RuleBook, input: &Input) {
    let Input { name, files, lines, paths } = input;
    let named = |stage: &str| format!("{name}/{stage}");
    let each = |body: &dyn Fn(&str)| files.iter().for_each(|(_, file)| body(&file.text));
    if !paths.is_empty() {
        measure(&named("read"), *lines, || paths.iter().for_each(|path| drop(black_box(std::fs::read(path)))));
    }
    measure(&named("parse"), *lines, || {
        each(&|text| drop(black_box(parse_unchecked(text, ParseOptions::from(Mode::Module)))));
    });
    measure(&named("lower"), *lines, || each(&|text| drop(black_box(syntax::parse(text)))));
    let lowered =
        || -> Vec<(FileId, FileIr)> { files.iter().map(|(id, file)| (id, syntax::parse(&file.text).ir)).collect() };
    measure_after(&named("resolve"), *lines, lowered, |irs| drop(black_box(Project::new(files, irs, &[]))));
    let project = Project::new(files, lowered(), &[]);
    let ready = || (Settings::default(), Taken::later(rules, files, None));
    measure_after(&named("infer"), *lines, ready, |(mut settings, taken)| {
        drop(black_box(infer(&project, rules, files, &mut settings, &taken, None)));
    });
    let report = support::run(rules, files, Want::Findings);
    measure(&named("render"), *lines, || {
        let mut out = Vec::new();
        render(Format::Full, &report.diagnostics, files, Color::Plain, &mut out).expect("a buffer is written");
        black_box(out);
    });
    measure(&named("check"), *lines, || drop(black_box(support::run(rules, files, Want::Findings))));
    measure(&named("types"), *lines, || drop(black_box(support::run(rules, files, Want::Types))));
}

fn main() {
    measure("rules/load", 1, || drop(black_box(builtin())));
    let rules = builtin();
    let folder = std::env::temp_dir().join(format!("spmd-check-bench-{}", std::process::id()));
    let inputs = [Some(corpus()), Some(recorded()), package(&folder)];
    for input in inputs.into_iter().flatten() {
        support::on_threads(1, || stages(&rules, &input));
    }
    let _ = std::fs::remove_dir_all(&folder);
}
