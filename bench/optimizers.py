#!/usr/bin/env python3
"""What each update rule makes of a model on real text, with the same data and seeds, beside AdamW in f32.

    bench/optimizers.py [--build FOLDER] [--runs FOLDER] [--steps N] [--only NAME | --parse] [key=value ...]
    bench/optimizers.py --suite forked ...                        all go on from one model that was trained before
    bench/optimizers.py --suite long --text FILE [--jobs N] ...   on a GPU: a larger model, for longer; FILE: plain text

The suite `demo` is the demo's model and text on the CPU. Writes bench/results/DATE-HARDWARE-optimizers.json (OUT: another
folder) and the suite's drawing in docs/. --only makes one run and writes nothing; --parse reads the metrics.jsonl of the
runs that the folder has already; --jobs runs so many at a time; --seconds bounds the whole call: runs that would begin later are left out.
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from adamw_8bit import processor, read_run, rounded, settings, text_of
from loss_report import LEFT, RIGHT, TEXT, WIDTH, Panel, compact_lists

BASE = "adamw f32"
SPLIT = ["bf16=true", "master_dtype=24bit"]
DEMO = {
    BASE: ["optim=adamw"],
    "adamw bf16, f32 masters": ["optim=adamw", "bf16=true"],
    "adamw_8bit, 24-bit masters": ["optim=adamw_8bit", *SPLIT],
    "lion": ["optim=lion", "learning_rate=6e-4", "weight_decay=0.17"],
    "lion_8bit": ["optim=lion_8bit", "learning_rate=6e-4", "weight_decay=0.17"],
    "adafactor": ["optim=adafactor"],
    "muon": ["optim=muon"],
    "muon_8bit": ["optim=muon_8bit"],
}


RATE, DECAY = 2e-3, 0.1  # AdamW's in configs/demo.yaml


def lion(rate, *more):
    """Lion as its authors have it for language: AdamW's product of rate and weight decay, at a smaller rate."""
    return ["bf16=true", f"learning_rate={rate:g}", f"weight_decay={RATE * DECAY / rate:.3g}", "adam_beta1=0.95", "adam_beta2=0.98", *more]


LONG = {BASE: ["optim=adamw", "tf32=true"]}
for seed in (42, 1, 2):
    LONG |= {f"adamw bf16, f32 masters, seed {seed}": [*DEMO["adamw bf16, f32 masters"], f"seed={seed}"],
             f"adamw_8bit, 24-bit masters, seed {seed}": [*DEMO["adamw_8bit, 24-bit masters"], f"seed={seed}"]}
LONG |= {
    "lion 3e-4": lion(3e-4, "optim=lion"),
    "lion 6e-4": lion(6e-4, "optim=lion"),
    "lion 1.5e-4": lion(1.5e-4, "optim=lion"),
    "lion 5e-5": lion(5e-5, "optim=lion", "weight_decay=1"),
    "lion_8bit 1.5e-4": lion(1.5e-4, "optim=lion_8bit"),
    "adamw bf16, f32 masters, 5e-4": [*DEMO["adamw bf16, f32 masters"], "learning_rate=5e-4"],
    "adamw_8bit, 24-bit masters, 5e-4": [*DEMO["adamw_8bit, 24-bit masters"], "learning_rate=5e-4"],
    "adafactor, 5e-4": ["optim=adafactor", "bf16=true", "learning_rate=5e-4"],
    "muon, 5e-4": ["optim=muon", "bf16=true", "learning_rate=5e-4"],
}
MOST_POINTS = 300  # of a curve in the drawing
COLOURS = ["#1f1f1f", "#7a7a7a", "#c0392b", "#2e86c1", "#85c1e9", "#27ae60", "#8e44ad", "#c39bd3", "#d35400", "#16a085", "#5dade2",
           "#b7950b", "#52be80", "#a6acaf", "#6c3483"]
FORKED = {"adamw f32": ["optim=adamw"]}
for seed in (1, 2, 3):
    FORKED |= {f"adamw bf16, f32 masters, seed {seed}": [*DEMO["adamw bf16, f32 masters"], f"seed={seed}"],
               f"adamw_8bit, 24-bit masters, seed {seed}": [*DEMO["adamw_8bit, 24-bit masters"], f"seed={seed}"]}
SUITES = {
    "forked": {"config": "configs/demo.yaml", "runs": FORKED, "steps": 200, "top": 2.6, "trained": 800, "drawing": "docs/optimizers-forked.svg",
               "words": ["learning_rate=1e-3", "warmup_steps=20", "cosine_min_lr_ratio=0", "eval_max_batches=96", "data_seed=7"],
               "what": "Llama 3.5M of configs/demo.yaml on its text, from the weights that AdamW has reached in f32 after 800 steps"},
    "demo": {"config": "configs/demo.yaml", "runs": DEMO, "steps": 320, "top": 4.0, "words": [], "drawing": "docs/optimizers.svg",
             "what": "Llama 3.5M of configs/demo.yaml on its text"},
    "long": {"config": "configs/demo.yaml", "runs": LONG, "steps": 3000, "top": 2.0, "drawing": "docs/optimizers-long.svg",
             "words": ["device=cuda", "model.hidden_size=384", "model.intermediate_size=1152", "model.num_hidden_layers=6",
                       "model.num_attention_heads=6", "model.num_key_value_heads=6", "model.max_position_embeddings=256",
                       "max_seq_length=256", "per_device_train_batch_size=64", "warmup_steps=100", "cosine_min_lr_ratio=0",
                       "val_set_size=0.02", "eval_max_batches=48"],
             "what": "Llama 11M on the text of tools/make_text_corpus.py, byte by byte, 64 x 256 bytes a step"},
}


def train(o, suite, folder, words):
    """Of a suite that forks, the first run before all others is that of the model which they go on from."""
    data, trained = o.text or text_of(o.build), folder.parent / "trained"
    if "trained" in suite and folder != trained:
        if not (trained / "metrics.jsonl").exists():
            train(o, suite, trained, [f"max_steps={suite['trained']}", "eval_strategy=no", "report_to=none", "optim=adamw",
                                      f"save_steps={suite['trained']}", "save_strategy=steps"])
        words = [*words, "model=", f"model_name_or_path={trained}/checkpoint-{suite['trained']}"]
    command = [str(o.build / "snug"), "train", suite["config"], *words, f"datasets.0.path={data}", f"output_dir={folder}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}")


def hardware():
    if not any(pathlib.Path("/dev").glob("nvidia[0-9]")):
        return "cpu", processor()
    asked = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True, check=True)
    name, driver = asked.stdout.splitlines()[0].split(", ")
    return name.removeprefix("NVIDIA ").lower().replace(" ", "-"), f"{name}, driver {driver}"


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


def compare(suite, runs):
    base = runs[BASE]["eval_losses"][-1]
    return {name: {"settings": " ".join(suite["runs"][name]), "last_eval_loss": r["eval_losses"][-1],
                   "relative_difference": (r["eval_losses"][-1] - base) / base, "optimizer_bytes": r["breakdown"]["optimizer"],
                   "master_bytes": r["breakdown"]["masters"], "kept_bytes_per_parameter": bytes_of(r),
                   "eval_steps": r["eval_steps"], "eval_losses": r["eval_losses"]} for name, r in runs.items()}


def smooth(losses, n=9):
    return [sum(losses[max(0, i - n + 1):i + 1]) / len(losses[max(0, i - n + 1):i + 1]) for i in range(len(losses))]


def draw(suite, runs, table):
    top, height, steps = suite["top"], 410 + 15 * len(table), len(runs[BASE]["losses"])
    lows = [min(smooth(r["losses"])) for r in runs.values()]
    panel = Panel(52, 380, range(1, steps + 1), math.floor(10 * min(lows)) / 10, top)
    panel.axes("loss, mean of nine steps; circles: evaluation", "")
    for (name, r), colour in zip(runs.items(), COLOURS):
        first = next(i for i, y in enumerate(smooth(r["losses"])) if y <= top)
        every = max(steps // MOST_POINTS, 1)
        panel.curve(range(1 + first, steps + 1)[::every], smooth(r["losses"])[first::every], colour, 1.2)
        panel.parts += [f'<circle cx="{panel.x(s):.1f}" cy="{panel.y(y):.1f}" r="2.4" fill="{colour}"/>'
                        for s, y in zip(r["eval_steps"], r["eval_losses"]) if y <= top]
    for i, ((name, t), colour) in enumerate(zip(table.items(), COLOURS)):
        words = f"{name}: {t['last_eval_loss']:.4f} ({100 * t['relative_difference']:+.2f} %), {t['kept_bytes_per_parameter']:.2f} bytes a parameter"
        panel.parts.append(f'<text x="{LEFT}" y="{412 + 15 * i}" fill="{colour}">{words}</text>')
    body = "\n".join(panel.parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11" fill="{TEXT}">\n'
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n'
            f'<text x="{LEFT}" y="20" font-size="14" font-weight="600">Update rules: {suite["what"].partition(" o")[0]} on real text</text>\n'
            f'<text x="{WIDTH - RIGHT}" y="412" text-anchor="end">step</text>\n{body}\n</svg>\n')


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--suite", choices=SUITES, default="demo")
    options.add_argument("--text", type=pathlib.Path)
    options.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    options.add_argument("--runs", type=pathlib.Path)
    options.add_argument("--only")
    options.add_argument("--parse", action="store_true")
    options.add_argument("--steps", type=int)
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--seconds", type=float, default=math.inf)
    options.add_argument("--date", default=str(datetime.date.today()))
    options.add_argument("settings", nargs="*")
    o = options.parse_args()
    suite, began = SUITES[o.suite], time.monotonic()
    steps = o.steps or suite["steps"]
    folder, words = o.runs or pathlib.Path(tempfile.mkdtemp()), settings(steps) + suite["words"] + o.settings

    def run(name):
        start = time.monotonic()
        if start - began > o.seconds:
            print(f"{name}: left out, no time for it", flush=True)
            return
        train(o, suite, folder_of(folder, name), [*words, *suite["runs"][name]])
        print(f"{name}: {read(folder_of(folder, name))['eval_losses'][-1]:.5f}, {time.monotonic() - start:.0f} s", flush=True)

    with ThreadPoolExecutor(o.jobs) as pool:
        list(pool.map(run, [o.only] if o.only else [] if o.parse else suite["runs"]))
    if o.only:
        return 0
    runs = {name: read(folder_of(folder, name)) for name in suite["runs"] if is_complete(folder_of(folder, name), steps)}
    table, (short, machine) = compare(suite, runs), hardware()
    report = {"what": f"{suite['what']}, one update rule beside another", "date": o.date, "hardware": machine,
              "command": f"bench/optimizers.py --suite {o.suite} --steps {steps}", "settings": " ".join(words), "rules": rounded(table)}
    path = pathlib.Path(os.environ.get("OUT", "bench/results")) / f"{o.date}-{short}-optimizers.json"
    path.write_text(compact_lists(json.dumps(report, indent=1)) + "\n")
    drawing = pathlib.Path(suite["drawing"])
    (pathlib.Path(os.environ["OUT"]) / drawing.name if "OUT" in os.environ else drawing).write_text(draw(suite, runs, table))
    for name, t in table.items():
        print(f"{name}: last evaluation {t['last_eval_loss']:.5f}, {100 * t['relative_difference']:+.3f} %, "
              f"{t['kept_bytes_per_parameter']:.2f} bytes a parameter")
    return 0


if __name__ == "__main__":
    sys.exit(main())
