//! `check --fix`, `--annotate`, `--add-ignore`, each with `--diff`. In: a run and what it found. Out: changed files, or the difference they
//! would make, and what is left. Never: an edit of its own; `fix/` makes and re-checks them. Next: `write.rs`.

use super::args::CheckOptions;
use super::failure::Failure;
use super::project::Project;
use super::{Outcome, output, write};
use crate::config::Config;
use crate::fix::{Policy, Repaired, annotate, repair, suppress, unified_diff};
use crate::rules::RuleBook;
use crate::source::Diagnostic;

/// Whether a run changes files or shows how it would.
pub(super) fn is_asked_for(options: &CheckOptions) -> bool {
    options.fix || options.diff || options.unsafe_fixes || options.annotate || options.add_ignore.is_some()
}

/// What changing came to.
pub(super) struct Changed {
    pub project: Project,
    pub left: Vec<Diagnostic>,
    /// With `--diff`: how the run ends. Otherwise findings are still to be printed.
    pub outcome: Option<Outcome>,
}

pub(super) fn run(
    options: &CheckOptions,
    config: &Config,
    rules: &RuleBook,
    project: Project,
    found: &[Diagnostic],
) -> Result<Changed, Failure> {
    let is_written = !options.diff && (options.fix || options.annotate || options.add_ignore.is_some());
    if is_written && project.from_stdin {
        let failure = Failure::message("standard input cannot be changed".to_owned());
        return Err(failure.with_help("`--diff` shows the change".to_owned()));
    }
    if !is_written && !options.diff {
        return Err(Failure::message("repairs need `--fix` to be written or `--diff` to be shown".to_owned()));
    }
    let done = match &options.add_ignore {
        Some(reason) if reason.trim().is_empty() => {
            return Err(Failure::message("`--add-ignore` needs a reason that a reader can judge".to_owned()));
        }
        Some(reason) => suppress(config, rules, &project.files, found, reason.trim()),
        None if options.annotate => annotate(config, rules, &project.files),
        None => {
            let policy = if options.unsafe_fixes { Policy::Unsafe } else { Policy::Safe };
            repair(config, rules, &project.files, policy)
        }
    };
    if done.exhausted {
        output::say("note: there is more to try than one run does: run again");
    }
    match options.diff {
        true => show(options, project, done),
        false => store(options, config, project, done),
    }
}

/// What was changed, in words.
fn summary(options: &CheckOptions, done: &Repaired, would: bool) -> String {
    let (count, files) = (done.repaired.len(), output::plural(done.changed.len(), "file"));
    let verb = |plain: &str, past: &str| if would { format!("would {plain}") } else { past.to_owned() };
    if options.annotate {
        return format!("{} {} in {files}", verb("write", "wrote"), output::plural(count, "signature"));
    }
    if options.add_ignore.is_some() {
        return format!("{} {} in {files}", verb("suppress", "suppressed"), output::plural(count, "finding"));
    }
    format!("{} {} in {files}", verb("repair", "repaired"), output::plural(count, "finding"))
}

fn show(options: &CheckOptions, project: Project, done: Repaired) -> Result<Changed, Failure> {
    output::write(|out| {
        done.changed.iter().try_for_each(|id| {
            let (old, new) = (&project.files[*id], &done.files[*id]);
            write!(out, "{}", unified_diff(&old.path, &old.text, &new.text))
        })
    })?;
    if !options.shared.quiet {
        output::say(&summary(options, &done, true));
    }
    let outcome = if done.changed.is_empty() || options.exit_zero { Outcome::Clean } else { Outcome::Findings };
    Ok(Changed { project, left: Vec::new(), outcome: Some(outcome) })
}

fn store(options: &CheckOptions, config: &Config, project: Project, done: Repaired) -> Result<Changed, Failure> {
    for id in &done.changed {
        let (old, new) = (&project.files[*id], &done.files[*id]);
        write::replace(&config.cwd.join(&old.path), &old.path, &old.text, &new.text)?;
    }
    if !options.shared.quiet && !done.changed.is_empty() {
        output::say(&summary(options, &done, false));
    }
    let project = Project { files: done.files, ..project };
    Ok(Changed { project, left: done.left, outcome: None })
}
