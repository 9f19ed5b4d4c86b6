"""Joins the JSON of bench/run.sh's rounds into one result: medians of both sides and their ratio."""
import glob
import json
import platform
import statistics
import sys
from datetime import date

work, command, threads, precision = sys.argv[1:5]
snug = [json.load(open(f)) for f in sorted(glob.glob(f"{work}/snug.*.json"))]
torch = [json.loads(open(f).read().splitlines()[-1]) for f in sorted(glob.glob(f"{work}/torch.*.json"))]
cpu = next((l.split(":", 1)[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())

ours = dict(tokens_per_s=[round(r["tokens_per_s"], 1) for r in snug],
            resident_bytes=max(r["measured"]["device_bytes"] for r in snug),
            predicted_bytes=snug[0]["predicted"]["device_bytes"],
            arena_bytes=snug[0]["measured"]["arena_bytes"], predicted_arena_bytes=snug[0]["predicted"]["arena_bytes"],
            step_ms=[round(r["measured"]["step_ms"], 1) for r in snug], predicted_step_ms=round(snug[0]["predicted"]["step_ms"], 1))
theirs = dict(tokens_per_s=[round(r["tokens_per_s"], 1) for r in torch], resident_bytes=max(r["rss_bytes"] for r in torch),
              step_ms=[round(r["step_ms"], 1) for r in torch], version=torch[0].get("torch", ""))
if precision == "bf16":
    theirs["mode"] = "bf16 autocast, f32 weights"
roles = dict(f32="f32", bf16="bf16 weights, f32 gradients, masters and states")
ratios = [a / b for a, b in zip(ours["tokens_per_s"], theirs["tokens_per_s"])]
print(json.dumps(dict(
    what=f"GPT-2 124M training step, B 4, T 256, {roles[precision]}", date=str(date.today()), hardware=f"{cpu}, {threads} threads",
    command=command, snug=ours, pytorch=theirs,
    ratio=dict(tokens_per_s=round(statistics.median(ratios), 3), each=[round(r, 3) for r in ratios],
               resident_bytes=round(ours["resident_bytes"] / theirs["resident_bytes"], 3))), indent=1))
