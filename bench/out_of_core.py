#!/usr/bin/env python3
"""Training with little device memory: each case is planned and trained for a few steps, once as it is and once with
evaluations and checkpoints, and what it took goes to bench/results.

    bench/out_of_core.py [--build FOLDER] [--logs FOLDER [--parse]] [--dry-run] [--set "KEY=VALUE ..."] [CASE ...]

Keeps what snug printed (--json) in FOLDER (default: a scratch folder); with --parse, what lies there is read and
nothing runs: a case of which nothing is there is left out. --dry-run prints the commands. --set changes settings of
all cases. --plain leaves out the runs with evaluations and checkpoints, which write the whole model. Without a CASE:
all of them.
"""
import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

COMMON = "device=cuda bf16=true master_dtype=bf16 gradient_dtype=bf16 optim=adamw_8bit overwrite_output_dir=true warmup_steps=1 logging_steps=1"
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
# What is run of a case: the command, and settings on top.
RUNS = {
    "plan": ("plan", "eval_strategy=no save_strategy=no"),
    "train": ("train", "eval_strategy=no save_strategy=no"),
    "saving": ("train", "val_set_size=8 per_device_eval_batch_size=4 eval_strategy=steps eval_steps=2 eval_max_batches=2 "
                        "save_strategy=steps save_steps=2 save_total_limit=1"),
}


def command_of(o, case, run):
    verb, more = RUNS[run]
    folder = [f"output_dir={tempfile.gettempdir()}/out-of-core"] if verb == "train" else []
    return [str(o.build / "snug"), verb, *CASES[case][1].split(), *COMMON.split(), *more.split(), f"max_steps={o.steps}", *folder,
            *o.set.split(), "--json"]


def run(o, case, name, path):
    command = command_of(o, case, name)
    if o.dry_run:
        print(" ".join(command))
        return True
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    path.write_text(done.stdout)
    if done.returncode != 0:
        print(f"{case}, {name}: exit status {done.returncode}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    return done.returncode == 0


def gib(n):
    return None if n is None else round(n / 2**30, 3)


def memory(j):
    """What was said and what the driver and the system say of it. The host's: the most that was resident."""
    p, m = j["predicted"], j["measured"]
    return {"arena_bytes": m["arena_bytes"], "predicted_arena_bytes": p["arena_bytes"], "host_arena_bytes": m["host_bytes"],
            "predicted_host_arena_bytes": p["host_bytes"], "device_gib": gib(m["device_bytes"]), "predicted_device_gib": gib(p["device_bytes"]),
            "host_gib": gib(m["resident_bytes"]), "predicted_host_gib": gib(p["resident_bytes"])}


def budget(settings, key):
    """What the settings give, in GiB; None: what is free."""
    words = [word.split("=")[1] for word in settings.split() if word.startswith(key + "=")]
    return float(words[-1].removesuffix("GiB")) if words else None


def figures(settings, plan, train, saving):
    """Of what there is; empty: not even a plan, or one that does not fit."""
    out = {}
    if plan and plan.get("fits"):
        out |= {"device_memory_gib": budget(settings, "device_memory"), "host_memory_gib": budget(settings, "host_memory"),
                "tokens_per_step": plan["batch"]["tokens_per_step"], "predicted_tokens_per_s": plan["predicted"]["tokens_per_s"],
                "predicted_host_gib": gib(plan["predicted"]["resident_bytes"]), "predicted_device_gib": gib(plan["predicted"]["device_bytes"])}
    if train and "measured" in train:
        out |= {"tokens_per_s": train["tokens_per_s"], "step_s": round(train["measured"]["step_ms"] / 1e3, 4),
                "predicted_tokens_per_s": train["predicted"]["tokens_per_s"], "last_loss": train["losses"][-1], **memory(train)}
    if saving and "measured" in saving:
        out["with_evaluation_and_checkpoints"] = memory(saving)
    return out


def read(path):
    if not path.exists() or not path.read_text().strip():
        return None
    return json.loads(path.read_text())


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build-cuda"))
    options.add_argument("--logs", type=pathlib.Path)
    options.add_argument("--results", type=pathlib.Path, default=pathlib.Path("bench/results"))
    options.add_argument("--parse", action="store_true")
    options.add_argument("--dry-run", action="store_true")
    options.add_argument("--plain", action="store_true")
    options.add_argument("--set", default="")
    options.add_argument("--steps", type=int, default=4)
    options.add_argument("--date", default=str(datetime.date.today()))
    options.add_argument("--hardware", default="NVIDIA H200")
    options.add_argument("cases", nargs="*", default=list(CASES))
    o = options.parse_args()
    logs = o.logs or pathlib.Path(tempfile.mkdtemp())
    names = ["plan", "train"] if o.plain else list(RUNS)
    worked = True
    for case in o.cases:
        paths = {name: logs / f"{case}.{name}.json" for name in RUNS}
        for name in names if not o.parse else []:
            worked &= run(o, case, name, paths[name])
        what, settings, goal = CASES[case]
        found = figures(settings, *(read(paths[name]) for name in ("plan", "train", "saving")))
        if not found:
            continue
        result = {"what": what, "case": case, "date": o.date, "hardware": o.hardware,
                  "numerics": "bf16 weights and gradients, stochastic rounding, 8-bit AdamW states",
                  "command": f"snug train {settings} {COMMON} {RUNS['train'][1]} max_steps={o.steps} {o.set}".strip(),
                  "goal_tokens_per_s": goal, "out_of_core": found}
        path = o.results / f"{o.date}-h200-out-of-core-{case}.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(f"{case}: {found.get('tokens_per_s', 0):,.0f} tok/s, predicted {found.get('predicted_tokens_per_s', 0):,.0f}; "
              f"device {found.get('device_gib')} GiB, host {found.get('host_gib')} GiB")
    return 0 if worked else 1


sys.exit(main())
