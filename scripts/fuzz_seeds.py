#!/usr/bin/env python3
"""What fuzzing begins with: inputs of each target, and the words of the project, all taken from this repository.

usage: fuzz_seeds.py FOLDER

Writes FOLDER/<target>/<number> and FOLDER/words.dict. The same repository gives the same files.
"""

import collections
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Longer inputs are slow, and what they show a shorter one shows too.
LONGEST = 20_000
RECORDED = 150
WORDS = 600
MARK = "\n#----\n"


def python_files():
    return [path.read_text() for path in sorted((ROOT / "corpus").rglob("*.py"))]


def recorded(name, field="source"):
    lines = (ROOT / "tests" / "oracle" / f"{name}.jsonl").read_text().splitlines()
    step = max(1, len(lines) // RECORDED)
    return [json.loads(line).get(field, "") if field else line for line in lines[::step]]


def fenced(folder, language):
    """Examples in pages."""
    for path in sorted((ROOT / folder).rglob("*.md")):
        yield from re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.S)


def programs():
    records = [source for name in ("local", "structured", "global", "xla", "autograd") for source in recorded(name)]
    examples = [text for folder in ("docs", "src/diagnostics/pages", "tests/spec") for text in fenced(folder, "python")]
    return [text for text in python_files() + records + examples if text]


def hostile():
    """Shapes that mutation does not come upon."""
    return [
        "\ufeffx = 1\n", "x = 1\r\ny = 2\rz = 3", "(" * 300 + ")" * 300, "[" * 300, "x = " + "-" * 300 + "1", "\x00", "\t x\n x",
        "# -*- coding: latin-1 -*-\nx = 'é'\n", "# coding: utf-16\n", "f'{f\"{f'{x}'}\"}'", "class A(A): pass\n",
        "def f(): return f()\n", "class A(B): pass\nclass B(A): pass\n", "x = [x for x in x for x in x]\n", "match x:\n case [*_]: pass\n",
        "type X[T: X] = X\n", "async def f():\n async for x in y: await z\n", "def f[*T, **P](*args: *T): ...\n",
        "import one\nfrom one import *\nfrom . import one\nfrom .. import *\n" + MARK + "from one import *\n",
    ]


def comments(texts):
    pages = [p.read_text() for folder in ("docs", "src", "tests") for p in sorted((ROOT / folder).rglob("*.*")) if p.suffix in (".md", ".rs")]
    found = [part.strip(" `\"',;)") for text in texts + pages for part in re.findall(r"# ?spmd: ?([^\n\\]*)", text)]
    unique = list(dict.fromkeys(found))
    # The target puts the first four lines at different places.
    return ["\n".join(unique[at : at + 4]) for at in range(len(unique))]


def configurations():
    everything = (ROOT / "spmd-check.toml").read_text()
    active = "\n".join(re.sub(r"^#(?! )", "", line) for line in everything.splitlines())
    texts = [everything, active, *fenced("docs", "toml"), *fenced("src/diagnostics/pages", "toml"), *fenced(".", "toml")]
    texts += [path.read_text() for path in sorted((ROOT / "corpus").rglob("*.toml"))]
    return texts + [f"[tool.spmd-check]\n{text}" for text in texts if "[" not in text]


def rules():
    """Whole files, and each entry alone."""
    for path in sorted((ROOT / "rules").rglob("*.toml")):
        text = path.read_text()
        yield text
        yield from re.split(r"\n(?=\[\[)", text)


def sessions(texts):
    def framed(message):
        text = json.dumps({"jsonrpc": "2.0", **message})
        return f"Content-Length: {len(text.encode())}\r\n\r\n{text}"

    place = {"textDocument": {"uri": "file:///tmp/spmd-check-fuzz-server/one.py"}, "position": {"line": 3, "character": 5}}
    for at, text in enumerate(texts[:40]):
        document = {**place["textDocument"], "languageId": "python", "version": 1, "text": text}
        plain = framed({"method": "textDocument/didOpen", "params": {"textDocument": document}})
        plain += framed({"id": 2, "method": "textDocument/hover", "params": place})
        yield b"\x01" + plain.encode()
    # The structured half: each byte is a choice.
    for at in range(200):
        yield bytes([2 * (at % 4)]) + bytes((at * 37 + i * 101 + i * i * (at + 3)) % 256 for i in range(30 + at % 60))


def choices(count):
    """Inputs that are choices: two bytes say which program, then four or five for each edit."""
    for at in range(count):
        edits = bytes((at * 73 + i * 89 + i * i * (at + 1)) % 256 for i in range(at % 40))
        yield bytes([at % 256, at >> 8, at & 255]) + edits


def words(texts):
    """The words of the project, those of the rules first: they decide what the checker does."""
    count = collections.Counter(word for text in texts for word in re.findall(r"[A-Za-z_][A-Za-z0-9_.]{2,40}", text))
    of_rules = collections.Counter(word for text in rules() for word in re.findall(r"[A-Za-z_][A-Za-z0-9_.-]{2,40}", text))
    schema = re.findall(r'"([a-z][a-z-]{2,30})"', "".join(p.read_text() for p in sorted((ROOT / "src").rglob("schema.rs"))))
    marks = ["# spmd: ", "ignore[", "{tp: P}", "S(0)", "S(-1)", "P(avg)", "[[op]]", "[[collective]]", "Content-Length: "]
    protocol = [f"textDocument/{name}" for name in ("hover", "didOpen", "didChange", "codeAction", "inlayHint")]
    common = [word for word, _ in of_rules.most_common(WORDS // 2)] + [word for word, _ in count.most_common(WORDS)]
    return list(dict.fromkeys(marks + protocol + schema + common))[: 2 * WORDS]


def main():
    folder = pathlib.Path(sys.argv[1])
    texts = programs()
    pairs = [a + MARK + b for a, b in zip(texts[::7], texts[3::7])]
    seeds = {
        "report": texts + pairs + hostile(),
        "comments": comments(texts),
        "config": configurations(),
        "rules": list(rules()),
        "plan": [line for name in ("redistribute", "shard_order") for line in recorded(name, None)],
        "splice": list(choices(1500)),
        "server": list(sessions(texts)),
    }
    for target, inputs in seeds.items():
        (folder / target).mkdir(parents=True, exist_ok=True)
        inputs = [text if isinstance(text, bytes) else text.encode() for text in inputs]
        for at, text in enumerate(text for text in inputs if len(text) <= LONGEST):
            (folder / target / f"{at:05}").write_bytes(text)
    escaped = [word.replace("\\", "\\\\").replace('"', '\\"') for word in words(texts)]
    (folder / "words.dict").write_text("".join(f'"{word}"\n' for word in escaped))


main()
