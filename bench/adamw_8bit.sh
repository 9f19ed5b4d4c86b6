#!/bin/sh
# What 8-bit optimizer states cost in loss: the demo's model on the demo's text, STEPS steps with f32 states and as many
# with 8-bit ones, same data and seeds, in f32 and in bf16 without masters. Prints the curves' ends and fails when the
# evaluation loss of a pair differs by more than half a percent.
#
#   bench/adamw_8bit.sh [build folder] [key=value ...]
#
# STEPS (300) is how long each run is; TEXT is the text (a file), by default that of `make demo`.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
[ $# -gt 0 ] && shift
steps=${STEPS:-300}
text=${TEXT:-$build/demo/text.txt}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
if [ ! -f "$text" ]; then
    mkdir -p "$(dirname "$text")"
    find /usr/share/games/fortunes -type f ! -name '*.dat' ! -name '*.u8' -size +1k -print0 |
        sort -z | xargs -0 cat >"$text"
fi

# The evaluation loss at the end of a run named $1, with the settings after it.
evaluation_loss() {
    name=$1
    shift
    "$build/snug" train configs/demo.yaml "datasets=$text" "max_steps=$steps" eval_strategy=steps "eval_steps=$steps" \
        save_strategy=no report_to=none "output_dir=$out/$name" "$@" >"$out/$name.log" 2>&1 ||
        { cat "$out/$name.log" >&2; exit 1; }
    sed -n 's/.*"kind":"eval".*"loss":\([0-9.e+-]*\).*/\1/p' "$out/$name/metrics.jsonl" | tail -1
}

compare() {
    label=$1
    shift
    wide=$(evaluation_loss "$label-f32" optim=adamw "$@")
    narrow=$(evaluation_loss "$label-8bit" optim=adamw_8bit "$@")
    awk -v label="$label" -v a="$wide" -v b="$narrow" 'BEGIN {
        d = 100 * (b - a) / a
        printf "%-6s f32 states %.5f   8-bit states %.5f   %+.3f %%\n", label, a, b, d
        exit d > 0.5 || d < -0.5 }'
}

compare f32 "$@"
compare bf16 bf16=true master_dtype=bf16 "$@"
