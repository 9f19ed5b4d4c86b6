#!/bin/bash
# Builds for the GPU of this machine, runs the CUDA tests, trains the configs for a few steps each
# and prints a table last. Takes about eight minutes at most.
#
#   tools/gpu-run.sh [all|build|test|bench] [NAME-PATTERN]
#
# NAME-PATTERN (a shell pattern) chooses among the benchmarks below. Results (JSON, logs) go to the
# folder $OUT, or bench/results. A folder .deps-x86 with an env.sh, where there is one, supplies the
# packages the system lacks. TEST_SECONDS and BENCH_SECONDS bound each test and each benchmark.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
what=${1:-all} pattern=${2:-*}
out=${OUT:-bench/results}
build=${BUILD:-build-cuda}
mkdir -p "$out"
[ -f .deps-x86/env.sh ] && . .deps-x86/env.sh

# name | config | settings
benchmarks='
gpt2-124m-b32|gpt2-124m|per_device_train_batch_size=32 bf16=true
gpt2-124m-b4|gpt2-124m|per_device_train_batch_size=4 bf16=true
gpt2-124m-b32-f32|gpt2-124m|per_device_train_batch_size=32 max_steps=6
gpt2-350m-b16|gpt2-350m|per_device_train_batch_size=16 bf16=true
gpt2-1558m-b8|gpt2-1558m|per_device_train_batch_size=8 bf16=true
llama-1b-b8|llama-1b|per_device_train_batch_size=8 bf16=true
'

build() {
    local arch
    arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .)
    # shellcheck disable=SC2046
    cmake -S . -B "$build" -G Ninja -DSNUG_CUDA=ON -DSNUG_CUDA_ARCHITECTURES="${arch:-90}" \
        >"$out/build.log" 2>&1 &&
        cmake --build "$build" -j "$(nproc)" --target snug_cli $(cuda_tests) >>"$out/build.log" 2>&1
    local rc=$?
    grep -E 'error|warning: |FAILED' "$out/build.log" | head -30
    [ $rc -eq 0 ] || tail -40 "$out/build.log"
    return $rc
}

cuda_tests() {
    for f in tests/cuda/test_*.c; do echo "cuda_$(basename "$f" .c)"; done
}

run_tests() {
    local failed=0 rc t
    : >"$out/tests.log"
    for t in $(cuda_tests); do
        local start=$SECONDS
        echo "== $t" >>"$out/tests.log"
        timeout "${TEST_SECONDS:-150}" "$build/$t" >"$out/one.log" 2>&1
        rc=$?
        cat "$out/one.log" >>"$out/tests.log"
        case $rc in
        0) result=passed ;;
        77) result=skipped ;;
        *) result="FAILED ($rc)"; failed=1 ;;
        esac
        echo "test $t: $result, $((SECONDS - start)) s"
        [ $rc -eq 0 ] || [ $rc -eq 77 ] || grep -vE '^\[ *(RUN|OK)' "$out/one.log" | cut -c1-260 | head -40
    done
    rm -f "$out/one.log"
    return $failed
}

run_benchmarks() {
    local folder failed=0
    folder=$(mktemp -d)
    : >"$out/bench.log"
    rm -f "$folder"/*.json
    while IFS='|' read -r name config settings; do
        [ -n "$name" ] || continue
        case $name in $pattern) ;; *) continue ;; esac
        echo "== $name" >>"$out/bench.log"
        # shellcheck disable=SC2086
        if ! timeout "${BENCH_SECONDS:-75}" "$build/snug" train "configs/$config.yaml" device=cuda \
            max_steps=20 gradient_accumulation_steps=1 $settings save_strategy=no \
            output_dir="$folder/$name" --json >"$folder/$name.json" 2>>"$out/bench.log"; then
            echo "benchmark $name failed: $(tail -1 "$out/bench.log")"
            rm -f "$folder/$name.json"
            failed=1
        fi
    done <<<"$benchmarks"
    table "$folder"
    rm -rf "$folder"
    return $failed
}

# One JSON object with every run by name, and the table.
table() {
    python3 - "$1" "$out/gpu-bench.json" <<'PY'
import glob, json, os, sys
runs = {}
for path in sorted(glob.glob(sys.argv[1] + "/*.json")):
    try:
        runs[os.path.basename(path)[:-5]] = json.load(open(path))
    except ValueError as e:
        print(path, e)
json.dump(runs, open(sys.argv[2], "w"), indent=1)
gib = 1 << 30
head = ("run", "tok/s", "ms", "ms pred", "GiB", "GiB pred", "arena", "MFU", "loss")
print("%-20s %9s %8s %8s %7s %8s %7s %6s  %s" % head)
for name, r in runs.items():
    m, p, losses = r["measured"], r["predicted"], r["losses"]
    print("%-20s %9.0f %8.2f %8.2f %7.2f %8.2f %7.2f %5.1f%%  %.4f -> %.4f" % (
        name, r["tokens_per_s"], m["step_ms"], p["step_ms"], m["device_bytes"] / gib,
        p["device_bytes"] / gib, m["arena_bytes"] / gib, 100 * r["mfu"], losses[0], losses[-1]))
PY
}

status=0
case $what in all | build | test | bench) ;; *) sed -n '2,12p' "$0"; exit 2 ;; esac
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
if [ "$what" != test ] && [ "$what" != bench ] || [ ! -x "$build/snug" ]; then
    start=$SECONDS
    build || exit 1
    echo "built in $((SECONDS - start)) s"
fi
if [ "$what" = all ] || [ "$what" = test ]; then run_tests || status=1; fi
if [ "$what" = all ] || [ "$what" = bench ]; then run_benchmarks || status=1; fi
exit $status
