#!/usr/bin/env python3
"""What 8-bit optimizer states cost in loss: the demo's model on the demo's text, with f32 states and with 8-bit ones,
same data and seeds, with f32 weights and with bf16 weights that have no masters.

    bench/adamw_8bit.py [--build FOLDER] [--runs FOLDER [--parse]] [--steps N] [key=value ...]

Writes bench/results/DATE-cpu-adamw-8bit.json and docs/adamw-8bit.svg; --parse reads the metrics.jsonl of runs that
FOLDER has already. Exit status 1 when the last evaluation losses of a pair differ by LIMIT or more.
"""
import argparse
import datetime
import json
import math
import pathlib
import subprocess
import sys
import tempfile

from loss_report import LEFT, OURS, PEER, RIGHT, TEXT, WIDTH, Panel, compact_lists, read_losses

LIMIT = 0.005
WEIGHTS = {"f32": [], "bf16": ["bf16=true", "master_dtype=bf16"]}
STATES = {"f32": "optim=adamw", "8bit": "optim=adamw_8bit"}


def settings(steps):
    return [f"max_steps={steps}", "eval_strategy=steps", f"eval_steps={max(steps // 8, 1)}", "eval_on_start=true", "eval_max_batches=24",
            "logging_steps=1", "save_strategy=no", "report_to=none", "overwrite_output_dir=true"]


def text_of(build):
    """The text of `make demo`, made as it makes it."""
    path = build / "demo" / "text.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        files = sorted(p for p in pathlib.Path("/usr/share/games/fortunes").rglob("*")
                       if p.is_file() and not p.is_symlink() and p.suffix not in (".dat", ".u8") and p.stat().st_size > 1024)
        path.write_bytes(b"".join(p.read_bytes() for p in files))
    return path


def train(build, folder, words):
    command = [str(build / "snug"), "train", "configs/demo.yaml", f"datasets={text_of(build)}", f"output_dir={folder}", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}")


def read_run(folder):
    lines = [json.loads(line) for line in open(folder / "metrics.jsonl")]
    evals = [line for line in lines if line["kind"] == "eval"]
    plan = next(line for line in lines if line["kind"] == "plan")
    return {"losses": [x["loss"] for x in read_losses(folder / "metrics.jsonl")], "eval_steps": [x["step"] for x in evals],
            "eval_losses": [x["loss"] for x in evals], "optimizer_bytes": plan["breakdown"]["optimizer"]}


def compare(runs):
    """The pairs: evaluation losses at the end, and the largest distance of the training losses."""
    result = {}
    for weights in WEIGHTS:
        wide, narrow = runs[weights, "f32"], runs[weights, "8bit"]
        distance = [(b - a) / a for a, b in zip(wide["losses"], narrow["losses"])]
        last = [wide["eval_losses"][-1], narrow["eval_losses"][-1]]
        result[f"{weights} weights"] = {
            "steps": len(wide["losses"]), "last_eval_loss": last, "relative_difference": (last[1] - last[0]) / last[0],
            "mean_training_difference": sum(abs(d) for d in distance) / len(distance),
            "largest_training_difference": max(abs(d) for d in distance),
            "optimizer_bytes": [wide["optimizer_bytes"], narrow["optimizer_bytes"]],
            "eval_steps": wide["eval_steps"], "eval_losses": {"f32": wide["eval_losses"], "8bit": narrow["eval_losses"]}}
    return result


def draw_pair(wide, narrow, weights, end, top):
    """A panel: losses of both runs, and their evaluations."""
    xs = range(1, len(wide["losses"]) + 1)
    every = wide["losses"] + narrow["losses"]
    panel = Panel(top, top + 150, xs, math.floor(min(every)), math.ceil(max(every)))
    panel.axes(f"{weights} weights: loss of each step; circles: evaluation", "")
    panel.curve(xs, wide["losses"], PEER, 3, 'stroke-opacity="0.4"')
    panel.curve(xs, narrow["losses"], OURS, 0.9)
    for r, look in ((wide, f'r="5" stroke="{PEER}" fill="none"'), (narrow, f'r="2.2" fill="{OURS}"')):
        panel.parts += [f'<circle cx="{panel.x(s):.1f}" cy="{panel.y(y):.1f}" {look}/>' for s, y in zip(r["eval_steps"], r["eval_losses"])]
    lines = [("f32 states (wide line, rings)", PEER), ("8-bit states (thin line, dots)", OURS),
             (f"last evaluation {end['last_eval_loss'][0]:.4f} and {end['last_eval_loss'][1]:.4f}: {100 * end['relative_difference']:+.3f} %", TEXT)]
    panel.parts += [f'<text x="{WIDTH - RIGHT}" y="{top + 16 + 15 * i}" text-anchor="end" fill="{colour}">{words}</text>'
                    for i, (words, colour) in enumerate(lines)]
    return panel.parts


def draw(runs, pairs):
    """A panel for each pair; below, how far the evaluations of its 8-bit run are from the other's."""
    height, top, parts = 560, 52, []
    low = Panel(432, 532, [len(r["losses"]) for r in runs.values()], -100 * LIMIT, 100 * LIMIT)
    low.axes("evaluations: (8-bit - f32 states) / f32 states; what is allowed is the panel", " %")
    for weights, dash in zip(WEIGHTS, ("", 'stroke-dasharray="5 3"')):
        wide, narrow = runs[weights, "f32"], runs[weights, "8bit"]
        parts += draw_pair(wide, narrow, weights, pairs[f"{weights} weights"], top)
        top += 190
        low.curve(wide["eval_steps"], [100 * (b - a) / a for a, b in zip(wide["eval_losses"], narrow["eval_losses"])], OURS, 1.3, dash)
    parts += low.parts
    body = "\n".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11" fill="{TEXT}">\n'
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n'
            f'<text x="{LEFT}" y="20" font-size="14" font-weight="600">AdamW with 8-bit states beside f32 states, the demo\'s model and text</text>\n'
            f'<text x="{WIDTH - RIGHT}" y="424" text-anchor="end">f32 weights: line, bf16 weights: dashes</text>\n'
            f'<text x="{WIDTH - RIGHT}" y="{height - 2}" text-anchor="end">step</text>\n{body}\n</svg>\n')


def rounded(x):
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    if isinstance(x, list):
        return [rounded(v) for v in x]
    return float(f"{x:.6g}") if isinstance(x, float) else x


def processor():
    lines = open("/proc/cpuinfo").read().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "CPU")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    options.add_argument("--runs", type=pathlib.Path)
    options.add_argument("--parse", action="store_true")
    options.add_argument("--steps", type=int, default=320)
    options.add_argument("--date", default=str(datetime.date.today()))
    options.add_argument("settings", nargs="*")
    o = options.parse_args()
    folder = o.runs or pathlib.Path(tempfile.mkdtemp())
    words = settings(o.steps) + o.settings
    runs = {}
    for weights, more in WEIGHTS.items():
        for states, optim in STATES.items():
            place = folder / f"{weights}-{states}"
            if not o.parse:
                train(o.build, place, [*words, optim, *more])
            runs[weights, states] = read_run(place)
    pairs = compare(runs)
    report = {"what": "Llama 3.5M of configs/demo.yaml on its text: 8-bit AdamW states beside f32 states", "date": o.date,
              "hardware": processor(), "command": f"bench/adamw_8bit.py --steps {o.steps}", "settings": " ".join(words),
              "limit": LIMIT, "state_comparison": rounded(pairs)}
    path = pathlib.Path("bench/results") / f"{o.date}-cpu-adamw-8bit.json"
    path.write_text(compact_lists(json.dumps(report, indent=1)) + "\n")
    pathlib.Path("docs/adamw-8bit.svg").write_text(draw(runs, pairs))
    for name, p in pairs.items():
        print(f"{name}: {p['steps']} steps, last evaluation {p['last_eval_loss'][0]:.5f} with f32 states, {p['last_eval_loss'][1]:.5f} "
              f"with 8-bit ones: {100 * p['relative_difference']:+.3f} %")
    return 0 if all(abs(p["relative_difference"]) < LIMIT for p in pairs.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
