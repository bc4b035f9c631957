#!/usr/bin/env python3
"""Time and memory of spmd-check on trees of Python files, as ratios to `ruff check --select F --no-cache` in the same run.

usage: ratio.py [--binary target/release/spmd-check] [--runs 11] [--trees FOLDER] [--only WORD] [--twice] [--markdown] [TREE ...]

Without TREE these are measured, in the versions written below: megatron-core, torchtitan, torch, and ten packages together. What is not in
--trees (a folder for temporary files: below this project they would be checked together with it) is taken from PyPI with
`pip download --no-deps` and unpacked there; torch alone is 900 MB. ruff is taken from PyPI when it is not on the PATH. Runs alternate between the programs, so that a slow moment of the machine meets both; the median of each is shown,
with the processor time of all threads and the largest memory. With --twice each tree is also checked together with a copy of itself under
another name, which may at most double time and memory. Output is thrown away.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

# Names of trees and what they are made of.
TREES = {
    "megatron-core": ["megatron-core==0.16.1"],
    "torchtitan": ["torchtitan==0.3.0"],
    "torch": ["torch==2.15.0"],
    "ten packages": [
        "accelerate==1.15.0",
        "deepspeed==0.19.8",
        "fairscale==0.4.13",
        "lightning==2.6.6",
        "nanotron==0.4",
        "peft==0.21.2",
        "pytorch-metric-learning==2.9.0",
        "transformers==5.23.0",
        "trl==1.16.0",
        "verl==0.9.1",
    ],
}


def pip(*arguments):
    if subprocess.run([sys.executable, "-m", "pip", *arguments], check=False, stdout=subprocess.DEVNULL).returncode:
        sys.exit("pip failed; packages that come as source alone want `pip install setuptools wheel`")


def fetched(name, requirements, folder):
    """The folder with the unpacked packages of a tree."""
    tree = folder / name.replace(" ", "-")
    for requirement in requirements:
        target = tree / requirement.replace("==", "-")
        if target.is_dir():
            continue
        with tempfile.TemporaryDirectory() as downloads:
            pip("download", "--quiet", "--no-deps", "--no-build-isolation", "--dest", downloads, requirement)
            archive = next(pathlib.Path(downloads).iterdir())
            unpacked = target.with_name(target.name + ".part")
            if archive.suffix == ".whl":
                with zipfile.ZipFile(archive) as wheel:
                    # Of a wheel with libraries only the sources are wanted.
                    wheel.extractall(unpacked, [name for name in wheel.namelist() if name.endswith((".py", ".pyi"))])
            else:
                with tarfile.open(archive) as source:
                    source.extractall(unpacked, filter="data")
            unpacked.rename(target)
    return tree


def ruff(folder):
    found = shutil.which("ruff")
    # A script that starts the program, such as a shim of pyenv, would be timed as well.
    if found and pathlib.Path(found).read_bytes()[:2] != b"#!":
        return found
    pip("install", "--quiet", "--target", str(folder / "ruff"), "ruff")
    return str(folder / "ruff" / "bin" / "ruff")


def run(command):
    """Seconds, peak memory in megabytes, exit code, seconds of processor time."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    kilobytes = usage.ru_maxrss / 1024 if sys.platform == "darwin" else usage.ru_maxrss
    return seconds, kilobytes / 1024, process.returncode, usage.ru_utime + usage.ru_stime


def measure(tree, programs, runs):
    results = {name: [] for name in programs}
    for name, command in programs.items():
        code = run(command)[2]
        if code not in (0, 1):
            sys.exit(f"{name} on {tree} ended with {code}: {' '.join(command)}")
    for _ in range(runs):
        for name, command in programs.items():
            results[name].append(run(command))
    return results


def size(tree):
    files = [path for path in pathlib.Path(tree).rglob("*.py") if path.is_file()]
    return len(files), sum(path.read_bytes().count(b"\n") for path in files)


def doubled(tree, folder):
    """A folder with the tree and a copy of it."""
    both = folder / f"{tree.name}, twice"
    for name in ("first", "second"):
        shutil.copytree(tree, both / f"{name}_{tree.name}")
    return both


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trees", nargs="*", metavar="TREE")
    parser.add_argument("--binary", default="target/release/spmd-check")
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument(
        "--trees",
        dest="folder",
        default=pathlib.Path(tempfile.gettempdir()) / "spmd-check-trees",
        help="where trees from PyPI are kept, outside of any project",
    )
    parser.add_argument("--only", help="of the trees from PyPI those whose name has this in it")
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="a table for a page")
    options = parser.parse_args()
    binary = str(pathlib.Path(options.binary).resolve())
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        other = ruff(folder)
        trees = [pathlib.Path(tree).resolve() for tree in options.trees]
        if not trees:
            kept = pathlib.Path(options.folder).resolve()
            wanted = {name: parts for name, parts in TREES.items() if not options.only or options.only in name}
            trees = [fetched(name, parts, kept) for name, parts in wanted.items()]
        if options.twice:
            trees = [found for tree in trees for found in (tree, doubled(tree, folder))]
        version = subprocess.run([other, "--version"], check=True, capture_output=True, text=True).stdout.strip()
        print(f"{os.cpu_count()} cores, {version}, median of {options.runs} runs\n")
        print(table(trees, [binary, other], options))


def table(trees, binaries, options):
    """A row for each tree."""
    head = ["tree", "files", "lines", "ms", "cpu ms", "MB", "ruff ms", "cpu ms", "MB", "ratio", "cpu ratio"]
    rows = [head]
    for tree in trees:
        programs = {
            "spmd-check": [binaries[0], "check", "--isolated", "--quiet", "--output-format", "concise", str(tree)],
            "ruff": [binaries[1], "check", "--isolated", "--select", "F", "--no-cache", "--output-format", "concise", str(tree)],
        }
        results = measure(str(tree), programs, options.runs)
        cells = [tree.name, *(f"{number:,}" for number in size(tree))]
        for found in results.values():
            cells += [
                f"{1000 * statistics.median(row[0] for row in found):.0f}",
                f"{1000 * statistics.median(row[3] for row in found):.0f}",
                f"{max(row[1] for row in found):.0f}",
            ]
        ours, theirs = results.values()
        for at in (0, 3):
            cells.append(f"{statistics.median(row[at] for row in ours) / statistics.median(row[at] for row in theirs):.2f}")
        rows.append(cells)
        print(f"{tree.name}: {cells[-2]}", file=sys.stderr, flush=True)
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    edge = "| " if options.markdown else ""
    between = " | " if options.markdown else "  "

    def line(row):
        cells = [cell.ljust(width) if at == 0 else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths))]
        return edge + between.join(cells) + edge[::-1]

    lines = [line(row) for row in rows]
    if options.markdown:
        lines.insert(1, "|" + "|".join("-" * (width + 1) + ("-" if at == 0 else ":") for at, width in enumerate(widths)) + "|")
    return "\n".join(lines)


main()
