#!/bin/sh
# Builds the fuzz targets with clang and runs each for FUZZ_SECONDS on a copy of its corpus, as many at once as there are
# processors.
set -eu
cmake --preset fuzz >/dev/null
targets=$(cd tests/fuzz && ls fuzz_*.c | sed 's/\.c$//')
cmake --build build-fuzz -j "$(nproc)" --target $targets
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export work seconds="${FUZZ_SECONDS:-10}"
echo "$targets" | xargs -P "$(nproc)" -n 1 sh -c '
    mkdir -p "$work/$0"
    if "build-fuzz/$0" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$work/" "$work/$0" "tests/fuzz/corpus/${0#fuzz_}" >"$work/$0.log" 2>&1; then
        printf "%-24s%s\n" "$0" "$(sed -n "s/^stat::number_of_executed_units: */runs /p" "$work/$0.log")"
    else
        printf "%-24sFAILED\n%s\n" "$0" "$(tail -40 "$work/$0.log")"
        exit 1
    fi'
