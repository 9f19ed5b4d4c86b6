#!/bin/sh
# Builds the fuzz targets with clang and runs each for FUZZ_SECONDS on a copy of its corpus.
set -eu
seconds=${FUZZ_SECONDS:-10}
cmake --preset fuzz >/dev/null
targets=$(cd tests/fuzz && ls fuzz_*.c | sed 's/\.c$//')
cmake --build build-fuzz -j "$(nproc)" --target $targets
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for t in $targets; do
    mkdir -p "$work/$t"
    corpus=tests/fuzz/corpus/${t#fuzz_}
    printf '%-24s' "$t"
    if "build-fuzz/$t" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$work/" "$work/$t" "$corpus" >"$work/log" 2>&1; then
        sed -n 's/^stat::number_of_executed_units: */runs /p' "$work/log"
    else
        echo FAILED; tail -40 "$work/log"; exit 1
    fi
done
