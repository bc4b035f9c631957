//! Files that are almost programs, configurations, rules or questions to `plan`. In: files of the repository, mutated in a fixed order.
//! Out: an answer for each, in time. Never: a panic, a hang, an `internal-error`. Next: `src/syntax/depth.rs`.

mod support;

use rayon::prelude::*;
use spmd_check::Want;
use spmd_check::config::{self, Checks, ConfigSource};
use spmd_check::plan::{Defaults, Device, Dtype, Machine, answer};
use spmd_check::rules::{builtin, load};
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

/// What a name may be bound to that is made of itself; `x` stands for what it was bound to.
const OWN: [&str; 12] = [
    "@ * (x)",
    "@[: (x)]",
    "@.view(x)",
    "x + @",
    "@.float()",
    "int(@)",
    "not @",
    "@ or (x)",
    "@ and (x)",
    "@.model",
    "(x) if @ else @",
    "@.chunk(x)[x]",
];

/// Binds names to what is made of themselves, as `x = x[1:]` does: what follows names to where they are bound has to end.
fn bound_to_itself(text: &str, random: &mut Random) -> String {
    let each = text.split_inclusive('\n').map(|line| {
        let (name, value) = line.split_once(" = ")?;
        let own = name.trim_start();
        let plain = !own.is_empty() && own.chars().all(|c| c.is_alphanumeric() || c == '_');
        let whole = value.matches(['(', '[', '{']).count() == value.matches([')', ']', '}']).count();
        (plain && whole && !value.contains('#') && random.below(3) == 0).then(|| {
            let form = OWN[random.below(OWN.len())].replace('x', value.trim_end());
            format!("{name} = {}\n", form.replace('@', own))
        })
    });
    let changed: Vec<Option<String>> = each.collect();
    text.split_inclusive('\n').zip(changed).map(|(line, new)| new.unwrap_or_else(|| line.to_string())).collect()
}

fn mutant(text: &str, random: &mut Random) -> String {
    if random.below(4) == 0 {
        return bound_to_itself(text, random);
    }
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

/// Some of the recorded programs: there every line has a type.
fn recorded() -> Vec<String> {
    let text = support::read("tests/oracle/structured.jsonl");
    let source = |line: &str| {
        let case: serde_json::Value = serde_json::from_str(line).expect("a line of the record is JSON");
        case["source"].as_str().expect("a case has a source").to_owned()
    };
    text.lines().take(60).map(source).collect()
}

/// Makes mutants of the texts and tries each. Panics with the shortest one that is in trouble.
fn try_all(texts: &[String], share: u64, trouble: impl Fn(&str) -> Option<String> + Sync) {
    let mutants = std::env::var("MUTANTS").map_or(MUTANTS, |n| n.parse().expect("MUTANTS is a number")) / share;
    let failed: Vec<String> = support::on_threads(0, || {
        let each = (0..mutants).into_par_iter().filter_map(|number| {
            let mut random = Random::new(number + 1);
            let source = mutant(&texts[random.below(texts.len())], &mut random);
            let started = Instant::now();
            let what = match catch_unwind(AssertUnwindSafe(|| trouble(&source))) {
                Ok(what) => what.or_else(|| (started.elapsed() > LONGEST).then(|| format!("{:?}", started.elapsed()))),
                Err(_) => Some("a panic".to_owned()),
            };
            Some(format!("mutant {number}: {}\n{source}", what?))
        });
        each.collect()
    });
    let first = failed.iter().min_by_key(|text| text.len());
    assert!(failed.is_empty(), "{} of {mutants} mutants; the shortest:\n{}", failed.len(), first.expect("one failed"));
}

#[test]
fn mutated_programs_get_an_answer() {
    let rules = builtin();
    let mut texts: Vec<String> = support::files_below("corpus", ".py").iter().map(|path| support::read(path)).collect();
    texts.extend(recorded());
    try_all(&texts, 1, |source| {
        let files = support::files([("mutant.py", source)]);
        let report = support::run(&rules, &files, Want::Types);
        report.diagnostics.iter().find(|found| found.name == "internal-error").map(|found| found.message.clone())
    });
}

#[test]
fn mutated_configurations_get_an_answer() {
    let text = support::read("spmd-check.toml");
    let options = |line: &str| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line).to_owned();
    let every_option: Vec<String> = text.lines().map(options).collect();
    let folder = std::env::temp_dir().join(format!("spmd-check-mutation-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let checks = Checks {
        codes: &[("SPMD101", "invariant-mixed")],
        type_text: &|text| if text.contains('{') { Ok(()) } else { Err("no type".to_owned()) },
        mode: &|_| Err(vec!["fsdp"]),
    };
    let names = std::sync::atomic::AtomicU64::new(0);
    // The closures of `checks` stay on this thread.
    for number in 0..MUTANTS {
        let mut random = Random::new(number + 1);
        let source = mutant(&every_option.join("\n"), &mut random);
        let path = folder.join(format!("{}.toml", names.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 8));
        std::fs::write(&path, &source).expect("the temporary folder can be written");
        let read = || config::load(&ConfigSource::File(path.clone()), &folder, &folder, &checks).is_ok();
        assert!(catch_unwind(AssertUnwindSafe(read)).is_ok(), "a panic:\n{source}");
    }
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn mutated_rules_get_an_answer() {
    let texts: Vec<String> = support::files_below("rules", ".toml").iter().map(|path| support::read(path)).collect();
    let program = support::read("corpus/tour/block.py");
    try_all(&texts, 4, |text| {
        let (rules, _) = load(&[("mutant.toml", text)]);
        let files = support::files([("program.py", program.as_str())]);
        let report = support::run(&rules, &files, Want::Types);
        report.diagnostics.iter().find(|found| found.name == "internal-error").map(|found| found.message.clone())
    });
}

#[test]
fn mutated_questions_get_an_answer() {
    let defaults =
        Defaults { dtype: Dtype::parse("bf16").expect("a type of elements"), machine: Machine::new(Device::Cpu, None) };
    let lines: Vec<String> =
        support::read("tests/oracle/redistribute.jsonl").lines().take(400).map(str::to_owned).collect();
    try_all(&lines, 1, |line| {
        let answer = answer(line.as_bytes(), 1, defaults);
        let is_json = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok();
        answer.filter(|a| !is_json(&a.line)).map(|a| format!("no JSON: {}", a.line))
    });
}
