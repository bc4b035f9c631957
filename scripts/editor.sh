#!/usr/bin/env bash
# The editor tests: a real client, pytest-lsp, drives the binary; then random edits against a fresh check. In: the binary (default: the release
# build). Needs Python 3.10 and, once, the network for the packages; says so and ends well where there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
binary="$(realpath "${1:-target/release/spmd-check}")"
venv="${SPMD_CHECK_EDITOR_VENV:-${CARGO_TARGET_DIR:-target}/editor-venv}"

if ! command -v python3 >/dev/null 2>&1; then
    echo "editor tests skipped: there is no python3"
    exit 0
fi
if [ ! -x "$venv/bin/pytest" ]; then
    python3 -m venv "$venv"
    if ! "$venv/bin/pip" install --quiet --disable-pip-version-check "pytest-lsp==1.0.1" "pytest==9.*" "pytest-asyncio==1.*"; then
        rm -rf "$venv"
        echo "editor tests skipped: pytest-lsp cannot be installed without a network"
        exit 0
    fi
fi
SPMD_CHECK="$binary" "$venv/bin/pytest" -q -p no:cacheprovider tests/editor
python3 scripts/edits.py "$binary" corpus --edits "${SPMD_CHECK_EDITS:-200}" --every 50

if command -v npm >/dev/null 2>&1; then
    scripts/vscode.sh
else
    echo "the extension is not packed: there is no npm"
fi
