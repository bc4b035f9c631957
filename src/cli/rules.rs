//! `spmd-check rules`. In: a configuration. Out: the rule files in force and how many entries each has.
//! Never: reading rules itself. Next: `rules/`.

use super::args::{InputOptions, RulesOptions};
use super::check::invalid;
use super::failure::Failure;
use super::project::{self, Input};
use super::{Outcome, engine, output};
use crate::render::{Color, Format};

pub(super) fn run(options: &RulesOptions) -> Result<Outcome, Failure> {
    let input = Input::new(&InputOptions { paths: Vec::new(), stdin_filename: None })?;
    let config = project::configure(&input, &options.config, Format::Full, Color::Plain)?;
    let rules = engine::rule_book(&config).map_err(|found| invalid(found, Format::Full, Color::Plain))?;
    output::write(|out| {
        for (path, entries) in engine::rule_files(&rules) {
            writeln!(out, "{path}: {}", output::plural(entries, "rule"))?;
        }
        Ok(())
    })?;
    Ok(Outcome::Clean)
}
