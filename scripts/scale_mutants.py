#!/usr/bin/env python3
"""Mistakes of scale in clean programs: scripts/scale_mutants.py BINARY [--show].

Makes every mutant of tests/scale/mutants.txt from the programs in corpus/clean/scale, checks it on its own, and counts those that are
reported with the factor that the row names. `--show` prints those that are not. tests/scale.rs does the same.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def rows():
    for line in (ROOT / "tests" / "scale" / "mutants.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            file, old, new, says = (part.replace("\\n", "\n") for part in line.split(" | "))
            yield file, old, new, says.split(" or ")


def errors(binary, text):
    with tempfile.TemporaryDirectory() as alone:
        (pathlib.Path(alone) / "spmd-check.toml").write_text("")
        (pathlib.Path(alone) / "mutant.py").write_text(text)
        done = subprocess.run([binary, "check", "--output-format", "json", "mutant.py"], cwd=alone, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    return [f["message"].replace("`", "") for f in json.loads(done.stdout) if f["severity"] == "error"]


def main():
    binary = str(pathlib.Path(sys.argv[1]).resolve())
    show = "--show" in sys.argv
    total, found = 0, 0
    for path in sorted((ROOT / "corpus" / "clean" / "scale").glob("*.py")):
        loud = errors(binary, path.read_text())
        if loud:
            print(f"CLEAN {path.name}: {loud}")
    for file, old, new, says in rows():
        text = (ROOT / "corpus" / "clean" / "scale" / file).read_text()
        if old not in text:
            sys.exit(f"{file}: `{old}` is not there")
        told = errors(binary, text.replace(old, new, 1))
        plain = [word.replace("`", "") for word in says]
        right = any(f"arrive {word} compared" in message or word.startswith("are ") and word in message for word in plain for message in told)
        total += 1
        found += right
        if show and not right:
            print(f"MISS {file}: {old!r} -> {new!r}: wants {says}, got {told}")
    print(f"{found} of {total} mutants are reported with the right factor")


if __name__ == "__main__":
    main()
