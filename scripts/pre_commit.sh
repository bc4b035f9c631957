#!/usr/bin/env bash
# The hook, run by the real pre-commit in a repository of its own: scripts/pre_commit.sh WHEEL.
# pre-commit gets a repository with this one's `.pre-commit-hooks.yaml`, whose build hands out the wheel: no network, no compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
wheel="$(realpath "$1")"
target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

tools="$target/tools"
if [ ! -x "$tools/bin/pre-commit" ]; then
    [ -x "$tools/bin/pip" ] || python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check 'pre-commit>=3,<5'
fi
export PRE_COMMIT_HOME="$work/cache" SPMD_CHECK_WHEEL="$wheel" PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
unset GIT_DIR GIT_INDEX_FILE GIT_WORK_TREE

# The repository that a configuration names.
mkdir "$work/hook"
cp .pre-commit-hooks.yaml "$work/hook/"
cat >"$work/hook/pyproject.toml" <<'TOML'
[build-system]
requires = []
build-backend = "handed"
backend-path = ["."]
TOML
cat >"$work/hook/handed.py" <<'PY'
import os
import shutil


def build_wheel(folder, config_settings=None, metadata_directory=None):
    shutil.copy(os.environ["SPMD_CHECK_WHEEL"], folder)
    return os.path.basename(os.environ["SPMD_CHECK_WHEEL"])
PY
git -C "$work/hook" init -q
git -C "$work/hook" add .
git -C "$work/hook" commit -qm hook
revision="$(git -C "$work/hook" rev-parse HEAD)"

# A user's repository.
mkdir "$work/user"
cd "$work/user"
git init -q
printf 'repos:\n  - repo: %s\n    rev: %s\n    hooks:\n      - id: spmd-check\n' "$work/hook" "$revision" >.pre-commit-config.yaml
cat >bad.py <<'PY'
import torch.nn.functional as F
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


def head(partial, w):
    w = w  # spmd: {tp: S(0)}
    x = reduce_from_tensor_model_parallel_region(partial)
    return F.linear(x, w)
PY
sed 's/F.linear(x, w)/F.linear(copy_to_tensor_model_parallel_region(x), w)/; s/import reduce/import copy_to_tensor_model_parallel_region, reduce/' bad.py >good.py
cp bad.py older.py
git add older.py
git commit -qm "before the hook"
"$tools/bin/pre-commit" install >/dev/null

echo "a good commit"
git add .pre-commit-config.yaml good.py
git commit -qm good 2>&1 | tee "$work/good.txt"
grep -q 'spmd-check\.*Passed' "$work/good.txt"

echo "a bad commit"
git add bad.py
if git commit -qm bad >"$work/bad.txt" 2>&1; then
    echo "the bad commit went through" >&2
    exit 1
fi
cat "$work/bad.txt"
grep -q 'bad.py' "$work/bad.txt"
# The list of files is honoured: what was wrong before is not in this commit.
if grep -q 'older.py' "$work/bad.txt"; then
    echo "the hook reports on a file that is not in the commit" >&2
    exit 1
fi
# By hand it says the same.
binary="$(find "$PRE_COMMIT_HOME" -name spmd-check -path '*bin*' | head -1)"
"$binary" check bad.py >"$work/hand.txt" 2>&1 || true
sed -n '/^error/,$p' "$work/bad.txt" | sed '/^$/d' >"$work/hook.txt"
sed '/^$/d' "$work/hand.txt" >"$work/hand_.txt"
diff "$work/hook.txt" "$work/hand_.txt"
echo "the hook says what the command says"
