//! `spmd-check rules`. In: a configuration. Out: the rule files in force and how many entries each has.
//! Never: reading rules itself. Next: `rules/`.

use super::args::{InputOptions, RulesOptions};
use super::check::invalid;
use super::failure::Failure;
use super::project::{self, Input};
use super::{Outcome, engine, output};
use crate::check::verify::Verdict;
use crate::render::{Color, Format};

pub(super) fn run(options: &RulesOptions) -> Result<Outcome, Failure> {
    let input = Input::new(&InputOptions { paths: Vec::new(), stdin_filename: None })?;
    let config = project::configure(&input, &options.config, Format::Full, Color::Plain)?;
    if let Some(path) = &options.verify {
        return verify(path, &config);
    }
    let rules = engine::rule_book(&config).map_err(|found| invalid(found, Format::Full, Color::Plain))?;
    output::write(|out| {
        for (path, entries) in engine::rule_files(&config, &rules) {
            writeln!(out, "{path}: {}", output::plural(entries, "rule"))?;
        }
        Ok(())
    })?;
    Ok(Outcome::Clean)
}

/// Derives the functions of the tables from a source tree.
fn verify(path: &std::path::Path, config: &crate::config::Config) -> Result<Outcome, Failure> {
    let input = Input::new(&InputOptions { paths: vec![path.to_path_buf()], stdin_filename: None })?;
    let shared = super::args::SharedOptions::quiet();
    let project = project::read(&input, config, &shared)?;
    let pool = project::pool(&shared)?;
    let rows = pool.install(|| engine::verify(config, &project.files));
    let found: Vec<_> = rows.iter().filter(|row| row.verdict != Verdict::NotFound).collect();
    let mut clean = true;
    output::write(|out| {
        for row in &found {
            let word = match &row.verdict {
                Verdict::Agrees => "agrees".to_owned(),
                Verdict::Disagrees(derived) => {
                    clean = false;
                    format!("disagrees: the source says {derived}")
                }
                Verdict::NotDerived => "not derived".to_owned(),
                Verdict::NotFound => continue,
            };
            writeln!(out, "{}: {}: {word}", row.function, row.declared)?;
        }
        let agree = found.iter().filter(|row| row.verdict == Verdict::Agrees).count();
        let missing = rows.len() - found.len();
        writeln!(out, "{agree} of {} agree, {missing} rows are of other frameworks or not in this tree", found.len())
    })?;
    Ok(match (project.incomplete, clean) {
        (true, _) => Outcome::Incomplete,
        (false, true) => Outcome::Clean,
        (false, false) => Outcome::Findings,
    })
}
