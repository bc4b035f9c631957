//! A hostile world around the program: devices and pipes among the paths, odd names, outputs that fail, other locales; and the proof
//! that a check only reads. In: small trees. Out: exit codes, messages, system calls. Never: hostile source text, which is in
//! `tests/syntax_hostile.rs` and `tests/mutation.rs`. Next: `src/source/walk.rs`, `src/source/disk.rs`.

use super::support::{BAD, Session, repository};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any of these runs takes on a machine under load; reading a device would never end.
const LONGEST: Duration = Duration::from_secs(60);

/// Every regular file below a folder with its bytes and the time of its last change.
fn snapshot(folder: &Path) -> Vec<(String, Vec<u8>, std::time::SystemTime)> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        let metadata = std::fs::symlink_metadata(&path).expect("the entry exists");
        if metadata.is_dir() {
            out.extend(snapshot(&path));
        } else if metadata.is_file() {
            let bytes = std::fs::read(&path).expect("the file can be read");
            out.push((path.to_string_lossy().into_owned(), bytes, metadata.modified().expect("files have times")));
        }
    }
    out.sort();
    out
}

fn pipe(session: &Session, name: &str) {
    let made = Command::new("mkfifo").arg(session.folder.join(name)).status().expect("mkfifo starts");
    assert!(made.success());
}

#[test]
fn pipes_devices_and_loops_in_a_tree_are_passed_by() {
    let session = Session::new();
    session.write("tree/inner/bad.py", BAD);
    pipe(&session, "tree/pipe.py");
    symlink("/dev/zero", session.folder.join("tree/zero.py")).expect("links can be made");
    symlink("nowhere.py", session.folder.join("tree/dangling.py")).expect("links can be made");
    symlink("../../tree", session.folder.join("tree/inner/again")).expect("links can be made");
    let started = Instant::now();
    let ran = session.run(&["check", "--output-format", "concise", "tree"]);
    assert!(started.elapsed() < LONGEST);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert_eq!(ran.out.lines().count(), 1, "{}", ran.out);
    assert!(ran.out.contains("tree/inner/bad.py:1:"), "{}", ran.out);
}

#[test]
fn what_is_no_file_is_named_and_the_rest_goes_on() {
    let session = Session::new();
    session.write("bad.py", BAD);
    pipe(&session, "pipe.py");
    let ran = session.run(&["check", "--output-format", "concise", "pipe.py", "/dev/zero", "nowhere.py", "bad.py"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    for name in ["`pipe.py`", "`/dev/zero`", "`nowhere.py`"] {
        assert!(ran.err.contains(name), "{name}: {}", ran.err);
    }
    assert!(ran.out.contains("bad.py:1:"), "{}", ran.out);
}

#[test]
fn a_device_is_no_configuration_and_no_baseline() {
    let session = Session::new();
    session.write("good.py", "x = 1\n");
    let ran = session.run(&["check", "--config", "/dev/zero", "good.py"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("/dev/zero") && ran.err.contains("not a regular file"), "{}", ran.err);
    let ran = session.run(&["check", "--baseline", "/dev/zero", "good.py"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("the baseline `/dev/zero` cannot be read"), "{}", ran.err);
    session.write("spmd-check.toml", "[rules]\nextend = ['/dev/zero']\n");
    let ran = session.run(&["check", "good.py"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("not a regular file"), "{}", ran.err);
}

/// Files of a terabyte (of nothing), of 100 MB and of one line of 10 MB: each is named as too large, and read no further than needed.
#[test]
fn enormous_files_are_not_read() {
    let session = Session::new();
    let sparse = std::fs::File::create(session.folder.join("sparse.py")).expect("files can be written");
    // Where there are no files with holes there is nothing to see.
    let has_sparse = sparse.set_len(1 << 40).is_ok();
    if !has_sparse {
        std::fs::remove_file(session.folder.join("sparse.py")).expect("files can be removed");
    }
    session.write("long.py", "x = f(1)\n".repeat(11_000_000));
    session.write("wide.py", "x = 1; ".repeat(1_500_000));
    session.write("umlaut.py", format!("\u{feff}#{}\n", "ü".repeat(3_000_000)));
    session.write("bad.py", BAD);
    let started = Instant::now();
    let ran = session.run(&["check", "--output-format", "concise"]);
    assert!(started.elapsed() < LONGEST);
    let count = ran.out.lines().filter(|line| line.contains("larger than 4 MiB")).count();
    assert_eq!((ran.code, count), (1, 3 + usize::from(has_sparse)), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("bad.py:1:"), "{}", ran.out);
}

#[test]
fn odd_names_end_up_in_well_formed_output() {
    let session = Session::new();
    let odd: [&[u8]; 4] = [b"new\nline.py", b"not \xff utf-8.py", b"quote\"<&>'.py", b"percent%41 space.py"];
    for name in odd {
        std::fs::write(session.folder.join(OsStr::from_bytes(name)), BAD).expect("files can be written");
    }
    let json = session.run(&["check", "--output-format", "json"]);
    let findings: serde_json::Value = serde_json::from_str(&json.out).expect("output is JSON");
    assert_eq!(findings.as_array().map(Vec::len), Some(odd.len()), "{}", json.out);
    let lines = session.run(&["check", "--output-format", "concise"]);
    assert_eq!(lines.out.lines().count(), odd.len(), "a name breaks a line: {}", lines.out);
    for format in ["full", "json-lines", "github", "gitlab", "sarif", "junit"] {
        let ran = session.run(&["check", "--output-format", format]);
        assert_eq!(ran.code, 1, "{format}: {}", ran.err);
    }
}

/// Found by the fuzzer of spliced programs.
#[test]
fn a_name_of_several_lines_is_told_on_one() {
    let session = Session::new();
    let text = "import torch\nimport torch_xla.distributed.spmd as xs\n\nmesh = xs.Mesh([0, 1], (2,), ('data',))\n\
                x = torch.randn(8, 8)\nxs.mark_sharding(x, mesh, ('a\\r\\x1b[31m b', None))\n\
                xs.mark_sharding(x, mesh, (\"\"\"c\nd\"\"\", None))\n";
    std::fs::write(session.folder.join("axes.py"), text).expect("files can be written");
    let ran = session.run(&["check", "--output-format", "concise"]);
    assert!(ran.out.contains("the mesh has no axis `c d`"), "{}", ran.out);
    assert!(ran.out.lines().all(|line| line.starts_with("axes.py:")), "{}", ran.out);
}

#[test]
fn an_output_that_nobody_reads_is_no_failure_of_the_program() {
    let session = Session::new();
    for at in 0..200 {
        session.write(&format!("bad{at}.py"), BAD.repeat(40));
    }
    let mut command = session.command(&["check"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said() {
    let session = Session::new();
    session.write("bad.py", BAD);
    let full = std::fs::File::options().write(true).open("/dev/full").expect("the device exists");
    let output = session.command(&["check"]).stdout(full).output().expect("the program ends");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write"), "{output:?}");
}

#[test]
fn locale_zone_width_and_seeds_change_nothing() {
    let session = Session::new();
    session.write("bad.py", format!("Straße = 'ıİ'\n{BAD}"));
    let plain = session.run(&["check"]);
    for (name, value) in [
        ("LC_ALL", "tr_TR.UTF-8"),
        ("LC_ALL", "C"),
        ("LANG", "not a locale"),
        ("TZ", "Pacific/Kiritimati"),
        ("COLUMNS", "20"),
        ("PYTHONHASHSEED", "7"),
        ("RAYON_NUM_THREADS", "5"),
        ("RUST_BACKTRACE", "1"),
        ("MALLOC_PERTURB_", "165"),
        ("HOME", "/nowhere"),
    ] {
        let output = session.command(&["check"]).env(name, value).output().expect("the program ends");
        assert_eq!(String::from_utf8_lossy(&output.stdout), plain.out, "{name}={value}");
    }
}

/// Programs with findings in several files that import each other, in every format: whatever the order of the paths, the number of threads
/// and the run, the same bytes.
#[test]
fn orders_threads_and_runs_change_nothing() {
    let session = Session::new();
    let bugs = ["mlm-reduce-noncontiguous", "mlm-row-bias-sp-mark", "tt-cp-allgather-dim", "yunchang-grad-count"];
    for (at, bug) in bugs.iter().enumerate() {
        let text = repository(&format!("corpus/bugs/{bug}/buggy.py"));
        session.write(&format!("part{at}/one.py"), &text);
        session.write(&format!("part{at}/two.py"), format!("from part{}.one import *\n{text}", (at + 1) % bugs.len()));
    }
    let formats = ["full", "concise", "json", "json-lines", "github", "gitlab", "sarif", "junit"];
    for format in formats {
        let run = |jobs: &str, paths: &[&str]| {
            let mut arguments = vec!["check", "--statistics", "--output-format", format, "-j", jobs];
            arguments.extend(paths);
            session.run(&arguments).out
        };
        let first = run("1", &["part0", "part1", "part2", "part3"]);
        assert!(first.contains("SPMD"), "nothing is compared when nothing is found");
        for jobs in ["2", "8", "64"] {
            let orders: [&[&str]; 2] = [&["part3", "part1", "part2", "part0"], &[".", "part2", "part0/two.py"]];
            for paths in orders {
                assert_eq!(run(jobs, paths), first, "{format}, {jobs} threads, {paths:?}");
            }
        }
    }
}

#[test]
fn a_check_writes_nothing() {
    let session = Session::new();
    session.write("package/__init__.py", "import os\nos.remove('victim')\n");
    session.write("package/bad.py", BAD);
    session.write("victim", "x");
    let before = snapshot(&session.folder);
    for arguments in [["check", "."], ["types", "."], ["check", "--statistics"], ["check", "--coverage"]] {
        session.run(&arguments);
    }
    assert_eq!(snapshot(&session.folder), before);
}

/// The system calls of a check: it starts no program, opens no connection, writes no file, and reads nothing of the user's but the
/// tree and its configuration.
#[cfg(target_os = "linux")]
#[test]
fn a_check_only_reads_the_tree() {
    let session = Session::new();
    session.write("package/__init__.py", "import json, torch\n");
    session.write("package/bad.py", BAD);
    let trace = session.folder.with_extension("trace");
    let traced = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=execve,%network,openat,open,creat,rename,unlink,mkdir,rmdir,truncate", "-o"])
        .args([&trace, Path::new(env!("CARGO_BIN_EXE_spmd-check"))])
        .args(["check", "."])
        .current_dir(&session.folder)
        // Where `cargo test` looks for libraries is not of the program's choice.
        .env_remove("LD_LIBRARY_PATH")
        .output();
    let Ok(output) = traced else {
        // Without a tracer the test above still compares the files.
        return;
    };
    let calls = std::fs::read_to_string(&trace).unwrap_or_default();
    let _ = std::fs::remove_file(&trace);
    if calls.is_empty() {
        // A container may forbid tracing.
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let own = session.folder.to_string_lossy().into_owned();
    assert_eq!(calls.matches("execve(").count(), 1, "{calls}");
    for call in calls.lines() {
        let allowed = if call.contains("open") {
            let system = ["/lib", "/usr/lib", "/etc/ld.so", "/proc/", "/sys/", "/dev/"];
            let path = call.split('"').nth(1).unwrap_or("");
            let inside = !path.starts_with('/') || path.starts_with(&own) || system.iter().any(|s| path.starts_with(s));
            // A folder above the tree may hold the configuration, or say where the project ends.
            let above = own.starts_with(path.rsplit_once('/').map_or("", |(folder, _)| folder));
            let writes = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"].iter().any(|flag| call.contains(flag));
            (inside || above) && !writes
        } else {
            call.contains("execve(") || call.contains("+++") || call.contains("---")
        };
        assert!(allowed, "{call}");
    }
}
