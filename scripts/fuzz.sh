#!/usr/bin/env bash
# Fuzzes the checker: builds every target of fuzz/ and runs each for some seconds, beginning with what lies in this repository.
#
# usage: scripts/fuzz.sh [SECONDS [TARGET ...]]      an hour for each of all targets: scripts/fuzz.sh 3600
#
# Needs the nightly toolchain and `cargo install cargo-fuzz --locked`. What is found new is kept in fuzz/corpus/, so that the next run goes
# on from there; an input that breaks something ends up in fuzz/artifacts/TARGET/. The exit code is 1 when there is one.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=(report splice comments config rules server plan)
seconds=${1:-60}
[ $# -gt 1 ] && targets=("${@:2}")

# Nothing of ours is `unsafe`, so the sanitizer of addresses would only make it slower.
cargo +nightly fuzz build --sanitizer none --codegen-units 16
host=$(rustc -vV | sed -n 's/^host: //p')
built="${CARGO_TARGET_DIR:-fuzz/target}/$host/release"
seeds=$(mktemp -d)
trap 'rm -rf "$seeds"' EXIT
python3 scripts/fuzz_seeds.py "$seeds"
mkdir -p fuzz/corpus fuzz/artifacts

failed=0
for target in "${targets[@]}"; do
    mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target"
    log="fuzz/artifacts/$target/log"
    status=0
    # An input of a target may be long; a second for one is too much, though, and twenty are a failure.
    RAYON_NUM_THREADS=1 nice -n 19 "$built/$target" "fuzz/corpus/$target" "$seeds/$target" -dict="$seeds/words.dict" \
        -max_total_time="$seconds" -rss_limit_mb=3000 -timeout=20 -max_len=20000 -print_final_stats=1 \
        -artifact_prefix="fuzz/artifacts/$target/" >"$log" 2>&1 || status=$?
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    slowest=$(sed -n 's/^stat::slowest_unit_time_sec: *//p' "$log")
    memory=$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")
    covered=$(grep -o 'cov: [0-9]*' "$log" | tail -1)
    printf '%-10s %10s executions  %s  slowest %s s  %s MB  exit %s\n' \
        "$target" "${executions:-?}" "${covered:-}" "${slowest:-?}" "${memory:-?}" "$status"
    if [ "$status" -ne 0 ]; then
        failed=1
        tail -40 "$log"
    fi
done
exit $failed
