//! `--mode`: a program for one device in a parallel mode. In: a temporary folder. Out: what `types` and `check` print.
//! Never: how a mode types, see `tests/spec/parallel_modes.md`. Next: `usage.rs`.

use super::support::{Ran, Session};

const TRAIN: &str = r#"
import torch.nn.functional as F


def train_step(model, images, labels):
    loss = F.mse_loss(images.flatten(1), labels)
    loss.backward()
    return images
"#;

fn run(arguments: &[&str]) -> Ran {
    let session = Session::new();
    session.write("train.py", TRAIN);
    session.run(arguments)
}

#[test]
fn a_mode_types_inputs_and_says_what_is_due() {
    let ran = run(&["types", "--mode", "data-parallel", "--variables", "train.py"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("train_step: images: {dp: S(0)}"), "{ran:?}");
    assert!(ran.out.contains("train_step: loss: {dp: P}"), "{ran:?}");
    assert!(
        ran.out.contains("due in data-parallel: all_reduce of the gradient of every parameter over `dp`"),
        "{ran:?}"
    );
    let ran = run(&["types", "--mode", "fsdp", "train.py"]);
    assert!(ran.out.contains("due in fsdp: reduce_scatter"), "{ran:?}");
}

#[test]
fn types_are_written_in_three_notations() {
    let of =
        |notation| run(&["types", "--mode", "data-parallel", "--variables", "--notation", notation, "train.py"]).out;
    assert!(of("spmd").contains("images: {dp: S(0)}"));
    assert!(of("dtensor").contains("images: (dp: Shard(0))"));
    assert!(of("dtensor").contains("loss: (dp: Partial())"));
    assert!(of("xla").contains("images: ('dp',)"));
    assert!(of("xla").contains("loss: () {dp: P}"));
}

#[test]
fn a_mode_that_there_is_not_is_named() {
    let ran = run(&["types", "--mode", "data_paralel", "train.py"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("data-parallel"), "{ran:?}");
    let session = Session::new();
    session.write("spmd-check.toml", "mode = \"data-paralel\"\n");
    session.write("train.py", TRAIN);
    let ran = session.run(&["check", "train.py"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("did you mean `data-parallel`?"), "{ran:?}");
}

#[test]
fn global_follows_split_dims_without_ranks() {
    let session = Session::new();
    session.write("spmd-check.toml", "global = true\n[mesh]\ndp = 2\ntp = 4\n");
    let source = "import torch.nn.functional as F\n\n\n\
                  # spmd: x: {dp: S(0), tp: R}, w: {dp: R, tp: S(0)}, v: {dp: R, tp: S(1)}\n\
                  def mlp(x, w, v):\n    h = F.gelu(F.linear(x, w))\n    return F.linear(h, v)\n";
    session.write("mlp.py", source);
    let ran = session.run(&["types", "--variables", "mlp.py"]);
    assert!(ran.out.contains("mlp.py:6: mlp: h: {dp: S(0), tp: S(-1)}"), "{ran:?}");
    assert!(ran.out.contains("mlp: return: {dp: S(0), tp: P}"), "{ran:?}");
}
