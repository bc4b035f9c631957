#!/usr/bin/env python3
"""Single mistakes in a real tree: mutated_tree.py BINARY TREE [--count 200] [--seed 1] [--only TEXT] [--jobs 2]

TREE is a package of somebody else's, such as megatron-core. Every place in it where a mistake of distribution can be made by one edit is
found: a mapping function that is left out or taken for its opposite, a collective without a result that is left out, another group, another
reduction, a mark of a parameter that is left out. A random part of these is made, one at a time in a copy, the whole tree is checked, and
the findings are compared with those of the tree as it is. A line for each mutant, then how many of each kind have a new error.

Not every mutant is a bug: a sum may be for a log, a branch that of one rank. The number is no grade; what is missed shows what real code
hides from the checker. Tests are left out. The tree is only read.
"""

import argparse
import ast
import collections
import concurrent.futures
import json
import pathlib
import queue
import random
import shutil
import subprocess
import sys
import tempfile

OPPOSITES = {
    "copy_to_tensor_model_parallel_region": "reduce_from_tensor_model_parallel_region",
    "reduce_from_tensor_model_parallel_region": "copy_to_tensor_model_parallel_region",
    "scatter_to_tensor_model_parallel_region": "gather_from_tensor_model_parallel_region",
    "gather_from_tensor_model_parallel_region": "scatter_to_tensor_model_parallel_region",
    "gather_from_sequence_parallel_region": "reduce_scatter_to_sequence_parallel_region",
    "reduce_scatter_to_sequence_parallel_region": "gather_from_sequence_parallel_region",
    "scatter_to_sequence_parallel_region": "gather_from_sequence_parallel_region",
}
MAPPINGS = set(OPPOSITES) | {
    "reduce_scatter_last_dim_to_tensor_parallel_region",
    "all_gather_last_dim_from_tensor_parallel_region",
    "differentiable_all_reduce_sum",
    "differentiable_identity",
    "differentiable_all_gather",
    "differentiable_reduce_scatter_sum",
    "copy_to_model_parallel_region",
    "reduce_from_model_parallel_region",
    "gather_from_model_parallel_region",
    "scatter_to_model_parallel_region",
}
COLLECTIVES = {
    "all_reduce",
    "reduce_scatter_tensor",
    "all_gather_into_tensor",
    "_all_gather_base",
    "_reduce_scatter_base",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "all_to_all_single",
    "reduce",
}
MARKS = ("sequence_parallel", "allreduce", "tensor_model_parallel", "average_gradients_across_tp_domain")
# What is on the left in the text of a group becomes what is on the right.
GROUPS = [
    ("tensor_model_parallel", "data_parallel"),
    ("tp_group", "cp_group"),
    ("tp", "dp"),
    ("data_parallel", "tensor_model_parallel"),
    ("dp", "tp"),
    ("cp", "tp"),
    ("ep_group", "tp_group"),
]
OPERATIONS = [("SUM", "AVG"), ("MAX", "SUM"), ("AVG", "SUM")]

Mutant = collections.namedtuple("Mutant", "path kind line text old")


def last_name(callee):
    return getattr(callee, "id", None) or getattr(callee, "attr", None)


class Source:
    """A file whose nodes can be replaced by texts."""

    def __init__(self, path):
        self.path, self.raw = path, path.read_bytes()
        self.tree = ast.parse(self.raw)
        self.lines = [0]
        for line in self.raw.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))

    def span(self, node):
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[node.end_lineno - 1] + node.end_col_offset

    def text(self, node):
        start, end = self.span(node)
        return self.raw[start:end].decode()

    def replaced(self, kind, node, by):
        start, end = self.span(node)
        old = " ".join(self.text(node).split())[:80]
        return Mutant(self.path, kind, node.lineno, self.raw[:start] + by.encode() + self.raw[end:], old)


def mutants(source):
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            if last_name(call.func) in COLLECTIVES:
                yield source.replaced("left out", node, "pass")
            mark = call.args[1] if last_name(call.func) == "setattr" and len(call.args) > 1 else None
            if isinstance(mark, ast.Constant) and mark.value in MARKS:
                yield source.replaced("mark left out", node, "pass")
        if isinstance(node, ast.Call):
            yield from of_call(source, node)


def of_call(source, call):
    name = last_name(call.func)
    if name in MAPPINGS and call.args:
        yield source.replaced("mapping left out", call, source.text(call.args[0]))
    if name in OPPOSITES and call.args:
        yield source.replaced("opposite", call.func, source.text(call.func).replace(name, OPPOSITES[name]))
    if name not in COLLECTIVES | MAPPINGS:
        return
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    group = given.get("group")
    if group is not None and not isinstance(group, ast.Constant):
        text = source.text(group)
        change = next(((old, new) for old, new in GROUPS if old in text), None)
        if change:
            yield source.replaced("other group", group, text.replace(*change))
        if name in ("all_reduce", "reduce_scatter_tensor", "reduce_scatter") and "op" not in given:
            yield source.replaced("other reduction", group, f"{text}, op=torch.distributed.ReduceOp.AVG")
    if "op" in given:
        text = source.text(given["op"])
        change = next(((old, new) for old, new in OPERATIONS if old in text), None)
        if change:
            yield source.replaced("other reduction", given["op"], text.replace(*change))


def findings(binary, tree):
    command = [binary, "check", "--output-format", "json", "--jobs", "1", "."]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    return collections.Counter((f["severity"], f["code"], f["message"]) for f in json.loads(done.stdout))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("tree", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="files with this in their path")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    found = []
    for path in sorted(options.tree.rglob("*.py")):
        below = str(path.relative_to(options.tree))
        if "test" in below or options.only not in below:
            continue
        try:
            found.extend(mutants(Source(path)))
        except (SyntaxError, ValueError):
            continue
    random.Random(options.seed).shuffle(found)
    usual = findings(options.binary, options.tree)
    counts = collections.defaultdict(lambda: [0, 0])
    with tempfile.TemporaryDirectory() as folder:
        copies = queue.Queue()
        for number in range(options.jobs):
            copies.put(shutil.copytree(options.tree, pathlib.Path(folder) / str(number)))

        def checked(mutant):
            copy = copies.get()
            file = copy / mutant.path.relative_to(options.tree)
            before = file.read_bytes()
            try:
                file.write_bytes(mutant.text)
                return mutant, findings(options.binary, copy) - usual
            finally:
                file.write_bytes(before)
                copies.put(copy)

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for mutant, new in pool.map(checked, found[: options.count]):
                errors = [f"{code} {message}" for severity, code, message in new if severity == "error"]
                counts[mutant.kind][0] += bool(errors)
                counts[mutant.kind][1] += 1
                place = f"{mutant.path.relative_to(options.tree)}:{mutant.line}"
                print("found " if errors else "missed", mutant.kind, place, "|", mutant.old, "|", *errors[:1])
    for kind, (seen, all_of_it) in sorted(counts.items()):
        print(f"{kind}: {seen} of {all_of_it}")
    print(f"together: {sum(c[0] for c in counts.values())} of {sum(c[1] for c in counts.values())}, of {len(found)} places")


if __name__ == "__main__":
    main()
