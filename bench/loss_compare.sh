#!/bin/bash
# Trains GPT-2 124M on real text beside PyTorch: same initial weights, same batches, same schedule, and compares
# the loss of every step. Needs a GPU and a Python with PyTorch.
#
#   bench/loss_compare.sh TOKENS [BUILD]      TOKENS: a token file, as tools/make_text_corpus.py makes one
#   bench/loss_compare.sh tiny [BUILD]        proves the comparison itself: a small f32 model on a CPU, made-up data
#
# PEER_PYTHON (python3), STEPS, BATCH and OUT (bench/results) can be set. Ours runs once for each precision below,
# PyTorch once, with bf16 autocast over f32 weights. Writes OUT/<date>-<device>-loss-gpt2-<size>.json and .svg.
set -euo pipefail
cd "$(dirname "$0")/.."
tokens=${1:?TOKENS or tiny; see the head of this file} build=${2:-build-cuda}
python=${PEER_PYTHON:-python3}
out=${OUT:-bench/results}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "$tokens" = tiny ]; then
    steps=${STEPS:-60} batch=${BATCH:-4} device=cpu peer_precision=f32 dtype=f32 name=cpu-loss-gpt2-tiny
    what="Two-layer GPT-2, f32, CPU"
    settings="model.n_layer=2 model.n_embd=64 model.n_head=4 model.n_inner=256 model.n_positions=64 model.vocab_size=512
        max_seq_length=64 learning_rate=1e-3"
    hardware=$(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -1)
    runs='f32|
'
else
    steps=${STEPS:-400} batch=${BATCH:-16} device=cuda peer_precision=bf16 dtype=bf16
    gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)
    name=$(tr '[:upper:] ' '[:lower:]-' <<<"${gpu#NVIDIA }")-loss-gpt2-124m
    what="GPT-2 124M on real text, $batch x 1024 tokens a step"
    settings="datasets.0.type=tokens datasets.0.path=$tokens learning_rate=3e-4"
    hardware="$gpu, driver $(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)"
    # The first is the one that must hold; the others show what cheaper formats cost.
    runs='bf16, f32 masters|bf16=true
bf16, f32 masters, bf16 gradients|bf16=true gradient_dtype=bf16
bf16 throughout, stochastic rounding|bf16=true master_dtype=bf16 gradient_dtype=bf16 optim_state_dtype=bf16
fp16, f32 masters, loss scaling|fp16=true
'
fi
settings="$settings max_steps=$steps per_device_train_batch_size=$batch gradient_accumulation_steps=1
    warmup_steps=$((steps / 10)) max_grad_norm=1.0 save_strategy=no report_to=none"

# shellcheck disable=SC2086
"$build/snug" export configs/gpt2-124m.yaml $settings device=cpu --checkpoint none --dtype $dtype -o "$work/model"
# shellcheck disable=SC2086
"$build/bench_dump_batches" "$work/batches" configs/gpt2-124m.yaml $settings device=cpu

train() { # FOLDER SETTING ...
    local folder=$1
    shift
    # shellcheck disable=SC2086
    "$build/snug" train configs/gpt2-124m.yaml $settings device=$device model= model_name_or_path="$work/model" \
        output_dir="$folder" overwrite_output_dir=true "$@" --quiet
}

compared=() n_runs=0
while IFS='|' read -r run precision; do
    [ -n "$run" ] || continue
    first_precision=${first_precision-$precision}
    folder=$work/run$((n_runs++))
    # shellcheck disable=SC2086
    if train "$folder" $precision; then
        compared+=("$run=$folder/metrics.jsonl")
    else
        echo "loss $run: the run failed"
        [ ${#compared[@]} -gt 0 ] || exit 1
    fi
done <<<"$runs"

# The same bits again, and whatever is recomputed.
repeats=('a run=' 'a second run=' 'recompute=gradient_checkpointing=true')
for i in "${!repeats[@]}"; do
    # shellcheck disable=SC2086
    train "$work/bits$i" ${first_precision:-} deterministic=true max_steps=$((steps < 40 ? steps : 40)) ${repeats[i]#*=}
    compared+=("bits:${repeats[i]%%=*}=$work/bits$i/metrics.jsonl")
done

"$python" bench/loss_peer.py "$work/model" "$work/batches" "$work/run0/metrics.jsonl" $peer_precision $device >"$work/peer.jsonl"
version=$("$python" -c 'from importlib.metadata import version; print(version("torch"))')
mkdir -p "$out"
"$python" bench/loss_report.py "$work/peer.jsonl" "$out/$(date +%F)-$name" "$hardware" "$what" \
    "torch $version, $([ $peer_precision = f32 ] && echo f32 || echo "$peer_precision autocast")" "${compared[@]}"
