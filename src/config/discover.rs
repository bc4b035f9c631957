//! Which configuration holds for a run. In: where the user stands and what was asked for. Out: the file, read and
//! validated. Never: merging two files; the nearest one wins alone. Next: `schema.rs`.

use super::reader::Checks;
use super::schema::{self, Section};
use super::{Config, Diagnostics};
use crate::source::{File, Files};
use std::path::{Path, PathBuf};

/// The name of the configuration file.
pub const CONFIG_NAME: &str = "spmd-check.toml";

/// What the user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// The nearest file upwards.
    Discover,
    /// `--config F`
    File(PathBuf),
    /// `--isolated`
    Isolated,
}

/// A configuration file that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub path: PathBuf,
    text: String,
    section: Section,
}

/// The nearest configuration at or above a folder. A file that exists and cannot be read is an error, not an absence.
pub fn discover(start: &Path) -> Result<Option<Found>, String> {
    for folder in start.ancestors() {
        let own = folder.join(CONFIG_NAME);
        if own.is_file() {
            return Ok(Some(Found { text: read(&own)?, path: own, section: Section::WholeFile }));
        }
        let shared = folder.join("pyproject.toml");
        if shared.is_file() {
            // Somebody else's broken file is no reason to stop.
            if let Ok(text) = read(&shared)
                && schema::has_section(&text)
            {
                return Ok(Some(Found { text, path: shared, section: Section::Pyproject }));
            }
        }
    }
    Ok(None)
}

/// The configuration for a run that starts at `start` (absolute), shown relative to `cwd` (absolute).
/// `Err` is one line about the file itself; diagnostics are about what stands in it.
pub fn load(source: &ConfigSource, start: &Path, cwd: &Path, checks: &Checks) -> Result<Config, LoadError> {
    let found = match source {
        ConfigSource::Isolated => None,
        ConfigSource::Discover => discover(start).map_err(LoadError::Unreadable)?,
        ConfigSource::File(path) => {
            let path = cwd.join(path);
            let text = read(&path).map_err(LoadError::Unreadable)?;
            Some(Found { section: section(&path), path, text })
        }
    };
    let Some(found) = found else {
        let root = project_root(start).unwrap_or_else(|| start.to_owned());
        return Ok(Config { root, cwd: cwd.to_owned(), ..Config::default() });
    };
    validated(found, cwd, checks).map_err(LoadError::Invalid)
}

/// The configuration that a text means as the contents of the file `path` (absolute): what [`load`] makes of it, without the file.
///
/// # Errors
/// Every mistake in the text.
pub fn parse(path: &Path, text: &str, cwd: &Path, checks: &Checks) -> Result<Config, Diagnostics> {
    validated(Found { path: path.to_owned(), text: text.to_owned(), section: section(path) }, cwd, checks)
}

fn section(path: &Path) -> Section {
    let shared = path.file_name().is_some_and(|name| name == "pyproject.toml");
    if shared { Section::Pyproject } else { Section::WholeFile }
}

fn validated(found: Found, cwd: &Path, checks: &Checks) -> Result<Config, Diagnostics> {
    let root = found.path.parent().unwrap_or(cwd).to_owned();
    let shown = found.path.strip_prefix(cwd).unwrap_or(&found.path).to_string_lossy().replace('\\', "/");
    let mut files = Files::default();
    let file = files.add(File::new(shown.clone(), found.text));
    let (config, problems) = schema::read(file, &files[file].text, found.section, &root, checks);
    if problems.is_empty() {
        return Ok(Config { cwd: cwd.to_owned(), path: Some(shown), ..config });
    }
    Err(Diagnostics { files, problems })
}

/// Why there is no configuration to run with.
#[derive(Debug)]
pub enum LoadError {
    Unreadable(String),
    Invalid(Diagnostics),
}

/// The nearest folder at or above `start` that looks like the top of a project. The home folder and the top of the file
/// system are never one: a stray `.git` there would load everything a person owns.
pub fn project_root(start: &Path) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    for folder in start.ancestors() {
        if folder.parent().is_none() || home.as_deref() == Some(folder) {
            return None;
        }
        let marked = [CONFIG_NAME, "pyproject.toml", "setup.py", ".git"].iter().any(|mark| folder.join(mark).exists());
        if marked {
            return Some(folder.to_owned());
        }
    }
    None
}

fn read(path: &Path) -> Result<String, String> {
    let shown = path.to_string_lossy();
    let bytes =
        crate::source::disk::read(path).map_err(|error| format!("cannot read the configuration `{shown}`: {error}"))?;
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").map_or(bytes.clone(), <[u8]>::to_vec);
    String::from_utf8(bytes).map_err(|_| format!("cannot read the configuration `{shown}`: it is not UTF-8"))
}
