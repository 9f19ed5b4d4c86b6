#!/bin/bash
# Can this machine's GPU be used? Builds for it where needed, prints what `snug env` says of it, and
# lets a small model generate and evaluate on it beside the CPU. The exit status is the answer; the
# last line says why not.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build-cuda}
test=cuda_test_cuda_inference
[ -f .deps-x86/env.sh ] && . .deps-x86/env.sh
fail() { echo "check-gpu: $1"; exit "${2:-1}"; }

command -v nvcc >/dev/null || [ -x "$build/snug" ] ||
    fail "there is no nvcc: install the CUDA toolkit (12.4 or newer) and put its bin folder on PATH"
if command -v nvcc >/dev/null; then
    arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .)
    log=$(mktemp)
    # An existing build folder keeps its architectures.
    cmake -S . -B "$build" -G Ninja -DSNUG_CUDA=ON \
        $([ -f "$build/CMakeCache.txt" ] || echo "-DSNUG_CUDA_ARCHITECTURES=${arch:-90}") >"$log" 2>&1 &&
        cmake --build "$build" -j "$(nproc)" --target snug_cli $test >>"$log" 2>&1 ||
        { tail -20 "$log"; rm -f "$log"; fail "the build failed (above)"; }
    rm -f "$log"
fi

{ reason=$("$build/snug" env --require-gpu --no-color 2>&1 >&3); code=$?; } 3>&1
[ $code -eq 0 ] || fail "not usable: ${reason#error: }" $code
[ -x "$build/$test" ] || { echo "check-gpu: usable; not tried, $build has no tests"; exit 0; }
if output=$("$build/$test" 2>&1); then
    echo "check-gpu: usable; a small model gives the same results as on the CPU"
else
    echo "$output" | tail -20
    fail "the GPU answers, but its results are wrong or it failed (above)"
fi
