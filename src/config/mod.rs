//! The validated configuration. In: the text of `spmd-check.toml`, or of the section in `pyproject.toml`. Out:
//! [`Config`], or every mistake at once as diagnostics that point into the file. Never: a partly valid configuration
//! that goes on silently. Next: `schema.rs` for the keys, `discover.rs` for which file is read, `reader.rs` for typed
//! access with spans.

mod discover;
mod reader;
mod schema;
pub mod suggest;

pub use discover::{CONFIG_NAME, ConfigSource, LoadError, load, parse, project_root};
pub use reader::{Checks, INVALID_CONFIG, UNKNOWN_CONFIG_KEY, resolve_codes};
pub use schema::{KEYS, KeyShape};

use crate::source::walk::Globs;
use crate::source::{Diagnostic, Files, Severity, Span};
use std::path::{Path, PathBuf};

/// Everything a run may be told by its configuration; command line options are merged into it by `cli/`.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Absolute folder of the configuration file (or of the project); globs and `src` are relative to it.
    pub root: PathBuf,
    /// Absolute folder the program runs in; shown paths are relative to it.
    pub cwd: PathBuf,
    /// The configuration file as shown to people; none when no file was found or asked for.
    pub path: Option<String>,
    pub include: Globs,
    pub exclude: Globs,
    /// Axes in the order of the mesh, outermost first.
    pub mesh: Vec<MeshAxis>,
    /// Expression text (`mpu.get_tensor_model_parallel_group()`) and the axes it denotes.
    pub groups: Vec<Group>,
    pub flags: Vec<Flag>,
    pub defaults: Vec<DefaultType>,
    pub mode: Mode,
    /// Rule files of the project, absolute.
    pub rules_extend: Vec<PathBuf>,
    pub levels: Vec<(&'static str, Level)>,
    pub per_file_ignores: Vec<PerFileIgnore>,
    pub target_torch: Option<TorchVersion>,
    /// Source roots, absolute; empty: found from the layout.
    pub src: Vec<PathBuf>,
    pub contracts: Contracts,
    /// Codes to report; empty: all.
    pub select: Vec<&'static str>,
    /// Codes left out, after `select`.
    pub ignore: Vec<&'static str>,
}

/// Everything wrong with a configuration file, and the file itself for the renderers.
#[derive(Debug)]
pub struct Diagnostics {
    pub files: Files,
    pub problems: Vec<Diagnostic>,
}

/// One axis of the mesh; the size is often known only at launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshAxis {
    pub name: String,
    pub size: Option<u64>,
    pub span: Span,
}

/// An expression that denotes a group of ranks, and the axes that group spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub expression: String,
    pub axes: Vec<String>,
    pub span: Span,
}

/// A flag of the checked program. One value fixes it; several are enumerated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    pub name: String,
    pub values: Vec<FlagValue>,
    pub span: Span,
}

/// A constant a flag may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlagValue {
    Bool(bool),
    Int(i64),
    Str(String),
}

/// The type of everything called `name` that nothing else types; `inputs` and `parameters` are the two classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultType {
    pub name: String,
    /// Text of the type, already accepted by the caller's grammar.
    pub text: String,
    pub span: Span,
}

/// Parallel modes that expand a single-device program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    pub names: Vec<String>,
    /// Whether shapes are global (one logical tensor) and not per rank.
    pub global: bool,
}

/// What is reported for a code, whatever the rule that found it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Report(Severity),
    Off,
}

/// Codes not reported in the files a glob matches.
#[derive(Clone, Debug)]
pub struct PerFileIgnore {
    pub files: Globs,
    pub codes: Vec<&'static str>,
}

/// The version of PyTorch whose semantics hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TorchVersion {
    pub major: u32,
    pub minor: u32,
}

/// Types expected at fixed places of a training step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contracts {
    /// The type of what `.backward()` is called on.
    pub loss: Option<(String, Span)>,
    /// The loss is a mean over the tokens of all ranks, not a mean of the means of ranks.
    pub mean_over_tokens: bool,
    /// Axes over which gradients are averaged by code that is not seen.
    pub gradient_mean: Option<Vec<String>>,
}

impl Config {
    /// The severity with which a finding is shown; none when it is switched off or not selected.
    /// `path` is the shown path of its file.
    pub fn severity(&self, code: &str, default: Severity, path: &str) -> Option<Severity> {
        let selected = self.select.is_empty() || self.select.contains(&code);
        if !selected || self.ignore.contains(&code) || self.ignored_in_file(code, path) {
            return None;
        }
        match self.levels.iter().rev().find(|(known, _)| *known == code) {
            Some((_, Level::Off)) => None,
            Some((_, Level::Report(severity))) => Some(*severity),
            None => Some(default),
        }
    }

    fn ignored_in_file(&self, code: &str, path: &str) -> bool {
        let rows = self.per_file_ignores.iter().filter(|row| row.codes.contains(&code));
        let absolute = self.cwd.join(path);
        rows.into_iter().any(|row| row.files.matches(self.relative(&absolute)))
    }

    /// A path as the globs see it: relative to the root when below it.
    pub fn relative<'p>(&self, path: &'p Path) -> &'p Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }
}
