//! Which files are read. In: trees with odd files. Out: what is reported and what is said about the rest.
//! Never: the network or the home folder. Next: `src/source/walk.rs`.

use super::support::{BAD, Session};

fn paths(session: &Session, arguments: &[&str]) -> Vec<String> {
    let mut all = vec!["check", "-q", "--output-format", "json-lines"];
    all.extend(arguments);
    let ran = session.run(&all);
    let path = |line: &str| -> String {
        let object: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        object["path"].as_str().expect("a path is a string").to_owned()
    };
    ran.out.lines().map(path).collect()
}

#[test]
fn folders_give_python_files_in_order_without_junk() {
    let session = Session::new();
    for path in ["b/z.py", "a.py", "b/a.py", "b.txt", ".venv/v.py", "node_modules/n.py", "build/o.py", "gen/g.py"] {
        session.write(path, BAD);
    }
    session.write(".gitignore", "gen/\n");
    assert_eq!(paths(&session, &[]), ["a.py", "b/a.py", "b/z.py"]);
    assert_eq!(paths(&session, &["b", "./b/a.py", "b/../a.py", "a.py"]), ["a.py", "b/a.py", "b/z.py"]);
    assert_eq!(paths(&session, &["b.txt", "build/o.py"]), ["b.txt", "build/o.py"]);
}

#[test]
fn include_and_exclude_hold_for_folders_and_exclude_for_named_files() {
    let session = Session::new();
    for path in ["a.py", "skip/b.py", "c.pyi"] {
        session.write(path, BAD);
    }
    session.write("spmd-check.toml", "include = ['*.py', '*.pyi']\nexclude = ['skip/']\n");
    assert_eq!(paths(&session, &[]), ["a.py", "c.pyi"]);
    let ran = session.run(&["check", "skip/b.py"]);
    assert!(ran.code == 0 && ran.err.contains("`skip/b.py` is excluded by the configuration"), "{ran:?}");
}

#[test]
fn given_paths_select_what_is_reported() {
    let session = Session::new();
    session.write("a.py", BAD);
    session.write("b.py", BAD);
    assert_eq!(paths(&session, &["a.py"]), ["a.py"]);
    let ran = session.run(&["check", "-v", "a.py"]);
    assert!(ran.err.contains("loaded 2 files, 1 of them reported"), "{ran:?}");
}

#[test]
fn a_project_of_many_files_is_loaded_alone() {
    let session = Session::new();
    for number in 0..1200 {
        session.write(&format!("p/m{number}.py"), "x = 1\n");
    }
    session.write("p/spmd-check.toml", "");
    session.write("outside.py", BAD);
    let ran = session.run(&["check", "-v", "p"]);
    assert!(ran.code == 0 && ran.err.contains("loaded 1200 files, 1200 of them reported"), "{ran:?}");
}

#[test]
fn encodings_are_those_of_python() {
    let session = Session::new();
    session.write("bom.py", [b"\xef\xbb\xbf".as_slice(), BAD.as_bytes()].concat());
    session.write("latin.py", [b"# coding: latin-1\n# \xe9\n".as_slice(), BAD.as_bytes()].concat());
    assert_eq!(paths(&session, &[]), ["bom.py", "latin.py"]);
    session.write("broken.py", b"x = 1\ny = '\xff'\n");
    let ran = session.run(&["check", "--output-format", "concise"]);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("broken.py:1:1: error[SPMD912]") && ran.out.contains("UTF-8"), "{ran:?}");
    assert!(ran.out.contains("bom.py:1:"), "{ran:?}");
}

#[cfg(unix)]
#[test]
fn odd_files_neither_hang_nor_stop_the_run() {
    use std::os::unix::ffi::OsStrExt;
    let session = Session::new();
    session.write("good.py", BAD);
    let status = std::process::Command::new("mkfifo").arg(session.folder.join("pipe.py")).status();
    std::os::unix::fs::symlink(&session.folder, session.folder.join("loop")).expect("links can be made");
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.py");
    std::fs::write(session.folder.join(name), BAD).expect("names need not be UTF-8");
    assert_eq!(paths(&session, &[]), ["caf\u{fffd}.py", "good.py"]);
    if status.is_ok_and(|status| status.success()) {
        let walked = session.run(&["check"]);
        assert!(walked.err.contains("`pipe.py` is not a regular file"), "{walked:?}");
        assert_eq!(session.run(&["check", "pipe.py"]).code, 2);
    }
}
