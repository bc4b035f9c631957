//! The cache of findings. In: runs with `--cache-dir`, on trees that change and folders that are damaged. Out: always the findings of a
//! run without one. Never: an entry trusted for its name alone. Next: `src/cli/cache.rs`.

use super::support::{BAD, Session};
use std::fs;
use std::path::PathBuf;

const CACHED: &[&str] = &["check", "--cache-dir", ".cache", "--verbose", "--output-format", "json"];
const FOUND: &str = "findings are those of the cache";

/// The entries of the folder.
fn entries(session: &Session) -> Vec<PathBuf> {
    let folder = fs::read_dir(session.folder.join(".cache")).expect("the folder is there");
    let mut paths: Vec<PathBuf> = folder.map(|entry| entry.expect("entries can be listed").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "findings"));
    paths.sort();
    paths
}

#[test]
fn a_second_run_gives_the_same_until_something_changes() {
    let session = Session::new();
    session.write("bad.py", BAD);
    session.write("more.txt", "not Python\n");
    let plain = session.run(&["check", "--output-format", "json"]);
    let first = session.run(CACHED);
    let second = session.run(CACHED);
    assert!(!first.err.contains(FOUND) && second.err.contains(FOUND), "{second:?}");
    assert_eq!((&first.out, first.code), (&plain.out, plain.code));
    assert_eq!((&second.out, second.code), (&plain.out, plain.code));
    assert!(session.folder.join(".cache/CACHEDIR.TAG").exists() && session.folder.join(".cache/.gitignore").exists());
    session.write("more.txt", "still not Python\n");
    assert!(session.run(CACHED).err.contains(FOUND), "what is not read does not matter");
    for (path, text) in [
        ("bad.py", format!("\n{BAD}")),
        ("new.py", "x = 1\n".to_owned()),
        ("spmd-check.toml", "[mesh]\ntp = 2\n".to_owned()),
    ] {
        session.write(path, &text);
        let (cached, plain) = (session.run(CACHED), session.run(&["check", "--output-format", "json"]));
        assert!(!cached.err.contains(FOUND), "{path}: {cached:?}");
        assert_eq!((cached.out, cached.code), (plain.out, plain.code), "{path}");
    }
    session.write("rules.toml", "source = \"here\"\n");
    session.write("spmd-check.toml", "[mesh]\ntp = 2\n[rules]\nextend = ['rules.toml']\n");
    let with = |session: &Session| session.run(CACHED).err.contains(FOUND);
    assert!(!with(&session) && with(&session));
    session.write("rules.toml", "source = \"there\"\n");
    assert!(!with(&session), "rules belong to the name of an entry");
}

#[test]
fn repairs_and_options_come_after_the_cache() {
    let session = Session::new();
    session.write("bad.py", BAD);
    session.run(CACHED);
    let ignored = session.run(&["check", "--cache-dir", ".cache", "--verbose", "--ignore", "SPMD"]);
    assert!(ignored.code == 0 && ignored.out.is_empty(), "{ignored:?}");
    let full = session.run(&["check", "--cache-dir", ".cache", "--verbose"]);
    assert!(full.err.contains(FOUND), "{full:?}");
    assert_eq!(full.out, session.run(&["check"]).out);
}

#[test]
fn what_is_damaged_or_foreign_is_passed_by() {
    let session = Session::new();
    session.write("bad.py", BAD);
    let plain = session.run(CACHED);
    let [entry] = entries(&session).try_into().expect("one entry");
    let good = fs::read(&entry).expect("an entry can be read");
    let half = &good[..good.len() / 2];
    let flipped: Vec<u8> = good.iter().map(|b| if *b == b'0' { b'1' } else { *b }).collect();
    let damaged: [&[u8]; 5] = [b"", b"{}", half, &flipped, &[0xff, 0xfe, 0x00]];
    for bytes in damaged {
        fs::write(&entry, bytes).expect("an entry can be damaged");
        let ran = session.run(CACHED);
        assert!(!ran.err.contains(FOUND), "{ran:?}");
        assert_eq!((&ran.out, ran.code), (&plain.out, plain.code));
        assert_eq!(fs::read(&entry).expect("it is written anew"), good);
    }
    // An entry under the name of another.
    session.write("bad.py", "x = 1\n");
    session.run(CACHED);
    let other = entries(&session).into_iter().find(|path| *path != entry).expect("a second entry");
    fs::copy(&other, &entry).expect("entries can be copied");
    session.write("bad.py", BAD);
    let ran = session.run(CACHED);
    assert!(!ran.err.contains(FOUND) && ran.out == plain.out, "{ran:?}");
}

#[test]
fn a_folder_that_cannot_be_one_costs_nothing_but_time() {
    let session = Session::new();
    session.write("bad.py", BAD);
    session.write("file", "");
    let plain = session.run(&["check"]);
    let ran = session.run(&["check", "--cache-dir", "file", "--verbose"]);
    assert!(ran.err.contains("the cache cannot be written"), "{ran:?}");
    assert_eq!((ran.out, ran.code), (plain.out, plain.code));
}

#[test]
fn many_runs_at_once_share_it() {
    let session = Session::new();
    session.write("bad.py", BAD);
    let plain = session.run(&["check", "--output-format", "json"]);
    for _ in 0..3 {
        let runs: Vec<_> = (0..8)
            .map(|_| {
                let mut command = session.command(CACHED);
                command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
                command.spawn().expect("the program starts")
            })
            .collect();
        for run in runs {
            let output = run.wait_with_output().expect("the program ends");
            assert_eq!(String::from_utf8_lossy(&output.stdout), plain.out);
        }
        for entry in entries(&session) {
            fs::remove_file(entry).expect("an entry can be removed");
        }
    }
}

#[test]
fn old_entries_go() {
    let session = Session::new();
    for n in 0..70 {
        session.write("some.py", format!("x = {n}\n"));
        session.run(CACHED);
    }
    assert_eq!(entries(&session).len(), 64);
}
