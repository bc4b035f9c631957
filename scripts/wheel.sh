#!/usr/bin/env bash
# The wheel: built, installed into an empty environment, and used on a file that it has never seen. Then the source package.
# scripts/wheel.sh [FOLDER]: the wheel stays in FOLDER. Tools come from PyPI once, into the target folder. PROFILE=dev builds faster.
set -euo pipefail
cd "$(dirname "$0")/.."
target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
out="$(realpath -m "${1:-$work/dist}")"
profile="${PROFILE:-release}"

tools="$target/tools"
if [ ! -x "$tools/bin/maturin" ]; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.5,<2'
fi
rm -f "$out"/spmd_check-*.whl
"$tools/bin/maturin" build --quiet --profile "$profile" --locked --out "$out"
wheel="$(ls "$out"/spmd_check-*.whl)"
version="$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)"
case "$wheel" in
    */spmd_check-"$version"-py3-none-*.whl) ;;
    *) echo "the wheel $wheel does not have the version of Cargo.toml, $version" >&2; exit 1 ;;
esac

# A new user: an empty environment, the wheel, a file of their own.
mkdir "$work/own"
cat >"$work/own/layer.py" <<'PY'
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import ColumnParallelLinear, reduce_from_tensor_model_parallel_region


class Head(torch.nn.Module):
    def __init__(self, hidden, out):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(out, hidden))
        self.weight.tensor_model_parallel = True

    def forward(self, partial):
        x = reduce_from_tensor_model_parallel_region(partial)
        return F.linear(x, self.weight)
PY
python3 -m venv "$work/venv"
start="$(date +%s%N)"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
status=0
found="$(cd "$work/own" && "$work/venv/bin/spmd-check" check --output-format concise layer.py)" || status=$?
end="$(date +%s%N)"
echo "$found"
milliseconds="$(((end - start) / 1000000))"
echo "from pip install to the first finding: $milliseconds ms"
if [ "$status" -ne 1 ] || ! grep -q 'error\[SPMD101\]' <<<"$found" || [ "$milliseconds" -gt 60000 ]; then
    echo "a finding within a minute was expected" >&2
    exit 1
fi
[ "$("$work/venv/bin/spmd-check" --version)" = "spmd-check $version" ]
# Not in a pipe: the one that lists would fail when the other has seen enough.
listing=$(python3 -m zipfile -l "$wheel")
grep -q 'licenses/LICENSE' <<<"$listing" || { echo "the wheel has no licence" >&2; exit 1; }

# The source package has everything that the build reads.
cargo package --list --allow-dirty --locked >"$work/files"
for needed in LICENSE README.md CHANGELOG.md Cargo.lock src/main.rs rules/models/megatron.toml src/diagnostics/pages/SPMD101.md; do
    grep -qx "$needed" "$work/files" || { echo "the package lacks $needed" >&2; exit 1; }
done
cargo install --quiet --profile "$profile" --locked --path . --root "$work/installed" --target-dir "$target"
[ "$("$work/installed/bin/spmd-check" --version)" = "spmd-check $version" ]
echo "wheel, package and cargo install work"
