//! Edits that change one table which other files are judged by. In: small projects, versions of one of their files. Out: after each version
//! the findings of a fresh check, and so many that the table is known to matter. Never: a project in which the edited text is judged by
//! itself alone.

use super::client::{Client, Folder};
use super::edits::{fresh, heard};

/// Gives a file one version after the other. `files`: the project, first the file that is edited; each version with the number of findings.
fn follows(name: &str, files: &[(&str, &str)], versions: &[(&str, usize)]) {
    let folder = Folder::new(name);
    let paths: Vec<_> = files.iter().map(|(path, text)| folder.write(path, text)).collect();
    let mut client = Client::new(&[&folder.0], &["utf-32"]);
    client.open_file(&paths[0]);
    for (number, (text, count)) in versions.iter().enumerate() {
        client.change(&paths[0], number as i64 + 2, text);
        client.settle(&paths[0]);
        std::fs::write(&paths[0], text).expect("a file can be written");
        let found = heard(&client, &folder.0);
        assert_eq!(found, fresh(&folder.0), "{name}, version {number}");
        assert_eq!(found.len(), *count, "{name}, version {number}: {found:?}");
    }
    assert_eq!(client.end(), Some(0));
}

const MODEL: &str = r#"
import torch
import torch.nn as nn
import torch.nn.functional as F
from torchtitan.protocols.module import Module


class Up(Module):
    class Config(Module.Config):
        dim: int = 8

    def __init__(self, config: Config):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(8, 16))

    def forward(self, x):
        return F.linear(x, self.weight)


class Down(Up):
    def forward(self, h):
        return F.linear(h, self.weight)


class Block(Module):
    class Config(Module.Config):
        up: Up.Config
        down: Down.Config

    def __init__(self, config: Config):
        super().__init__()
        self.up = config.up.build()
        self.down = config.down.build()

    def forward(self, x):
        h = self.up(x)
        return self.down(h)
"#;

const DECLARED: &str = r#"
import spmd_types as spmd
from model import Block
from torchtitan.protocols.sharding import ShardingConfig, SpmdLayout


def set_block(config: Block.Config):
    config.up.sharding_config = ShardingConfig(
        state_shardings={"weight": SpmdLayout({"tp": spmd.S(0)})},
        out_src_shardings=SpmdLayout({"tp": spmd.S(-1)}),
    )
    config.down.sharding_config = ShardingConfig(
        state_shardings={"weight": SpmdLayout({"tp": spmd.S(1)})},
        in_src_shardings={"h": SpmdLayout({"tp": spmd.I})},
        in_dst_shardings={"h": SpmdLayout({"tp": spmd.R})},
    )
"#;

#[test]
fn declared_shardings_decide_calls_of_other_files() {
    let right = DECLARED.replace("spmd.I}", "spmd.S(-1)}").replace("\"tp\": spmd.R})}", "\"tp\": spmd.S(-1)})}");
    let other = DECLARED.replace("config.down.", "config.other.");
    let versions = [(DECLARED, 1), (&*right, 0), (DECLARED, 1), ("", 0), (DECLARED, 1), (&*other, 0), (DECLARED, 1)];
    follows("declared", &[("declared.py", ""), ("model.py", MODEL)], &versions);
    // Declared from the beginning.
    let noted = format!("{DECLARED}# A note.\n");
    let versions = [(&*noted, 1), (DECLARED, 1), ("", 0), (DECLARED, 1)];
    follows("at-first", &[("declared.py", DECLARED), ("model.py", MODEL)], &versions);
}

#[test]
fn a_decorator_decides_what_is_around_its_function() {
    // What stands near a function is a part of its text, as far as anybody can tell.
    let between = "# Nothing is said here.\n".repeat(40);
    let text = |dim: usize, before: &str| {
        format!(
            "{before}from torch.distributed._spmd.api import compile\n\
             from torch.distributed._spmd.parallel_mode import DataParallel\n\n\
             MODE = DataParallel(\"fully_shard\", input_batch_dim={dim})\n{between}\n\n\
             @compile(parallel_mode=MODE)\ndef train_step(images):\n    return images.cumsum(1)\n"
        )
    };
    let versions = [(&*text(0, ""), 1), (&*text(1, ""), 2), (&*text(0, ""), 1), (&*text(1, "\n"), 2)];
    follows("decorated", &[("step.py", "")], &versions);
}

#[test]
fn the_mode_of_annotations_is_turned_on_elsewhere() {
    let annotating = "import torch\nimport torch_xla.distributed.spmd as xs\n\nx = torch.zeros(8, 8)\n\
                      xs.mark_sharding(x, xs.get_1d_mesh(\"data\"), (\"data\", None))\n";
    let on = "import torch_xla.runtime as xr\n\nxr.use_spmd()\n";
    follows("mode", &[("main.py", ""), ("marks.py", annotating)], &[("x = 1\n", 1), (on, 0), ("x = 2\n", 1), (on, 0)]);
}

#[test]
fn an_attribute_that_is_set_elsewhere_too_is_not_known() {
    let net = "import torch\nimport torch_xla.distributed.spmd as xs\nimport torch_xla.runtime as xr\n\nxr.use_spmd()\n\n\n\
               class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        \
               self.inner = torch.nn.Linear(16, 16)\n        self.own_mesh = xs.get_1d_mesh(\"model\")\n\n    \
               def mark(self):\n        xs.mark_sharding(self.inner.weight, self.own_mesh, (\"data\", None))\n";
    let sets = "def other(net, mesh):\n    net.own_mesh = mesh\n";
    let versions = [("x = 1\n", 1), (sets, 0), ("\n\n", 1), (sets, 0)];
    follows("set", &[("main.py", ""), ("net.py", net)], &versions);
}

#[test]
fn a_mesh_of_a_file_that_is_imported_may_be_used() {
    let mesh = "import numpy as np\nimport torch_xla.distributed.spmd as xs\nimport torch_xla.runtime as xr\n\nxr.use_spmd()\n\n\n\
                def own(x):\n    mesh = xs.Mesh(np.arange(8), (4, 2), (\"data\", \"model\"))\n    \
                xs.mark_sharding(x, mesh, (\"data\", None))\n";
    let imports = "import meshes\n";
    let versions = [("x = 1\n", 1), (imports, 0), ("x = 2\n", 1), (imports, 0)];
    follows("imported", &[("main.py", ""), ("meshes.py", mesh)], &versions);
}

#[test]
fn defaults_that_only_the_execution_of_a_file_shows() {
    let text = |good: &str| {
        format!(
            "# spmd: mesh dense = dp, tp\nGOOD = {good}\n\n\n\
             def right(x):  # spmd: x: {{tp: V}} -> {{tp: R}}\n    return other(x)\n\n\n\
             def wrong(x):  # spmd: x: {{tp: V}} -> {{tp: P}}\n    return other(x)\n\n\n\
             def make(x, good=GOOD):\n    if good:\n        return right(x)\n    return wrong(x)\n"
        )
    };
    let user = "from helper import make\n\n\ndef use(x):  # spmd: x: {tp: V} -> {tp: R}\n    return make(x)\n";
    let versions = [(&*text("1"), 0), (&*text("0"), 1), (&*text("1"), 0), (&*text("0"), 1)];
    follows("defaults", &[("helper.py", &text("0")), ("user.py", user)], &versions);
}
