//! `spmd-check init`. In: a folder. Out: a commented `spmd-check.toml` with what the tree shows. Never: overwriting a
//! file without being told to, or writing a guess as if it were a fact. Next: `config/schema.rs` for the keys.

use super::args::InitOptions;
use super::failure::Failure;
use super::project::current_folder;
use super::{Outcome, output, write};
use crate::config::CONFIG_NAME;
use crate::source::disk;
use crate::source::walk::{Globs, Request, absolute, load_set};
use crate::syntax::decode;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Words whose presence shows that a program splits its ranks that way, in the usual order of the axes.
const AXIS_WORDS: &[(&str, &str)] = &[
    ("pipeline_model_parallel", "pp"),
    ("data_parallel", "dp"),
    ("context_parallel", "cp"),
    ("expert_model_parallel", "ep"),
    ("tensor_model_parallel", "tp"),
];

pub(super) fn run(options: &InitOptions) -> Result<Outcome, Failure> {
    let cwd = current_folder()?;
    let folder = absolute(&options.folder, &cwd);
    let path = folder.join(CONFIG_NAME);
    let shown = options.folder.join(CONFIG_NAME);
    let shown = shown.strip_prefix(".").unwrap_or(&shown).to_string_lossy().into_owned();
    if !folder.is_dir() {
        return Err(Failure::message(format!("`{}` is not a folder", options.folder.to_string_lossy())));
    }
    if path.exists() && !options.force {
        let failure = Failure::message(format!("`{shown}` already exists"));
        return Err(failure.with_help("`--force` overwrites it".to_owned()));
    }
    let text = document(&Seen::look(&folder));
    write::put(&path, &[text.as_bytes()])
        .map_err(|error| Failure::message(format!("cannot write `{shown}`: {error}")))?;
    output::say(&format!("wrote `{shown}`"));
    Ok(Outcome::Clean)
}

/// What a tree shows.
struct Seen {
    axes: Vec<String>,
    /// Where the axes come from, for the comment.
    reason: String,
    roots: BTreeSet<String>,
}

impl Seen {
    fn look(folder: &Path) -> Self {
        let none = Globs::default();
        let request = Request {
            paths: &[folder.to_owned()],
            root: None,
            cwd: folder,
            include: &none,
            exclude: &none,
            glob_root: folder,
        };
        let sources = load_set(&request).files;
        let mut meshes: BTreeMap<Vec<String>, (usize, String)> = BTreeMap::new();
        let mut words: BTreeSet<&str> = BTreeSet::new();
        let mut packages: BTreeSet<PathBuf> = BTreeSet::new();
        for source in &sources {
            if source.path.ends_with("__init__.py") {
                packages.extend(source.path.parent().map(Path::to_owned));
            }
            let Some(text) = disk::read_source(&source.path).ok().and_then(|bytes| decode(&bytes).ok()) else {
                continue;
            };
            for mesh in mesh_names(&text) {
                meshes.entry(mesh).or_insert((0, source.shown.clone())).0 += 1;
            }
            words.extend(AXIS_WORDS.iter().map(|(word, _)| *word).filter(|word| text.contains(word)));
        }
        let (axes, reason) = choose(meshes, &words);
        Seen { axes, reason, roots: roots(&packages, folder) }
    }
}

/// The mesh named most often wins, then the longest: helpers name a part of it.
fn choose(meshes: BTreeMap<Vec<String>, (usize, String)>, words: &BTreeSet<&str>) -> (Vec<String>, String) {
    let best = meshes.into_iter().max_by_key(|(axes, (count, _))| (*count, axes.len()));
    if let Some((axes, (_, path))) = best {
        return (axes, format!("from `mesh_dim_names` in {path}"));
    }
    let known = AXIS_WORDS.iter().filter(|(word, _)| words.contains(word));
    let axes: Vec<String> = known.map(|(_, axis)| (*axis).to_owned()).collect();
    let reason = match axes.is_empty() {
        true => "none found".to_owned(),
        false => "guessed from names such as `tensor_model_parallel`".to_owned(),
    };
    (axes, reason)
}

/// The axis names in each `mesh_dim_names=("dp", "tp")`; a list with anything but literals is left alone.
fn mesh_names(text: &str) -> Vec<Vec<String>> {
    let mut out = Vec::new();
    for (at, word) in text.match_indices("mesh_dim_names") {
        let rest = text[at + word.len()..].trim_start();
        let Some(rest) = rest.strip_prefix('=') else { continue };
        let Some(rest) = rest.trim_start().strip_prefix(['(', '[']) else { continue };
        let Some(end) = rest.find([')', ']']) else { continue };
        let items = rest[..end].split(',').map(str::trim).filter(|item| !item.is_empty());
        let names: Option<Vec<String>> = items.map(literal).collect();
        out.extend(names.filter(|names| !names.is_empty()));
    }
    out
}

fn literal(item: &str) -> Option<String> {
    let quoted = |quote| item.strip_prefix(quote).and_then(|item| item.strip_suffix(quote));
    let name = quoted('"').or_else(|| quoted('\''))?;
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (plain && !name.starts_with(|c: char| c.is_ascii_digit())).then(|| name.to_owned())
}

/// Folders that hold top-level packages, relative to the root.
fn roots(packages: &BTreeSet<PathBuf>, folder: &Path) -> BTreeSet<String> {
    let tops = packages.iter().filter_map(|package| {
        let parent = package.parent()?;
        (!packages.contains(parent) && parent.starts_with(folder)).then_some(parent)
    });
    let shown = tops.map(|root| root.strip_prefix(folder).unwrap_or(root).to_string_lossy().into_owned());
    shown.map(|root| if root.is_empty() { ".".to_owned() } else { root }).take(8).collect()
}

fn document(seen: &Seen) -> String {
    let mut text = String::from(
        "# Configuration of spmd-check. Every key is optional; `spmd-check explain` lists the diagnostics.\n\n",
    );
    text.push_str("# Folders that imports start from.\n");
    let roots: Vec<String> = seen.roots.iter().map(|root| format!("{root:?}")).collect();
    let mark = if roots.is_empty() { "#" } else { "" };
    let _ = writeln!(text, "{mark}src = [{}]\n", if roots.is_empty() { "\".\"".to_owned() } else { roots.join(", ") });
    text.push_str("# Files not to check, as in a .gitignore.\n#exclude = [\"tests/\"]\n\n");
    text.push_str("# Version of PyTorch whose semantics hold.\n#target-torch = \"2.9\"\n\n");
    let _ = writeln!(text, "# Axes of the device mesh, outermost first, with their size or \"?\" ({}).", seen.reason);
    let mark = if seen.axes.is_empty() { "#" } else { "" };
    let _ = writeln!(text, "{mark}[mesh]");
    if seen.axes.is_empty() {
        text.push_str("#dp = \"?\"\n#tp = \"?\"\n");
    }
    for axis in &seen.axes {
        let _ = writeln!(text, "{axis} = \"?\"");
    }
    text.push_str("\n# What an expression for a process group stands for.\n#[groups]\n");
    text.push_str("#\"get_tensor_model_parallel_group()\" = \"tp\"\n");
    text.push_str("\n# Flags that always have the same value, or the values to check.\n#[flags]\n");
    text.push_str("#sequence_parallel = [true, false]\n");
    text.push_str("\n# Types of inputs and parameters that nothing else types.\n#[defaults]\n");
    text.push_str("#inputs = \"{dp: V}\"\n");
    text.push_str(
        "\n# Levels by code or name: error, warning, note, off.\n#[levels]\n#invariant-mixed = \"warning\"\n",
    );
    text
}
