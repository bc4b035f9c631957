#!/usr/bin/env python3
"""Random edits in the editor against a fresh check. In: a binary and a tree. Out: the times of the edits, and whether the session ends with
the findings that `spmd-check check` has for the same texts. Never: a change of the tree: a copy is edited.

    python3 scripts/edits.py target/release/spmd-check TREE [--edits 1000] [--every 200] [--seed 1] [--files 12]
"""
import argparse
import json
import pathlib
import queue
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time


class Client:
    def __init__(self, binary, root):
        self.process = subprocess.Popen([binary, "server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.incoming, self.next = queue.Queue(), 0
        self.diagnostics, self.versions = {}, {}
        threading.Thread(target=self._read, daemon=True).start()
        capabilities = {"textDocument": {"publishDiagnostics": {"relatedInformation": True}}}
        capabilities["general"] = {"positionEncodings": ["utf-32"]}
        folder = {"uri": root.as_uri(), "name": "tree"}
        answer = self.request("initialize", {"processId": None, "rootUri": None, "capabilities": capabilities, "workspaceFolders": [folder]})
        self.encoding = answer["result"]["capabilities"]["positionEncoding"]
        self.notify("initialized", {})

    def _read(self):
        while True:
            length = None
            while line := self.process.stdout.readline().strip():
                name, value = line.split(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            if length is None:
                self.incoming.put(None)
                return
            self.incoming.put(json.loads(self.process.stdout.read(length)))

    def send(self, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def notify(self, method, params):
        self.send({"method": method, "params": params})

    def take(self, timeout=300):
        message = self.incoming.get(timeout=timeout)
        if message is None:
            raise SystemExit("the server ended")
        if message.get("method") == "textDocument/publishDiagnostics":
            params = message["params"]
            self.diagnostics[params["uri"]] = params["diagnostics"]
            self.versions[params["uri"]] = params.get("version")
        elif message.get("method") == "window/logMessage":
            raise SystemExit(f"the server complains: {message['params']['message']}")
        elif "method" in message and "id" in message:
            self.send({"id": message["id"], "result": None})
        return message

    def request(self, method, params):
        self.next += 1
        self.send({"id": self.next, "method": method, "params": params})
        while True:
            message = self.take()
            if "method" not in message and message.get("id") == self.next:
                return message

    def until(self, uri, version):
        while self.versions.get(uri) != version:
            self.take()

    def settle(self, uri):
        # An answer that needs types comes after the diagnostics of everything before.
        self.request("textDocument/documentSymbol", {"textDocument": {"uri": uri}})


def edited(lines, chance):
    """A change of one place: where it starts and ends, and the text."""
    at = chance.randrange(len(lines))
    line = lines[at]
    kind = chance.choice(["comment", "char", "delete", "duplicate", "blank", "swap", "cut", "define"])
    if kind == "comment":
        return (at, len(line)), (at, len(line)), f"  # note {chance.randrange(99)}"
    if kind == "char":
        column = chance.randrange(len(line) + 1)
        return (at, column), (at, column), chance.choice("a(_ =.)x:#\"'é😀")
    if kind == "delete" and at + 1 < len(lines):
        return (at, 0), (at + 1, 0), ""
    if kind == "duplicate":
        return (at, 0), (at, 0), line + "\n"
    if kind == "blank":
        return (at, 0), (at, 0), "\n" * chance.randrange(1, 3)
    if kind == "define":
        return (at, 0), (at, 0), f"def added_{chance.randrange(99)}(x):\n    return all_reduce(x)\n\n\n"
    words = [i for i, c in enumerate(line) if c.isalpha() and (i == 0 or not line[i - 1].isalnum())]
    if words and kind == "swap":
        start = chance.choice(words)
        end = start + next((i for i, c in enumerate(line[start:]) if not (c.isalnum() or c == "_")), len(line) - start)
        other = chance.choice(chance.choice(lines).split() or ["x"])
        return (at, start), (at, end), "".join(c for c in other if c.isalnum() or c == "_")
    start = chance.randrange(len(line) + 1)
    return (at, start), (at, min(len(line), start + chance.randrange(1, 12))), ""


def applied(text, start, end, new):
    lines = text.split("\n")
    head = "\n".join(lines[: start[0]] + [lines[start[0]][: start[1]]])
    tail = "\n".join([lines[end[0]][end[1] :]] + lines[end[0] + 1 :])
    return head + new + tail


def shown(diagnostics, path):
    out = []
    for d in diagnostics:
        span = d["range"]
        position = [(span[side]["line"] + 1, span[side]["character"] + 1) for side in ("start", "end")]
        labels = sorted(r["message"] for r in d.get("relatedInformation") or [])
        severity = {1: "error", 2: "warning", 3: "note"}[d["severity"]]
        out.append((path, position, d["code"], severity, d["message"].split("\n")[0], labels))
    return out


def fresh(binary, root):
    run = subprocess.run([binary, "check", "-q", "--output-format", "json"], cwd=root, capture_output=True, text=True)
    out = []
    for d in json.loads(run.stdout):
        position = [(d["range"][side]["line"], d["range"][side]["column"]) for side in ("start", "end")]
        labels = sorted(label["message"] for label in d["labels"])
        out.append((d["path"], position, d["code"], d["severity"], d["message"], labels))
    return sorted(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("tree", type=pathlib.Path)
    parser.add_argument("--edits", type=int, default=1000)
    parser.add_argument("--every", type=int, default=200, help="compare after so many edits")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", type=int, default=12, help="files that are edited")
    options = parser.parse_args()
    binary, chance = str(options.binary.resolve()), random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve() / "tree"
        shutil.copytree(options.tree, root)
        if not any((root / name).exists() for name in ("spmd-check.toml", "pyproject.toml")):
            (root / "spmd-check.toml").write_text("")
        paths = sorted(p for p in root.rglob("*.py") if 20 < p.read_text(errors="ignore").count("\n") < 1500 and "\r" not in p.read_text(errors="ignore"))
        paths = chance.sample(paths, min(options.files, len(paths)))
        started = time.time()
        client = Client(binary, root)
        texts, versions, times = {}, {}, []
        for path in paths:
            texts[path], versions[path] = path.read_text(), 1
            document = {"uri": path.as_uri(), "languageId": "python", "version": 1, "text": texts[path]}
            client.notify("textDocument/didOpen", {"textDocument": document})
        client.settle(paths[0].as_uri())
        print(f"loaded in {time.time() - started:.1f} s; editing {len(paths)} files")
        undo = None
        for number in range(1, options.edits + 1):
            path = chance.choice(paths)
            start, end, new = edited(texts[path].split("\n"), chance)
            after = applied(texts[path], start, end, new)
            changes = [{"range": {"start": dict(line=start[0], character=start[1]), "end": dict(line=end[0], character=end[1])}, "text": new}]
            # Most mistakes are taken back, as people do, or the files would soon be no Python.
            if undo and chance.random() < 0.6:
                path, after = undo
                changes, undo = [{"text": after}], None
            else:
                undo = (path, texts[path])
            texts[path] = after
            versions[path] += 1
            document = {"uri": path.as_uri(), "version": versions[path]}
            began = time.time()
            client.notify("textDocument/didChange", {"textDocument": document, "contentChanges": changes})
            if chance.random() < 0.8:
                client.until(path.as_uri(), versions[path])
                times.append(time.time() - began)
            if number % options.every == 0 or number == options.edits:
                client.settle(path.as_uri())
                for p, text in texts.items():
                    p.write_text(text)
                wanted = fresh(binary, root)
                found = []
                for uri, list_ in client.diagnostics.items():
                    own = pathlib.Path(__import__("urllib.parse").parse.unquote(uri[len("file://") :])).relative_to(root).as_posix()
                    found += shown(list_, own)
                found.sort()
                if found != wanted:
                    for row in [r for r in wanted if r not in found]:
                        print("missing:", row)
                    for row in [r for r in found if r not in wanted]:
                        print("extra:", row)
                    raise SystemExit(f"after {number} edits the session has {len(found)} findings, a fresh check {len(wanted)}")
                print(f"after {number} edits: the same {len(wanted)} findings; median {statistics.median(times or [0]) * 1000:.0f} ms")
        client.request("shutdown", None)
        client.notify("exit", None)
        if client.process.wait(20) != 0:
            raise SystemExit("the server did not end well")


if __name__ == "__main__":
    sys.exit(main())
