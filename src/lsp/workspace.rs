//! One folder of the client: a project with its configuration, its files and the texts that are open in the editor. In: a folder, open texts,
//! edits. Out: findings by file, as `spmd-check check` run in that folder has them. Never: messages. Next: `check/session.rs`.

use super::text::{Encoding, Text};
use super::types::FileTypes;
use super::uri;
use crate::check::session::Session;
use crate::cli::engine;
use crate::config::{self, Checks, Config, ConfigSource, LoadError};
use crate::source::disk;
use crate::source::walk::{Request, Source, absolute, is_source, load_set, shown_path};
use crate::source::{Diagnostic, File, FileId, Files, Place};
use lsp_types::{Location, Range};
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What the user sets in the editor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub config: Option<PathBuf>,
    pub hints: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { config: None, hints: true }
    }
}

/// How much of a folder is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Whole,
    /// The files in it and not those in folders below: nobody says that it is a project, and below it may lie all that a person owns.
    Flat,
}

impl Extent {
    fn covers(self, root: &Path, path: &Path) -> bool {
        match self {
            Extent::Whole => path.starts_with(root),
            Extent::Flat => path.parent() == Some(root),
        }
    }
}

pub fn is_python(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "py")
}

/// What is loaded for a file that lies in no folder of the client: the project around it, else the folder that it lies in.
pub fn around(path: &Path) -> Option<(PathBuf, Extent)> {
    let project = config::project_root(path).map(|root| (root, Extent::Whole));
    project.or_else(|| Some((path.parent()?.to_owned(), Extent::Flat)))
}

/// A folder that is checked.
pub struct Workspace {
    pub root: PathBuf,
    extent: Extent,
    pub session: Session,
    paths: Vec<PathBuf>,
    by_path: FxHashMap<PathBuf, FileId>,
    /// The findings of the last check, levels applied.
    pub found: Vec<Diagnostic>,
    /// Whether texts changed since.
    pub dirty: bool,
    types: FxHashMap<FileId, Arc<FileTypes>>,
}

/// Mistakes in the configuration: a file and what is wrong with it, or words alone.
pub enum Unusable {
    Diagnostics(config::Diagnostics),
    Words(String),
}

impl Workspace {
    /// Reads a folder. Open texts take the place of files, and join them.
    ///
    /// # Errors
    /// The configuration or the rules that it adds cannot be used.
    pub fn load(
        (root, extent): (&Path, Extent),
        options: &Options,
        open: &BTreeMap<PathBuf, String>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Workspace, Unusable> {
        let checks = Checks { codes: engine::CODES, type_text: &engine::type_text, mode: &engine::mode_name };
        let source = match &options.config {
            Some(path) => ConfigSource::File(absolute(path, root)),
            None => ConfigSource::Discover,
        };
        let config = config::load(&source, root, root, &checks).map_err(|error| match error {
            LoadError::Unreadable(words) => Unusable::Words(words),
            LoadError::Invalid(found) => Unusable::Diagnostics(found),
        })?;
        let rules = engine::rule_book(&config).map_err(Unusable::Diagnostics)?;
        let sources = sources(root, extent, &config, open);
        let texts: Vec<Option<Result<String, String>>> = sources
            .par_iter()
            .map(|source| match open.get(&source.path) {
                Some(text) => Some(Ok(text.clone())),
                None => {
                    let bytes = disk::read_source(&source.path).ok()?;
                    Some(crate::syntax::decode(&bytes).map_err(|error| error.message))
                }
            })
            .collect();
        let (mut files, mut paths, mut by_path) = (Files::default(), Vec::new(), FxHashMap::default());
        for (source, text) in sources.into_iter().zip(texts) {
            let Some(text) = text else { continue };
            let unreadable = text.as_ref().err().cloned();
            let mut file = File::new(source.shown, text.unwrap_or_default());
            (file.unreadable, file.reported) = (unreadable, source.reported);
            let id = files.add(file);
            by_path.insert(source.path.clone(), id);
            paths.push(source.path);
        }
        let session = Session::new(config, Arc::new(rules), files, stop.clone());
        let (root, found, types) = (root.to_owned(), Vec::new(), FxHashMap::default());
        Ok(Workspace { root, extent, session, paths, by_path, found, dirty: true, types })
    }

    pub fn file(&self, path: &Path) -> Option<FileId> {
        self.by_path.get(path).copied()
    }

    pub fn path(&self, file: FileId) -> Option<&Path> {
        self.paths.get(file.0 as usize).map(PathBuf::as_path)
    }

    /// Whether a file that is not there yet belongs here.
    pub fn takes(&self, path: &Path) -> bool {
        let config = self.session.config();
        self.extent.covers(&self.root, path) && !config.exclude.matches(config.relative(path))
    }

    /// What it has to be loaded from again.
    pub fn loaded_from(&self) -> (PathBuf, Extent) {
        (self.root.clone(), self.extent)
    }

    pub fn edit(&mut self, file: FileId, text: String) {
        self.session.edit(file, text);
        self.dirty = true;
        self.types.clear();
    }

    /// A first look at files that are edited; whether there is one.
    pub fn glance(&mut self, files: &[FileId]) -> bool {
        let Some(found) = self.session.glance(files) else { return false };
        self.keep(found);
        true
    }

    /// Checks; whether that came to an end.
    pub fn check(&mut self) -> bool {
        let Some(found) = self.session.check() else { return false };
        self.keep(found);
        self.dirty = false;
        true
    }

    fn keep(&mut self, found: Vec<Diagnostic>) {
        let (config, files) = (self.session.config(), self.session.files());
        self.found = found
            .into_iter()
            .filter_map(|found| {
                let severity = config.severity(found.code, found.severity, &files[found.place.file].path)?;
                Some(Diagnostic { severity, ..found })
            })
            .collect();
    }

    /// The types in a file; nothing if that was stopped.
    pub fn types(&mut self, file: FileId) -> Option<Arc<FileTypes>> {
        if let Some(known) = self.types.get(&file) {
            return Some(known.clone());
        }
        let found = self.session.types(file)?;
        let types = Arc::new(FileTypes::new(&self.session, file, found));
        self.types.insert(file, types.clone());
        Some(types)
    }

    pub fn has_types(&self, file: FileId) -> bool {
        self.types.contains_key(&file)
    }

    /// A place as the client names it.
    pub fn location(&self, place: Place, encoding: Encoding) -> Option<Location> {
        let uri = uri::of(self.path(place.file)?)?;
        Some(Location { uri, range: self.range(place, encoding) })
    }

    pub fn range(&self, place: Place, encoding: Encoding) -> Range {
        let text = Text::new(self.session.text(place.file), encoding);
        text.range(&self.session.files()[place.file], place.span)
    }
}

/// The files of a folder and what is open in it, sorted by path.
fn sources(root: &Path, extent: Extent, config: &Config, open: &BTreeMap<PathBuf, String>) -> Vec<Source> {
    let paths = match extent {
        Extent::Whole => vec![PathBuf::from(".")],
        Extent::Flat => own_files(root, config),
    };
    let mut found = load_set(&Request {
        paths: &paths,
        root: config::project_root(root).as_deref(),
        cwd: root,
        include: &config.include,
        exclude: &config.exclude,
        glob_root: &config.root,
    })
    .files;
    for path in open.keys() {
        let known = found.binary_search_by(|source| source.path.cmp(path));
        if let Err(at) = known
            && is_python(path)
            && extent.covers(root, path)
            && !config.exclude.matches(config.relative(path))
        {
            found.insert(at, Source { path: path.clone(), shown: shown_path(path, root), reported: true });
        }
    }
    found
}

/// The sources that lie in a folder itself.
fn own_files(root: &Path, config: &Config) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())).map(|entry| entry.path());
    files.filter(|path| is_source(path, &config.include, &config.exclude, &config.root)).collect()
}
