#!/usr/bin/env python3
"""How long a plan takes on this machine: the first ever (an empty cache), searched for once more, and as it was kept; alone
and beside programs that are always busy.

    bench/planning.py [--build FOLDER] [--busy N ...] [--runs N] [--gpu NAME | --cuda] [--processors N] [--out FILE] [CASE-PATTERN]

With --gpu for a card of the table, which times nothing; with --cuda for the GPU of this machine, whose rates and kernels are
measured for the first plan. --processors: on so many of this machine's, busy programs too.
Writes bench/results/DATE-cpu-planning.json, of which tools/readme_tables.py makes a table.
"""
import argparse
import datetime
import fnmatch
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from phases import processor

COMMON = "bf16=true master_dtype=bf16 gradient_dtype=bf16 optim=adamw_8bit max_grad_norm=0 datasets.0.type=synthetic".split()
SEVENTY = ("model.hidden_size=8192 model.intermediate_size=28672 model.num_hidden_layers=80 model.num_attention_heads=64 "
           "model.num_key_value_heads=8 per_device_train_batch_size=4 gradient_accumulation_steps=4 host_memory=400GiB")
CASES = {
    "7B, 32 sequences, 13.3 GiB": "per_device_train_batch_size=32 gradient_accumulation_steps=1 device_memory=13.3GiB host_memory=48GiB",
    "7B, 16 sequences, 24 GiB": "per_device_train_batch_size=16 gradient_accumulation_steps=1 device_memory=24GiB host_memory=100GiB",
    "7B, 8 x 4 sequences, 13.3 GiB": "per_device_train_batch_size=8 gradient_accumulation_steps=4 device_memory=13.3GiB host_memory=48GiB",
    "70B, 4 x 4 sequences, 80 GiB": f"{SEVENTY} device_memory=80GiB",
    "70B, 4 x 4 sequences, 40 GiB": f"{SEVENTY} device_memory=40GiB",
}


def plan(o, settings, cache, *more):
    """Seconds of the clock, of the whole program."""
    where = ["device=cuda"] if o.cuda else ["--gpu", o.gpu]
    command = [o.build / "snug", "plan", "configs/qwen2.5-7b.yaml", *COMMON, *settings.split(), *where, "--json", *more]
    began = time.monotonic()
    p = subprocess.run(command, env={**os.environ, "XDG_CACHE_HOME": cache}, capture_output=True, text=True)
    took = time.monotonic() - began
    if p.returncode:
        sys.exit(p.stderr)
    planning = json.loads(p.stdout)["planning"]
    print(f"  {' '.join(more):9} {took:6.3f} s", *(f"{k} {v if k == 'kept' else round(v, 3)}" for k, v in planning.items()), flush=True)
    return round(took, 3), planning["kept"]


def measure(o, settings):
    with tempfile.TemporaryDirectory() as cache:
        first, _ = plan(o, settings, cache)
        searched = [plan(o, settings, cache, "--replan")[0] for _ in range(o.runs)]
        again = [plan(o, settings, cache) for _ in range(o.runs)]
    if not all(kept for _, kept in again):
        sys.exit("a plan was made anew that should have been kept")
    return {"first_s": first, "searched_s": searched, "kept_s": [took for took, _ in again]}


def beside(o, n_busy, settings):
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n_busy)]
    try:
        return measure(o, settings)
    finally:
        for p in busy:
            p.kill()
            p.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 2, 4])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--processors", type=int)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("pattern", nargs="?", default="*")
    o = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:o.processors])
    cases = {}
    for name, settings in CASES.items():
        if not fnmatch.fnmatch(name, o.pattern):
            continue
        cases[name] = {str(n): beside(o, n, settings) for n in o.busy}
        print(name, *(f"| beside {n}: first {x['first_s']:.2f}, searched {statistics.median(x['searched_s']):.2f}, "
                      f"kept {statistics.median(x['kept_s']):.2f} s" for n, x in cases[name].items()), flush=True)
    n_processors = len(os.sched_getaffinity(0))
    report = {"date": str(datetime.date.today()), "hardware": processor(), "processors": n_processors, "command": "bench/planning.py " + " ".join(sys.argv[1:]),
              "what": f"snug plan {'device=cuda' if o.cuda else '--gpu ' + o.gpu}, seconds of the clock, by how many busy programs ran beside it on the same processors: the first "
                      "with an empty cache, then searched for again, then as it was kept", "settings": {n: CASES[n] for n in cases}, "cases": cases}
    path = o.out or pathlib.Path("bench/results") / f"{report['date']}-cpu-planning.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
