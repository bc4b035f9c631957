//! The input of a run: configuration, threads, files in memory. In: options. Out: [`Project`]. Never: judging what the
//! files say. Next: `source/walk.rs` for which files, `config/discover.rs` for which configuration.

use super::args::{ConfigOptions, InputOptions, SharedOptions};
use super::engine;
use super::failure::Failure;
use super::output;
use crate::config::{self, Checks, Config, ConfigSource, LoadError};
use crate::render::{Color, Format};
use crate::source::disk;
use crate::source::walk::{LoadSet, Request, Skipped, Source, absolute, load_set, shown_path};
use crate::source::{File, Files};
use rayon::prelude::*;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Deep expressions recurse deeply: the parser and the engine run on these threads only.
const STACK_BYTES: usize = 64 << 20;

/// Everything read for a run.
pub(super) struct Project {
    pub files: Files,
    /// How many files are reported on.
    pub reported: usize,
    /// Whether a part of what was asked for could not be read; the user has been told.
    pub incomplete: bool,
    /// Whether a file came on standard input.
    pub from_stdin: bool,
    /// The folders below which everything is loaded.
    pub folders: Vec<PathBuf>,
}

/// What is to be read, before anything is.
pub(super) struct Input {
    cwd: PathBuf,
    paths: Vec<PathBuf>,
    /// The name given to standard input, when it is read.
    stdin: Option<PathBuf>,
}

pub(super) fn current_folder() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| Failure::message(format!("the current folder cannot be read: {error}")))
}

impl Input {
    pub fn new(options: &InputOptions) -> Result<Self, Failure> {
        let cwd = current_folder()?;
        let dash = options.paths.iter().any(|path| path == Path::new("-"));
        if dash && options.paths.len() > 1 {
            return Err(Failure::message("`-` reads standard input and goes with no other path".to_owned()));
        }
        let stdin = dash || (options.paths.is_empty() && options.stdin_filename.is_some());
        if options.stdin_filename.is_some() && !stdin {
            return Err(Failure::message("`--stdin-filename` needs `-` as the path".to_owned()));
        }
        let name = options.stdin_filename.clone().unwrap_or_else(|| PathBuf::from("<stdin>"));
        let paths = match (stdin, options.paths.is_empty()) {
            (true, _) => Vec::new(),
            (false, true) => vec![PathBuf::from(".")],
            (false, false) => options.paths.clone(),
        };
        Ok(Input { cwd, paths, stdin: stdin.then_some(name) })
    }

    /// One file, by name.
    pub fn of(cwd: &Path, file: &Path) -> Self {
        Input { cwd: cwd.to_owned(), paths: vec![file.to_owned()], stdin: None }
    }

    /// Where a configuration may stand.
    pub fn configurations(&self) -> Vec<PathBuf> {
        let names = [config::CONFIG_NAME, "pyproject.toml"];
        let start = self.start();
        start.ancestors().flat_map(|folder| names.iter().map(|name| folder.join(name))).collect()
    }

    /// The folder that holds everything given: where the search for a configuration starts.
    fn start(&self) -> PathBuf {
        let mut common: Option<PathBuf> = None;
        for given in self.paths.iter().chain(&self.stdin) {
            let path = absolute(given, &self.cwd);
            let folder = if path.is_dir() { path } else { path.parent().unwrap_or(&path).to_owned() };
            common = Some(match common {
                None => folder,
                Some(common) => {
                    common.components().zip(folder.components()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
                }
            });
        }
        common.unwrap_or_else(|| self.cwd.clone())
    }
}

/// Loads the configuration that holds for an input.
pub(super) fn configure(
    input: &Input,
    options: &ConfigOptions,
    format: Format,
    color: Color,
) -> Result<Config, Failure> {
    let source = match (&options.config, options.isolated) {
        (Some(path), _) => ConfigSource::File(path.clone()),
        (None, true) => ConfigSource::Isolated,
        (None, false) => ConfigSource::Discover,
    };
    let checks = Checks { codes: engine::CODES, type_text: &engine::type_text, mode: &engine::mode_name };
    let mut config = config::load(&source, &input.start(), &input.cwd, &checks).map_err(|error| match error {
        LoadError::Unreadable(text) => Failure::message(text),
        LoadError::Invalid(found) => Failure::Diagnostics { found, format, color },
    })?;
    for mode in &options.mode {
        if !config.mode.names.contains(mode) {
            config.mode.names.push(mode.clone());
        }
    }
    Ok(config)
}

/// The threads everything runs on.
pub(super) fn pool(options: &SharedOptions) -> Result<rayon::ThreadPool, Failure> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(options.jobs.unwrap_or(0))
        .stack_size(STACK_BYTES)
        .thread_name(|index| format!("spmd-check-{index}"))
        .build()
        .map_err(|error| Failure::message(format!("cannot start threads: {error}")))
}

/// The files that a run reads.
pub(super) fn paths(input: &Input, config: &Config) -> Vec<PathBuf> {
    walked(input, config).files.into_iter().map(|source| source.path).collect()
}

/// What the paths given lead to.
fn walked(input: &Input, config: &Config) -> LoadSet {
    let root = config::project_root(&input.start());
    load_set(&Request {
        paths: &input.paths,
        root: root.as_deref(),
        cwd: &input.cwd,
        include: &config.include,
        exclude: &config.exclude,
        glob_root: &config.root,
    })
}

/// Finds, reads and decodes the files. To be called inside the pool.
pub(super) fn read(input: &Input, config: &Config, options: &SharedOptions) -> Result<Project, Failure> {
    let LoadSet { files: mut sources, mut skipped } = walked(input, config);
    let stdin = match &input.stdin {
        Some(name) => Some(read_stdin(name, &input.cwd, &mut sources)?),
        None => None,
    };
    // Outside: the file cannot be read; inside: its bytes are no text, which is a finding.
    let texts: Vec<Result<Result<String, String>, String>> = sources
        .par_iter()
        .map(|source| match &stdin {
            Some((path, text)) if *path == source.path => Ok(Ok(text.clone())),
            _ => disk::read_source(&source.path).map_err(|error| error.to_string()).map(decode),
        })
        .collect();
    let mut files = Files::default();
    let mut reported = 0;
    for (source, text) in sources.into_iter().zip(texts) {
        match text {
            Ok(text) => {
                reported += usize::from(source.reported);
                let unreadable = text.as_ref().err().cloned();
                let mut file = File::new(source.shown, text.unwrap_or_default());
                file.unreadable = unreadable;
                file.reported = source.reported;
                files.add(file);
            }
            Err(why) => {
                // A file that is only loaded for its definitions may be broken without this run failing.
                let message = format!("cannot read `{}`: {why}", source.shown);
                skipped.push(Skipped { message, fatal: source.reported });
            }
        }
    }
    let incomplete = tell(&skipped, options);
    if options.verbose {
        let path = config.path.as_deref().unwrap_or("none");
        output::say(&format!("configuration: {path}"));
        output::say(&format!("loaded {}, {reported} of them reported", output::plural(files.len(), "file")));
    }
    let given = input.paths.iter().map(|path| absolute(path, &input.cwd)).filter(|path| path.is_dir());
    let folders = given.chain(config::project_root(&input.start())).collect();
    Ok(Project { files, reported, incomplete, from_stdin: stdin.is_some(), folders })
}

fn decode(bytes: Vec<u8>) -> Result<String, String> {
    crate::syntax::decode_owned(bytes).map_err(|error| error.message)
}

fn tell(skipped: &[Skipped], options: &SharedOptions) -> bool {
    for path in skipped {
        if path.fatal {
            output::say(&format!("error: {}", path.message));
        } else if options.verbose || !options.quiet {
            output::say(&format!("note: {}", path.message));
        }
    }
    skipped.iter().any(|path| path.fatal)
}

/// Standard input takes the place of the file whose name it was given.
fn read_stdin(name: &Path, cwd: &Path, sources: &mut Vec<Source>) -> Result<(PathBuf, String), Failure> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut bytes).map_err(|error| error.to_string());
    let text = read.and_then(|_| decode(bytes));
    let text = text.map_err(|why| Failure::message(format!("cannot read standard input: {why}")))?;
    let path = absolute(name, cwd);
    match sources.iter_mut().find(|source| source.path == path) {
        Some(source) => source.reported = true,
        None => {
            let at = sources.partition_point(|source| source.path < path);
            let shown = shown_path(&path, cwd);
            sources.insert(at, Source { path: path.clone(), shown, reported: true });
        }
    }
    Ok((path, text))
}
