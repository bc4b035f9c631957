//! What a team meets that starts with a large tree: settings, files, changes since a revision, shells. In: small trees. Out: both streams.
//! Never: the network. Next: `src/cli/settings.rs`, `src/cli/diff_base.rs`.

use super::support::{BAD, Session};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

fn git(session: &Session, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]).args(arguments);
    command.current_dir(&session.folder).env_remove("GIT_DIR").env_remove("GIT_INDEX_FILE");
    let done = command.output().expect("git starts");
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn only_what_a_change_introduces() {
    let session = Session::new();
    session.write("old.py", BAD);
    session.write(
        "pkg/moved.py",
        format!("def f():\n    {BAD}    return 1\n\n\nmany = 1\nlines = 2\nthat = 3\nstay = 4\n"),
    );
    let none = session.run(&["check", "--diff-base", "HEAD"]);
    assert!(none.code == 2 && none.err.contains("needs a git repository"), "{none:?}");
    git(&session, &["init", "-q"]);
    git(&session, &["add", "."]);
    git(&session, &["commit", "-qm", "first"]);
    let same = session.run(&["check", "--diff-base", "HEAD"]);
    assert!(same.code == 0 && same.err.contains("and 2 at `HEAD` already"), "{same:?}");
    session.write("old.py", format!("\n\n# moved\n{BAD}"));
    git(&session, &["mv", "pkg/moved.py", "pkg/renamed.py"]);
    session.write("new.py", BAD);
    let changed = session.run(&["check", "--diff-base", "HEAD", "--output-format", "concise"]);
    assert_eq!(changed.code, 1, "{changed:?}");
    assert!(changed.out.starts_with("new.py:1:") && changed.out.lines().count() == 1, "{changed:?}");
    let wrong = session.run(&["check", "--diff-base", "no-such-branch"]);
    assert!(wrong.code == 2 && wrong.err.contains("`no-such-branch` is no revision"), "{wrong:?}");
    let option = session.run(&["check", "--diff-base=--output=x"]);
    assert_eq!(option.code, 2, "{option:?}");
}

#[test]
fn settings_and_files_can_be_asked_for() {
    let session = Session::new();
    let config = "exclude = [\"gen/\"]\n[mesh]\ntp = 8\n[levels]\ninvariant-mixed = \"off\"\n[per-file-ignores]\n\"t/\" = [\"SPMD201\"]\n";
    session.write("spmd-check.toml", config);
    session.write("a.py", BAD);
    session.write("gen/b.py", BAD);
    session.write("t/c.py", BAD);
    let shown = session.run(&["check", "--show-settings"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    for line in
        ["# from spmd-check.toml", "exclude = [\"gen/\"]", "tp = 8", "SPMD101 = \"off\"", "\"t/\" = [\"SPMD201\"]"]
    {
        assert!(shown.out.lines().any(|l| l == line), "{line}: {}", shown.out);
    }
    assert_eq!(session.run(&["check", "--show-files"]).out, "a.py\nt/c.py\n");
    let one = session.run(&["check", "--show-files", "-v", "a.py"]);
    assert_eq!(one.out, "a.py\nt/c.py (loaded, not reported)\n");
    let why = session.run(&["check", "--explain-config", "t/c.py"]);
    assert!(why.out.contains("configuration `spmd-check.toml`, the nearest one upwards"), "{why:?}");
    assert!(why.out.contains("checked: yes\n"), "{why:?}");
    assert!(why.out.contains("off: SPMD101 invariant-mixed, off in `[levels]`\n"), "{why:?}");
    assert!(why.out.contains("off: SPMD201 mismatched-collective-source, in `[per-file-ignores]`\n"), "{why:?}");
    let left_out = session.run(&["check", "--explain-config", "gen/b.py"]);
    assert!(left_out.out.contains("checked: no: `exclude` matches it"), "{left_out:?}");
    assert_eq!(session.run(&["check", "--explain-config", "nothing.py"]).code, 2);
}

#[test]
fn shells_and_manuals() {
    let session = Session::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = session.run(&["completions", shell]);
        assert!(ran.code == 0 && ran.out.contains("diff-base"), "{shell}: {}", ran.err);
    }
    let page = session.run(&["man"]);
    assert!(page.code == 0 && page.out.contains(".TH spmd-check 1"), "{}", page.err);
    assert!(page.out.contains("SPMD\\-CHECK CHECK") || page.out.contains("SPMD-CHECK CHECK"), "no section for `check`");
}

#[test]
fn a_watched_tree_is_checked_after_every_change() {
    let session = Session::new();
    session.write("a.py", "x = 1\n");
    let mut command = session.command(&["check", "--watch", "--output-format", "concise"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut err = BufReader::new(child.stderr.take().expect("standard error is a pipe")).lines().map_while(Result::ok);
    let mut until = |wanted: &str| err.find(|line| line.contains(wanted)).is_some();
    assert!(until("no findings") && until("watching"));
    session.write("a.py", BAD);
    assert!(until("found 1 error") && until("watching"));
    session.write("a.py", "x = 2 + 2\n");
    assert!(until("no findings"));
    child.kill().expect("it runs until it is stopped");
    let _ = child.wait();
}

#[test]
fn stale_records_are_named_with_their_function() {
    let session = Session::new();
    session.write("a.py", format!("class A:\n    def f(self):\n        {BAD}"));
    session.run(&["check", "--baseline", "base.json", "--update-baseline"]);
    session.write("a.py", format!("class A:\n    def g(self):\n        {BAD}"));
    let other = session.run(&["check", "--baseline", "base.json"]);
    assert_eq!(other.code, 1, "the same line in another function is another finding: {other:?}");
    assert!(other.err.contains("  a.py: SPMD510 in `A.f`: x = f() # spmd: {{\n"), "{other:?}");
    let old = "{\"version\": 1, \"findings\": [{\"path\": \"a.py\", \"code\": \"SPMD510\", \"line_text\": \"x = f() # spmd: {{\", \"count\": 1}]}";
    session.write("base.json", old);
    assert_eq!(session.run(&["check", "--baseline", "base.json"]).code, 0, "files of the first version are read");
    session.write("base.json", "{\"version\": 3, \"findings\": []}");
    assert_eq!(session.run(&["check", "--baseline", "base.json"]).code, 2);
}
