#!/usr/bin/env python3
"""Convolutional networks on the CPU beside PyTorch, in f32, in one run: seconds of processor time a step, and memory.

    bench/workloads_cpu.py --peers FOLDER [--threads 2] [--rounds 3] [--steps 16] [PATTERN ...]

Runs BUILD (build)/snug and PyTorch in turns, ROUNDS times; the smallest time and the largest memory of each count. A
step's time is of the processor, user and system, so that programs beside it disturb it least: with two threads both
are counted. Memory is the process's peak; for PyTorch also what it had before the first step, its libraries among it.
FOLDER has torch_workloads.py, the per-frame network of PyTorch; the residual one is here. One file,
bench/results/DATE-cpu-workloads.json (OUT: another folder), has it all.
"""
import argparse
import datetime
import fnmatch
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

COMMON = "eval_strategy=no save_strategy=no report_to=none overwrite_output_dir=true warmup_steps=1 logging_steps=1"
FRAMES = "configs/colab_optimized.yaml use_fp16=false"
# Ours, and PyTorch's case of the same work (a set of sizes).
CASES = {
    "per-frame-cnn-small": (f"{FRAMES} batch_size=2 model.image_height=220 model.image_width=320",
                            dict(net="frames", B=2, T=5, H=220, W=320, size="small")),
    "per-frame-cnn-small-whole-frames": (f"{FRAMES} batch_size=2", dict(net="frames", B=2, T=5, H=440, W=640, size="small")),
    "residual-cnn": ("configs/cnn.yaml per_device_train_batch_size=32 val_set_size=0", dict(net="residual", B=32)),
    "residual-cnn-b128": ("configs/cnn.yaml per_device_train_batch_size=128 val_set_size=0", dict(net="residual", B=128)),
}


def residual(o):
    """configs/cnn.yaml, in PyTorch's words."""
    import torch
    from torch import nn

    class Twice(nn.Module):
        def __init__(s, c):
            super().__init__()
            conv = lambda: nn.Conv2d(c, c, 3, padding=1, bias=False)
            s.body = nn.Sequential(conv(), nn.BatchNorm2d(c), nn.ReLU(), conv(), nn.BatchNorm2d(c))

        def forward(s, x):
            return torch.relu(x + s.body(x))
    step = lambda i, o: [nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), Twice(o)]
    net = nn.Sequential(*step(3, 32), nn.MaxPool2d(2), *step(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    x, y = torch.randn(o["B"], 3, 32, 32), torch.randint(0, 10, (o["B"],))
    if o.get("channels_last"):
        net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    loss = lambda: nn.functional.cross_entropy(net(x), y, label_smoothing=0.1)
    return loss, torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)


def frames(o):
    import torch
    import torch_workloads
    net, inputs, _ = torch_workloads.build("w2", {k: str(v) for k, v in o.items()})
    if o.get("channels_last"):
        net = net.to(memory_format=torch.channels_last)
    return lambda: net.loss(*inputs), torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.04)


def peer(o, threads, steps):
    """Runs in a process of its own."""
    import torch
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    loss, optimizer = {"frames": frames, "residual": residual}[o["net"]](o)
    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    before, times = peak(), []
    for _ in range(2 + steps):
        cpu, clock = time.process_time(), time.perf_counter()
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append((time.process_time() - cpu, time.perf_counter() - clock))
    times = times[2:]
    print(json.dumps({"cpu_s": min(t[0] for t in times), "wall_s": min(t[1] for t in times), "peak_bytes": peak(), "bytes_before": before}))


def theirs(folder, o, threads, steps):
    command = [sys.executable, os.path.abspath(__file__), "--peer", json.dumps(o), "--threads", str(threads), "--steps", str(steps)]
    environment = dict(os.environ, PYTHONPATH=folder or "", OMP_NUM_THREADS=str(threads))
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        return {"error": done.stderr.strip()[-300:]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def run_ours(settings, threads, steps):
    with tempfile.TemporaryDirectory() as folder:
        command = [os.path.join(os.environ.get("BUILD", "build"), "snug"), "train", *settings.split(), *COMMON.split(), f"max_steps={steps}",
                   f"output_dir={folder}", "--json", "--quiet"]
        out = open(os.path.join(folder, "out"), "w+")
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True, env=dict(os.environ, OMP_NUM_THREADS=str(threads)))
        error = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(error)
        out.seek(0)
        return used, json.load(out)


def cpu_of(used):
    return used.ru_utime + used.ru_stime


def ours(settings, threads, steps):
    """One run of two steps and one of some more."""
    few, _ = run_ours(settings, threads, 2)
    many, run = run_ours(settings, threads, 2 + steps)
    return {"few_s": cpu_of(few), "many_s": cpu_of(many), "wall_s": run["measured"]["step_ms"] / 1e3, "peak_bytes": many.ru_maxrss * 1024,
            "arena_bytes": run["measured"]["arena_bytes"]}


def steps_apart(mine, steps):
    """What the steps more take, of the quickest run of each kind: a difference of single runs can be anything."""
    few, many = mine.pop("few_s"), mine.pop("many_s")
    return {"cpu_s": (many - few) / steps, **mine}


def best(runs):
    good = [r for r in runs if "error" not in r]
    return {k: (max if k.endswith("bytes") else min)(r[k] for r in good) for k in good[0]} if good else runs[0]


def measure(o, settings, case):
    mine, peers = [], {"channels first": [], "channels last": []}
    for _ in range(o.rounds):
        mine.append(ours(settings, o.threads, o.steps))
        for layout, runs in peers.items():
            runs.append(theirs(o.peers, dict(case, channels_last=layout == "channels last"), o.threads, o.steps))
    return {"settings": settings, "ours": steps_apart(best(mine), o.steps), "pytorch": {k: best(r) for k, r in peers.items()}}


def show(name, r):
    mine = r["ours"]
    print(f"{name:34} Snug                    {mine['cpu_s']:7.3f} s  {mine['peak_bytes'] / 2**20:7.0f} MiB", flush=True)
    for layout, p in r["pytorch"].items():
        if "error" in p:
            print(f"{'':34} PyTorch {layout:15} {p['error']}")
            continue
        print(f"{'':34} PyTorch {layout:15} {p['cpu_s']:7.3f} s  {p['peak_bytes'] / 2**20:7.0f} MiB: Snug has {p['cpu_s'] / mine['cpu_s']:.2f} times "
              f"its speed in {mine['peak_bytes'] / p['peak_bytes']:.2f} of its memory", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--peers")
    options.add_argument("--peer", help=argparse.SUPPRESS)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--steps", type=int, default=16)
    options.add_argument("--date", default=str(datetime.date.today()))
    options.add_argument("patterns", nargs="*", default=["*"])
    o = options.parse_args()
    if o.peer:
        peer(json.loads(o.peer), o.threads, o.steps)
        return
    result = {"date": o.date, "hardware": "cpu", "threads": o.threads, "rounds": o.rounds, "steps": o.steps, "cases": {}}
    path = pathlib.Path(os.environ.get("OUT", "bench/results")) / f"{o.date}-cpu-workloads.json"
    for name in dict.fromkeys(n for p in o.patterns for n in CASES if fnmatch.fnmatch(n, p)):
        result["cases"][name] = measure(o, *CASES[name])
        show(name, result["cases"][name])
        path.write_text(json.dumps(result, indent=1) + "\n")


main()
