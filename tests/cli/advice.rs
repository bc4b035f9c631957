//! What findings offer to do. In: a temporary folder. Out: the lines of help. Never: titles, which belong to `tests/spec`.
//! Next: `src/diagnostics/words/`.

use super::support::{Ran, Session};

const MIXED: &str = "# spmd: mesh dense = dp, tp\n\n\n# spmd: i: {tp: I}, v: {tp: V}, p: {tp: P}\n\
                     def f(i, v, p):\n    return i + v, p.relu()\n";

const DIVIDED: &str = r#"import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def train(model, loader, optimizer):
    model = DistributedDataParallel(model)
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss = loss / dist.get_world_size()
        loss.backward()
        optimizer.step()
"#;

fn help(ran: &Ran) -> Vec<&str> {
    ran.out.lines().filter_map(|line| line.split_once("= help: ")).map(|(_, text)| text).collect()
}

#[test]
fn code_of_a_package_is_offered_where_the_project_imports_it() {
    let session = Session::new();
    session.write("a.py", MIXED);
    let ran = session.run(&["check", "a.py"]);
    let words = "pass `i` through an autograd function that returns it, and whose backward sums the gradient over `tp`";
    assert!(help(&ran).contains(&words), "{ran:?}");
    assert!(!ran.out.contains("spmd."), "{ran:?}");
    session.write("b.py", "import spmd_types as spmd\n");
    let ran = session.run(&["check", "a.py"]);
    assert!(help(&ran).contains(&"spmd.convert(i, tp, src=spmd.I, dst=spmd.R)"), "{ran:?}");
    assert!(!help(&ran).contains(&words), "{ran:?}");
}

#[test]
fn a_division_by_the_number_of_ranks_beside_a_mean_is_to_be_removed() {
    let session = Session::new();
    session.write("train.py", DIVIDED);
    let ran = session.run(&["check", "train.py"]);
    let line = "remove the division by the number of ranks at line 11: the wrapper averages already";
    assert_eq!(help(&ran), [line], "{ran:?}");
    // What is no division by exactly this number is told as a factor.
    session.write("train.py", DIVIDED.replace("loss / dist", "loss * dist"));
    let ran = session.run(&["check", "train.py"]);
    assert_eq!(help(&ran), ["one more factor of `1/world` puts it right"], "{ran:?}");
}

#[test]
fn sums_are_factors_in_parentheses() {
    let session = Session::new();
    session.write("train.py", DIVIDED.replace("dist.get_world_size()", "(loader.size + 1)"));
    let ran = session.run(&["types", "--scales", "train.py"]);
    assert!(ran.out.contains("loss = 1/(tokens*(loader.size+1))"), "{ran:?}");
}
