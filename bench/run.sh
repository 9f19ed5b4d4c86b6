#!/bin/bash
# CPU benchmark: a GPT-2 124M training step (B 4, T 256) beside PyTorch on the same machine, in the same
# run, taking turns so that a drifting clock hits both. Writes bench/results/<date>-cpu-gpt2-124m.json
# (with bf16: ...-bf16.json) when PyTorch is there; without it prints our side only.
#
#   bench/run.sh [BUILD]       PEER_PYTHON=/path/to/python (with torch)  THREADS=2  ROUNDS=3  STEPS=6
#                              PRECISION=f32 | bf16 (f32 masters and states; PyTorch's autocast)
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
python=${PEER_PYTHON:-python3}
export OMP_NUM_THREADS=${THREADS:-2}
rounds=${ROUNDS:-3} steps=${STEPS:-6} precision=${PRECISION:-f32}
case $precision in
f32) settings='' peer_precision=fp32 name=cpu-gpt2-124m ;;
bf16) settings=' bf16=true' peer_precision=amp name=cpu-gpt2-124m-bf16 ;;
*) echo "PRECISION is f32 or bf16, not $precision"; exit 2 ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

command="snug train configs/gpt2-124m.yaml per_device_train_batch_size=4 max_seq_length=256 max_grad_norm=0 max_steps=$steps$settings"
ours() {
    "$build/snug" ${command#snug } save_strategy=no report_to=none output_dir="$work/out" overwrite_output_dir=true \
        num_threads="$OMP_NUM_THREADS" --json --quiet >"$work/snug.$1.json"
}
peer() {
    "$python" bench/peer_torch.py gpt2-124m batch=4 seq=256 steps="$steps" precision=$peer_precision \
        >"$work/torch.$1.json"
}

has_peer=0
"$python" -c 'import torch' 2>/dev/null && has_peer=1
for i in $(seq "$rounds"); do
    ours "$i"
    [ $has_peer = 0 ] || peer "$i"
done
if [ $has_peer = 0 ]; then
    echo "no PyTorch in $python: our side only"
    cat "$work"/snug.*.json
    exit 0
fi
"$python" bench/summarise.py "$work" "$command" "$OMP_NUM_THREADS" "$precision" >"bench/results/$(date +%F)-$name.json"
cat "bench/results/$(date +%F)-$name.json"
