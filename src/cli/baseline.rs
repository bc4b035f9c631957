//! Findings that are known and not reported again. In: a recorded file and today's findings. Out: the new ones; stale
//! entries are named. Never: a line number, so moving code does not bring a finding back. Next: `render/fingerprint.rs`
//! for the key.

use super::failure::Failure;
use crate::config::Config;
use crate::render::key;
use crate::source::walk::shown_path;
use crate::source::{Diagnostic, Files};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Path from the root of the project, code, text of the line.
type Key = (String, String, String);

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
    line_text: String,
    count: u64,
}

/// A baseline file.
pub(super) struct Baseline<'a> {
    path: PathBuf,
    shown: String,
    config: &'a Config,
    entries: BTreeMap<Key, u64>,
}

impl<'a> Baseline<'a> {
    /// Reads a baseline. It may be missing only when it is about to be written.
    pub fn open(path: &Path, config: &'a Config, will_write: bool) -> Result<Self, Failure> {
        let shown = path.to_string_lossy().into_owned();
        let path = config.cwd.join(path);
        let mut entries = BTreeMap::new();
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let document: Document = serde_json::from_str(&text)
                    .map_err(|error| Failure::message(format!("the baseline `{shown}` cannot be read: {error}")))?;
                for entry in document.findings {
                    *entries.entry((entry.path, entry.code, entry.line_text)).or_default() += entry.count;
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
            .filter(|finding| match left.get_mut(&self.key(finding, files)) {
                Some(count) if *count > 0 => {
                    *count -= 1;
                    false
                }
                _ => true,
            })
            .collect();
        let checked = self.checked(files);
        let stale: u64 = left.iter().filter(|(key, _)| checked.contains(&key.0)).map(|(_, count)| count).sum();
        if stale > 0 {
            let findings = if stale == 1 { "finding" } else { "findings" };
            tell(&format!(
                "note: {stale} {findings} of the baseline no longer occur: `--update-baseline` removes them"
            ));
        }
        let known = before - fresh.len();
        (fresh, known)
    }

    /// Writes today's findings; records of files that were not checked today stay. Returns how many it records.
    pub fn update(&self, findings: &[Diagnostic], files: &Files) -> Result<usize, Failure> {
        let checked = self.checked(files);
        let mut entries = self.entries.clone();
        entries.retain(|key, _| !checked.contains(&key.0) && self.config.root.join(&key.0).exists());
        for finding in findings {
            *entries.entry(self.key(finding, files)).or_default() += 1;
        }
        let total: u64 = entries.values().sum();
        let findings = entries
            .into_iter()
            .map(|((path, code, line_text), count)| Entry { path, code, line_text, count })
            .collect();
        let mut text = serde_json::to_string_pretty(&Document { version: 1, findings })
            .expect("a baseline is plain data and always serialises");
        text.push('\n');
        std::fs::write(&self.path, text)
            .map_err(|error| Failure::message(format!("cannot write the baseline `{}`: {error}", self.shown)))?;
        Ok(usize::try_from(total).unwrap_or(usize::MAX))
    }

    fn checked(&self, files: &Files) -> BTreeSet<String> {
        files.iter().filter(|(_, file)| file.reported).map(|(_, file)| self.path_from_root(&file.path)).collect()
    }

    fn key(&self, finding: &Diagnostic, files: &Files) -> Key {
        let (path, code, text) = key(finding, files);
        (self.path_from_root(&path), code, text)
    }

    /// The same record whichever folder the program runs in.
    fn path_from_root(&self, shown: &str) -> String {
        shown_path(&self.config.cwd.join(shown), &self.config.root)
    }
}
