"""Runs the checker before and after real repairs: history.py MIRRORS BINARY [--half d] [--static yes,maybe] [--jobs 2]

MIRRORS holds bare repositories as `owner+name/repo`. Each row of tests/unseen/history.tsv is the repair of a bug: the repository, the commit, a
file and lines of the commit before. The Python files of both commits are taken out (tests apart) and checked without a configuration. A bug
counts as found when an error, or a label of one, lies within two lines of those named, and is gone after the repair.
"""

import argparse
import collections
import concurrent.futures
import csv
import json
import pathlib
import subprocess
import tempfile

NEAR = 2
ROWS = pathlib.Path(__file__).parent.parent / "tests" / "unseen" / "history.tsv"


def tree(repository, commit, into):
    """Writes the Python files of a commit, without its tests."""
    into.mkdir()
    wanted = [":(glob)**/*.py", ":(exclude,glob)**/tests/**", ":(exclude,glob)**/test/**"]
    archive = subprocess.Popen(
        ["git", "-C", repository, "archive", commit, *wanted], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    subprocess.run(["tar", "-x", "-C", into], stdin=archive.stdout, stderr=subprocess.DEVNULL, check=False)
    archive.wait()


def errors(binary, root):
    """The errors in a tree: (code, path, message) and the lines that each is about."""
    command = [binary, "check", "--isolated", "--output-format", "json", "."]
    run = subprocess.run(command, cwd=root, capture_output=True, timeout=300, check=False)
    out = []
    for found in json.loads(run.stdout):
        if found["severity"] == "error":
            places = [(found["path"], found["range"]["start"]["line"])]
            places += [(label["path"], label["range"]["start"]["line"]) for label in found["labels"]]
            out.append(((found["code"], found["path"], found["message"]), places))
    return out


def judged(row, mirrors, binary):
    """The row with the code that finds it, if one does."""
    repository = mirrors / row["repository"].replace("/", "+") / "repo"
    if not repository.is_dir():
        return row, "absent"
    lines = [int(line) for line in row["lines"].split(",")]
    with tempfile.TemporaryDirectory() as scratch:
        before, after = pathlib.Path(scratch, "before"), pathlib.Path(scratch, "after")
        tree(repository, row["fix"] + "^", before)
        tree(repository, row["fix"], after)
        left = collections.Counter(key for key, _ in errors(binary, after))
        for key, places in errors(binary, before):
            near = any(path.endswith(row["file"]) and abs(at - line) <= NEAR for path, at in places for line in lines)
            if left[key] > 0:
                left[key] -= 1
            elif near:
                return row, key[0]
    return row, None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mirrors", type=pathlib.Path)
    parser.add_argument("binary", type=lambda text: str(pathlib.Path(text).resolve()))
    parser.add_argument("--half", default="d,h")
    parser.add_argument("--static", default="yes,maybe,no")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    with ROWS.open() as text:
        rows = [row for row in csv.DictReader(text, delimiter="\t") if row["half"] in options.half.split(",")]
    rows = [row for row in rows if row["static"] in options.static.split(",")]
    counts = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for row, code in pool.map(lambda row: judged(row, options.mirrors, options.binary), rows):
            group = (row["half"], row["static"])
            if code == "absent":
                print(f"absent {row['repository']}")
                continue
            counts[group, "all"] += 1
            if code:
                counts[group, "found"] += 1
                print(f"found  {code} {row['repository']} {row['fix']} {row['file']}")
    for half, static in sorted({group for group, _ in counts}):
        group = (half, static)
        print(f"half {half}, static {static}: found {counts[group, 'found']} of {counts[group, 'all']}")


if __name__ == "__main__":
    main()
