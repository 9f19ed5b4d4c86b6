#!/bin/bash
# Everything for a machine with an NVIDIA GPU: builds for it, tests, checks with compute-sanitizer, measures, and prints
# a short table last.
#
#   tools/gpu-run.sh [SECTION ...] [CASE-PATTERN ...]
#
#   build     cmake and the program, the CUDA tests and the tools below
#   test      every program of tests/cuda (TEST_SECONDS bounds each)
#   sanitize  memcheck, racecheck and initcheck on training and on the ops, side by side (SANITIZE_SECONDS in all)
#   loss      GPT-2 124M on real text beside PyTorch: bench/loss_compare.sh (TOKENS: the token file,
#             build/corpus/train.bin; tools/make_text_corpus.py makes one)
#   kernels   programs that time single kernels: convolutions with cuDNN's plans, grouped products, memory
#   planning  how long plans of a 7B take on two processors, with an empty cache and with a full one, alone and beside busy
#             programs: bench/planning.py with the options in PLANNING
#   budgets   plans inside budgets against the clock: bench/budgets.py with the options in BUDGETS, CASE-PATTERN chooses
#             among its cases
#   bench     our side of the cases of bench/targets.json; CASE-PATTERN (a shell pattern) chooses among them
#   peer      PyTorch's side of the same cases, by turns with ours (PEER: its program; see tools/gpu_bench.py)
#   profile   where the time of a step goes in these cases, op by op
#
# Without a section: build test bench. They always run in the order above. Results and logs go to the folder $OUT, at
# most eight files; without OUT results go to bench/results and logs to the build folder. LIMIT_SECONDS bounds the whole
# call: what does not fit is left out, and the table still comes. SANITIZE_CHECKS (an extended regular expression) chooses
# among the sanitizers' runs: initcheck, 'racecheck.cuda_training'. A folder .deps-x86 with an env.sh, where there is
# one, supplies the packages the system lacks.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build-cuda}
logs=${OUT:-$build}
limit=${LIMIT_SECONDS:-100000}
tokens=${TOKENS:-build/corpus/train.bin}
mkdir -p "$logs" "$build"
[ -f .deps-x86/env.sh ] && . .deps-x86/env.sh

cuda_tests() {
    for f in tests/cuda/test_*.c; do echo "cuda_$(basename "$f" .c)"; done
}

# The smaller of $1 and what is left of the call, less a few seconds to end in.
seconds() {
    local left=$((limit - SECONDS - 5))
    echo $(($1 < left ? $1 : (left > 1 ? left : 1)))
}

run_build() {
    local arch rc start=$SECONDS
    arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .)
    # shellcheck disable=SC2046
    cmake -S . -B "$build" -G Ninja -DSNUG_CUDA=ON -DSNUG_CUDA_ARCHITECTURES="${arch:-90}" >"$logs/build.log" 2>&1 &&
        cmake --build "$build" -j "$(nproc)" --target snug_cli bench_dump_batches bench_profile bench_turns $(cuda_tests) >>"$logs/build.log" 2>&1
    rc=$?
    grep -E 'error|warning: |FAILED' "$logs/build.log" | head -30
    [ $rc -eq 0 ] || tail -40 "$logs/build.log"
    echo "built in $((SECONDS - start)) s"
    return $rc
}

# One test program with its arguments and its seconds at most: a line to the screen, the rest to a log.
test_one() {
    local t=$1 start=$SECONDS rc result log=$build/${1// /.}.log
    log=${log:0:200}
    # shellcheck disable=SC2086 # a program and its arguments are words
    timeout "$2" "$build"/$t >"$log" 2>&1
    rc=$?
    case $rc in
    0) result=passed ;;
    77) result=skipped ;;
    *) result="FAILED ($rc)" ;;
    esac
    echo "test ${t:0:100}: $result, $((SECONDS - start)) s"
    [ $rc -eq 0 ] || [ $rc -eq 77 ] || { grep -vE '^\[ *(RUN|OK)' "$log" | cut -c1-260 | head -40; return 1; }
}

# Tests that measure memory or time have the GPU to themselves; the others run side by side, the laws and training in
# several parts.
run_test() {
    local failed=0 t most alone='cuda_test_cuda_errors cuda_test_cuda_memory cuda_test_cuda_timing'
    rm -f "$build"/cuda_test_*.log
    for t in $alone; do test_one "$t" "$(seconds "${TEST_SECONDS:-150}")" || failed=1; done
    export build && export -f test_one
    most=$(seconds "${TEST_SECONDS:-150}")
    {
        # shellcheck disable=SC2086 # words
        printf 'cuda_test_cuda_laws %s\n' $law_groups
        sed -n 's/^ *cmocka_unit_test(\([a-z0-9_]*\)).*/cuda_test_cuda_training \1/p' tests/cuda/test_cuda_training.c
        cuda_tests | grep -vxF "${alone// /$'\n'}" | grep -vxE 'cuda_test_cuda_(laws|training)'
    } | xargs -P 8 -d '\n' -I{} bash -c "test_one '{}' $most" || failed=1
    for t in "$build"/cuda_test_*.log; do echo "== $t"; cat "$t"; done >"$logs/tests.log"
    return $failed
}

# tool and its options | program and its arguments. A device's arenas are zeroed, so initcheck would see nothing in
# training; the laws run every kernel once with outputs and workspace in memory that nobody has written. What they copy
# out of it they compare bit for bit; initcheck is not asked about copies, as it does not see what TMA stores.
# Checkers are slow: the ops of products, convolutions and attention have processes of their own, the others share some; racecheck
# sees every kernel once, and of training in bf16 two steps, the second over what the first has updated.
slow_ops='conv_grad_weight conv_grad_input conv linear_cross_entropy_grad linear_cross_entropy attention_grad cross_attention_grad linear_grad_weight linear_grad_input attention cross_attention linear'
other_ops=$(sed -n 's/^OP(\([a-z_0-9]*\),.*/\1/p' src/graph/ops.def | grep -vxF "${slow_ops// /$'\n'}")
# shellcheck disable=SC2086 # words
law_groups="$slow_ops $(echo "$other_ops" | paste -s -d ',,,,,,,\n')"
# shellcheck disable=SC2086 # words
checks="$(printf 'racecheck|cuda_laws %s once\n' $law_groups)
memcheck|cuda_training *losses*those_of_pytorch
$(printf 'memcheck|cuda_laws %s\n' $law_groups)
$(printf 'initcheck --check-api-memory-access no|cuda_laws %s\n' $law_groups)
racecheck|cuda_training f32_losses* gpt2
racecheck|cuda_training bf16_losses* gpt2 2
racecheck|cuda_training bf16_losses* llama 2"

# One process under a sanitizer, until $deadline: tool and its options, program and its arguments, number.
sanitize_one() {
    local start=$SECONDS log=$folder/${1%% *}-${2%% *}.$3.log left=$((deadline - $(date +%s)))
    set -f
    # shellcheck disable=SC2086 # options and arguments are words
    timeout -k 2 $((left > 1 ? left : 1)) \
        compute-sanitizer --print-limit 100000 --tool $1 "$build"/cuda_test_$2 >"$log" 2>&1
    echo "took $((SECONDS - start)) s: $2" >>"$log"
}

# Opening a GPU measures it, which takes minutes under a sanitizer: a first run without one leaves the figures in a file.
run_sanitize() {
    local check rc n=0 start=$SECONDS
    export build folder=$build/sanitize SNUG_TEST_CACHE=$build/sanitize/cache deadline
    deadline=$(($(date +%s) + $(seconds "${SANITIZE_SECONDS:-400}")))
    rm -rf "$folder" && mkdir -p "$folder"
    command -v compute-sanitizer >/dev/null || { echo "sanitize: no compute-sanitizer on the PATH"; return 1; }
    "$build/cuda_test_cuda_laws" add >/dev/null 2>&1 || { echo "sanitize: the laws of add fail"; return 1; }
    "$build/cuda_test_cuda_training" 'f32_losses*' gpt2 >/dev/null 2>&1 || { echo "sanitize: f32 training fails"; return 1; }
    export -f sanitize_one
    while read -r check; do
        printf '%s\0%s\0%s\0' "${check%%|*}" "${check#*|}" $((n++))
    done < <(grep -E "${SANITIZE_CHECKS:-.}" <<<"$checks") | xargs -0 -n 3 -P "$(nproc)" bash -c 'sanitize_one "$@"' sanitize
    unset SNUG_TEST_CACHE
    python3 tools/sanitizer_summary.py "$folder"/*.log 2>&1 | tee "$logs/sanitize.log"
    rc=${PIPESTATUS[0]}
    echo "sanitized in $((SECONDS - start)) s"
    # Enough of each log to see where it was said.
    for check in "$folder"/*.log; do echo "== $check"; head -c 30000 "$check"; tail -1 "$check"; done >>"$logs/sanitize.log"
    return "$rc"
}

run_loss() {
    [ -f "$tokens" ] || { echo "loss: no token file $tokens; make one with tools/make_text_corpus.py build/corpus build-cuda/snug"; return 1; }
    timeout "$(seconds "${LOSS_SECONDS:-240}")" bench/loss_compare.sh "$tokens" "$build"
}

run_kernels() {
    cmake --build "$build" -j "$(nproc)" --target bench_conv_cuda bench_grouped bench_elementwise >>"$logs/build.log" 2>&1 || return 1
    timeout "$(seconds "${KERNELS_SECONDS:-120}")" "$build/bench_conv_cuda" --samples >"$logs/convolution-samples.log" 2>&1
    timeout "$(seconds "${KERNELS_SECONDS:-120}")" "$build/bench_conv_cuda" --plans "${PLANS:-6}" 2>&1 | tee "$logs/convolution.log"
    timeout "$(seconds "${KERNELS_SECONDS:-120}")" "$build/bench_grouped" json="$logs/grouped.json" 2>&1 | tee "$logs/grouped.log"
    timeout "$(seconds "${KERNELS_SECONDS:-120}")" "$build/bench_elementwise" 2>&1 | tee "$logs/elementwise.log"
}

run_planning() {
    # shellcheck disable=SC2086 # options are words
    timeout "$(seconds "${PLANNING_SECONDS:-240}")" python3 bench/planning.py --build "$build" --cuda --processors 2 \
        --out "${OUT:-bench/results}/$(date +%F)-gpu-planning.json" '7B*' ${PLANNING:---busy 0 2} 2>&1 | tee "$logs/planning.log"
    return "${PIPESTATUS[0]}"
}

run_budgets() {
    local cache rc
    cache=$(mktemp -d) # an empty one
    # shellcheck disable=SC2086 # options are words
    XDG_CACHE_HOME=$cache BUILD=$build OUT=${OUT:-bench/results} timeout "$(seconds 100000)" \
        python3 bench/budgets.py ${BUDGETS:---steps 24} ${patterns[@]+"${patterns[@]}"}
    rc=$?
    rm -rf "$cache"
    return $rc
}

sections='' patterns=()
for word in "$@"; do
    case $word in
    all) sections="$sections build test bench" ;;
    build | test | sanitize | loss | kernels | planning | budgets | bench | peer | profile) sections="$sections $word" ;;
    -*) sed -n '2,25p' "$0"; exit 2 ;;
    *) patterns+=("$word") ;;
    esac
done
sections=" ${sections:-build test bench} "
wants() { [[ $sections == *" $1 "* ]]; }

status=0
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
if wants build || { [ ! -x "$build/snug" ] && [ "$sections" != " peer " ]; }; then run_build || exit 1; fi
for section in test sanitize loss kernels planning budgets; do
    if wants $section; then "run_$section" || status=1; fi
done
measured=
for section in bench peer profile; do wants $section && measured="$measured $section"; done
if [ -n "$measured" ]; then
    # shellcheck disable=SC2086
    LIMIT_SECONDS=$((limit - SECONDS - 5)) python3 tools/gpu_bench.py $measured ${patterns[@]+"${patterns[@]}"} || status=1
fi
exit $status
