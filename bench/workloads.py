#!/usr/bin/env python3
"""Networks that are no language models, the mixture of experts, and fine-tuning, beside PyTorch: milliseconds a step
(tokens a second where the batch has tokens), memory, what was predicted.

    bench/workloads.py [--peers FOLDER] [--steps N] [--limit SECONDS] [PATTERN ...]

Runs BUILD (build-cuda)/snug; PATTERN (a shell pattern) chooses cases. FOLDER has PyTorch's programs: each takes a case
in the words of the table below and prints a JSON line with "ms" or "tok_s" and "device_gib". One file,
bench/results/DATE-HARDWARE-workloads.json (OUT: another folder), has it all.
"""
import argparse
import datetime
import fnmatch
import json
import os
import pathlib
import subprocess
import sys
import tempfile

COMMON = "device=cuda eval_strategy=no save_strategy=no report_to=none overwrite_output_dir=true warmup_ratio=0 warmup_steps=1 logging_steps=1"
ONE = "gradient_accumulation_steps=1"
MIXED = f"fp16=false bf16=true {ONE}"  # what PyTorch's autocast does: bf16 products, f32 weights and states
FULL = f"configs/colab_optimized_full.yaml {MIXED} per_device_train_batch_size=20"
SMALL = f"configs/colab_optimized.yaml {MIXED} per_device_train_batch_size=16"
# Norms over a batch of two make gradients of any size: they are clipped, as in the config; the rate is low.
WIDE = f"configs/wide_autoencoder.yaml per_device_train_batch_size=2 learning_rate=1e-7 max_grad_norm=1.0 {ONE}"
EXPERTS = f"configs/ava_small.yaml {MIXED} per_device_train_batch_size=12 max_seq_length=256 model.dropout=0 label_smoothing_factor=0 max_grad_norm=0"
BRANCHES = f"configs/tasks.yml {MIXED} per_device_train_batch_size=2"
# Llama-3-8B's shape, adapters of rank 16 on all seven products, 2 x 4 x 2048 tokens a step.
LORA = "configs/lora-8b.yaml"
LORA_TOKENS = 2 * 4 * 2048
CODED = f"{LORA} adapter=qlora load_in_4bit=true bnb_4bit_use_double_quant=true"
# Ours, and PyTorch's program and case of the same work.
CASES = {
    "per-frame-cnn-full": (FULL, ("torch_workloads.py", "w2,B=20,T=5,W=640,compile=1")),
    "per-frame-cnn-full-9gib": (f"{FULL} device_memory=9GiB", ("torch_workloads.py", "w2,B=20,T=5,W=640,ckpt=1")),
    "per-frame-cnn-small-4gib": (f"{SMALL} device_memory=4GiB", ("torch_workloads.py", "w2,B=16,T=5,W=640,size=small,compile=1")),
    "wide-autoencoder": (WIDE, ("torch_workloads.py", "w3,B=2,mode=bf16")),
    "wide-autoencoder-33gib": (f"{WIDE} device_memory=33GiB", None),
    "experts-small": (EXPERTS, ("torch_workloads.py", "w4,B=12,T=256")),
    "experts-small-6gib": (f"{EXPERTS} device_memory=6GiB", None),
    "three-branch-39gib": (f"{BRANCHES} device_memory=39GiB", ("torch_workloads.py", "w1,B=2,T=16,compile=1")),
    "three-branch-image-20gib": (f"{BRANCHES} model.branches=image device_memory=20GiB", ("torch_workloads.py", "w1,B=2,T=16,compile=1")),
    "lora-8b-26gib": (f"{LORA} device_memory=26GiB", ("torch_lora.py", "llama-8b,2,4,16,1,0")),
    "lora-8b-nf4-16gib": (f"{CODED} device_memory=16GiB", None),
    "lora-8b-nf4-8gib": (f"{CODED} device_memory=8GiB", None),
    "lora-8b-nf4-6gib": (f"{CODED} device_memory=6GiB", None),
}


def run(command, limit, **more):
    """As subprocess.run; what takes too long has failed, too."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit, **more)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"not done after {limit} s")


def ours(settings, steps, limit):
    with tempfile.TemporaryDirectory() as folder:
        command = [os.path.join(os.environ.get("BUILD", "build-cuda"), "snug"), "train", *settings.split(), *COMMON.split(),
                   f"max_steps={steps}", f"output_dir={folder}", "--json", "--quiet"]
        done = run(command, limit)
    if done.returncode:
        return {"settings": settings, "error": done.stderr.strip()[-600:], "exit": done.returncode}
    said = json.loads(done.stdout)
    predicted, measured = said["predicted"], said["measured"]
    return {"settings": settings, "step_ms": measured["step_ms"], "predicted_step_ms": predicted["step_ms"], "device_bytes": measured["device_bytes"],
            "predicted_device_bytes": predicted["device_bytes"], "arena_bytes": measured["arena_bytes"],
            "predicted_arena_bytes": predicted["arena_bytes"], "decisions": said["decisions"], "losses": said["losses"]}


def theirs(folder, program, case, steps, limit):
    case += f",{steps}" if program == "torch_lora.py" else f",steps={steps}"
    done = run([sys.executable, program, case], limit, cwd=folder)
    return json.loads(done.stdout.strip().splitlines()[-1]) if done.stdout.strip() else {"error": done.stderr[-300:]}


def show(name, mine, peer):
    if "error" in mine:
        print(f"{name:28} {mine['error']}", flush=True)
    else:
        time, memory = (mine[f"predicted_{k}"] / mine[k] - 1 for k in ("step_ms", "device_bytes"))
        rate = f"{mine['tokens_per_second']:,.0f} tok/s" if mine.get("tokens_per_second") else f"{mine['step_ms']:.1f} ms"
        print(f"{name:28} {rate:>14} (predicted {time:+.1%})  {mine['device_bytes'] / 2**30:6.2f} GiB (predicted {memory:+.2%})", flush=True)
    if peer:
        rate = next((f"{peer[k]} {word}" for k, word in (("tok_s", "tok/s"), ("ms", "ms"), ("error", "")) if k in peer), "nothing")
        print(f"{'':20} PyTorch {rate}, {peer.get('device_gib')} GiB", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--peers")
    options.add_argument("--steps", type=int, default=16)
    options.add_argument("--limit", type=int, default=600, help="seconds a program may take")
    options.add_argument("--date", default=str(datetime.date.today()))
    options.add_argument("--hardware", default="h200")
    options.add_argument("patterns", nargs="*", default=["*"])
    o = options.parse_args()
    result = {"date": o.date, "hardware": o.hardware, "common": COMMON, "steps": o.steps, "cases": {}}
    path = pathlib.Path(os.environ.get("OUT", "bench/results")) / f"{o.date}-{o.hardware}-workloads.json"
    for name in dict.fromkeys(n for p in o.patterns for n in CASES if fnmatch.fnmatch(n, p)):
        settings, case = CASES[name]
        peer = theirs(o.peers, *case, o.steps, o.limit) if o.peers and case else None
        mine = ours(settings, o.steps, o.limit)
        if name.startswith("lora") and "step_ms" in mine:
            mine["tokens_per_second"] = 1e3 * LORA_TOKENS / mine["step_ms"]
        result["cases"][name] = {"ours": mine, "peer": peer}
        show(name, result["cases"][name]["ours"], peer)
        path.write_text(json.dumps(result, indent=1) + "\n")


main()
