//! Findings of earlier runs, by what they were found in. In: the folder of `--cache-dir`, and everything that a check depends on. Out: the
//! findings, from the folder or from a check. Never: an answer that a check would not give: an entry is named by the digest of all that
//! the check reads, and one that is damaged or not ours is passed by. Next: `check.rs`.

use super::engine::{self, CODES};
use super::write::put;
use crate::config::Config;
use crate::source::{Applicability, Diagnostic, Edit, FileId, Files, Fix, Label, Place, Severity, Span, disk};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The layout of an entry; another one is not read.
const LAYOUT: u32 = 1;
/// Entries that are kept; the oldest ones go.
const MAX_ENTRIES: usize = 64;
const EXTENSION: &str = "findings";

/// A folder with findings, and the name that those of this run have in it.
pub(super) struct Cache {
    folder: PathBuf,
    key: String,
}

impl Cache {
    /// The entry for a check of these files; `None` where something that belongs to its name cannot be read.
    pub fn open(folder: &Path, config: &Config, files: &Files) -> Option<Cache> {
        let mut hasher = blake3::Hasher::new();
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        part(&LAYOUT.to_le_bytes());
        part(program()?.as_bytes());
        part(format!("{config:?}").as_bytes());
        for path in &config.rules_extend {
            part(&disk::read(path).ok()?);
        }
        for (_, file) in files.iter() {
            part(file.path.as_bytes());
            part(&[u8::from(file.reported)]);
            part(file.unreadable.as_deref().unwrap_or_default().as_bytes());
            part(file.text.as_bytes());
        }
        Some(Cache { folder: config.cwd.join(folder), key: hasher.finalize().to_hex().to_string() })
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.{EXTENSION}", self.key))
    }

    /// The findings of an earlier run that read the same.
    pub fn read(&self, files: &Files) -> Option<Vec<Diagnostic>> {
        let text = disk::read_to_string(&self.path()).ok()?;
        let (head, body) = text.split_once('\n')?;
        if head != self.head(body) {
            return None;
        }
        let stored: Vec<Stored> = serde_json::from_str(body).ok()?;
        stored.into_iter().map(|s| s.diagnostic(files)).collect()
    }

    /// Keeps findings for later runs. A reader sees the whole entry or none, however many runs write it at once.
    pub fn write(&self, findings: &[Diagnostic]) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        self.mark("CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n")?;
        self.mark(".gitignore", "*\n")?;
        let body = serde_json::to_string(&findings.iter().map(Stored::new).collect::<Vec<_>>())?;
        let head = self.head(&body) + "\n";
        put(&self.path(), &[head.as_bytes(), body.as_bytes()])?;
        self.shrink()
    }

    /// The first line of an entry: whose it is, and the digest of the rest.
    fn head(&self, body: &str) -> String {
        format!("spmd-check {} {}", self.key, blake3::hash(body.as_bytes()).to_hex())
    }

    /// A small file that tells other programs what the folder is.
    fn mark(&self, name: &str, text: &str) -> io::Result<()> {
        match fs::OpenOptions::new().write(true).create_new(true).open(self.folder.join(name)) {
            Ok(mut file) => file.write_all(text.as_bytes()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes the oldest entries above the cap.
    fn shrink(&self) -> io::Result<()> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.folder)?.flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|e| e == EXTENSION)
                && let Ok(modified) = entry.metadata().and_then(|m| m.modified())
            {
                entries.push((modified, path));
            }
        }
        entries.sort();
        let extra = entries.len().saturating_sub(MAX_ENTRIES);
        for (_, path) in entries.drain(..extra) {
            // Another run may have been faster.
            let _ = fs::remove_file(path);
        }
        Ok(())
    }
}

/// This program: a release, and the file that it runs from, since two builds of one release differ.
fn program() -> Option<String> {
    let metadata = fs::metadata(std::env::current_exe().ok()?).ok()?;
    let built = metadata.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(format!("{} {} {}", env!("CARGO_PKG_VERSION"), metadata.len(), built.as_nanos()))
}

/// A place: the number of the file in the run, and the bytes.
type At = (u32, u32, u32);

/// A finding as an entry holds it.
#[derive(Serialize, Deserialize)]
struct Stored {
    code: String,
    severity: String,
    message: String,
    place: At,
    primary: String,
    labels: Vec<(At, String)>,
    notes: Vec<String>,
    help: Vec<String>,
    when: Vec<String>,
    fix: Option<StoredFix>,
}

#[derive(Serialize, Deserialize)]
struct StoredFix {
    safe: bool,
    edits: Vec<(At, String)>,
    variants: Vec<Vec<(At, String)>>,
    rivals: Vec<Vec<(At, String)>>,
}

fn at(place: Place) -> At {
    (place.file.0, place.span.start, place.span.end)
}

/// The place in these files, if there is one.
fn place((file, start, end): At, files: &Files) -> Option<Place> {
    let id = FileId(file);
    let text = &files.iter().nth(file as usize).filter(|(known, _)| *known == id)?.1.text;
    text.get(start as usize..end as usize)?;
    Some(Place { file: id, span: Span { start, end } })
}

fn stored_edits(edits: &[Edit]) -> Vec<(At, String)> {
    edits.iter().map(|edit| (at(edit.place), edit.text.clone())).collect()
}

fn edits(stored: Vec<(At, String)>, files: &Files) -> Option<Vec<Edit>> {
    stored.into_iter().map(|(at, text)| Some(Edit { place: place(at, files)?, text })).collect()
}

impl Stored {
    fn new(found: &Diagnostic) -> Stored {
        Stored {
            code: found.code.to_owned(),
            severity: found.severity.as_str().to_owned(),
            message: found.message.clone(),
            place: at(found.place),
            primary: found.primary.clone(),
            labels: found.labels.iter().map(|label| (at(label.place), label.message.clone())).collect(),
            notes: found.notes.clone(),
            help: found.help.clone(),
            when: found.when.clone(),
            fix: found.fix.as_ref().map(|fix| StoredFix {
                safe: fix.applicability == Applicability::Safe,
                edits: stored_edits(&fix.edits),
                variants: fix.variants.iter().map(|v| stored_edits(v)).collect(),
                rivals: fix.rivals.iter().map(|v| stored_edits(v)).collect(),
            }),
        }
    }

    fn diagnostic(self, files: &Files) -> Option<Diagnostic> {
        let (code, name) = *CODES.iter().find(|(code, _)| *code == self.code)?;
        let severities = [Severity::Error, Severity::Warning, Severity::Note];
        let severity = severities.into_iter().find(|s| s.as_str() == self.severity)?;
        let label = |(at, message)| Some(Label { place: place(at, files)?, message });
        let fix = match self.fix {
            Some(fix) => Some(Fix {
                applicability: if fix.safe { Applicability::Safe } else { Applicability::Unsafe },
                edits: edits(fix.edits, files)?,
                variants: fix.variants.into_iter().map(|v| edits(v, files)).collect::<Option<_>>()?,
                rivals: fix.rivals.into_iter().map(|v| edits(v, files)).collect::<Option<_>>()?,
            }),
            None => None,
        };
        Some(Diagnostic {
            code,
            name,
            severity,
            message: self.message,
            place: place(self.place, files)?,
            primary: self.primary,
            labels: self.labels.into_iter().map(label).collect::<Option<_>>()?,
            notes: self.notes,
            help: self.help,
            when: self.when,
            fix,
        })
    }
}

/// The findings of a check, from the folder if it was given and has them.
///
/// An entry that cannot be written costs the next run its time, and this one nothing: `tell` hears of it.
pub(super) fn findings(
    folder: Option<&Path>,
    config: &Config,
    files: &Files,
    check: impl FnOnce() -> engine::Report,
    tell: impl Fn(&str),
) -> engine::Report {
    let Some(cache) = folder.and_then(|folder| Cache::open(folder, config, files)) else { return check() };
    if let Some(diagnostics) = cache.read(files) {
        tell("findings are those of the cache");
        return engine::Report { diagnostics, ..engine::Report::default() };
    }
    let report = check();
    // What the checker itself failed on is worth another try.
    let failed = report.diagnostics.iter().any(|found| found.name == "internal-error");
    if !failed && let Err(error) = cache.write(&report.diagnostics) {
        tell(&format!("the cache cannot be written: {error}"));
    }
    report
}
