//! Repairs. In: programs with mistakes, written for each test or from `corpus/bugs`. Out: the files afterwards. Never: a repair that is only
//! looked at; every one is checked again. Next: `src/fix/mod.rs`.

use super::support::{BAD, Ran, Session, repository};
use serde_json::Value;

/// The bugs of the corpus that have a repair which is certain.
const REPAIRED: [&str; 14] = [
    "mlm-ddp-scale-without-cp",
    "mlm-fsdp-no-shard-inverted",
    "mlm-llava-scatter-group",
    "mlm-mla-kpe-gather-split",
    "mlm-reduce-noncontiguous",
    "mlm-row-bias-sp-mark",
    "pippy-replicate-to-partial",
    "tt-cp-allgather-dim",
    "tt-local-map-in-grad",
    "tt-moe-router-partial-grad",
    "tt-norm-bare-to-local",
    "tt-sdpa-cp-shard-dim",
    "xla-mark-sharding-forward-only",
    "yunchang-grad-count",
];

/// The option for repairs that are not certain.
const UNCERTAIN: &str = concat!("--", "unsafe", "-fixes");

/// A column-parallel layer of which the input is not copied.
const COLUMN: &str = "\
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel.mappings import reduce_from_tensor_model_parallel_region

class Layer(torch.nn.Module):
    # spmd: x: {tp: I}, w: {tp: S(0)}, v: {tp: S(1)} -> {tp: I}
    def forward(self, x, w, v):
        h = F.gelu(F.linear(x, w))   # odd   spacing stays
        return reduce_from_tensor_model_parallel_region(F.linear(h, v))
";

fn read(session: &Session, path: &str) -> String {
    std::fs::read_to_string(session.folder.join(path)).expect("the file is there")
}

fn concise(session: &Session, more: &[&str]) -> Ran {
    let mut arguments = vec!["check", "--output-format", "concise"];
    arguments.extend(more);
    session.run(&arguments)
}

/// Signatures, without their places.
fn signatures(session: &Session, path: &str) -> Vec<String> {
    let out = session.run(&["types", path]).out;
    out.lines().map(|line| line.splitn(3, ':').nth(2).unwrap_or(line).to_owned()).collect()
}

fn bug(name: &str) -> Session {
    let session = Session::new();
    session.write("buggy.py", repository(&format!("corpus/bugs/{name}/buggy.py")));
    session
}

fn repaired_by_hand(name: &str) -> Session {
    let session = Session::new();
    session.write("fixed.py", repository(&format!("corpus/bugs/{name}/fixed.py")));
    session
}

#[test]
fn bugs_with_a_certain_repair_become_what_their_repair_is() {
    for name in REPAIRED {
        let session = bug(name);
        let before = read(&session, "buggy.py");
        let ran = concise(&session, &["--fix", "buggy.py"]);
        assert!(ran.code == 0 && ran.out.is_empty() && ran.err.starts_with("repaired "), "{name}: {ran:?}");
        let after = read(&session, "buggy.py");
        assert_ne!(before, after, "{name}");
        assert_eq!(signatures(&session, "buggy.py"), signatures(&repaired_by_hand(name), "fixed.py"), "{name}");
        let again = concise(&session, &["--fix", "buggy.py"]);
        assert!(again.code == 0 && !again.err.contains("repaired"), "{name}: {again:?}");
        assert_eq!(read(&session, "buggy.py"), after, "{name}: the second run changes nothing");
    }
}

#[test]
fn a_likely_repair_is_made_when_asked_for() {
    for name in ["pai-shared-expert-gate", "am-full-tensor-lm-head", "tune-tp-token-count"] {
        let session = bug(name);
        let ran = concise(&session, &["--fix", UNCERTAIN, "buggy.py"]);
        assert!(ran.code == 0 && ran.out.is_empty() && ran.err.starts_with("repaired "), "{name}: {ran:?}");
        assert_eq!(signatures(&session, "buggy.py"), signatures(&repaired_by_hand(name), "fixed.py"), "{name}");
    }
}

#[test]
fn a_bug_without_a_certain_repair_stays_as_it_is() {
    for name in ["bigcode-mqa-kv-grads", "mb-expert-lora-partial", "am-full-tensor-lm-head", "vo-gather-bwd-no-reduce"]
    {
        let session = bug(name);
        let before = read(&session, "buggy.py");
        assert_eq!(concise(&session, &["--fix", "buggy.py"]).code, 1, "{name}");
        assert_eq!(read(&session, "buggy.py"), before, "{name}");
    }
}

#[test]
fn a_repair_keeps_the_rest_of_the_file_and_imports_what_it_calls() {
    let session = Session::new();
    session.write("m.py", COLUMN.replace('\n', "\r\n"));
    let shown = session.run(&["check", "--diff"]);
    assert_eq!(shown.code, 1, "{shown:?}");
    assert!(shown.out.starts_with("--- m.py\n+++ m.py\n@@ -1,9 +1,9 @@\n"), "{shown:?}");
    assert_eq!(read(&session, "m.py"), COLUMN.replace('\n', "\r\n"), "`--diff` writes nothing");
    let ran = concise(&session, &["--fix"]);
    assert!(ran.code == 0 && ran.err.contains("repaired 1 finding in 1 file"), "{ran:?}");
    let call = "F.linear(copy_to_tensor_model_parallel_region(x), w))   # odd   spacing stays";
    let wanted = COLUMN.replace("F.linear(x, w))   # odd   spacing stays", call).replace(
        "import reduce_from_tensor_model_parallel_region",
        "import reduce_from_tensor_model_parallel_region, copy_to_tensor_model_parallel_region",
    );
    assert_eq!(read(&session, "m.py"), wanted.replace('\n', "\r\n"));
    assert_eq!(session.run(&["check", "--diff"]).code, 0, "nothing is left to change");
}

#[test]
fn what_is_right_in_one_configuration_only_is_repaired_in_the_other() {
    let session = Session::new();
    let text = repository("corpus/tour/block.py");
    session.write("block.py", &text);
    let ran = concise(&session, &["--fix"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let after = read(&session, "block.py");
    assert!(
        after.contains("x = copy_to_tensor_model_parallel_region(reduce_from_tensor_model_parallel_region(out))"),
        "{after}"
    );
}

#[test]
fn what_is_added_before_a_reduction_moves_behind_it() {
    let session = Session::new();
    session.write("a.py", repository("corpus/tour/activation.py"));
    let before = read(&session, "a.py");
    assert_eq!(concise(&session, &["--fix"]).code, 1, "the other function has a mistake of its own");
    let wanted = before.replace("region(partial + bias)", "region(partial) + bias");
    assert_eq!(read(&session, "a.py"), wanted);
}

#[test]
fn silent_files_and_files_that_are_not_named_are_not_touched() {
    let session = Session::new();
    session.write("a.py", COLUMN);
    session.write("b.py", COLUMN);
    session.write("right.py", "x = 1\n");
    let ran = concise(&session, &["--fix", "a.py", "right.py"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_ne!(read(&session, "a.py"), COLUMN);
    assert_eq!(read(&session, "b.py"), COLUMN);
    assert_eq!(read(&session, "right.py"), "x = 1\n");
}

#[test]
fn only_what_is_selected_is_repaired() {
    let session = Session::new();
    session.write("m.py", COLUMN);
    assert_eq!(concise(&session, &["--fix", "--select", "SPMD6"]).code, 0);
    assert_eq!(read(&session, "m.py"), COLUMN);
    assert_eq!(concise(&session, &["--fix", "--ignore", "invariant-mixed"]).code, 0);
    assert_eq!(read(&session, "m.py"), COLUMN);
}

#[cfg(unix)]
#[test]
fn files_keep_their_permissions_and_links() {
    use std::os::unix::fs::PermissionsExt;
    let session = Session::new();
    session.write("real/m.py", COLUMN);
    let real = session.folder.join("real/m.py");
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o751)).expect("permissions can be set");
    std::os::unix::fs::symlink(&real, session.folder.join("link.py")).expect("links can be made");
    assert_eq!(concise(&session, &["--fix", "link.py"]).code, 0);
    let link = std::fs::symlink_metadata(session.folder.join("link.py")).expect("the link is there");
    assert!(link.file_type().is_symlink());
    let mode = std::fs::metadata(&real).expect("the file is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o751);
    assert_ne!(read(&session, "real/m.py"), COLUMN);
    assert_eq!(std::fs::read_dir(session.folder.join("real")).expect("a folder").count(), 1, "nothing is left behind");
}

#[test]
fn other_encodings_and_standard_input_are_refused() {
    let session = Session::new();
    let mut latin = b"# -*- coding: latin-1 -*-\n# \xe9\n".to_vec();
    latin.extend_from_slice(COLUMN.as_bytes());
    session.write("m.py", &latin);
    let ran = concise(&session, &["--fix"]);
    assert!(ran.code == 2 && ran.err.contains("cannot write `m.py`: it is not UTF-8"), "{ran:?}");
    assert_eq!(std::fs::read(session.folder.join("m.py")).expect("the file is there"), latin);
    let piped = session.run_with(&["check", "--fix", "--stdin-filename", "n.py", "-"], COLUMN);
    assert!(piped.code == 2 && piped.err.contains("standard input cannot be changed"), "{piped:?}");
    let shown = session.run_with(&["check", "--diff", "--stdin-filename", "n.py", "-"], COLUMN);
    assert!(shown.code == 1 && shown.out.contains("+++ n.py"), "{shown:?}");
}

#[test]
fn the_byte_order_mark_stays() {
    let session = Session::new();
    session.write("m.py", format!("\u{feff}{COLUMN}"));
    assert_eq!(concise(&session, &["--fix"]).code, 0);
    assert!(read(&session, "m.py").starts_with("\u{feff}import torch\n"));
}

#[test]
fn small_repairs_of_practice() {
    let head = "import torch.distributed as dist\n\n\ndef f(x, group):\n";
    let cases = [
        (
            "    dist.all_reduce(x, group=group, async_op=True)\n    return x / 2\n",
            "    dist.all_reduce(x, group=group)\n    return x / 2\n",
        ),
        (
            "    x = x + 1  # spmd: ignore[invariant-mixed] no reason left\n    return x\n",
            "    x = x + 1\n    return x\n",
        ),
        ("    # spmd: ignore[invariant-mixed] no reason left\n    return x\n", "    return x\n"),
    ];
    for (bad, good) in cases {
        let session = Session::new();
        session.write("m.py", format!("{head}{bad}"));
        let ran = concise(&session, &["--fix"]);
        assert_eq!(read(&session, "m.py"), format!("{head}{good}"), "{ran:?}");
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}

#[test]
fn annotations_are_written_where_all_is_known_and_change_nothing() {
    let session = Session::new();
    let text = "\
from megatron.core.tensor_parallel.mappings import copy_to_tensor_model_parallel_region


def copied(x):
    return copy_to_tensor_model_parallel_region(x)


class Layer:
    @staticmethod
    def twice(x):
        return copied(x) * 2


def unknown(y):
    return y
";
    session.write("m.py", text);
    let before = session.run(&["types", "m.py"]).out;
    let shown = session.run(&["check", "--annotate", "--diff"]);
    assert!(shown.code == 1 && shown.out.contains("+# spmd: x: {tp: I} -> {tp: R}\n def copied(x):"), "{shown:?}");
    let ran = session.run(&["check", "--annotate"]);
    assert!(ran.code == 0 && ran.err.contains("wrote 2 signatures in 1 file"), "{ran:?}");
    let after = read(&session, "m.py");
    assert!(after.contains("    @staticmethod\n    # spmd: x: {tp: I} -> {tp: R}\n    def twice(x):"), "{after}");
    let plain = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.splitn(3, ':').nth(2).unwrap_or(line).to_owned()).collect()
    };
    assert_eq!(plain(&session.run(&["types", "m.py"]).out), plain(&before));
    assert_eq!(session.run(&["check", "--annotate"]).err, "no findings in 1 file\n");
    assert_eq!(read(&session, "m.py"), after);
}

#[test]
fn findings_are_suppressed_with_a_reason() {
    let session = Session::new();
    session.write("m.py", COLUMN);
    let bare = session.run(&["check", "--add-ignore", " "]);
    assert!(bare.code == 2 && bare.err.contains("needs a reason"), "{bare:?}");
    let ran = session.run(&["check", "--add-ignore", "see ticket 7"]);
    assert!(ran.code == 0 && ran.err.contains("suppressed 1 finding in 1 file"), "{ran:?}");
    let text = read(&session, "m.py");
    assert!(text.contains("# odd   spacing stays  # spmd: ignore[invariant-mixed] see ticket 7\n"), "{text}");
    assert_eq!(session.run(&["check"]).code, 0);
    session.write("b.py", BAD);
    assert_eq!(
        session.run(&["check", "--add-ignore", "why"]).code,
        1,
        "a comment that does not parse is mended, not ignored"
    );
}

#[test]
fn a_fix_in_json_names_its_edits() {
    let session = Session::new();
    session.write("m.py", COLUMN);
    let out = session.run(&["check", "--output-format", "json"]).out;
    let array: Value = serde_json::from_str(&out).expect("output is JSON");
    let fix = &array[0]["fix"];
    assert_eq!(fix["applicability"], "safe", "{fix}");
    assert_eq!(fix["edits"][0]["text"], "copy_to_tensor_model_parallel_region(x)");
}

/// Mistakes in a model of several files that have one repair.
#[test]
fn single_mistakes_in_a_model_are_repaired_where_they_are() {
    let model = ["__init__", "attention", "layers", "loss", "mlp", "model", "moe", "train"];
    let cases = [
        (
            "layers",
            "input_parallel = copy_to_tensor_model_parallel_region(input_, group=self.tp_group)",
            "input_parallel = input_",
        ),
        (
            "layers",
            "gather_from_sequence_parallel_region(input_, group=self.tp_group)",
            "gather_from_sequence_parallel_region(input_, tensor_parallel_output_grad=False, group=self.tp_group)",
        ),
        (
            "layers",
            "reduced = reduce_from_tensor_model_parallel_region(partial_output, group=self.tp_group)",
            "reduced = copy_to_tensor_model_parallel_region(partial_output, group=self.tp_group)",
        ),
        ("moe", "gates = copy_to_tensor_model_parallel_region(probs, group=self.tp_group)", "gates = probs"),
    ];
    for (file, right, wrong) in cases {
        let session = Session::new();
        for name in model {
            let path = format!("model/{name}.py");
            if std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transformer_block").join(&path).exists() {
                session.write(&path, repository(&format!("tests/transformer_block/{path}")));
            }
        }
        let path = format!("model/{file}.py");
        let text = read(&session, &path);
        assert_eq!(text.matches(right).count(), 1, "{right}");
        session.write(&path, text.replace(right, wrong));
        let ran = concise(&session, &["--fix"]);
        assert!(ran.code == 0 && ran.out.is_empty(), "{wrong}: {ran:?}");
        assert_eq!(read(&session, &path), text, "{wrong}");
    }
}
