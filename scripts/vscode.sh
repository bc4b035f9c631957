#!/usr/bin/env bash
# Packs the Visual Studio Code extension, with the checks of its packer. Needs npm and, once, the network; says so and ends well where there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
work="${CARGO_TARGET_DIR:-target}/vscode"
rm -rf "$work" && mkdir -p "$work"
cp -r editors/vscode/. "$work"
cd "$work"
if ! npm install --no-audit --no-fund --silent >npm.log 2>&1; then
    echo "the extension is not packed: its dependencies cannot be installed without a network"
    exit 0
fi
node --check extension.js
npx --yes @vscode/vsce@3 package --allow-missing-repository --no-git-tag-version --out spmd-check.vsix
echo "packed $(du -k spmd-check.vsix | cut -f1) kB"
