//! Files are replaced in one step. In: commands that write, on a disk without room, in a tree that may not be written, interrupted or killed
//! at some moment. Out: every file is the old one or the new one, and nothing lies beside it unless the program was killed. Never: a test
//! that depends on when exactly the program is stopped. Next: `src/cli/write.rs`.

use super::support::{Session, repository};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const FILES: usize = 8;
const ROUNDS: u64 = 12;

/// Commands that write, each with the exit code of a run that works.
const WRITERS: [(&[&str], i32); 5] = [
    (&["check", "--fix"], 0),
    (&["check", "--add-ignore", "known"], 0),
    (&["check", "--annotate"], 1),
    (&["check", "--update-baseline", "--baseline", "baseline.json"], 0),
    (&["init", "--force"], 0),
];

type Tree = BTreeMap<PathBuf, Vec<u8>>;

/// Every file of a folder.
fn tree(folder: &Path) -> Tree {
    let mut out = Tree::new();
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        match path.is_dir() {
            true => out.extend(tree(&path)),
            // A file that is just being replaced may be gone.
            false => out.extend(std::fs::read(&path).ok().map(|bytes| (path.clone(), bytes))),
        }
    }
    out
}

/// Files in which something is found, a baseline and a configuration, so that each command has something to replace.
fn fill(folder: &Path) {
    let text = repository("corpus/bugs/mlm-reduce-noncontiguous/buggy.py");
    for at in 0..FILES {
        std::fs::write(folder.join(format!("module{at}.py")), &text).expect("files can be written");
    }
    let plain = "\
from megatron.core.tensor_parallel.mappings import copy_to_tensor_model_parallel_region


def copied(x):
    return copy_to_tensor_model_parallel_region(x)
";
    std::fs::write(folder.join("plain.py"), plain).expect("files can be written");
    std::fs::write(folder.join("baseline.json"), "{\"version\": 2, \"findings\": []}\n").expect("files can be written");
    std::fs::write(folder.join("spmd-check.toml"), "# mine\n").expect("files can be written");
}

fn program(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spmd-check"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// What a command makes of the files, when nothing goes wrong.
fn written(arguments: &[&str], code: i32) -> (Tree, Tree) {
    let session = Session::new();
    fill(&session.folder);
    let relative = |tree: Tree| -> Tree {
        let own = |path: PathBuf| path.strip_prefix(&session.folder).map(Path::to_owned).unwrap_or(path);
        tree.into_iter().map(|(path, bytes)| (own(path), bytes)).collect()
    };
    let before = relative(tree(&session.folder));
    let output = program(&session.folder, arguments).output().expect("the program ends");
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let after = relative(tree(&session.folder));
    assert!(before != after, "{arguments:?} writes nothing");
    assert_eq!(before.len(), after.len(), "{arguments:?} leaves something");
    (before, after)
}

/// Every file is the one before or the one after; what else lies there.
fn compare(folder: &Path, before: &Tree, after: &Tree, what: &str) -> Vec<PathBuf> {
    let now = tree(folder);
    for (path, old) in before {
        let found = now.get(&folder.join(path)).unwrap_or_else(|| panic!("{what}: {} is gone", path.display()));
        let whole = found == old || Some(found) == after.get(path);
        assert!(whole, "{what}: {} is neither the old nor the new one ({} bytes)", path.display(), found.len());
    }
    now.into_keys().filter(|path| !before.contains_key(path.strip_prefix(folder).unwrap_or(path))).collect()
}

#[test]
fn interrupted_or_killed_at_any_moment() {
    for (arguments, code) in WRITERS {
        let (before, after) = written(arguments, code);
        let session = Session::new();
        fill(&session.folder);
        let started = Instant::now();
        let _ = program(&session.folder, arguments).output().expect("the program ends");
        let whole = started.elapsed();
        for round in 0..ROUNDS {
            let session = Session::new();
            fill(&session.folder);
            let mut child = program(&session.folder, arguments).spawn().expect("the program starts");
            // Most of the writing is at the end.
            let part = 1.1 - f64::from(u32::try_from(round / 2).unwrap_or(0)) / (ROUNDS as f64 * 0.6);
            std::thread::sleep(whole.mul_f64(part.max(0.05)));
            let signal = if round % 2 == 0 { "-INT" } else { "-KILL" };
            let _ = Command::new("kill").args([signal, &child.id().to_string()]).stderr(Stdio::null()).status();
            let status = child.wait().expect("the program ends");
            let left = compare(&session.folder, &before, &after, &format!("{arguments:?}, {signal}, {status}"));
            assert!(round % 2 == 1 || left.is_empty(), "{arguments:?}, {signal}: {left:?}");
        }
    }
}

/// No file may be longer than this: the same as a disk without room, for every user.
#[test]
fn a_full_disk_leaves_the_old_file() {
    for (arguments, code) in WRITERS {
        let (before, after) = written(arguments, code);
        // The signal is ignored, so that writing fails; or not, so that it ends the program.
        for (trap, blocks) in [("trap '' XFSZ;", 0), ("trap '' XFSZ;", 1), ("", 0)] {
            let session = Session::new();
            fill(&session.folder);
            let script = format!("{trap} ulimit -f {blocks}; exec \"$0\" \"$@\"");
            let mut command = Command::new("sh");
            command.args(["-c", &script, env!("CARGO_BIN_EXE_spmd-check")]).args(arguments);
            let output = command.current_dir(&session.folder).output().expect("the shell starts");
            let said = String::from_utf8_lossy(&output.stderr);
            let left = compare(&session.folder, &before, &after, &format!("{arguments:?}, {trap} {blocks}"));
            if !trap.is_empty() {
                assert!(left.is_empty(), "{arguments:?}: {left:?}");
                let failed = output.status.code() == Some(2) && said.contains("cannot write");
                assert!(failed || blocks > 0, "{arguments:?}: {:?} {said}", output.status);
            }
        }
    }
}

/// A folder in memory with so little room, removed at the end; none where mounting is not allowed.
struct Mounted(Session);

impl Mounted {
    fn new(options: &str) -> Option<Mounted> {
        let session = Session::new();
        let mounted = mount(&["-t", "tmpfs", "-o", options, "tmpfs"], &session.folder);
        mounted.then(|| Mounted(session))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0.folder).stderr(Stdio::null()).status();
    }
}

fn mount(arguments: &[&str], folder: &Path) -> bool {
    let status = Command::new("mount").args(arguments).arg(folder).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_without_room_and_one_that_may_not_be_written() {
    for (arguments, code) in WRITERS {
        let (before, after) = written(arguments, code);
        let Some(mounted) = Mounted::new("size=1m") else { return };
        let folder = &mounted.0.folder;
        fill(folder);
        // Whatever room is left is taken.
        let mut filler = std::fs::File::create(folder.join("filler")).expect("files can be written");
        while std::io::Write::write_all(&mut filler, &[0; 1024]).is_ok() {}
        drop(filler);
        let output = program(folder, arguments).output().expect("the program ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("cannot write"), "{arguments:?}: {output:?}");
        let left = compare(folder, &before, &after, &format!("{arguments:?}, no room"));
        assert_eq!(left, [folder.join("filler")], "{arguments:?}");
        std::fs::remove_file(folder.join("filler")).expect("files can be removed");
        assert!(mount(&["-o", "remount,ro"], folder));
        let output = program(folder, arguments).output().expect("the program ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("cannot write"), "{arguments:?}: {output:?}");
        assert_eq!(compare(folder, &before, &before, "read-only"), Vec::<PathBuf>::new());
    }
}

#[test]
fn links_devices_and_long_names_are_written_as_what_they_are() {
    let session = Session::new();
    fill(&session.folder);
    let long = format!("{}.json", "n".repeat(250));
    std::os::unix::fs::symlink("baseline.json", session.folder.join("link.json")).expect("links can be made");
    std::os::unix::fs::symlink("new.json", session.folder.join("dangling.json")).expect("links can be made");
    for name in ["link.json", "dangling.json", &long, "folder/none.json"] {
        let ran = session.run(&["check", "--update-baseline", "--baseline", name]);
        assert_eq!(ran.code, if name.starts_with("folder") { 2 } else { 0 }, "{name}: {}", ran.err);
    }
    let is_link = |name: &str| session.folder.join(name).is_symlink();
    assert!(is_link("link.json") && is_link("dangling.json"));
    let text = |name: &str| std::fs::read_to_string(session.folder.join(name)).expect("the file is there");
    assert!(text("baseline.json").contains("SPMD") && text("new.json") == text(&long));
    let ran = session.run(&["report", "--output", "/dev/null"]);
    assert_ne!(ran.code, 2, "{}", ran.err);
}

/// Two programs that write the same file: one of the two results.
#[test]
fn two_at_once_leave_one_of_them() {
    let session = Session::new();
    fill(&session.folder);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(2) {
        let arguments = ["check", "-q", "--update-baseline", "--baseline", "baseline.json"];
        let all: Vec<_> = (0..3).map(|_| program(&session.folder, &arguments).spawn().expect("it starts")).collect();
        for mut child in all {
            assert!(child.wait().expect("it ends").success());
        }
        let text = std::fs::read_to_string(session.folder.join("baseline.json")).expect("the file is there");
        let value: serde_json::Value = serde_json::from_str(&text).expect("a whole baseline");
        assert!(value["findings"].as_array().is_some_and(|findings| !findings.is_empty()));
    }
    assert!(tree(&session.folder).keys().all(|path| !path.to_string_lossy().contains("/.spmd-check-")));
}
