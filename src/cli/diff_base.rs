//! `check --diff-base REV`: what a change introduces. In: today's findings and a revision. Out: those that the project did not have at the
//! revision. Never: a checkout; the old files are read from git into memory. Next: `render/fingerprint.rs` for what makes two findings one.

use super::failure::Failure;
use super::project::Project;
use crate::config::Config;
use crate::fix::findings;
use crate::render::key;
use crate::rules::RuleBook;
use crate::source::walk::{is_source, shown_path};
use crate::source::{Diagnostic, File, Files};
use crate::syntax::decode;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Path, code, function, line: see `fingerprint.rs`.
type Key = (String, String, String, String);

/// The findings that a project did not have at a revision, and how many it had.
pub(super) fn fresh(
    revision: &str,
    config: &Config,
    rules: &RuleBook,
    project: &Project,
    found: Vec<Diagnostic>,
) -> Result<(Vec<Diagnostic>, usize), Failure> {
    let repository = Repository::open(&config.root, revision)?;
    let renamed = repository.renamed()?;
    let old = repository.files(config, project)?;
    let mut known: BTreeMap<Key, u64> = BTreeMap::new();
    for finding in findings(config, rules, &old) {
        let (path, code, function, text) = key(&finding, &old);
        let path = renamed
            .get(&path_in(&repository.top, config, &path))
            .cloned()
            .map_or(path, |new| shown_path(&repository.top.join(new), &config.cwd));
        *known.entry((path, code, function, text)).or_default() += 1;
    }
    let before = found.len();
    let fresh: Vec<Diagnostic> = found
        .into_iter()
        .filter(|finding| match known.get_mut(&key(finding, &project.files)) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => true,
        })
        .collect();
    let known = before - fresh.len();
    Ok((fresh, known))
}

/// A shown path as git names it.
fn path_in(top: &Path, config: &Config, shown: &str) -> String {
    shown_path(&config.cwd.join(shown), top)
}

/// A repository at a revision.
struct Repository {
    top: PathBuf,
    revision: String,
}

impl Repository {
    fn open(folder: &Path, revision: &str) -> Result<Self, Failure> {
        let top = git(folder, &["rev-parse", "--show-toplevel"], &[]).map_err(|failed| match failed {
            Failed::NotStarted(why) => {
                Failure::message(format!("`--diff-base` needs git, which does not start: {why}"))
            }
            Failed::Refused(why) => Failure::message(format!("`--diff-base` needs a git repository: {why}")),
        })?;
        let top = PathBuf::from(String::from_utf8_lossy(&top).trim_end());
        let commit = format!("{revision}^{{commit}}");
        let found = git(&top, &["rev-parse", "--verify", "--quiet", "--end-of-options", &commit], &[]);
        let commit = found.map_err(|_| {
            let failure = Failure::message(format!("`{revision}` is no revision of `{}`", top.display()));
            failure.with_help("a shallow clone has only the last one: fetch it first".to_owned())
        })?;
        Ok(Repository { top, revision: String::from_utf8_lossy(&commit).trim_end().to_owned() })
    }

    /// Files that have another name today: old and new, from the top.
    fn renamed(&self) -> Result<BTreeMap<String, String>, Failure> {
        let arguments = ["diff", "--find-renames", "--diff-filter=R", "--name-status", "-z", &self.revision, "--"];
        let out = git(&self.top, &arguments, &[]).map_err(Failed::told)?;
        let words: Vec<String> = out.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned()).collect();
        Ok(words.chunks_exact(3).map(|row| (row[1].clone(), row[2].clone())).collect())
    }

    /// The project as it was. What git does not have, as a package beside the repository, is as it is.
    fn files(&self, config: &Config, project: &Project) -> Result<Files, Failure> {
        let listed = git(&self.top, &["ls-tree", "-r", "-z", "--name-only", "--full-tree", &self.revision], &[]);
        let listed = listed.map_err(Failed::told)?;
        let mut now: BTreeMap<PathBuf, &File> = BTreeMap::new();
        for (_, file) in project.files.iter() {
            now.insert(config.cwd.join(&file.path), file);
        }
        let names: Vec<String> = listed
            .split(|b| *b == 0)
            .filter_map(|name| String::from_utf8(name.to_vec()).ok())
            .filter(|name| !name.is_empty() && !name.contains('\n'))
            .filter(|name| {
                let path = self.top.join(name);
                let inside = project.folders.iter().any(|folder| path.starts_with(folder));
                now.contains_key(&path) || inside && is_source(&path, &config.include, &config.exclude, &config.root)
            })
            .collect();
        let mut then: BTreeMap<PathBuf, File> = BTreeMap::new();
        for (path, file) in &now {
            if !path.starts_with(&self.top) {
                let mut copy = File::sharing(file.path.clone(), file.text.clone());
                copy.reported = file.reported;
                then.insert(path.clone(), copy);
            }
        }
        for (name, bytes) in names.iter().zip(self.contents(&names)?) {
            let Some(bytes) = bytes else { continue };
            let path = self.top.join(name);
            let text = decode(&bytes);
            let mut file = File::new(shown_path(&path, &config.cwd), text.as_ref().cloned().unwrap_or_default());
            file.unreadable = text.err().map(|error| error.message);
            file.reported = now.get(&path).is_none_or(|file| file.reported);
            then.insert(path, file);
        }
        let mut files = Files::default();
        for file in then.into_values() {
            files.add(file);
        }
        Ok(files)
    }

    /// The bytes of files at the revision, in order.
    fn contents(&self, names: &[String]) -> Result<Vec<Option<Vec<u8>>>, Failure> {
        let asked: String = names.iter().map(|name| format!("{}:{name}\n", self.revision)).collect();
        let out = git(&self.top, &["cat-file", "--batch"], asked.as_bytes()).map_err(Failed::told)?;
        let mut rest = out.as_slice();
        let mut contents = Vec::with_capacity(names.len());
        for _ in names {
            let Some(end) = rest.iter().position(|b| *b == b'\n') else { break };
            let head = String::from_utf8_lossy(&rest[..end]).into_owned();
            rest = &rest[end + 1..];
            let size = head.rsplit(' ').next().and_then(|size| size.parse::<usize>().ok());
            match size.filter(|size| head.contains(" blob ") && *size < rest.len()) {
                Some(size) => {
                    contents.push(Some(rest[..size].to_vec()));
                    rest = &rest[size + 1..];
                }
                None => contents.push(None),
            }
        }
        contents.resize(names.len(), None);
        Ok(contents)
    }
}

/// Why git gave no answer.
enum Failed {
    NotStarted(String),
    Refused(String),
}

impl Failed {
    fn told(self) -> Failure {
        let (Failed::NotStarted(why) | Failed::Refused(why)) = self;
        Failure::message(format!("git fails: {why}"))
    }
}

/// What git prints.
fn git(folder: &Path, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, Failed> {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(arguments).env("LC_ALL", "C");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| Failed::NotStarted(error.to_string()))?;
    let stdin = child.stdin.take();
    // It answers while it is still being asked.
    let done = std::thread::scope(|scope| {
        scope.spawn(move || {
            if let Some(mut stdin) = stdin {
                // Whoever ends early says why by its exit code.
                let _ = stdin.write_all(input);
            }
        });
        child.wait_with_output()
    });
    let done = done.map_err(|error| Failed::NotStarted(error.to_string()))?;
    if done.status.success() {
        return Ok(done.stdout);
    }
    let words = String::from_utf8_lossy(&done.stderr).trim().trim_start_matches("fatal: ").to_owned();
    Err(Failed::Refused(if words.is_empty() { format!("exit {:?}", done.status.code()) } else { words }))
}
