#!/usr/bin/env python3
"""What is derived of the custom autograd functions of whole source trees.

    scripts/autograd_report.py BINARY NAME=TREE ... > tests/reports/autograd.md

Which functions communicate is decided here, from the syntax trees alone and without the checker: the forward or the backward of the
class, or a function of the tree that one of them calls, calls a collective. What is derived is asked of the checker
(`types --autograd --output-format json`).
"""

import ast
import json
import subprocess
import sys
from pathlib import Path

COLLECTIVES = {
    "all_reduce", "all_reduce_", "all_gather", "all_gather_into_tensor", "_all_gather_base", "reduce_scatter", "reduce_scatter_tensor",
    "_reduce_scatter_base", "all_to_all", "all_to_all_single", "all_gather_tensor", "all_gather_base", "reduce_scatter_base",
    "all_gather_into_tensor_coalesced", "permute_tensor", "all_to_all_single_autograd", "all_gather_object", "fused_all_gather_matmul",
    "fused_matmul_reduce_scatter", "inference_all_reduce",
}
ROOTED = {"broadcast", "reduce", "gather", "scatter"}
MODULES = {"dist", "distributed", "torch.distributed", "comm", "funcol", "functional_collectives", "ft_c", "_c10d_functional"}
POINT_TO_POINT = {"send", "recv", "isend", "irecv", "batch_isend_irecv", "P2POp"}


def dotted(node):
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else None
    return None


class Module:
    def __init__(self, name, is_package, tree):
        self.name, self.names, self.classes, self.all_classes = name, {}, {}, []
        self.package = name if is_package else name.rpartition(".")[0]
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self.imports(node)
            elif isinstance(node, ast.ClassDef):
                self.all_classes.append(node)
                self.classes.setdefault(node.name, node)
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.names.setdefault(node.name, ("def", node))
        for node in ast.walk(tree):
            # `gather = torch.distributed.all_gather_into_tensor`
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                target, value = node.targets[0].id, dotted(node.value)
                if value and value.rpartition(".")[2] in COLLECTIVES:
                    self.names.setdefault(target, ("collective", value))
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.names[node.name] = ("def", node)

    def imports(self, node):
        if isinstance(node, ast.Import):
            for a in node.names:
                self.names[a.asname or a.name.split(".")[0]] = ("path", a.name if a.asname else a.name.split(".")[0])
            return
        base = node.module or ""
        if node.level:
            parts = self.package.split(".")
            parts = parts[: len(parts) - (node.level - 1)]
            base = ".".join(parts + ([node.module] if node.module else []))
        for a in node.names:
            self.names[a.asname or a.name] = ("path", f"{base}.{a.name}")


class Tree:
    def __init__(self, root):
        self.modules, self.files = {}, {}
        for path in sorted(root.rglob("*.py")):
            parts = list(path.relative_to(root).with_suffix("").parts)
            package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if package else parts)
            try:
                tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
            except SyntaxError:
                continue
            module = Module(name, package, tree)
            self.modules[name], self.files[str(path)] = module, module
        self.by_tail = {}
        for name in self.modules:
            parts = name.split(".")
            for i in range(len(parts)):
                self.by_tail.setdefault(".".join(parts[i:]), name)

    def module(self, path):
        return self.modules.get(self.by_tail.get(path, path))

    def resolve(self, module, name, depth=0):
        """A function or class: (module, node)."""
        if depth > 6 or module is None:
            return None
        head, _, rest = name.partition(".")
        if not rest and head in module.names and module.names[head][0] == "def":
            return module, module.names[head][1]
        if head in module.classes:
            node = module.classes[head]
            if not rest:
                return module, node
            method = rest.split(".")[0]
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == method:
                    return module, item
            return (module, node) if method == "apply" else None
        if head in module.names and module.names[head][0] == "path":
            full = module.names[head][1] + ("." + rest if rest else "")
            parts = full.split(".")
            for i in range(len(parts) - 1, 0, -1):
                target = self.module(".".join(parts[:i]))
                if target is not None and target is not module:
                    return self.resolve(target, ".".join(parts[i:]), depth + 1)
        return None

    def kinds(self, module, node, seen):
        """How the body of a function communicates."""
        if id(node) in seen:
            return set()
        seen.add(id(node))
        out = set()
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name in ("forward", "backward"):
                    out |= self.kinds(module, item, seen)
            return out
        for call in ast.walk(node):
            if not isinstance(call, ast.Call):
                continue
            name = dotted(call.func)
            if name is None:
                continue
            base, _, last = name.rpartition(".")
            known = self.resolve(module, name)
            outside = known is None
            if not base and module.names.get(name, ("",))[0] == "collective":
                out.add("collective")
            elif last in COLLECTIVES and (base or outside):
                out.add("collective")
            elif last in ROOTED and base and (base in MODULES or base.split(".")[-1] in MODULES):
                out.add("rooted")
            elif last in POINT_TO_POINT and (base == "" or base.split(".")[-1] in MODULES) and outside:
                out.add("point-to-point")
            elif known is not None:
                out |= self.kinds(*known, seen)
        return out


def is_function(tree, module, node, depth=0):
    for base in node.bases:
        name = dotted(base) or ""
        if name.endswith("autograd.Function") or name in ("Function", "torch.autograd.function.Function"):
            return True
        known = tree.resolve(module, name) if depth < 4 else None
        if known and isinstance(known[1], ast.ClassDef) and known[1] is not node and is_function(tree, *known, depth + 1):
            return True
    return False


def communicating(root):
    tree = Tree(root)
    out = {}
    for path, module in tree.files.items():
        for node in module.all_classes:
            if not is_function(tree, module, node):
                continue
            kinds = tree.kinds(module, node, set())
            if kinds:
                out[(path, node.name, node.lineno, node.end_lineno)] = (kinds, node)
    return out


def derived(binary, root):
    run = subprocess.run([binary, "types", "--autograd", "--isolated", "-q", "--output-format", "json", str(root)],
                         capture_output=True, text=True)
    if not run.stdout:
        sys.exit(run.stderr)
    return json.loads(run.stdout)


def category(kinds, node):
    """Communication that the types do not describe; None if they do."""
    if "point-to-point" in kinds:
        return "point-to-point"
    if "rooted" in kinds:
        return "rooted collectives"
    methods = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
    forward, backward = methods.get("forward"), methods.get("backward")
    if forward is not None:
        own = {a.arg for a in forward.args.args}
        called = [c.func.id for c in ast.walk(forward) if isinstance(c, ast.Call) and isinstance(c.func, ast.Name)]
        if own & set(called):
            return "runs a function that it is given"
    if backward is not None and isinstance(backward.body[-1], ast.Raise):
        return "has no backward"
    return None


def report(binary, name, root):
    rows = derived(binary, root)
    found = communicating(root)
    lines, done, counted, outside = [], 0, 0, 0
    for (path, cls, start, end), (kinds, node) in sorted(found.items(), key=lambda f: f[0]):
        mine = [r for r in rows if r["class"] == cls and Path(r["path"]).resolve() == Path(path).resolve() and start <= r["line"] <= end]
        where = f"{Path(path).relative_to(root)}:{start}"
        texts = []
        for row in mine:
            when = f" when {' or '.join(row['when'])}" if row["when"] else ""
            if row["wrong"]:
                texts.append(f"finding{when}")
            elif row["principal"]:
                texts.append(f"`{row['principal']}`{when}")
        known = bool(texts)
        other = category(kinds, node)
        if not known and other:
            outside += 1
            lines.append(f"| {where} | {cls} | out of scope: {other} |")
            continue
        counted += 1
        done += known
        if not known:
            gaps = mine[0]["not_followed"] if mine else ["no forward and backward of its own"]
            gaps = [g.rpartition("/")[2] for g in gaps[:3]] or ["nothing fits"]
            texts = ["not derived: " + "; ".join(gaps)]
        lines.append(f"| {where} | {cls} | {'<br>'.join(dict.fromkeys(texts))} |")
    return lines, done, counted, outside


def main():
    binary, trees = sys.argv[1], [arg.split("=", 1) for arg in sys.argv[2:]]
    print("# What is derived of the autograd functions of seven trees\n")
    print("Made by `scripts/autograd_report.py`, which says what counts as communicating.\n")
    body, total = [], [0, 0, 0]
    print("| tree | derived or found wrong | communicate | out of scope |\n| --- | --- | --- | --- |")
    for name, path in trees:
        lines, done, counted, outside = report(binary, name, Path(path))
        total = [a + b for a, b in zip(total, (done, counted, outside))]
        print(f"| {name} | {done} | {counted} | {outside} |")
        body += [f"\n## {name}\n", "| where | class | type |", "| --- | --- | --- |", *lines]
    share = 100 * total[0] // max(total[1], 1)
    print(f"| all | {total[0]} ({share} %) | {total[1]} | {total[2]} |")
    print("\n".join(body))


if __name__ == "__main__":
    main()
