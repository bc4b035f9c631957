//! `check --watch`: a check after every change. In: options. Out: what a check prints, again and again. Never: an end of its own, except
//! where nothing can be read at all. Next: `check.rs`.

use super::args::CheckOptions;
use super::failure::Failure;
use super::project::{self, Input};
use super::{Outcome, check, output};
use crate::render::{Color, Format};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// How often the files are looked at.
const PAUSE: Duration = Duration::from_millis(300);

/// What shows that a file has changed.
type Stamps = BTreeMap<PathBuf, Option<(SystemTime, u64)>>;

pub(super) fn run(options: &CheckOptions) -> Result<Outcome, Failure> {
    loop {
        let seen = stamps(options)?;
        if std::io::stdout().is_terminal() {
            let _ = write!(std::io::stdout().lock(), "\x1b[2J\x1b[H");
        }
        // A configuration that does not parse is told, and mended while we wait.
        if let Err(failure) = check::once(options) {
            failure.say();
        }
        output::say("watching for changes; Ctrl-C ends it");
        while stamps(options)? == seen {
            std::thread::sleep(PAUSE);
        }
    }
}

/// The files of the run and the configuration, with their times.
fn stamps(options: &CheckOptions) -> Result<Stamps, Failure> {
    let input = Input::new(&options.input)?;
    let config = project::configure(&input, &options.config, Format::Full, Color::Plain).unwrap_or_default();
    let mut paths = project::paths(&input, &config);
    paths.extend(input.configurations());
    let stamp = |path: &PathBuf| {
        let data = std::fs::metadata(path).ok()?;
        Some((data.modified().ok()?, data.len()))
    };
    Ok(paths.into_iter().map(|path| (path.clone(), stamp(&path))).collect())
}
