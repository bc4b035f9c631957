#!/usr/bin/env python3
"""Records what PyTorch makes of distributed tensors: tests/dtensor/records.tsv.

usage: scripts/dtensor_cases.py > tests/dtensor/records.tsv      (needs torch from PyPI, 2.15 or later)

A row: a statement, its arguments, and what PyTorch says. An argument is `shape@mesh:placements`, or `shape` alone for a tensor of one
process. The answer: the placements of the result, `tensor` or `other`, after a `*` if a pending reduction was completed on the way;
or `error` with its text, one line. Operations are those of tests/shard_propagation/operations.txt.
"""
import io
import itertools
import os
import sys
import warnings

warnings.filterwarnings("ignore")
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: F401, names of the operations
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor  # noqa: F401
from torch.distributed.tensor.debug import CommDebugMode

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = {1: [(8,), (8, 8)], 2: [(8, 8)], 3: [(8, 8)]}
# Statements with one argument on mesh (2, 4), and what is not an operation.
STATEMENTS = {
    "8,8@dp,tp:S(0) S(1)": [
        "{x}.redistribute(mesh, [R, R])", "{x}.redistribute(mesh, [S(1), S(0)])", "{x}.redistribute(mesh, [R, P()])",
        "{x}.redistribute(mesh, [R, P('max')])", "{x}.redistribute(mesh, [R, S(2)])", "{x}.redistribute(mesh, [R, S(-1)])",
        "{x}.redistribute(tp, [R])", "{x}.redistribute(placements=[R, R])", "{x}.to_local()", "{x}.full_tensor()",
        "{x}.to_local(grad_placements=[R, P()])", "distribute_tensor({x}, mesh, [S(0), S(1)])",
        "distribute_tensor({x}, mesh, [S(0), R])", "distribute_tensor({x}, tp, [S(0)])", "DTensor.from_local({x}, mesh, [S(0), S(1)])",
        "torch.zeros_like({x})", "torch.ones_like({x})", "torch.empty_like({x})",
    ],
    "8,8@dp,tp:R P": [
        "{x}.redistribute(mesh, [R, R])", "{x}.redistribute(mesh, [R, S(0)])", "{x}.redistribute(mesh, [P(), P()])",
        "{x}.redistribute(mesh, [P(), R])", "{x}.redistribute(mesh, [R, P('avg')])", "{x}.redistribute(mesh, [S(0), P()])",
        "{x}.to_local()", "{x}.full_tensor()", "{x}.add_(1)", "{x}.mul_(2)", "{x}.relu_()", "{x}.neg_()", "{x}.zero_()",
    ],
    "8,8": [
        "distribute_tensor({x}, mesh, [S(0)])", "distribute_tensor({x}, mesh, [S(0), S(1)])", "distribute_tensor({x}, mesh)",
        "distribute_tensor({x}, tp, [S(2)])", "distribute_tensor({x}, tp, [S(-1)])", "distribute_tensor({x}, tp, [S(-3)])",
        "distribute_tensor({x}, tp, [S(0), R])", "DTensor.from_local({x}, tp, [S(1)])", "DTensor.from_local({x}, tp, [S(2)])",
        "DTensor.from_local({x}, tp, [S(-1)])", "DTensor.from_local({x}, mesh, [P('max'), P()])",
        "DTensor.from_local({x}, mesh, [P('avg'), P()])", "DTensor.from_local({x}, mesh, [P(), P()])",
        "mesh['dp']", "mesh['dp', 'tp']", "mesh['tp', 'dp']", "mesh['pp']", "tp['tp']", "tp['dp']", "plain['tp']", "mesh.get_group()",
        "mesh.get_group('tp')", "mesh.get_group(1)", "tp.get_group()", "mesh.get_local_rank()", "mesh.get_local_rank('dp')",
        "init_device_mesh('cpu', (2, 4), mesh_dim_names=('a',))", "init_device_mesh('cpu', (2, 4), mesh_dim_names=('a', 'a'))",
        "init_device_mesh('cpu', (2, 4), mesh_dim_names=('a', 'b'))", "init_device_mesh('cpu', (2, 4))",
    ],
}


def main():
    torch.set_num_threads(1)
    dist.init_process_group(backend="fake", rank=0, world_size=8)
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    plain = init_device_mesh("cpu", (2, 4))
    meshes = {"dp,tp": mesh, "dp": mesh["dp"], "tp": mesh["tp"]}
    names = {"mesh": mesh, "plain": plain, "dp": mesh["dp"], "tp": mesh["tp"], "R": Replicate(), "S": Shard, "P": Partial}

    def make(argument):
        shape, _, rest = argument.partition("@")
        sizes = [int(n) for n in shape.split(",")]
        if not rest:
            return torch.randn(*sizes)
        on, _, placements = rest.partition(":")
        mine = [Partial() if p == "P" else eval(p, names) for p in placements.split(" ")]  # noqa: S307
        for p in mine:
            if isinstance(p, Shard):
                sizes[p.dim] //= 2 if on == "dp" else 4 if on == "tp" else (2 if p is mine[0] else 4)
        return DTensor.from_local(torch.randn(*sizes), meshes[on], mine)

    def answer(statement, arguments):
        values = dict(zip("xyz", map(make, arguments)))
        mode = CommDebugMode()
        try:
            with mode:
                value = eval(statement.format(x="x", y="y", z="z"), globals() | names | values)  # noqa: S307
        except Exception as e:  # noqa: BLE001, whatever it is goes into the table
            return "error " + " ".join(str(e).split())[:160]
        done = mode.get_comm_counts()
        waiting = any(getattr(v, "placements", None) and any(p.is_partial() for p in v.placements) for v in values.values())
        star = "*" if waiting and any("all_reduce" in str(k) or "reduce_scatter" in str(k) for k in done) else ""
        if isinstance(value, (tuple, list)):
            value = value[0]
        if isinstance(value, DTensor):
            words = [str(p).replace("(sum)", "") for p in value.placements]
            return star + " ".join(words)
        return star + ("tensor" if isinstance(value, torch.Tensor) else "other")

    def row(statement, arguments):
        sys.stderr, old = io.StringIO(), sys.stderr
        got = answer(statement, arguments)
        sys.stderr = old
        return got

    for argument, statements in STATEMENTS.items():
        for statement in statements:
            print(statement, argument, row(statement, [argument]), sep="\t")
    operations = [line.rstrip("\n") for line in open(os.path.join(HERE, "../tests/shard_propagation/operations.txt"))]
    for operation in operations:
        used = [n for n in "xyz" if "{" + n + "}" in operation]
        for shapes in itertools.product(SHAPES[len(used)], repeat=len(used)):
            sizes = [",".join(map(str, s)) for s in shapes]
            # Only what works on tensors of one process.
            if row(operation, sizes).startswith("error"):
                continue
            for kinds in itertools.product(*[["R", "P"] + [f"S({i})" for i in range(len(s))] + ["plain", "dp"] for s in shapes]):
                strange = [k for k in kinds if k in ("plain", "dp")]
                if len(strange) == len(kinds) or len(strange) > 1 or all(k == "R" for k in kinds):
                    continue
                if strange and any(k not in ("R", *strange) for k in kinds):
                    continue
                arguments = [
                    s if k == "plain" else f"{s}@dp:R" if k == "dp" else f"{s}@tp:{k}" for s, k in zip(sizes, kinds)
                ]
                print(operation, " ; ".join(arguments), row(operation, arguments), sep="\t")


if __name__ == "__main__":
    main()
