#!/usr/bin/env python3
"""The mistakes of tests/transformer_block/mistakes.toml, checked with a binary: what tests/transformer_block.rs does, without a build.

usage: transformer_block.py [--binary target/release/spmd-check] [--only WORD] [--verbose]

A mistake is `found` if there is exactly one new error, on its line, with its name and its configurations. New is what the model
without the mistake does not have; the model itself has to be silent, and what it reports is shown first.
"""

import argparse
import collections
import concurrent.futures
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import tomllib

HERE = pathlib.Path(__file__).resolve().parent.parent
FOLDER = HERE / "tests" / "transformer_block"
FLAGS = ("sequence_parallel", "gather_output")

Finding = collections.namedtuple("Finding", "path line text name when message")


def normal(condition):
    """A condition with flags named by their last component, its parts in order."""
    parts = []
    for part in condition.replace("`", "").split(" and "):
        flag, _, rest = part.partition(" ")
        parts.append(f"{flag.rsplit('.', 1)[-1]} {rest}")
    return " and ".join(sorted(parts))


def check(binary, files, flags=None):
    """The errors in files in memory, with flags fixed."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "model").mkdir()
        for name, text in files.items():
            (folder / "model" / name).write_text(text)
        lines = [f"{name} = {str(value).lower()}" for name, value in (flags or {}).items()]
        (folder / "spmd-check.toml").write_text("\n".join(["[flags]", *lines, ""]))
        command = [binary, "check", "--config", "spmd-check.toml", "--output-format", "json", "model"]
        process = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if process.returncode not in (0, 1):
            sys.exit(process.stderr)
        found = []
        for row in json.loads(process.stdout):
            if row["severity"] != "error":
                continue
            name = pathlib.Path(row["path"]).name
            line = row["range"]["start"]["line"]
            text = files[name].splitlines()[line - 1].strip()
            when = tuple(sorted(normal(condition) for condition in row["when"]))
            found.append(Finding(name, line, text, row["name"], when, row["message"]))
        return found


def new_findings(found, base):
    """What the model without the mistake does not have; lines may have moved."""
    left = collections.Counter((one.path, one.text, one.name, one.when) for one in base)
    new = []
    for one in found:
        key = (one.path, one.text, one.name, one.when)
        if left[key] > 0:
            left[key] -= 1
        else:
            new.append(one)
    return new


def verdict(mistake, files, found):
    """One word or two for the table."""
    path = mistake.get("file_of_line", mistake["file"])
    lines = [n for n, line in enumerate(files[path].splitlines(), 1) if mistake["line"] in line]
    assert len(lines) == 1, f"{mistake['name']}: {mistake['line']!r} is on lines {lines} of {path}"
    if not found:
        return "missed"
    on_line = [one for one in found if (one.path, one.line) == (path, lines[0])]
    if not on_line:
        return "wrong line"
    named = [one for one in on_line if one.name in mistake["error"]]
    if not named:
        return "wrong name"
    if not any(one.when == tuple(sorted(map(normal, mistake["when"]))) for one in named):
        return "wrong when"
    return "found" if len(found) == 1 else f"found, {len(found) - 1} more"


def apply(files, mistake):
    count = files[mistake["file"]].count(mistake["find"])
    assert count == 1, f"{mistake['name']}: what is replaced occurs {count} times"
    text = files[mistake["file"]].replace(mistake["find"], mistake["replace"])
    compile(text, mistake["name"], "exec")
    return {**files, mistake["file"]: text}


def show(one):
    when = f" (when {', or '.join(one.when)})" if one.when else ""
    return f"{one.path}:{one.line}: {one.name}: {one.message}{when}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", default=str(HERE / "target" / "release" / "spmd-check"))
    parser.add_argument("--only", default="", help="mistakes with this word in their name")
    parser.add_argument("--verbose", action="store_true", help="what was found instead")
    options = parser.parse_args()
    binary = str(pathlib.Path(options.binary).resolve())
    files = {path.name: path.read_text() for path in sorted((FOLDER / "model").glob("*.py"))}
    table = tomllib.loads((FOLDER / "mistakes.toml").read_text())
    base = check(binary, files)
    choices = [(None, *((flag, value) for value in (False, True))) for flag in FLAGS]
    failed = False
    for choice in itertools.product(*choices):
        flags = dict(one for one in choice if one)
        found = check(binary, files, flags)
        failed |= bool(found)
        print(f"the model, {flags or 'no flag fixed'}: {len(found)} errors")
        for one in found:
            print(f"    {show(one)}")
    mistakes = [one for one in table["mistake"] if options.only in one["name"]]
    beyond = [one for one in table["beyond"] if options.only in one["name"]]

    def run(mistake):
        mutated = apply(files, mistake)
        return mutated, new_findings(check(binary, mutated), base)

    counts = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for mistake, (mutated, found) in zip(mistakes, pool.map(run, mistakes)):
            word = verdict(mistake, mutated, found)
            counts[word] += 1
            when = " or ".join(mistake["when"]) or "always"
            print(f"{mistake['name']:<42} {word:<14} {'/'.join(mistake['error'])}, {when}")
            if options.verbose and word != "found":
                for one in found:
                    print(f"    {show(one)}")
        for mistake, (_, found) in zip(beyond, pool.map(run, beyond)):
            print(f"{mistake['name']:<42} {'reported' if found else 'silent':<14} nothing is demanded")
    print(", ".join(f"{count} {word}" for word, count in sorted(counts.items())), f"of {len(mistakes)} mistakes")
    expected = sum("bug" not in one for one in mistakes)
    return 1 if failed or counts["found"] < expected else 0


sys.exit(main())
