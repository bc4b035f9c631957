#!/usr/bin/env python3
"""Records what the run time makes of one operation on split tensors: tests/shard_propagation/records.tsv.

usage: scripts/shard_propagation.py > tests/shard_propagation/records.tsv      (needs torch and spmd_types from PyPI)

A row: the operation, the shapes of x, y, z on one rank, their types on an axis of 4 ranks, and the type of the result there, or
`error`. Rows that torch itself refuses are left out, and so is one of each two operations that the table has shown to be alike.
Operations come from tests/shard_propagation/operations.txt.
"""
import io
import itertools
import os
import sys
import warnings

warnings.filterwarnings("ignore")
import spmd_types as spmd
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: F401, names of the operations
from spmd_types.checker import typecheck
from torch.distributed.device_mesh import init_device_mesh

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = {
    1: [(8,), (8, 8), (4, 8), (2, 4, 8), (8, 1)],
    2: [(8,), (8, 8), (4, 8), (2, 4, 8)],
    3: [(8, 8), (4, 8), (8,)],
}


def main():
    dist.init_process_group(backend="fake", rank=0, world_size=8)
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    dp, tp = mesh.get_group("dp"), mesh.get_group("tp")
    axis = spmd.types.normalize_axis(tp)

    def show(value):
        if isinstance(value, (tuple, list)):
            value = value[0]
        if not isinstance(value, torch.Tensor) or not spmd.has_local_type(value):
            return None
        shard = spmd.types.partition_spec_get_shard(spmd.get_partition_spec(value), axis)
        return f"S({shard.dim})" if shard is not None else spmd.get_local_type(value)[axis].name

    def answer(operation, arguments):
        try:
            values = {
                n: spmd.assert_type(torch.randn(*s), {tp: eval("spmd." + t), dp: spmd.R})  # noqa: S307
                for n, s, t in arguments
            }
            return show(eval(operation.format(x="x", y="y", z="z"), globals() | values))  # noqa: S307
        except spmd.SpmdTypeError:
            return "error"
        except ValueError as e:
            return "error" if "reduce_op" in str(e) else None
        except Exception:
            return None

    operations = [line.rstrip("\n") for line in open(os.path.join(HERE, "../tests/shard_propagation/operations.txt"))]
    with spmd.set_current_mesh(mesh), typecheck(local=False):
        for operation in operations:
            names = [n for n in "xyz" if "{" + n + "}" in operation]
            for shapes in itertools.product(SHAPES[len(names)], repeat=len(names)):
                for types in itertools.product(*[["R"] + [f"S({i})" for i in range(len(s))] for s in shapes]):
                    if all(t == "R" for t in types):
                        continue
                    sys.stderr, old = io.StringIO(), sys.stderr
                    got = answer(operation, list(zip(names, shapes, types)))
                    sys.stderr = old
                    if got is not None:
                        sizes = " ".join(",".join(map(str, s)) for s in shapes)
                        print(operation, sizes, " ".join(types), got, sep="\t")


if __name__ == "__main__":
    main()
