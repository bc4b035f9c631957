#!/usr/bin/env python3
"""Time and memory of spmd-check on a tree of Python files, as a ratio to `ruff check --select F --no-cache` in the same run.

usage: ratio.py [--binary target/release/spmd-check] [--runs 11] [--twice] [TREE ...]

Without TREE the newest megatron-core is taken from PyPI; ruff is taken from PyPI when it is not on the PATH. Runs alternate
between the programs, so that a slow moment of the machine meets both; the median of each is shown, with the processor time of all threads. With --twice each tree is also checked together with a copy of
itself under another name, which may at most double time and memory. Output is thrown away.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile


def pip(*arguments):
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True, stdout=subprocess.DEVNULL)


def megatron_core(folder):
    """The unpacked package."""
    pip("download", "--quiet", "--no-deps", "--dest", str(folder), "megatron-core")
    wheel = next(folder.glob("*.whl"))
    tree = folder / wheel.name.split("-cp")[0]
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tree)
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
    parser.add_argument("--twice", action="store_true")
    options = parser.parse_args()
    binary = str(pathlib.Path(options.binary).resolve())
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        other = ruff(folder)
        trees = [pathlib.Path(tree).resolve() for tree in options.trees] or [megatron_core(folder)]
        if options.twice:
            trees = [found for tree in trees for found in (tree, doubled(tree, folder))]
        version = subprocess.run([other, "--version"], check=True, capture_output=True, text=True).stdout.strip()
        print(f"{os.cpu_count()} cores, {version}, median of {options.runs} runs")
        print(f"{'tree':<32} {'files':>6} {'lines':>8}  {'spmd-check':>24}  {'ruff':>24}  {'time ratio':>10}")
        for tree in trees:
            tree = str(tree)
            programs = {
                "spmd-check": [binary, "check", "--isolated", "--quiet", "--output-format", "concise", tree],
                "ruff": [other, "check", "--isolated", "--select", "F", "--no-cache", "--output-format", "concise", tree],
            }
            results = measure(tree, programs, options.runs)
            files, lines = size(tree)
            seconds = {name: statistics.median(row[0] for row in rows) for name, rows in results.items()}
            memory = {name: max(row[1] for row in rows) for name, rows in results.items()}
            spent = {name: statistics.median(row[3] for row in rows) for name, rows in results.items()}
            cells = [
                f"{1000 * seconds[name]:6.0f} ms {1000 * spent[name]:5.0f} cpu {memory[name]:4.0f} MB" for name in programs
            ]
            ratio = seconds["spmd-check"] / seconds["ruff"]
            name = pathlib.Path(tree).name
            print(f"{name:<32} {files:>6} {lines:>8}  {cells[0]:>24}  {cells[1]:>24}  {ratio:>10.2f}")


main()
