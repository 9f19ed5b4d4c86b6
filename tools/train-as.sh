#!/bin/bash
# The ways to train that other tools are known by, as plans of Snug: says which plan it is, shows what it takes on the
# card it is meant for, and trains: on the GPU where there is one, else the same settings, small, on the processor.
#     tools/train-as.sh deepspeed|accelerate|qlora|smoke [build]          STEPS=20 how many steps
set -euo pipefail
way=${1:?usage: tools/train-as.sh deepspeed|accelerate|qlora|smoke [build]}
snug=${2:-build}/snug
steps=${STEPS:-}
folder=${2:-build}/train-as
mkdir -p "$folder"
small_clip=(model.frames=4 model.image_height=32 model.image_width=48 model.width_divisor=16)

case $way in
deepspeed)
    echo "train-deepspeed: ZeRO-2 with the optimizer on the CPU. One GPU has no ranks to share states with, so the plan is:"
    echo "  offload_optimizer: true (states live on the host), optim: adamw_8bit, gradient_checkpointing: true, inside device_memory"
    preset=deepspeed small=("${small_clip[@]}") ;;
accelerate)
    echo "train-accelerate: device_map=auto with --max-gpu-mem and --cpu-mem. The plan is the planner's own: what is kept,"
    echo "  made again or moved is decided for each value, inside device_memory and host_memory"
    preset=accelerate small=("${small_clip[@]}") ;;
qlora)
    echo "train-qlora: 4-bit weights with adapters. The plan is adapter: qlora (NF4, double quantisation), adapters of rank 16,"
    echo "  optim: adamw_8bit, inside device_memory"
    preset=qlora small=(model.hidden_size=128 model.intermediate_size=256 model.num_hidden_layers=2
        model.num_attention_heads=4 model.num_key_value_heads=2 model.vocab_size=512 max_seq_length=64) ;;
smoke)
    echo "test-smoke: the three-branch network, small, on made-up clips: two steps, a checkpoint, read back"
    "$snug" init "$folder/smoke.yaml" --preset three-branch --card cpu --output-dir "$folder/smoke" --force --quiet
    exec "$snug" train "$folder/smoke.yaml" "${small_clip[@]}" --fast-dev-run "${steps:-2}" ;;
*) echo "train-as: there is no way '$way'; there are deepspeed, accelerate, qlora and smoke" >&2; exit 2 ;;
esac

config=$folder/$way.yaml
"$snug" init "$config" --preset $preset --output-dir "$folder/$way" --force --quiet
card=$(sed -n 's/.* --gpu \([a-z0-9-]*\).*/\1/p' "$config" | head -1)
echo; echo "\$ snug plan $config --gpu $card"
"$snug" plan "$config" --gpu "$card"
echo
if "$snug" env --require-gpu >/dev/null 2>&1; then
    set -- "max_steps=${steps:-20}"
else
    echo "no GPU can be used here (make check-gpu says why): the same settings, small, on the processor"
    set -- device=cpu device_memory=auto host_memory=auto "${small[@]}" "max_steps=${steps:-2}"
fi
echo "\$ snug train $config $*"
"$snug" train "$config" "$@" overwrite_output_dir=true
