//! `spmd-check check`. In: options. Out: findings on standard output, a summary on standard error.
//! Never: an order of its own; the report is already sorted. Next: `project.rs` for the input, `baseline.rs`.

use super::args::CheckOptions;
use super::baseline::Baseline;
use super::engine::{self, Want};
use super::failure::Failure;
use super::project::{self, Input, Project};
use super::{Outcome, cache, diff_base, fix, output, settings, watch};
use crate::config::suggest::closest;
use crate::config::{Config, Diagnostics, resolve_codes};
use crate::fix::at_levels;
use crate::render::{self, Color, Format};
use crate::source::{Diagnostic, Files, Severity};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Instant;

pub(super) fn run(options: &CheckOptions) -> Result<Outcome, Failure> {
    if let Some(file) = &options.explain_config {
        return settings::explain(options, file);
    }
    if options.watch {
        return watch::run(options);
    }
    once(options)
}

/// One check, from reading the files to the exit code.
pub(super) fn once(options: &CheckOptions) -> Result<Outcome, Failure> {
    let started = Instant::now();
    let color = output::color(options.shared.color);
    let input = Input::new(&options.input)?;
    let mut config = project::configure(&input, &options.config, options.output_format, color)?;
    select(options, &mut config)?;
    if options.show_settings {
        return settings::settings(&config);
    }
    let pool = project::pool(&options.shared)?;
    let (rules, project) =
        pool.install(|| rayon::join(|| engine::rule_book(&config), || project::read(&input, &config, &options.shared)));
    let rules = rules.map_err(|found| invalid(found, options.output_format, color))?;
    let mut project = project?;
    if options.show_files {
        return settings::files(&project, options.shared.verbose);
    }
    // What is typed is counted from the types of variables.
    let want = if options.coverage { Want::Types } else { Want::Findings };
    // An entry holds findings, not types.
    let folder = options.cache_dir.as_deref().filter(|_| want == Want::Findings);
    let check = || pool.install(|| engine::check(&config, &rules, &project.files, want));
    let tell = |line: &str| {
        if options.shared.verbose {
            output::say(line);
        }
    };
    let report = cache::findings(folder, &config, &project.files, check, tell);
    let mut findings = at_levels(&config, &project.files, report.diagnostics);
    if fix::is_asked_for(options) {
        let changed = pool.install(|| fix::run(options, &config, &rules, project, &findings))?;
        if let Some(outcome) = changed.outcome {
            return Ok(outcome);
        }
        (project, findings) = (changed.project, changed.left);
    }
    let mut known = Vec::new();
    if let Some(revision) = &options.diff_base {
        let (fresh, old) = pool.install(|| diff_base::fresh(revision, &config, &rules, &project, findings))?;
        findings = fresh;
        known.push((old, format!("at `{revision}` already")));
    }
    if let Some(path) = &options.baseline {
        let baseline = Baseline::open(path, &config, options.update_baseline)?;
        if options.update_baseline {
            let count = baseline.update(&findings, &project.files)?;
            summary(options, &format!("baseline `{}` records {}", baseline.shown(), output::plural(count, "finding")));
            return Ok(if project.incomplete { Outcome::Incomplete } else { Outcome::Clean });
        }
        let (fresh, old) = baseline.filter(findings, &project.files, |line| summary(options, line));
        findings = fresh;
        known.push((old, "in the baseline".to_owned()));
    }
    print(options, &findings, &report.coverage, &project.files, color)?;
    if options.coverage && options.shared.verbose {
        for (path, line, why) in &report.unknown_sites {
            output::say(&format!("{path}:{line}: {why}"));
        }
    }
    for (name, table) in unmatched(&config, &project.files) {
        summary(options, &format!("note: `{name}` of `[{table}]` occurs in none of these files"));
    }
    summary(options, &summary_line(&findings, &known, &project));
    if options.shared.verbose {
        output::say(&format!("took {} ms", started.elapsed().as_millis()));
    }
    let outcome = outcome(options, &findings, &project);
    // The process ends, and its memory with it.
    std::mem::forget((rules, project));
    Ok(outcome)
}

pub(super) fn invalid(found: Diagnostics, format: Format, color: Color) -> Failure {
    Failure::Diagnostics { found, format, color }
}

/// Options win over the file: `--select` replaces, `--ignore` adds.
fn select(options: &CheckOptions, config: &mut Config) -> Result<(), Failure> {
    let select = codes("--select", &options.select)?;
    if !select.is_empty() {
        config.select = select;
    }
    config.ignore.extend(codes("--ignore", &options.ignore)?);
    Ok(())
}

fn codes(option: &str, words: &[String]) -> Result<Vec<&'static str>, Failure> {
    let mut out = Vec::new();
    for word in words.iter().map(|word| word.trim()).filter(|word| !word.is_empty()) {
        match resolve_codes(word, engine::CODES) {
            Some(codes) => out.extend(codes),
            None => return Err(unknown_code(word, &format!(" in `{option}`"))),
        }
    }
    Ok(out)
}

/// A code as it is listed: in capitals, and with its letters where only the number is given.
pub(super) fn whole(word: &str) -> String {
    let is_number = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    if is_number { format!("SPMD{word}") } else { word.to_ascii_uppercase() }
}

/// The failure for a code nobody knows, with the nearest one.
pub(super) fn unknown_code(word: &str, place: &str) -> Failure {
    let known = engine::CODES.iter().map(|(_, name)| *name).chain(engine::CODES.iter().map(|(code, _)| *code));
    let help = match closest(&whole(word), known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`spmd-check explain` lists every code".to_owned(),
    };
    Failure::message(format!("unknown diagnostic `{word}`{place}")).with_help(help)
}

fn print(
    options: &CheckOptions,
    findings: &[Diagnostic],
    coverage: &[(String, u64)],
    files: &Files,
    color: Color,
) -> Result<(), Failure> {
    let mut tables = Vec::new();
    if options.statistics {
        tables.push(statistics(findings));
    }
    if options.coverage {
        tables.push(coverage.iter().map(|(label, count)| (count.to_string(), label.clone())).collect());
    }
    // A table in the middle of a JSON document helps nobody.
    let readable = matches!(options.output_format, Format::Full | Format::Concise);
    output::write(|out| {
        render::render(options.output_format, findings, files, color, out)?;
        if readable {
            tables.iter().try_for_each(|table| write_table(table, out))?;
        }
        Ok(())
    })?;
    if !readable {
        let _ = tables.iter().try_for_each(|table| write_table(table, &mut io::stderr().lock()));
    }
    Ok(())
}

fn statistics(findings: &[Diagnostic]) -> Vec<(String, String)> {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for finding in findings {
        *counts.entry((finding.code, finding.name)).or_default() += 1;
    }
    counts.into_iter().map(|((code, name), count)| (count.to_string(), format!("{code} {name}"))).collect()
}

fn write_table(rows: &[(String, String)], out: &mut dyn Write) -> io::Result<()> {
    let width = rows.iter().map(|(count, _)| count.len()).max().unwrap_or(0);
    rows.iter().try_for_each(|(count, label)| writeln!(out, "{count:>width$}  {label}"))
}

fn summary(options: &CheckOptions, line: &str) {
    if !options.shared.quiet {
        output::say(line);
    }
}

fn summary_line(findings: &[Diagnostic], known: &[(usize, String)], project: &Project) -> String {
    let count = |severity| findings.iter().filter(|found| found.severity == severity).count();
    let kinds = [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Note, "note")];
    let parts: Vec<String> = kinds
        .into_iter()
        .map(|(severity, noun)| (count(severity), noun))
        .filter(|(count, _)| *count > 0)
        .map(|(count, noun)| output::plural(count, noun))
        .collect();
    let old: String =
        known.iter().filter(|(count, _)| *count > 0).map(|(count, where_)| format!(", and {count} {where_}")).collect();
    if project.reported == 0 {
        return "no Python files to check".to_owned();
    }
    if parts.is_empty() {
        // Whoever looks for the first time takes silence for proof; a log need not say it every time.
        let hint = if output::is_watched() { "; `check --coverage` tells how much of it could be typed" } else { "" };
        return format!("no findings in {}{old}{hint}", output::plural(project.reported, "file"));
    }
    let files: BTreeSet<_> = findings.iter().map(|found| found.place.file).collect();
    format!("found {} in {}{old}", parts.join(", "), output::plural(files.len(), "file"))
}

/// Entries of the configuration whose last name stands in no file, with their tables: most likely they are misspelt.
fn unmatched<'c>(config: &'c Config, files: &Files) -> Vec<(&'c str, &'static str)> {
    let last = |text: &'c str| {
        let called = text.split('(').next().unwrap_or(text);
        called.rsplit(|c: char| !c.is_alphanumeric() && c != '_').find(|word| !word.is_empty()).unwrap_or(called)
    };
    let groups = config.groups.iter().map(|group| (group.expression.as_str(), "groups"));
    let flags = config.flags.iter().map(|flag| (flag.name.as_str(), "flags"));
    groups.chain(flags).filter(|(name, _)| !files.any_says(last(name))).collect()
}

fn outcome(options: &CheckOptions, findings: &[Diagnostic], project: &Project) -> Outcome {
    let ours = findings.iter().any(|found| found.name == "internal-error");
    let errors = findings.iter().any(|found| found.severity == Severity::Error);
    match (project.incomplete || ours, errors && !options.exit_zero) {
        (true, _) => Outcome::Incomplete,
        (false, true) => Outcome::Findings,
        (false, false) => Outcome::Clean,
    }
}
