//! Roots that are given up before they met anything. In: generated programs in which the mistake lies behind much that has no types.
//! Out: the mistake is found all the same. Never: how many steps a root may take. Next: `src/infer/limits.rs`.

mod support;

use spmd_check::Want;
use spmd_check::rules::builtin;
use std::fmt::Write;

const IMPORTS: &str = "import torch.nn.functional as F\nfrom megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region\n\n";

/// A function with a mistake, whose types its comment states.
const WRONG: &str = "# spmd: x: {tp: I}, w: {tp: S(0)}\ndef wrong(x, w):\n    return F.linear(x, w)\n\n";

fn found(program: &str, want: Want) -> Vec<u32> {
    let files = support::files([("program.py", program)]);
    let report = support::run(&builtin(), &files, want);
    report.diagnostics.iter().map(|found| support::line(&files, found)).collect()
}

/// `lines` statements that mean nothing to the checker.
fn filler(lines: usize) -> String {
    (0..lines).fold(String::new(), |mut text, n| {
        writeln!(text, "    v{n} = other.part{n}.of(v{n})").expect("text can be written to a string");
        text
    })
}

#[test]
fn a_long_function_is_read_to_its_end() {
    let calls = "    wrong(copy_to_tensor_model_parallel_region(x), w)\n";
    let program = format!("{IMPORTS}{WRONG}def long(other, x, w):\n{}{calls}", filler(1500));
    let line = 4 + 2;
    assert!(found(&program, Want::Types).contains(&line), "{:?}", found(&program, Want::Types));
    assert_eq!(found(&program, Want::Findings), found(&program, Want::Types));
}

#[test]
fn what_a_root_would_have_called_is_a_root() {
    // Thirty callees of forty statements each take more than a root may spend in vain; the last one calls what has the mistake.
    let mut program = format!("{IMPORTS}def inner(x, w):\n    y = copy_to_tensor_model_parallel_region(x)\n");
    program += "    return wrong(y, w)\n\n";
    program += WRONG;
    for n in 0..30 {
        write!(
            program,
            "def step{n}(other, x, w):\n{}    return {}\n\n",
            filler(40),
            match n {
                0 => "inner(x, w)".to_owned(),
                _ => format!("step{}(other, x, w)", n - 1),
            }
        )
        .expect("text can be written to a string");
    }
    program += "def main(other, x, w):\n    return step29(other, x, w)\n";
    let expected = found(&program, Want::Types);
    assert!(!expected.is_empty());
    assert_eq!(found(&program, Want::Findings), expected);
}

#[test]
fn what_stands_in_many_loops_is_found_as_without() {
    // Twenty loops in each other are as many as Python takes.
    let program = |loops: usize| {
        let mut text = "import torch\nimport torch.distributed as dist\n\n\nclass Layer(torch.nn.Module):\n".to_owned();
        text += "    def __init__(self, group):\n        super().__init__()\n        self.group = group\n";
        text +=
            "        self.inner = torch.nn.Linear(8, 8)\n\n    def forward(self, x, n):\n        y = self.inner(x)\n";
        text += "        out = torch.empty_like(y)\n";
        for depth in 0..loops {
            writeln!(text, "{}for i{depth} in range(n):", "    ".repeat(depth + 2)).expect("text can be written");
        }
        text + &"    ".repeat(loops + 2) + "dist.all_to_all_single(out, y, group=self.group)\n        return out\n"
    };
    for loops in [0, 1, 20] {
        assert_eq!(found(&program(loops), Want::Findings), [14 + loops as u32], "{loops}");
    }
}
