#!/usr/bin/env python3
"""What each update rule makes of the demo's model on the demo's text, with the same data and seeds, beside AdamW in f32.

    bench/optimizers.py [--build FOLDER] [--runs FOLDER] [--steps N] [--only NAME | --parse] [key=value ...]

Writes bench/results/DATE-cpu-optimizers.json and docs/optimizers.svg. --only makes one run and writes nothing; --parse
reads the metrics.jsonl of the runs that the folder has already.
"""
import argparse
import datetime
import json
import math
import pathlib
import sys
import tempfile

from adamw_8bit import processor, read_run, rounded, settings, train
from loss_report import LEFT, RIGHT, TEXT, WIDTH, Panel, compact_lists

BASE = "adamw f32"
SPLIT = ["bf16=true", "master_dtype=24bit"]
RUNS = {
    BASE: ["optim=adamw"],
    "adamw bf16, f32 masters": ["optim=adamw", "bf16=true"],
    "adamw_8bit, 24-bit masters": ["optim=adamw_8bit", *SPLIT],
    "lion": ["optim=lion", "learning_rate=6e-4", "weight_decay=0.17"],
    "lion_8bit": ["optim=lion_8bit", "learning_rate=6e-4", "weight_decay=0.17"],
    "adafactor": ["optim=adafactor"],
    "muon": ["optim=muon"],
    "muon_8bit": ["optim=muon_8bit"],
}
COLOURS = ["#1f1f1f", "#7a7a7a", "#c0392b", "#2e86c1", "#85c1e9", "#27ae60", "#8e44ad", "#c39bd3"]


def folder_of(runs, name):
    return runs / name.replace(" ", "-").replace(",", "")


def bytes_of(run):
    """Weights, masters and states, in bytes a parameter."""
    b = run["breakdown"]
    return (b["weights"] + b["masters"] + b["optimizer"]) / run["parameters"]


def read(folder):
    run = read_run(folder)
    plan = next(json.loads(line) for line in open(folder / "metrics.jsonl") if '"plan"' in line)
    return {**run, "breakdown": plan["breakdown"], "parameters": plan["params"]}


def is_complete(folder, steps):
    path = folder / "metrics.jsonl"
    return path.exists() and any('"kind":"eval"' in line and f'"step":{steps},' in line for line in open(path))


def compare(runs):
    base = runs[BASE]["eval_losses"][-1]
    return {name: {"settings": " ".join(RUNS[name]), "last_eval_loss": r["eval_losses"][-1],
                   "relative_difference": (r["eval_losses"][-1] - base) / base, "optimizer_bytes": r["breakdown"]["optimizer"],
                   "master_bytes": r["breakdown"]["masters"], "kept_bytes_per_parameter": bytes_of(r),
                   "eval_steps": r["eval_steps"], "eval_losses": r["eval_losses"]} for name, r in runs.items()}


def smooth(losses, n=9):
    return [sum(losses[max(0, i - n + 1):i + 1]) / len(losses[max(0, i - n + 1):i + 1]) for i in range(len(losses))]


def draw(runs, table):
    height, steps = 420, len(runs[BASE]["losses"])
    lows = [min(smooth(r["losses"])) for r in runs.values()]
    panel = Panel(52, 380, range(1, steps + 1), math.floor(10 * min(lows)) / 10, 4.0)
    panel.axes("loss, mean of nine steps; circles: evaluation", "")
    for (name, r), colour in zip(runs.items(), COLOURS):
        first = next(i for i, y in enumerate(smooth(r["losses"])) if y <= 4.0)
        panel.curve(range(1 + first, steps + 1), smooth(r["losses"])[first:], colour, 1.2)
        panel.parts += [f'<circle cx="{panel.x(s):.1f}" cy="{panel.y(y):.1f}" r="2.4" fill="{colour}"/>'
                        for s, y in zip(r["eval_steps"], r["eval_losses"]) if y <= 4.0]
    for i, ((name, t), colour) in enumerate(zip(table.items(), COLOURS)):
        words = f"{name}: {t['last_eval_loss']:.4f} ({100 * t['relative_difference']:+.2f} %), {t['kept_bytes_per_parameter']:.2f} bytes a parameter"
        panel.parts.append(f'<text x="{WIDTH - RIGHT}" y="{70 + 15 * i}" text-anchor="end" fill="{colour}">{words}</text>')
    body = "\n".join(panel.parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11" fill="{TEXT}">\n'
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n'
            f'<text x="{LEFT}" y="20" font-size="14" font-weight="600">Update rules, the demo\'s model and text</text>\n'
            f'<text x="{WIDTH - RIGHT}" y="{height - 6}" text-anchor="end">step</text>\n{body}\n</svg>\n')


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    options.add_argument("--runs", type=pathlib.Path)
    options.add_argument("--only", choices=RUNS)
    options.add_argument("--parse", action="store_true")
    options.add_argument("--steps", type=int, default=320)
    options.add_argument("--date", default=str(datetime.date.today()))
    options.add_argument("settings", nargs="*")
    o = options.parse_args()
    folder, words = o.runs or pathlib.Path(tempfile.mkdtemp()), settings(o.steps) + o.settings
    for name in [o.only] if o.only else [] if o.parse else RUNS:
        train(o.build, folder_of(folder, name), [*words, *RUNS[name]])
    if o.only:
        return 0
    runs = {name: read(folder_of(folder, name)) for name in RUNS if is_complete(folder_of(folder, name), o.steps)}
    table = compare(runs)
    report = {"what": "Llama 3.5M of configs/demo.yaml on its text, one update rule beside another", "date": o.date,
              "hardware": processor(), "command": f"bench/optimizers.py --steps {o.steps}", "settings": " ".join(words),
              "rules": rounded(table)}
    path = pathlib.Path("bench/results") / f"{o.date}-cpu-optimizers.json"
    path.write_text(compact_lists(json.dumps(report, indent=1)) + "\n")
    pathlib.Path("docs/optimizers.svg").write_text(draw(runs, table))
    for name, t in table.items():
        print(f"{name}: last evaluation {t['last_eval_loss']:.5f}, {100 * t['relative_difference']:+.3f} %, "
              f"{t['kept_bytes_per_parameter']:.2f} bytes a parameter")
    return 0


if __name__ == "__main__":
    sys.exit(main())
