#!/usr/bin/env python3
"""Which bugs of corpus/bugs are found: scripts/bugs.py BINARY [NAME...].

A bug counts as found when a finding of level error lies on the line marked `# BUG`, or names it in a label. A repaired file must have
no finding at all. Prints one line a bug and the totals.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent / "corpus" / "bugs"


def findings(binary, folder, name):
    command = [binary, "check", "--output-format", "json", name]
    # On its own: beside it in this repository lie other programs, which would be one project with it.
    with tempfile.TemporaryDirectory() as alone:
        for file in [name, "spmd-check.toml"]:
            if (folder / file).exists():
                shutil.copy(folder / file, alone)
        done = subprocess.run(command, cwd=alone, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"{folder}/{name}: {done.stderr}")
    return json.loads(done.stdout)


def lines(finding):
    for at in [finding, *finding["labels"]]:
        yield at["range"]["start"]["line"], at["range"]["end"]["line"]


def main():
    binary = str(pathlib.Path(sys.argv[1]).resolve())
    wanted = sys.argv[2:]
    hits, silent, static = 0, 0, 0
    rated = dict(row.split("|")[1:4:2] for row in (ROOT / "INDEX.md").read_text().splitlines() if row.startswith("| ") and "---" not in row)
    rated = {k.strip(): v.strip() for k, v in rated.items()}
    for folder in sorted(p for p in ROOT.iterdir() if p.is_dir() and (not wanted or p.name in wanted)):
        text = (folder / "buggy.py").read_text().splitlines()
        marked = next(i for i, line in enumerate(text, 1) if "# BUG" in line)
        bad = findings(binary, folder, "buggy.py")
        errors = [f for f in bad if f["severity"] == "error"]
        hit = any(a <= marked <= b for f in errors for a, b in lines(f))
        good = findings(binary, folder, "fixed.py")
        hits += hit
        silent += not good
        static += hit and rated.get(folder.name) == "static"
        shown = "; ".join(f'{f["code"]}@{f["range"]["start"]["line"]}' for f in bad) or "-"
        loud = "" if not good else "   FIXED: " + "; ".join(f'{f["code"]}@{f["range"]["start"]["line"]} {f["message"]}' for f in good)
        print(f'{"ok  " if hit else "MISS"} {rated.get(folder.name, "?"):6} {folder.name:32} line {marked:3}  {shown}{loud}')
    print(f"found {hits} (static {static}), repaired and silent {silent}")


if __name__ == "__main__":
    main()
