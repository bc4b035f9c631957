#!/usr/bin/env python3
"""Whether the time of a check grows with the size of the program and no faster.

usage: scaling.py [--binary target/release/spmd-check] [--runs 5] [--only copies|shapes] [--largest] [TREE ...]

Copies: each TREE (without one: a generated package) is checked 1, 2, 4 and 8 times over, every copy under package names of its own. The
processor time of a line may differ by 15 % from that of one copy. Shapes: programs that are all of one kind (a chain of 5,000
calling functions, a class with 500 methods, ...), each at half its size and at its size: twice the size may take 2.6 times as long,
three and a half times where blocks lie in blocks.
The exit code is 1 when something does not hold. With --largest also a file of 100 MB and one line of 10 MB.

Times are user processor time on one thread, the median of the runs.
"""

import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

FLAT = 0.15
TWICE = 2.6
# Shorter runs are mostly start-up.
SHORT = 0.15
# Up to the limits of the inference these grow faster: blocks in blocks. Beyond the limits (nesting, steps) they are cut.
NESTED = {"branches of an if": 3.6, "loops": 3.6}
LONGEST = 120


def run(command):
    """User seconds, megabytes, exit code, what was printed."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        end = time.monotonic() + LONGEST
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > end:
                process.kill()
                process.wait()
                return float("inf"), 0, None, ""
            time.sleep(0.002)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read(1 << 22).decode(errors="replace")
    kilobytes = usage.ru_maxrss / 1024 if sys.platform == "darwin" else usage.ru_maxrss
    return usage.ru_utime, kilobytes / 1024, process.returncode, text


def check(binary, path, *more):
    return run([binary, "check", "--isolated", "-j", "1", "--output-format", "concise", *more, str(path)])


def python_files(folder):
    return [path for path in folder.rglob("*.py") if path.is_file()]


def lines_below(folder):
    return sum(path.read_bytes().count(b"\n") for path in python_files(folder))


def packages(tree):
    """The names that are imported from the tree: its folders with Python files, and those one level further down."""
    return sorted({path.relative_to(tree).parts[0] for path in python_files(tree) if len(path.relative_to(tree).parts) > 1})


def copy(tree, target, number):
    """The tree with every one of its packages renamed, in its imports too."""
    names = packages(tree)
    word = "|".join(re.escape(name) for name in names)
    imports = re.compile(rf"^(\s*(?:from|import)\s+)({word})\b", re.MULTILINE)
    for path in python_files(tree):
        parts = list(path.relative_to(tree).parts)
        if len(parts) > 1:
            parts[0] += f"_{number}"
        else:
            parts[0] = f"copy{number}_{parts[0]}"
        new = target.joinpath(*parts)
        new.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_bytes().decode(errors="surrogateescape")
        if word:
            text = imports.sub(rf"\g<1>\g<2>_{number}", text)
        new.write_bytes(text.encode(errors="surrogateescape"))


def copies(binary, tree, runs, folder):
    """Rows of copies, lines, seconds, nanoseconds a line, megabytes; whether the cost of a line is flat."""
    flat = True
    base = None
    for count in (1, 2, 4, 8):
        target = folder / f"{tree.name}-{count}"
        for number in range(count):
            copy(tree, target, number)
        lines = lines_below(target)
        results = [check(binary, target) for _ in range(runs)]
        seconds = statistics.median(result[0] for result in results)
        memory = max(result[1] for result in results)
        each = 1e9 * seconds / max(1, lines)
        base = base or each
        flat &= abs(each / base - 1) <= FLAT
        print(f"{tree.name:<24} {count:>2}x {lines:>8} lines {seconds:>8.3f} s {each:>7.0f} ns a line {each / base:>6.2f} {memory:>6.0f} MB")
        shutil.rmtree(target)
    return flat


HEAD = "import torch\nimport torch.distributed as dist\n\n\n"


def chain(size):
    """Functions that each call the next."""
    text = HEAD + "def f0(x, group):\n    dist.all_reduce(x, group=group)\n    return x\n\n\n"
    return text + "".join(f"def f{i}(x, group):\n    y = x * 2\n    return f{i - 1}(y, group)\n\n\n" for i in range(1, size))


def ladder(size):
    """Functions that each call the next one twice."""
    text = HEAD + "def f0(x, group):\n    dist.all_reduce(x, group=group)\n    return x\n\n\n"
    return text + "".join(f"def f{i}(x, group):\n    return f{i - 1}(x, group) + f{i - 1}(x, group)\n\n\n" for i in range(1, size))


def methods(size):
    """One class whose methods call each other and share attributes."""
    text = HEAD + "class Layer(torch.nn.Module):\n    def __init__(self, group):\n        super().__init__()\n        self.group = group\n"
    text += "".join(f"        self.w{i} = torch.nn.Parameter(torch.empty(8))\n" for i in range(size // 10))
    for i in range(size):
        call = f"self.m{i - 1}(x)" if i else "x"
        text += f"\n    def m{i}(self, x):\n        y = {call} * self.w{i % max(1, size // 10)}\n"
        text += f"        dist.all_reduce(y, group=self.group)\n        self.a{i} = y\n        return y\n"
    return text


def statements(size):
    """One function."""
    body = ["    y = x * 2", "    z = y + x", "    dist.all_reduce(z, group=group)", "    x = z.view(-1, 4)", "    w = torch.cat([x, y])"]
    return HEAD + "def f(x, group):\n" + "\n".join(body[i % len(body)] for i in range(size)) + "\n    return x\n"


def flags(size):
    """One function whose paths are as many as 2 to the power of the flags."""
    names = ", ".join(f"flag{i}=False" for i in range(size))
    text = HEAD + f"def f(x, group, {names}):\n"
    for i in range(size):
        text += f"    if flag{i}:\n        dist.all_reduce(x, group=group)\n    else:\n        x = x * {i}\n"
    return text + "    return x\n"


def configured(size):
    """The same, by attributes of a configuration that several methods ask."""
    text = HEAD + "class Layer(torch.nn.Module):\n    def __init__(self, config, group):\n        super().__init__()\n"
    text += "        self.config = config\n        self.group = group\n"
    for i in range(size):
        text += f"        if config.flag{i}:\n            self.w{i} = torch.nn.Parameter(torch.empty(8))\n"
    text += "\n    def forward(self, x):\n"
    for i in range(size):
        text += f"        if self.config.flag{i} and not self.config.flag{(i + 7) % size}:\n            dist.all_reduce(x, group=self.group)\n"
    return text + "        return x\n"


def elements(size):
    return HEAD + "x = [" + "1, " * size + "]\n"


def entries(size):
    return HEAD + "x = {\n" + "".join(f"    'k{i}': {i},\n" for i in range(size)) + "}\n"


def brackets(size):
    return HEAD + "x = " + "[" * size + "]" * size + "\n"


def one_line(size):
    return "; ".join(f"x{i % 1000} = f(x{(i + 1) % 1000})" for i in range(size)) + "\n"


def classes(size):
    """A line of descent."""
    text = HEAD + "class C0(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    return text + "".join(f"\n\nclass C{i}(C{i - 1}):\n    def m{i}(self, x):\n        return self.forward(x)\n" for i in range(1, size))


def wide(size):
    """A function that everything calls."""
    text = HEAD + "def f(x, group):\n    dist.all_reduce(x, group=group)\n    return x\n"
    return text + "".join(f"\n\ndef g{i}(x, group):\n    return f(x * {i}, group)\n" for i in range(size))


def branches(size):
    return HEAD + "def f(x, n, group):\n    if n == 0:\n        pass\n" + "".join(
        f"    elif n == {i}:\n        dist.all_reduce(x, group=group)\n" for i in range(1, size)
    ) + "    return x\n"


def loops(size):
    """Loops in loops, and one after the other."""
    text = HEAD + "def f(x, n, group):\n"
    for i in range(size):
        pad = "    " * (1 + i % 12)
        text += f"{pad}for i{i} in range(n):\n{pad}    x = x + x\n{pad}    dist.all_reduce(x, group=group)\n"
    return text + "    return x\n"


def nest(size):
    """Loops in loops only; Python itself takes no more than 20."""
    text = HEAD + "def f(x, n, group):\n"
    for i in range(size):
        pad = "    " * (1 + i)
        text += f"{pad}for i{i} in range(n):\n{pad}    x = x + x\n{pad}    dist.all_reduce(x, group=group)\n"
    return text + "    return x\n"


def filled(size):
    """Loops that each fill a list of their own."""
    text = HEAD + "def f(x, rounds, group):\n    dist.all_reduce(x, group=group)\n"
    return text + "".join(f"    l{i} = []\n    for y in rounds:\n        l{i}.append(y + x)\n" for i in range(size)) + "    return x\n"


def closures(size):
    """Functions in one function."""
    text = HEAD + "def f(x, group):\n"
    for i in range(size):
        text += f"    def g{i}(y):\n        dist.all_reduce(y, group=group)\n        return y * 2\n    x = g{i}(x)\n"
    return text + "    return x\n"


def calls(size):
    """Calls of one function that is as long."""
    text = HEAD + "class Layer(torch.nn.Module):\n    def __init__(self, group):\n        super().__init__()\n        self.group = group\n"
    text += "\n    def g(self, x):\n" + "        x = x * 2\n" * size + "        dist.all_reduce(x, group=self.group)\n        return x\n"
    return text + "\n    def forward(self, x):\n" + "        x = self.g(x)\n" * size + "        return x\n"


def layers(size):
    """Classes side by side."""
    text = HEAD
    for i in range(size):
        text += f"class C{i}(torch.nn.Module):\n    def __init__(self, group):\n        super().__init__()\n        self.group = group\n"
        text += "        self.l = torch.nn.Linear(8, 8)\n\n    def forward(self, x):\n        x = self.l(x)\n"
        text += "        dist.all_reduce(x, group=self.group)\n        return x\n\n\n"
    return text


def recursion(size):
    """Functions that call each other in a circle."""
    return HEAD + "".join(f"def f{i}(x, group):\n    dist.all_reduce(x, group=group)\n    return f{(i + 1) % size}(x, group)\n\n\n" for i in range(size))


def strings(size):
    return HEAD + "x = '''" + "a" * size + "'''\n"


def comments(size):
    return HEAD + "x = 1  # spmd: x: {tp: R}\n" * size


def handlers(size):
    return HEAD + "def f(x, group):\n" + "    try:\n        dist.all_reduce(x, group=group)\n    except Exception:\n        x = x * 2\n" * size + "    return x\n"


def attributes(size):
    """Attributes of attributes, stored and read back."""
    text = HEAD + "def f(self, x, group):\n"
    return text + "".join(f"    self.a{i}.b{i} = x\n    x = self.a{i}.b{i} + x\n" for i in range(size)) + "    return x\n"


def functions_of_statements(size):
    """Many functions of one kind, one file."""
    body = "    y = x * 2\n    dist.all_reduce(y, group=group)\n    return y\n\n\n"
    return HEAD + "".join(f"def f{i}(x, group):\n{body}" for i in range(size))


def handed_on(size):
    """A wrapped model that functions hand on to each other in many ways, and a class that keeps it and uses what is inside."""
    text = HEAD + "from torch.nn.parallel import DistributedDataParallel\n\n\n"
    for i in range(size):
        text += f"def f{i}(model, x):\n    " + (f"f{i - 1}(model, x)\n    f{i - 1}(model, x)\n    " if i else "") + "return model.module(x)\n\n\n"
    text += "class Trainer:\n    def __init__(self, model):\n        self.model = model\n"
    for i in range(size):
        text += f"\n    def m{i}(self, x):\n        Trainer(self.model)\n        f{size - 1}(self.model, x)\n        return self.model.module(x)\n"
    return text + "\n\ndef main(net, x):\n    Trainer(DistributedDataParallel(net)).m0(x).backward()\n"


SHAPES = [
    ("chain of functions", chain, 5_000),
    ("functions called twice", ladder, 400),
    ("functions in a circle", recursion, 1_000),
    ("functions of one kind", functions_of_statements, 10_000),
    ("callers of one function", wide, 5_000),
    ("methods of a class", methods, 500),
    ("classes in a line", classes, 1_000),
    ("statements of a function", statements, 10_000),
    ("flags of a function", flags, 40),
    ("flags of a configuration", configured, 40),
    ("branches of an if", branches, 1_000),
    ("loops", loops, 200),
    ("loops in loops", nest, 20),
    ("loops that fill lists", filled, 4_000),
    ("functions in a function", closures, 2_000),
    ("calls of one function", calls, 2_000),
    ("classes of one file", layers, 2_000),
    ("handlers", handlers, 1_000),
    ("models handed on", handed_on, 1_000),
    ("attributes", attributes, 2_000),
    ("elements of a list", elements, 1_000_000),
    ("entries of a dict", entries, 100_000),
    ("nested brackets", brackets, 100_000),
    ("comments for the checker", comments, 50_000),
    ("one line (statements)", one_line, 100_000),
    ("one string (bytes)", strings, 10_000_000),
]

LARGEST = [
    ("one line of 10 MB", one_line, 550_000),
    ("a file of 100 MB", lambda size: "x = f(1)\n" * size, 11_000_000),
]


def said(text):
    """Codes that say that something was cut, and what the coverage says of it."""
    found = sorted(set(re.findall(r"nested too deep|larger than[^;,\n]*|too (?:large|long|many)[^;,\n]*|is not checked", text)))
    given_up = re.findall(r"precision given up: [^\n]*", text)
    return "; ".join([*found, *(" ".join(line.split()) for line in given_up)])


def shapes(binary, runs, folder, wanted):
    fine = True
    for name, make, size in wanted:
        times = []
        for part in (size // 2, size):
            path = folder / "shape" / "one.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(make(part))
            results = [check(binary, path.parent, "--coverage") for _ in range(runs)]
            times.append(statistics.median(result[0] for result in results))
        code, note, memory = results[0][2], said(results[0][3]), max(result[1] for result in results)
        ratio = times[1] / max(times[0], 0.001)
        ends = code in (0, 1)
        linear = ratio <= NESTED.get(name, TWICE) or times[1] < SHORT
        fine &= ends and linear
        verdict = "" if ends and linear else ("  DOES NOT END" if times[1] > LONGEST else "  NOT LINEAR" if ends else f"  EXIT {code}")
        print(f"{name:<26} {size:>9} {times[0]:>8.3f} s {times[1]:>8.3f} s {ratio:>6.2f} {memory:>6.0f} MB  {note}{verdict}", flush=True)
    return fine


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trees", nargs="*", metavar="TREE")
    parser.add_argument("--binary", default="target/release/spmd-check")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", choices=("copies", "shapes"))
    parser.add_argument("--shape", help="only shapes whose name contains this")
    parser.add_argument("--largest", action="store_true")
    options = parser.parse_args()
    binary = str(pathlib.Path(options.binary).resolve())
    fine = True
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if options.only != "shapes" and not options.shape:
            trees = [pathlib.Path(tree).resolve() for tree in options.trees]
            if not trees:
                generated = folder / "generated"
                subprocess.run([sys.executable, str(pathlib.Path(__file__).with_name("package.py")), str(generated)], check=True)
                trees = [generated]
            for tree in trees:
                fine &= copies(binary, tree, options.runs, folder)
        if options.only != "copies":
            print(f"{'shape':<26} {'size':>9} {'half':>10} {'whole':>10} {'ratio':>6} {'memory':>9}  what was given up")
            wanted = SHAPES + (LARGEST if options.largest else [])
            wanted = [shape for shape in wanted if not options.shape or options.shape in shape[0]]
            fine &= shapes(binary, min(options.runs, 3), folder, wanted)
    sys.exit(0 if fine else 1)


main()
