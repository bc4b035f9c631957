//! A project with everything that was inferred of it. In: the options of a command. Out: [`Inferred`]. Never: printing. Next: `project.rs`.

use super::args::{ConfigOptions, InputOptions, SharedOptions};
use super::check::invalid;
use super::engine::{self, Want};
use super::failure::Failure;
use super::project::{self, Input, Project};
use super::{Outcome, output};
use crate::check::Report;
use crate::config::Config;
use crate::render::Format;
use crate::rules::RuleBook;

/// What the commands start from that show types.
pub(super) struct Inferred {
    pub config: Config,
    pub rules: RuleBook,
    pub project: Project,
    pub report: Report,
}

impl Inferred {
    /// Reads a project and infers its types. Errors: options, a configuration or rules that do not hold.
    pub fn new(input: &InputOptions, config: &ConfigOptions, shared: &SharedOptions) -> Result<Self, Failure> {
        let color = output::color(shared.color);
        let input = Input::new(input)?;
        let config = project::configure(&input, config, Format::Full, color)?;
        let rules = engine::rule_book(&config).map_err(|found| invalid(found, Format::Full, color))?;
        let pool = project::pool(shared)?;
        let project = pool.install(|| project::read(&input, &config, shared))?;
        let report = pool.install(|| engine::check(&config, &rules, &project.files, Want::Types));
        Ok(Inferred { config, rules, project, report })
    }

    /// How the command ends once everything is shown.
    pub fn outcome(&self) -> Outcome {
        if self.project.incomplete { Outcome::Incomplete } else { Outcome::Clean }
    }
}
