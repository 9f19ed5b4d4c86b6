#!/usr/bin/env python3
"""Is a change slower? Cases of bench/targets.json on two builds of Snug and on PyTorch, by turns in one call.

    tools/gpu_trees.py --before BUILD --now BUILD [--peer PROGRAM] [--warm] [--runs N] [--out FILE] [NAME ...]

BUILD is a build folder with a `snug`, in its tree. --warm compiles PyTorch's sides, all at once, and measures nothing:
what a compiler leaves in its cache makes the run that is timed a short one. Machines differ by a few per cent and so do
minutes: a ratio of two runs that took turns is what holds.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEPS, FIRST = 24, 6  # the steps before FIRST warm up


def tokens_per_s(build, case, common):
    with tempfile.TemporaryDirectory() as folder:
        command = [str(pathlib.Path(build).resolve() / "snug"), "train", f"configs/{case['config']}.yaml", *common.split(), *case["settings"].split(),
                   f"max_steps={STEPS}", "logging_steps=1", f"output_dir={folder}", "--quiet"]
        done = subprocess.run(command, cwd=pathlib.Path(build).resolve().parent, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stderr[-600:]}")
        lines = [json.loads(line) for line in open(next(pathlib.Path(folder).rglob("metrics.jsonl")), encoding="utf-8")]
    speeds = [line["tok_s"] for line in lines if line["kind"] == "step"]
    return statistics.median(speeds[FIRST:])


def start_peer(program, spec):
    return subprocess.Popen([sys.executable, program, f"{spec},1,0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def peer(program, spec):
    text = start_peer(program, spec).communicate()[0].strip()
    return json.loads(text.splitlines()[-1]) if text else {"error": "it said nothing"}


def measure(o, case, common):
    figures = {"before": [], "now": []}
    for _ in range(o.runs):
        for side, build in (("before", o.before), ("now", o.now)):
            figures[side].append(tokens_per_s(build, case, common))
    figures["ratio"] = round(statistics.mean(figures["now"]) / statistics.mean(figures["before"]), 4)
    if o.peer:
        said = peer(o.peer, case["peers"][0])
        if said.get("tok_s"):
            figures.update(pytorch=said["tok_s"], pytorch_gib=said.get("device_gib"), of_pytorch=round(statistics.mean(figures["now"]) / said["tok_s"], 3))
    return figures


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--before")
    options.add_argument("--now", default="build-cuda")
    options.add_argument("--peer")
    options.add_argument("--warm", action="store_true")
    options.add_argument("--runs", type=int, default=2)
    options.add_argument("--limit", type=float, default=1e9, help="seconds after which no case is begun")
    options.add_argument("--out", default=str(ROOT / "bench" / "results" / f"{date.today()}-h200-trees-peer.json"))
    options.add_argument("names", nargs="*")
    o = options.parse_args()
    began = time.monotonic()
    targets = json.loads((ROOT / "bench" / "targets.json").read_text())
    cases = [c for c in targets["cases"] if not o.names or c["name"] in o.names]
    if o.warm:
        for each in [start_peer(o.peer, spec) for spec in dict.fromkeys(c["peers"][0] for c in cases)]:
            each.wait()
        return
    result = {"date": str(date.today()), "what": __doc__.splitlines()[0], "steps": f"median of steps {FIRST + 1} to {STEPS}", "cases": {}}
    for case in cases:
        if time.monotonic() - began > o.limit:
            print(f"{case['name']}: no time", flush=True)
            continue
        result["cases"][case["name"]] = figures = measure(o, case, targets["settings"])
        print(f"{case['name']}: {figures}", flush=True)
        pathlib.Path(o.out).write_text(json.dumps(result, indent=1) + "\n")


main()
