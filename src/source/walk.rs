//! From paths to the files of a run. In: the paths given, the root of the project, include and exclude globs. Out:
//! files sorted by path, each with whether it is reported, and what could not be taken. Never: reading a file's text.
//! Next: `decode.rs` for bytes to text.

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// Folders that hold no source of the project. A path given by name is taken even inside them.
const JUNK: &[&str] = &[
    "__pycache__",
    "__pypackages__",
    "_build",
    "build",
    "buck-out",
    "dist",
    "env",
    "node_modules",
    "site-packages",
    "venv",
];

/// Patterns with the meaning they have in a `.gitignore`: `tests/` anywhere, `/tests/` at the root, `*.py`, `a/**/b`.
#[derive(Clone, Debug)]
pub struct Globs {
    matcher: Gitignore,
    patterns: Vec<String>,
}

impl Default for Globs {
    fn default() -> Self {
        Globs { matcher: Gitignore::empty(), patterns: Vec::new() }
    }
}

impl Globs {
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut builder = GitignoreBuilder::new("");
        let mut kept = Vec::new();
        for pattern in patterns {
            builder.add_line(None, pattern).map_err(|error| error.to_string())?;
            kept.push(pattern.to_owned());
        }
        Ok(Globs { matcher: builder.build().map_err(|error| error.to_string())?, patterns: kept })
    }
    pub fn is_empty(&self) -> bool {
        self.matcher.is_empty()
    }
    /// The patterns as they were written.
    pub fn written(&self) -> &[String] {
        &self.patterns
    }
    /// Whether a file, or a folder above it, is matched. The path is relative to the root.
    pub fn matches(&self, path: &Path) -> bool {
        let path: PathBuf = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        self.matcher.matched_path_or_any_parents(path, false).is_ignore()
    }
    fn matches_folder(&self, path: &Path) -> bool {
        self.matcher.matched_path_or_any_parents(path, true).is_ignore()
    }
}

/// What to look for.
#[derive(Debug)]
pub struct Request<'a> {
    /// The paths given; they select what is reported.
    pub paths: &'a [PathBuf],
    /// The top of the project, absolute; everything below it is loaded.
    pub root: Option<&'a Path>,
    /// Where relative paths start, absolute, and what shown paths are relative to.
    pub cwd: &'a Path,
    pub include: &'a Globs,
    pub exclude: &'a Globs,
    /// What the globs are relative to, absolute.
    pub glob_root: &'a Path,
}

/// A file to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Absolute, without `.` and `..`.
    pub path: PathBuf,
    /// As shown to people.
    pub shown: String,
    pub reported: bool,
}

/// A path that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub message: String,
    /// Whether the run fails for it: a given path that is missing does, a FIFO met on the way does not.
    pub fatal: bool,
}

/// The files of a run.
#[derive(Debug, Default)]
pub struct LoadSet {
    /// Sorted by path, each once.
    pub files: Vec<Source>,
    pub skipped: Vec<Skipped>,
}

/// The files to load: those given, which are reported, and the rest of the project, which is not.
pub fn load_set(request: &Request) -> LoadSet {
    let mut files: BTreeMap<PathBuf, bool> = BTreeMap::new();
    let mut skipped = Vec::new();
    for given in request.paths {
        let path = absolute(given, request.cwd);
        let shown = given.to_string_lossy();
        // Follows links: a link given by name is meant.
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                skipped.push(Skipped { message: format!("`{shown}` does not exist"), fatal: true });
            }
            Err(error) => {
                skipped.push(Skipped { message: format!("cannot read `{shown}`: {error}"), fatal: true });
            }
            Ok(data) if data.is_dir() => {
                walk(&path, request, &mut skipped, &mut |file| {
                    files.insert(file, true);
                });
            }
            Ok(data) if data.is_file() => {
                // Hooks name files one by one, and the result has to be that of a whole run.
                if request.exclude.matches(relative(&path, request.glob_root)) {
                    let message = format!("`{shown}` is excluded by the configuration");
                    skipped.push(Skipped { message, fatal: false });
                } else if path.extension().is_some_and(|extension| extension == "ipynb") {
                    let message = format!(
                        "`{shown}` is a notebook, and notebooks are not read: check the script it is exported to"
                    );
                    skipped.push(Skipped { message, fatal: true });
                } else {
                    files.insert(path, true);
                }
            }
            Ok(_) => {
                skipped.push(Skipped { message: format!("`{shown}` is not a regular file: skipped"), fatal: true });
            }
        }
    }
    if let Some(root) = request.root {
        let covered = request.paths.iter().any(|path| root.starts_with(absolute(path, request.cwd)));
        if !covered {
            // What is wrong outside the given paths is not this run's business.
            walk(root, request, &mut Vec::new(), &mut |file| {
                files.entry(file).or_insert(false);
            });
        }
    }
    let shown = |path: &Path| shown_path(path, request.cwd);
    let files = files.into_iter().map(|(path, reported)| Source { shown: shown(&path), path, reported }).collect();
    LoadSet { files, skipped }
}

/// Whether a walk takes a file of this absolute path, as far as its name says.
pub fn is_source(path: &Path, include: &Globs, exclude: &Globs, glob_root: &Path) -> bool {
    let inside = relative(path, glob_root);
    let named = match include.is_empty() {
        true => path.extension().is_some_and(|extension| extension == "py"),
        false => include.matches(inside),
    };
    let left_out = |part: Component| {
        let name = part.as_os_str().to_string_lossy();
        JUNK.contains(&name.as_ref()) || name.starts_with('.')
    };
    if is_template(&inside.to_string_lossy()) {
        return false;
    }
    let folders = inside.parent().into_iter().flat_map(Path::components);
    named && !exclude.matches(inside) && !folders.filter(|p| matches!(p, Component::Normal(_))).any(left_out)
}

/// Whether a name is one that a template engine fills in: what stands there becomes Python later.
fn is_template(name: &str) -> bool {
    name.contains("{{") || name.contains("{%")
}

/// The Python files below a folder. Links are not followed, so a loop of links ends here.
fn walk(folder: &Path, request: &Request, skipped: &mut Vec<Skipped>, take: &mut dyn FnMut(PathBuf)) {
    let glob_root = request.glob_root.to_owned();
    let exclude = request.exclude.clone();
    let entries = ignore::WalkBuilder::new(folder)
        .require_git(false)
        // What a user ignores in all repositories is no part of the project: a colleague or the CI would see other findings.
        .git_global(false)
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .filter_entry(move |entry| {
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            if entry.depth() == 0 {
                return true;
            }
            let name = entry.file_name().to_string_lossy();
            if is_template(&name) {
                return false;
            }
            if !is_folder {
                return true;
            }
            !JUNK.contains(&name.as_ref()) && !exclude.matches_folder(relative(entry.path(), &glob_root))
        })
        .build();
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                skipped.push(Skipped { message: format!("cannot read a folder: {error}"), fatal: true });
                continue;
            }
        };
        let path = entry.path();
        let inside = relative(path, request.glob_root);
        let named = match request.include.is_empty() {
            true => path.extension().is_some_and(|extension| extension == "py"),
            false => request.include.matches(inside),
        };
        let Some(kind) = entry.file_type() else { continue };
        if !named || kind.is_dir() || kind.is_symlink() || request.exclude.matches(inside) {
            continue;
        }
        if kind.is_file() {
            take(path.to_owned());
        } else {
            let shown = shown_path(path, request.cwd);
            skipped.push(Skipped { message: format!("`{shown}` is not a regular file: skipped"), fatal: false });
        }
    }
}

/// A path as shown: relative to where the program runs when below it, lossily when its name is not UTF-8.
pub fn shown_path(path: &Path, cwd: &Path) -> String {
    let shown = relative(path, cwd).to_string_lossy();
    if std::path::MAIN_SEPARATOR == '\\' { shown.replace('\\', "/") } else { shown.into_owned() }
}

/// An absolute path without `.` and `..`; links are left alone.
pub fn absolute(path: &Path, cwd: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in cwd.join(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => out.push(part),
        }
    }
    out
}

fn relative<'p>(path: &'p Path, root: &Path) -> &'p Path {
    path.strip_prefix(root).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_read_like_gitignore_lines() {
        let globs = Globs::new(["tests/", "/setup.py", "gen_*.py"]).expect("the patterns are globs");
        assert!(globs.matches(Path::new("a/tests/b/c.py")));
        assert!(globs.matches(Path::new("setup.py")));
        assert!(!globs.matches(Path::new("a/setup.py")));
        assert!(globs.matches(Path::new("/elsewhere/gen_x.py")));
        assert!(Globs::new(["{a"]).is_err());
    }

    #[test]
    fn templates_are_no_sources() {
        let none = Globs::new([]).expect("no pattern is wrong");
        let is = |path: &str| is_source(Path::new(path), &none, &none, Path::new("/a"));
        assert!(is("/a/model/train.py"));
        assert!(!is("/a/templates/{{cookiecutter.name}}/train.py"));
        assert!(!is("/a/templates/{{ name }}.py"));
    }

    #[test]
    fn paths_lose_their_dots() {
        assert_eq!(absolute(Path::new("./b/../c.py"), Path::new("/a")), PathBuf::from("/a/c.py"));
    }
}
