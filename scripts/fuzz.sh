#!/usr/bin/env bash
# Fuzzes the checker: builds every target of fuzz/ and runs each for some seconds, beginning with what lies in this repository.
#
# usage: scripts/fuzz.sh [SECONDS [TARGET ...]]      an hour for each of all targets: scripts/fuzz.sh 3600
#
# Needs the nightly toolchain and `cargo install cargo-fuzz --locked`. What is found new is kept in fuzz/corpus/, so that the next run goes
# on from there; an input that breaks something ends up in fuzz/artifacts/TARGET/. The exit code is 1 when there is one. It runs with what
# others leave of the processors.
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

# A unit takes too long when the processor works on it for so many seconds. libFuzzer measures the time that passes, and that of a process
# of lowest priority on a busy machine is up to fifty times as long: its limit finds what never ends, and what it notes as slow is run again
# alone below, where the time of the processor is what counts.
slow=1
longest=20
hang=150

# Runs something with lowest priority. Where the kernel shares the processors among sessions first and within each afterwards
# (CONFIG_SCHED_AUTOGROUP), nice alone says nothing to other sessions: it takes a session of its own, and a low place for that.
lowest() {
    setsid "$BASH" -c '
        [ ! -e /proc/self/autogroup ] || echo 19 2>/dev/null >/proc/self/autogroup || true
        exec nice -n 19 "$@"' lowest "$@" &
    running=$!
    # A session of its own hears nothing of an interrupt.
    trap 'kill "$running" 2>/dev/null; exit 130' INT TERM
    local status=0
    wait "$running" || status=$?
    trap - INT TERM
    return "$status"
}

# The seconds that the processor spends on one input.
processor_seconds() {
    local TIMEFORMAT='%U %S'
    { time RAYON_NUM_THREADS=1 "$@" >/dev/null 2>&1; } 2>&1 | awk '{ printf "%.1f", $1 + $2 }'
}

failed=0
for target in "${targets[@]}"; do
    mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target"
    log="fuzz/artifacts/$target/log"
    status=0
    RAYON_NUM_THREADS=1 lowest "$built/$target" "fuzz/corpus/$target" "$seeds/$target" -dict="$seeds/words.dict" \
        -max_total_time="$seconds" -rss_limit_mb=3000 -timeout="$hang" -report_slow_units="$slow" -max_len=20000 \
        -print_final_stats=1 -artifact_prefix="fuzz/artifacts/$target/" >"$log" 2>&1 || status=$?
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
    for unit in "fuzz/artifacts/$target"/slow-unit-*; do
        [ -e "$unit" ] || continue
        took=$(processor_seconds "$built/$target" -timeout="$hang" "$unit")
        if awk "BEGIN { exit !($took < $slow) }"; then
            rm "$unit"
            continue
        fi
        echo "$took s alone: $unit"
        if awk "BEGIN { exit !($took > $longest) }"; then
            failed=1
        fi
    done
done
exit $failed
