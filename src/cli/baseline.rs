//! Findings that are known and not reported again. In: a recorded file and today's findings. Out: the new ones; stale
//! entries are named. Never: a line number, so moving code does not bring a finding back. Next: `render/fingerprint.rs`
//! for the key.

use super::failure::Failure;
use super::write;
use crate::config::Config;
use crate::render::key;
use crate::source::walk::shown_path;
use crate::source::{Diagnostic, Files};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Path from the root of the project, code, text of the line.
type Line = (String, String, String);

/// What one record counts: in a function, or wherever the line is, as the first version had it.
type Counts = BTreeMap<Option<String>, u64>;

/// Stale records that are named one by one.
const MOST_NAMED: usize = 10;

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    findings: Vec<Entry>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    path: String,
    code: String,
    /// The function around it, as `Class.method`; records of version 1 have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    line_text: String,
    count: u64,
}

/// A baseline file.
pub(super) struct Baseline<'a> {
    path: PathBuf,
    shown: String,
    config: &'a Config,
    entries: BTreeMap<Line, Counts>,
}

impl<'a> Baseline<'a> {
    /// Reads a baseline. It may be missing only when it is about to be written.
    pub fn open(path: &Path, config: &'a Config, will_write: bool) -> Result<Self, Failure> {
        let shown = path.to_string_lossy().into_owned();
        let path = config.cwd.join(path);
        let mut entries = BTreeMap::new();
        match crate::source::disk::read_to_string(&path) {
            Ok(text) => {
                let document: Document = serde_json::from_str(&text)
                    .map_err(|error| Failure::message(format!("the baseline `{shown}` cannot be read: {error}")))?;
                if document.version > 2 {
                    let text = format!("the baseline `{shown}` is of version {}, of a later release", document.version);
                    return Err(Failure::message(text));
                }
                for entry in document.findings {
                    let line: &mut Counts = entries.entry((entry.path, entry.code, entry.line_text)).or_default();
                    *line.entry(entry.function).or_default() += entry.count;
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound && will_write => {}
            Err(error) => {
                let failure = Failure::message(format!("the baseline `{shown}` cannot be read: {error}"));
                return Err(failure.with_help("`--update-baseline` writes it".to_owned()));
            }
        }
        Ok(Baseline { path, shown, config, entries })
    }

    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// The findings that are not recorded, and how many are. Tells how many records match nothing any more.
    pub fn filter(&self, findings: Vec<Diagnostic>, files: &Files, tell: impl Fn(&str)) -> (Vec<Diagnostic>, usize) {
        let mut left = self.entries.clone();
        let before = findings.len();
        let fresh: Vec<Diagnostic> = findings
            .into_iter()
            .filter(|finding| {
                let (line, function) = self.key(finding, files);
                let Some(counts) = left.get_mut(&line) else { return true };
                let own = if counts.get(&function).is_some_and(|n| *n > 0) { function } else { None };
                match counts.get_mut(&own) {
                    Some(count) if *count > 0 => {
                        *count -= 1;
                        false
                    }
                    _ => true,
                }
            })
            .collect();
        self.tell_stale(&left, &self.checked(files), tell);
        let known = before - fresh.len();
        (fresh, known)
    }

    /// Records of checked files that match nothing any more.
    fn tell_stale(&self, left: &BTreeMap<Line, Counts>, checked: &BTreeSet<String>, tell: impl Fn(&str)) {
        let gone = |path: &String| checked.contains(path) || !self.config.root.join(path).exists();
        let stale: Vec<(&Line, &Option<String>, u64)> = left
            .iter()
            .filter(|(line, _)| gone(&line.0))
            .flat_map(|(line, counts)| counts.iter().map(move |(function, count)| (line, function, *count)))
            .filter(|(_, _, count)| *count > 0)
            .collect();
        let total: u64 = stale.iter().map(|(_, _, count)| count).sum();
        if total == 0 {
            return;
        }
        let (findings, occur, them) =
            if total == 1 { ("finding", "occurs", "it") } else { ("findings", "occur", "them") };
        tell(&format!(
            "note: {total} {findings} of the baseline no longer {occur}: `--update-baseline` removes {them}"
        ));
        for ((path, code, text), function, count) in stale.iter().take(MOST_NAMED) {
            let place = function.as_ref().filter(|f| !f.is_empty()).map_or(String::new(), |f| format!(" in `{f}`"));
            let times = if *count == 1 { String::new() } else { format!(", {count} times") };
            tell(&format!("  {path}: {code}{place}: {text}{times}"));
        }
        if stale.len() > MOST_NAMED {
            tell(&format!("  and {} more", stale.len() - MOST_NAMED));
        }
    }

    /// Writes today's findings; records of files that were not checked today stay. Returns how many it records.
    pub fn update(&self, findings: &[Diagnostic], files: &Files) -> Result<usize, Failure> {
        let checked = self.checked(files);
        let mut entries = self.entries.clone();
        entries.retain(|key, _| !checked.contains(&key.0) && self.config.root.join(&key.0).exists());
        for finding in findings {
            let (line, function) = self.key(finding, files);
            *entries.entry(line).or_default().entry(function).or_default() += 1;
        }
        let mut findings = Vec::new();
        for ((path, code, line_text), counts) in entries {
            for (function, count) in counts {
                let (path, code, line_text) = (path.clone(), code.clone(), line_text.clone());
                findings.push(Entry { path, code, function, line_text, count });
            }
        }
        let total: u64 = findings.iter().map(|entry| entry.count).sum();
        let mut text = serde_json::to_string_pretty(&Document { version: 2, findings })
            .expect("a baseline is plain data and always serialises");
        text.push('\n');
        write::put(&self.path, &[text.as_bytes()])
            .map_err(|error| Failure::message(format!("cannot write the baseline `{}`: {error}", self.shown)))?;
        Ok(usize::try_from(total).unwrap_or(usize::MAX))
    }

    fn checked(&self, files: &Files) -> BTreeSet<String> {
        files.iter().filter(|(_, file)| file.reported).map(|(_, file)| self.path_from_root(&file.path)).collect()
    }

    fn key(&self, finding: &Diagnostic, files: &Files) -> (Line, Option<String>) {
        let (path, code, function, text) = key(finding, files);
        ((self.path_from_root(&path), code, text), Some(function))
    }

    /// The same record whichever folder the program runs in.
    fn path_from_root(&self, shown: &str) -> String {
        shown_path(&self.config.cwd.join(shown), &self.config.root)
    }
}
