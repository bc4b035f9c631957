//! Commands, options and exit codes. In: command lines. Out: codes and messages. Never: formats. Next: `output.rs`.

use super::support::{BAD, Session};

#[test]
fn exit_codes_tell_clean_findings_and_failure_apart() {
    let session = Session::new();
    session.write("good.py", "x = 1\n");
    session.write("bad.py", BAD);
    assert_eq!(session.run(&["check", "good.py"]).code, 0);
    assert_eq!(session.run(&["check", "bad.py"]).code, 1);
    assert_eq!(session.run(&["check"]).code, 1);
    assert_eq!(session.run(&["check", "--exit-zero"]).code, 0);
    assert_eq!(session.run(&["check", "missing.py"]).code, 2);
    assert_eq!(session.run(&["check", "--exit-zero", "missing.py"]).code, 2);
}

#[test]
fn a_missing_path_does_not_stop_the_rest() {
    let session = Session::new();
    session.write("bad.py", BAD);
    let ran = session.run(&["check", "missing.py", "bad.py"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("`missing.py` does not exist"), "{ran:?}");
    assert!(ran.out.contains("bad.py:1:"), "{ran:?}");
}

#[test]
fn a_notebook_is_refused_and_the_rest_is_checked() {
    let session = Session::new();
    session.write("bad.py", BAD);
    session.write("train.ipynb", "{\"cells\": []}");
    let ran = session.run(&["check", "train.ipynb", "bad.py"]);
    assert!(ran.code == 2 && ran.err.contains("`train.ipynb` is a notebook"), "{ran:?}");
    assert!(ran.out.contains("bad.py:1:"), "{ran:?}");
}

#[test]
fn a_path_without_a_command_gets_the_command() {
    let session = Session::new();
    session.write("train.py", "");
    for path in ["train.py", "src/other.py", "."] {
        let ran = session.run(&[path]);
        assert_eq!(ran.code, 2);
        assert!(ran.err.contains(&format!("run `spmd-check check {path}`")), "{ran:?}");
    }
}

#[test]
fn unknown_words_are_named_with_the_nearest_known_one() {
    let session = Session::new();
    let option = session.run(&["check", "--selct", "SPMD1"]);
    assert_eq!(option.code, 2);
    assert!(option.err.contains("--select"), "{option:?}");
    let command = session.run(&["chek"]);
    assert_eq!(command.code, 2);
    assert!(command.err.contains("check"), "{command:?}");
    let code = session.run(&["check", "--select", "invalid-confg"]);
    assert_eq!(code.code, 2);
    assert!(code.err.contains("unknown diagnostic `invalid-confg` in `--select`"), "{code:?}");
    assert!(code.err.contains("did you mean `invalid-config`?"), "{code:?}");
    let explained = session.run(&["explain", "SPMD9999"]);
    assert_eq!(explained.code, 2);
    assert!(explained.err.contains("unknown diagnostic `SPMD9999`"), "{explained:?}");
}

#[test]
fn the_number_of_a_code_is_enough_to_explain_it() {
    let session = Session::new();
    let (number, code) = (session.run(&["explain", "101"]), session.run(&["explain", "SPMD101"]));
    assert_eq!((number.code, &number.out), (0, &code.out), "{number:?}");
    let unknown = session.run(&["explain", "77"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.contains("unknown diagnostic `77`"), "{unknown:?}");
    assert!(unknown.err.contains("did you mean `SPMD707`?"), "{unknown:?}");
    let selected = session.run(&["check", "--select", "101"]);
    assert_eq!(selected.code, 2);
    assert!(selected.err.contains("did you mean `SPMD101`?"), "{selected:?}");
}

#[test]
fn every_listed_code_has_a_page() {
    let session = Session::new();
    let list = session.run(&["explain"]);
    assert_eq!(list.code, 0);
    assert!(list.out.lines().count() >= 2, "{list:?}");
    for line in list.out.lines() {
        let (code, rest) = line.split_once("  ").expect("a line is a code, two blanks and a name");
        let name = rest.split_whitespace().next().expect("a code has a name");
        let (by_code, by_name) = (session.run(&["explain", code]), session.run(&["explain", name]));
        assert_eq!((by_code.code, by_name.code), (0, 0), "{code}");
        assert_eq!(by_code.out, by_name.out);
    }
}

#[test]
fn select_and_ignore_take_codes_and_prefixes() {
    let session = Session::new();
    session.write("bad.py", BAD);
    assert_eq!(session.run(&["check", "--select", "SPMD9"]).code, 0);
    assert_eq!(session.run(&["check", "--ignore", "SPMD5,SPMD9"]).code, 0);
    assert_eq!(session.run(&["check", "--select", "SPMD5", "--select", "SPMD9"]).code, 1);
    assert_eq!(session.run(&["check", "--select", "all"]).code, 1);
}

#[test]
fn standard_input_stands_for_the_file_it_is_named_after() {
    let session = Session::new();
    session.write("pkg/model.py", "x = 1\n");
    let ran = session.run_with(&["check", "-", "--stdin-filename", "pkg/model.py"], BAD);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("pkg/model.py:1:"), "{ran:?}");
    let unnamed = session.run_with(&["check", "-"], BAD);
    assert!(unnamed.out.contains("<stdin>:1:"), "{unnamed:?}");
    let clean = session.run_with(&["check", "-", "--stdin-filename", "new.py"], "x = 1\n");
    assert_eq!(clean.code, 0, "{clean:?}");
    assert_eq!(session.run_with(&["check", "-", "pkg"], "").code, 2);
    assert_eq!(session.run_with(&["check", "pkg", "--stdin-filename", "x.py"], "").code, 2);
}

#[test]
fn init_writes_a_configuration_that_is_valid_and_refuses_to_overwrite() {
    let session = Session::new();
    session.write("tree/src/model/__init__.py", "");
    session.write("tree/src/model/mesh.py", "m = make('cuda', (2, 4), mesh_dim_names=(\"dp\", 'tp'))\n");
    let first = session.run(&["init", "tree"]);
    assert_eq!(first.code, 0, "{first:?}");
    let text = std::fs::read_to_string(session.folder.join("tree/spmd-check.toml")).expect("init wrote the file");
    assert!(text.contains("[mesh]\ndp = \"?\"\ntp = \"?\"\n"), "{text}");
    assert!(text.contains("src = [\"src\"]\n"), "{text}");
    assert_eq!(session.run(&["check", "tree"]).code, 0);
    let second = session.run(&["init", "tree"]);
    assert_eq!(second.code, 2);
    assert!(second.err.contains("already exists"), "{second:?}");
    assert_eq!(session.run(&["init", "--force", "tree"]).code, 0);
}
