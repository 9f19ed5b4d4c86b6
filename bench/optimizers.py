#!/usr/bin/env python3
"""What each update rule makes of a model on real text, with the same data and seeds, beside AdamW in f32.

    bench/optimizers.py [--build FOLDER] [--runs FOLDER] [--steps N] [--only NAME | --parse] [key=value ...]
    bench/optimizers.py --suite long --text FILE [--jobs N] ...     on a GPU: a larger model, for longer; FILE: plain text
    bench/optimizers.py --suite short --text FILE [--jobs N] ...    the same in short contexts, where runs differ less by themselves
    bench/optimizers.py --suite steady --text FILE [--jobs N] ...   a smaller one for fewer steps, where 0.1 % shows; device=cuda: on a GPU
    bench/optimizers.py --suite large --text FILE [--jobs N] ...    that one with large batches, rates and betas tuned for both AdamW and Lion

The suite `demo` is the demo's model and text on the CPU. Writes bench/results/DATE-HARDWARE-optimizers.json (of `short`,
`steady` and `large` optimizers-SUITE.json; OUT: another folder) and the suite's drawing in docs/. --only makes one run and writes nothing; --parse reads the metrics.jsonl of the
runs that the folder has already; --jobs runs so many at a time; --seconds bounds the whole call: runs that would begin later are left out.
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from adamw_8bit import processor, read_run, rounded, settings, text_of
from loss_report import LEFT, RIGHT, TEXT, WIDTH, Panel, compact_lists
from optimizer_suites import BASE, SUITES

MOST_POINTS = 300  # of a curve in the drawing
COLOURS = ["#1f1f1f", "#7a7a7a", "#c0392b", "#2e86c1", "#85c1e9", "#27ae60", "#8e44ad", "#c39bd3", "#d35400", "#16a085", "#5dade2",
           "#b7950b", "#52be80", "#a6acaf", "#6c3483"]


def snug_train(o, suite, folder, words):
    command = [str(o.build / "snug"), "train", suite["config"], *words, f"datasets.0.path={o.text or text_of(o.build)}", f"output_dir={folder}"]
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


def rule_of(name):
    return name.partition(", seed ")[0]


def base_of(name, runs):
    """The run that another one is held against: that of its seed, where there is one."""
    _, seed, number = name.partition(", seed ")
    return runs.get(f"{BASE}{seed}{number}") or runs[BASE]


def compare(suite, runs):
    table = {}
    for name, r in runs.items():
        loss, base = r["eval_losses"][-1], base_of(name, runs)["eval_losses"][-1]
        table[name] = {"settings": " ".join(suite["runs"][name]), "last_eval_loss": loss, "relative_difference": (loss - base) / base,
                       "optimizer_bytes": r["breakdown"]["optimizer"], "master_bytes": r["breakdown"]["masters"],
                       "kept_bytes_per_parameter": bytes_of(r), "eval_steps": r["eval_steps"], "eval_losses": r["eval_losses"]}
    return table


def over_seeds(table):
    """Of each rule that ran with several seeds: the mean of its differences and the error of that mean."""
    means = {}
    for rule in dict.fromkeys(rule_of(name) for name in table if rule_of(name) != BASE):
        differences = [t["relative_difference"] for name, t in table.items() if rule_of(name) == rule]
        if len(differences) > 1:
            means[rule] = {"seeds": len(differences), "mean_difference": statistics.mean(differences),
                           "standard_error": statistics.stdev(differences) / math.sqrt(len(differences))}
    return means


def smooth(losses, n=9):
    return [sum(losses[max(0, i - n + 1):i + 1]) / len(losses[max(0, i - n + 1):i + 1]) for i in range(len(losses))]


def words_of(name, t, means):
    if rule_of(name) == BASE:
        return f"{BASE}: {t['last_eval_loss']:.4f}, {t['kept_bytes_per_parameter']:.2f} bytes a parameter"
    if rule_of(name) not in means:
        return f"{name}: {t['last_eval_loss']:.4f} ({100 * t['relative_difference']:+.2f} %), {t['kept_bytes_per_parameter']:.2f} bytes a parameter"
    m = means[rule_of(name)]
    return (f"{rule_of(name)}: {t['last_eval_loss']:.4f}, {100 * m['mean_difference']:+.2f} ± {100 * m['standard_error']:.2f} % in "
            f"{m['seeds']} seeds, {t['kept_bytes_per_parameter']:.2f} bytes a parameter")


def once_a_rule(runs, means):
    """The runs to draw: of a rule with a mean the first alone."""
    first = {}
    for name in runs:
        first.setdefault(rule_of(name) if rule_of(name) in means or rule_of(name) == BASE else name, name)
    return {name: runs[name] for name in first.values()}


def draw(suite, runs, table, means):
    runs = once_a_rule(runs, means)
    top, height = suite["top"], 410 + 15 * len(runs)
    steps = max(len(r["losses"]) for r in runs.values())
    lows = [min(smooth(r["losses"])) for r in runs.values()]
    panel = Panel(52, 380, range(1, steps + 1), math.floor(10 * min(lows)) / 10, top)
    panel.axes("loss, mean of nine steps; circles: evaluation", "")
    for (name, r), colour in zip(runs.items(), COLOURS):
        first = next(i for i, y in enumerate(smooth(r["losses"])) if y <= top)
        every = max(steps // MOST_POINTS, 1)
        panel.curve(range(1 + first, steps + 1)[::every], smooth(r["losses"])[first::every], colour, 1.2)
        panel.parts += [f'<circle cx="{panel.x(s):.1f}" cy="{panel.y(y):.1f}" r="2.4" fill="{colour}"/>'
                        for s, y in zip(r["eval_steps"], r["eval_losses"]) if y <= top]
    for i, (name, colour) in enumerate(zip(runs, COLOURS)):
        panel.parts.append(f'<text x="{LEFT}" y="{412 + 15 * i}" fill="{colour}">{words_of(name, table[name], means)}</text>')
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
        snug_train(o, suite, folder_of(folder, name), [*words, *suite["runs"][name]])
        print(f"{name}: {read(folder_of(folder, name))['eval_losses'][-1]:.5f}, {time.monotonic() - start:.0f} s", flush=True)

    with ThreadPoolExecutor(o.jobs) as pool:
        list(pool.map(run, [o.only] if o.only else [] if o.parse else suite["runs"]))
    if o.only:
        return 0
    runs = {name: read(folder_of(folder, name)) for name in suite["runs"] if is_complete(folder_of(folder, name), steps)}
    table, (short, machine) = compare(suite, runs), hardware()
    means = over_seeds(table)
    report = {"what": f"{suite['what']}, one update rule beside another", "date": o.date, "hardware": machine,
              "command": f"bench/optimizers.py --suite {o.suite} --steps {steps}", "settings": " ".join(words), "over_seeds": rounded(means), "rules": rounded(table)}
    path = pathlib.Path(os.environ.get("OUT", "bench/results")) / f"{o.date}-{short}-optimizers{f'-{o.suite}' if o.suite in ('short', 'steady', 'large') else ''}.json"
    path.write_text(compact_lists(json.dumps(report, indent=1)) + "\n")
    drawing = pathlib.Path(suite["drawing"])
    (pathlib.Path(os.environ["OUT"]) / drawing.name if "OUT" in os.environ else drawing).write_text(draw(suite, runs, table, means))
    for name, t in table.items():
        print(f"{name}: last evaluation {t['last_eval_loss']:.5f}, {100 * t['relative_difference']:+.3f} %, "
              f"{t['kept_bytes_per_parameter']:.2f} bytes a parameter")
    for rule, m in means.items():
        print(f"{rule}: {100 * m['mean_difference']:+.3f} +- {100 * m['standard_error']:.3f} % in {m['seeds']} seeds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
