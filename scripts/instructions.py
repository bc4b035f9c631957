#!/usr/bin/env python3
"""How many instructions a check of a generated package takes, against the number that is recorded.

usage: instructions.py [--binary target/release/spmd-check] [--runs 1] [--update]

Unlike time, the number is the same on a busy machine. It is that of `check -j 1` on `scripts/package.py`, counted by valgrind, with the build
that `.ci/run` makes; `benches/instructions.txt` has the recorded one. More than 10 % above it is a failure: find out why, or record the new
number with --update if it is worth it. More than 10 % below it is said, with the request to record the gain, so that it is not
lost again. Without valgrind nothing is measured, which is said.
"""

import argparse
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = ROOT / "benches" / "instructions.txt"
TOLERANCE = 0.10
FAMILIES = 4


def count(binary, folder):
    """Instructions of one run, of all threads."""
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", "--quiet"]
    command += [binary, "check", "--isolated", "--quiet", "-j", "1", "--output-format", "concise", "megacore"]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"the check under valgrind ended with {done.returncode}:\n{done.stderr}")
    totals = re.findall(r"^(?:totals|summary): (\d+)", (folder / "out").read_text(), re.MULTILINE)
    return int(totals[-1])


def records():
    """The recorded number of each kind of machine."""
    lines = RECORD.read_text().splitlines() if RECORD.exists() else []
    return {machine: int(number) for machine, number in (line.split() for line in lines)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", default="target/release/spmd-check")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--update", action="store_true", help="record the number that is measured")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("valgrind is not installed: instructions are not counted")
        return
    binary = str(pathlib.Path(options.binary).resolve())
    numbers = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([sys.executable, str(ROOT / "scripts" / "package.py"), str(folder), str(FAMILIES)], check=True)
        lines = sum(path.read_bytes().count(b"\n") for path in folder.rglob("*.py"))
        for _ in range(options.runs):
            start = time.perf_counter()
            numbers.append(count(binary, folder))
            print(f"{numbers[-1]:,} instructions for {lines} lines, counted in {time.perf_counter() - start:.0f} s", flush=True)
    number = sorted(numbers)[len(numbers) // 2]
    if len(numbers) > 1:
        print(f"largest difference of {len(numbers)} runs: {100 * (max(numbers) - min(numbers)) / number:.3f} %")
    known, machine = records(), platform.machine()
    if options.update:
        known[machine] = number
        RECORD.write_text("".join(f"{name} {known[name]}\n" for name in sorted(known)))
    before = known.get(machine)
    if before is None:
        print(f"nothing is recorded for {machine}: record it with --update")
        return
    change = number / before - 1
    print(f"recorded: {before:,}; now {100 * change:+.1f} %")
    if change > TOLERANCE:
        sys.exit("a check takes more than 10 % more instructions than recorded: scripts/instructions.py")
    if change < -TOLERANCE:
        print("a check takes more than 10 % fewer instructions than recorded: keep the gain with scripts/instructions.py --update")


main()
