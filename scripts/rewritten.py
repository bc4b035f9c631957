#!/usr/bin/env python3
"""Rewrites programs without changing what they mean, and shows which findings depend on how they are written.

usage: rewritten.py BINARY [FOLDER ...]

FOLDER has programs in folders of their own (NAME/buggy.py); by default those of tests/unseen and corpus/bugs. Of tests/unseen the halves that
nobody reads (`h`) are left out. Each program is printed anew, and once more after each rewriting:

  steps      every call and every sum inside an expression has a variable of its own
  inline     a variable for the next statement alone is written out there
  returned   what is returned has a variable first
  measured   the body of each function stands in `with record_function(...)`
  full       `dist.x` is `torch.distributed.x`
  imported   collectives are imported by name
  turned     `if not a: y else: x` for `if a: x else: y`
  nested     what follows an early exit stands in its `else`
  placed     the group of an `all_reduce` is given by position
  bare       without annotations

A line for each finding that is gone or new after a rewriting, and a table at the end. A finding that is gone is no mistake by itself: a
name may be the only thing that tells. One that is new in a program that means the same is one too many, or was missing.
"""

import ast
import copy
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Calls that are no values.
PLAIN_CALLS = {"super", "range", "len", "isinstance", "list"}
COLLECTIVES = {
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "get_rank",
    "get_world_size",
    "init_process_group",
    "reduce_scatter",
    "reduce_scatter_tensor",
}
LAZY = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp, ast.Await, ast.Yield, ast.NamedExpr)
EXITS = (ast.Return, ast.Continue, ast.Raise)


def assigned(name, value):
    return ast.Assign([ast.Name(name, ast.Store())], value, lineno=1)


class Blocks(ast.NodeTransformer):
    """Rewrites blocks of statements inside functions."""

    def visit_FunctionDef(self, node):
        self.enter(node)
        node.body = self.block(node.body)
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def enter(self, node):
        pass

    def block(self, statements):
        out = []
        for statement in statements:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                out.append(self.visit(statement))
                continue
            for field in ("body", "orelse", "finalbody"):
                if getattr(statement, field, None):
                    setattr(statement, field, self.block(getattr(statement, field)))
            for handler in getattr(statement, "handlers", None) or []:
                handler.body = self.block(handler.body)
            self.statement(statement, out)
        return out


class Steps(Blocks):
    count = 0

    def statement(self, statement, out):
        if isinstance(statement, (ast.Assign, ast.Return, ast.Expr, ast.AugAssign)) and statement.value is not None:
            statement.value = self.split(statement.value, out, top=True)
        out.append(statement)

    def split(self, e, out, top=False):
        if isinstance(e, LAZY):
            return e
        for field, value in ast.iter_fields(e):
            if isinstance(value, ast.expr):
                if isinstance(e, ast.Call) and field == "func":
                    if isinstance(value, ast.Attribute):
                        value.value = self.split(value.value, out)
                else:
                    setattr(e, field, self.split(value, out))
            elif isinstance(value, list):
                for i, item in enumerate(value):
                    if isinstance(item, ast.expr) and not isinstance(item, ast.Starred):
                        value[i] = self.split(item, out)
                    elif isinstance(item, ast.keyword) and item.arg:
                        item.value = self.split(item.value, out)
        plain = isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id in PLAIN_CALLS
        if top or plain or not isinstance(e, (ast.Call, ast.BinOp)):
            return e
        self.count += 1
        name = f"step{self.count}"
        out.append(assigned(name, e))
        return ast.Name(name, ast.Load())


class Inline(Blocks):
    uses: dict = {}

    def enter(self, node):
        self.uses = {}
        for n in ast.walk(node):
            if isinstance(n, ast.Name):
                self.uses.setdefault(n.id, []).append(n)

    def statement(self, statement, out):
        before = out[-1] if out else None
        single = isinstance(before, ast.Assign) and len(before.targets) == 1 and isinstance(before.targets[0], ast.Name)
        if single and isinstance(statement, (ast.Assign, ast.Return, ast.Expr)) and statement.value is not None:
            uses = self.uses.get(before.targets[0].id, [])
            loads = [u for u in uses if isinstance(u.ctx, ast.Load)]
            inside = list(ast.walk(statement.value))
            lazy = any(isinstance(x, (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.DictComp)) for x in inside)
            if len(uses) == 2 and len(loads) == 1 and not lazy and any(x is loads[0] for x in inside):
                load, value = loads[0], before.value

                class Put(ast.NodeTransformer):
                    def visit_Name(self, n):
                        return value if n is load else n

                statement.value = Put().visit(statement.value)
                out.pop()
        out.append(statement)


class Returned(Blocks):
    def statement(self, statement, out):
        simple = (ast.Name, ast.Constant, ast.Tuple)
        if isinstance(statement, ast.Return) and statement.value is not None and not isinstance(statement.value, simple):
            out.append(assigned("returned", statement.value))
            statement.value = ast.Name("returned", ast.Load())
        out.append(statement)


class Measured(ast.NodeTransformer):
    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        body, doc = node.body, []
        if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            doc, body = body[:1], body[1:]
        if body and not any(isinstance(x, (ast.Global, ast.Nonlocal)) for x in body):
            context = ast.parse("torch.profiler.record_function('x')", mode="eval").body
            node.body = [*doc, ast.With([ast.withitem(context, None)], body)]
        return node


class Full(ast.NodeTransformer):
    def visit_Name(self, node):
        loads = node.id == "dist" and isinstance(node.ctx, ast.Load)
        return ast.parse("torch.distributed", mode="eval").body if loads else node


class Imported(ast.NodeTransformer):
    def __init__(self):
        self.names = set()

    def visit_Attribute(self, node):
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "dist" and node.attr in COLLECTIVES:
            self.names.add(node.attr)
            return ast.Name(node.attr, ast.Load())
        return node

    def visit_Module(self, node):
        self.generic_visit(node)
        future = lambda x: isinstance(x, ast.ImportFrom) and x.module == "__future__"
        imports = (i for i, x in enumerate(node.body) if isinstance(x, (ast.Import, ast.ImportFrom)) and not future(x))
        if self.names:
            names = [ast.alias(name, None) for name in sorted(self.names)]
            node.body.insert(next(imports, 0), ast.ImportFrom("torch.distributed", names, 0))
        return node


class Turned(ast.NodeTransformer):
    def visit_If(self, node):
        self.generic_visit(node)
        chain = len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)
        if node.orelse and not chain:
            node.test = ast.UnaryOp(ast.Not(), node.test)
            node.body, node.orelse = node.orelse, node.body
        return node


class Nested(ast.NodeTransformer):
    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        node.body = self.block(node.body)
        return node

    def block(self, body):
        for i, x in enumerate(body[:-1]):
            if isinstance(x, ast.If) and not x.orelse and isinstance(x.body[-1], EXITS):
                x.orelse = self.block(body[i + 1 :])
                return body[: i + 1]
        return body


class Placed(ast.NodeTransformer):
    def visit_Call(self, node):
        self.generic_visit(node)
        given = {k.arg: k.value for k in node.keywords}
        of_dist = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "dist"
        if of_dist and node.func.attr == "all_reduce" and len(node.args) == 1 and "group" in given and set(given) <= {"op", "group"}:
            operator = given.get("op") or ast.parse("dist.ReduceOp.SUM", mode="eval").body
            node.args, node.keywords = [*node.args, operator, given["group"]], []
        return node


class Bare(ast.NodeTransformer):
    in_class = False

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_AnnAssign(self, node):
        return node if self.in_class or node.value is None else ast.Assign([node.target], node.value, lineno=1)

    def visit_ClassDef(self, node):
        return self.inside(node, True)

    def visit_FunctionDef(self, node):
        node.returns = None
        return self.inside(node, False)

    def inside(self, node, in_class):
        outer, self.in_class = self.in_class, in_class
        self.generic_visit(node)
        self.in_class = outer
        return node


WAYS = {
    "steps": Steps,
    "inline": Inline,
    "returned": Returned,
    "measured": Measured,
    "full": Full,
    "imported": Imported,
    "turned": Turned,
    "nested": Nested,
    "placed": Placed,
    "bare": Bare,
}


def codes(binary, tree):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "program.py").write_text(ast.unparse(ast.fix_missing_locations(tree)))
        command = [binary, "check", "--isolated", "-q", "--output-format", "concise", folder]
        out = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout
    return set(re.findall(r"\[(SPMD\d+)\]", out))


def programs(folders):
    for folder in folders:
        for path in sorted(folder.glob("**/buggy.py")):
            if not (path.parent.name.startswith("h") and "unseen" in path.parts):
                yield path


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__.split("\n\n")[1])
    folders = [pathlib.Path(f) for f in sys.argv[2:]] or [ROOT / "tests" / "unseen", ROOT / "corpus" / "bugs"]
    table = {way: [0, 0] for way in WAYS}
    for path in programs(folders):
        tree = ast.parse(path.read_text())
        plain = codes(sys.argv[1], copy.deepcopy(tree))
        for way, rewrite in WAYS.items():
            # A program without a finding tells only of findings that are new.
            other = codes(sys.argv[1], rewrite().visit(copy.deepcopy(tree)))
            table[way][0] += bool(plain)
            if plain - other:
                table[way][1] += 1
            for code in sorted(plain ^ other):
                print(f"{way:10} {'gone' if code in plain else 'new '} {code} {path.parent.parent.name}/{path.parent.name}")
    print()
    for way, (found, gone) in table.items():
        print(f"{way:10} {gone:4} of {found} programs lose a finding")


if __name__ == "__main__":
    main()
