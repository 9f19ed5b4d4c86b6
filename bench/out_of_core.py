#!/usr/bin/env python3
"""Training with little device memory: each case is run for a few steps, and what it took goes to bench/results.

    bench/out_of_core.py [--logs FOLDER] [--date DATE] [CASE ...]

Runs BUILD (build-cuda)/snug and keeps its words in FOLDER (default: a scratch folder); with --parse, logs that are
already there are read instead. Without a CASE: all of them.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import tempfile

COMMON = ("device=cuda bf16=true master_dtype=bf16 gradient_dtype=bf16 optim=adamw_8bit eval_strategy=no save_strategy=no "
          "overwrite_output_dir=true warmup_steps=1 logging_steps=1")
SEVEN = "configs/qwen2.5-7b.yaml per_device_train_batch_size=32 device_memory=13.3GiB host_memory=48GiB"
GPT2 = "configs/gpt2-1558m.yaml per_device_train_batch_size=8 gradient_accumulation_steps=1 datasets.0.type=synthetic max_grad_norm=0"
CASES = {
    "qwen2.5-7b-13gib": ("Qwen2.5-7B, 32k tokens a step, no clipping", f"{SEVEN} gradient_accumulation_steps=1 max_grad_norm=0", 10400),
    "qwen2.5-7b-13gib-clip": ("Qwen2.5-7B, 32k tokens a step, exact clipping", f"{SEVEN} gradient_accumulation_steps=1 max_grad_norm=1.0", 9500),
    "qwen2.5-7b-13gib-131k": ("Qwen2.5-7B, 131k tokens a step, no clipping", f"{SEVEN} gradient_accumulation_steps=4 max_grad_norm=0", 11000),
    "qwen2.5-14b-16gib": ("Qwen2.5-14B, 32k tokens a step, no clipping",
                          "configs/qwen2.5-14b.yaml per_device_train_batch_size=32 gradient_accumulation_steps=1 "
                          "device_memory=16GiB host_memory=100GiB max_grad_norm=0", 4800),
    "gpt2-1558m-8gib": ("GPT-2 1558M, 8k tokens a step, no clipping", f"{GPT2} device_memory=8GiB", None),
    "gpt2-1558m-free": ("GPT-2 1558M, 8k tokens a step, no clipping", GPT2, None),
}


def number(pattern, text):
    found = re.search(pattern, text)
    return float(found[1].replace(",", "")) if found else None


def read(text):
    """The figures in the words of a run."""
    given = lambda tier: number(rf"{tier} +memory +[\d.]+ \w+ of ([\d.]+) GiB given", text)
    tokens = number(r"= ([\d,]+) tokens per step", text)
    rate = number(r"median step.*? ([\d,]+) tokens/s", text)
    predicted = number(r"per step, ([\d,]+) tokens/s", text)
    return {
        "device_memory_gib": given("device"), "host_memory_gib": given("host"),
        "tokens_per_step": tokens, "tokens_per_s": rate, "predicted_tokens_per_s": predicted, "step_s": round(tokens / rate, 3),
        "arena_bytes": int(number(r"measured ([\d,]+)(?:: equal| )", text)),
        "predicted_arena_bytes": int(number(r"arena +predicted ([\d,]+)", text)),
        "device_gib": number(r"process +predicted [\d.]+ GiB, measured ([\d.]+)", text),
        "predicted_device_gib": number(r"process +predicted ([\d.]+)", text),
        "predicted_host_gib": number(r"host +memory +([\d.]+) GiB", text),
        "last_loss": number(r"last loss ([\d.]+)", text),
    }


def run(settings, steps):
    command = [os.path.join(os.environ.get("BUILD", "build-cuda"), "snug"), "train", *settings.split(), f"max_steps={steps}",
               f"output_dir={tempfile.mkdtemp()}"]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--logs", type=pathlib.Path)
    options.add_argument("--parse", action="store_true")
    options.add_argument("--steps", type=int, default=4)
    options.add_argument("--date", default=str(datetime.date.today()))
    options.add_argument("--hardware", default="NVIDIA H200")
    options.add_argument("cases", nargs="*", default=list(CASES))
    o = options.parse_args()
    logs = o.logs or pathlib.Path(tempfile.mkdtemp())
    for name in o.cases:
        what, settings, goal = CASES[name]
        log = logs / f"{name}.log"
        if not o.parse:
            log.write_text(run(f"{settings} {COMMON}", o.steps))
        elif not log.exists():
            continue
        result = {"what": what, "case": name, "date": o.date, "hardware": o.hardware,
                  "numerics": "bf16 weights and gradients, stochastic rounding, 8-bit AdamW states",
                  "command": f"snug train {settings} {COMMON} max_steps={o.steps}", "goal_tokens_per_s": goal,
                  "out_of_core": read(log.read_text())}
        path = pathlib.Path("bench/results") / f"{o.date}-h200-out-of-core-{name}.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(f"{name}: {result['out_of_core']['tokens_per_s']:,.0f} tok/s, predicted {result['out_of_core']['predicted_tokens_per_s']:,.0f}")


main()
