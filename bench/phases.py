#!/usr/bin/env python3
"""Predictive phases beside plain AdamW at equal time, on real text, over several seeds.

    bench/phases.py [--build FOLDER] [--runs FOLDER] [--steps N] [--seeds N] [--methods linear,dmd] [--parse]
                    [--config FILE] [--name NAME] [--hardware TEXT] [key=value ...]

Plain AdamW first looks for its own learning rate (RATES times that of the config, the first seed); everything after
it has that rate, and, to show what jumps do where the rate is too small, one more pair has an eighth of it. A run in
phases takes the time of plain training: the share that its probes and snapshots take is measured in a run of N steps, and
by that it then has fewer, with a schedule that ends where it ends. Seconds in the result are of the processors on the CPU
(others may be at work there), and of the clock on a GPU (device=cuda among the settings).

On the CPU: the text of `make demo` and a small Llama. On a GPU, for example:

    bench/phases.py --config configs/gpt2-124m.yaml --name h200-gpt2-124m --hardware H200 --steps 4000 device=cuda \\
        datasets=corpus/train.bin val_set_size=0.01 phase_warmup_steps=500 full_steps=200 snapshot_steps=20

Writes bench/results/DATE-NAME-phases.json and prints the table.
"""
import argparse
import datetime
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from adamw_8bit import processor, rounded, text_of

RATES = [0.5, 1, 2, 4]
SMALL = 0.125
MODEL = ["model.hidden_size=64", "model.intermediate_size=192", "model.num_hidden_layers=2", "max_seq_length=64", "num_threads=1"]
PHASES = {"phase_warmup_steps": 60, "full_steps": 40, "correct_steps": 5, "snapshot_count": 5, "snapshot_steps": 5,
          "max_predict_steps": 40, "probe_batches": 8}


class Bench:
    def __init__(self, o):
        self.o, self.on_cpu = o, "device=cuda" not in o.settings
        self.folder = o.runs or pathlib.Path(tempfile.mkdtemp())
        own = {word.split("=")[0]: word for word in o.settings}
        self.phases = [own.pop(key, f"{key}={value}") for key, value in PHASES.items()]
        self.words = list(own.values())
        if not o.config:
            self.words = [f"datasets={text_of(o.build)}", *MODEL, *self.words]

    def seconds(self):
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime if self.on_cpu else time.monotonic()

    def run(self, name, steps, rate, seed, words):
        """The summary of a run, kept beside it: with --parse it is not run again."""
        folder = self.folder / name
        kept = folder / "bench.json"
        if self.o.parse and kept.exists():
            return json.loads(kept.read_text())
        command = [str(self.o.build / "snug"), "train", str(self.o.config or "configs/demo.yaml"), f"output_dir={folder}",
                   *self.words, f"max_steps={steps}", f"learning_rate={rate:g}", f"seed={seed}", "eval_strategy=steps",
                   f"eval_steps={steps}", "eval_max_batches=64", "save_strategy=no", "report_to=none",
                   "overwrite_output_dir=true", "log_format=quiet", *words]
        began = self.seconds()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stdout}")
        lines = [json.loads(line) for line in open(folder / "metrics.jsonl")]
        end, plan = lines[-1], next(x for x in lines if x["kind"] == "plan")
        result = {"steps": steps, "rate": rate, "seed": seed, "seconds": self.seconds() - began,
                  "eval_loss": [x["loss"] for x in lines if x["kind"] == "eval"][-1], "host_bytes": plan["host_bytes"],
                  "params": plan["params"], "phases": end.get("phases")}
        kept.write_text(json.dumps(result))
        print(f"{name}: {steps} steps, {result['seconds']:.1f} s, evaluation {result['eval_loss']:.4f}, {result['phases']}", flush=True)
        return result

    def best_rate(self, base):
        runs = {rate: self.run(f"rate-{rate}", self.o.steps, rate * base, 1, []) for rate in RATES}
        return min(runs, key=lambda rate: runs[rate]["eval_loss"]) * base, runs

    def arm(self, name, method, rate):
        """Runs of every seed. In phases: as many steps fewer as a trial says that probes and snapshots take."""
        words, steps = [], self.o.steps
        if method:
            words = [f"predictive_phases={method}", *self.phases]
            steps = int(steps * (1 - self.run(f"{name}-trial", steps, rate, 1, words)["phases"]["share"]))
        return [self.run(f"{name}-{seed}", steps, rate, seed, words) for seed in range(1, self.o.seeds + 1)]


def row(runs, plain):
    losses = [r["eval_loss"] for r in runs]
    pairs = [r["eval_loss"] - p["eval_loss"] for r, p in zip(runs, plain)]
    phases = [r["phases"] for r in runs if r["phases"]]
    out = {"learning_rate": runs[0]["rate"], "steps": runs[0]["steps"], "eval_losses": losses, "mean": statistics.mean(losses),
           "seconds": [r["seconds"] for r in runs], "host_bytes": runs[0]["host_bytes"]}
    if phases:
        out |= {"difference": statistics.mean(pairs), "standard_error": statistics.stdev(pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else None,
                "jumps": {key: [p[key] for p in phases] for key in ("accepted", "rejected", "withheld", "undone", "jumped_steps", "share")}}
    return out


def show(name, r):
    words = [name, f"{r['learning_rate']:g}", str(r["steps"]), " ".join(f"{x:.4f}" for x in r["eval_losses"]), f"{r['mean']:.4f}"]
    if "jumps" in r:
        error = f" ± {r['standard_error']:.4f}" if r["standard_error"] is not None else ""
        words += [f"{r['difference']:+.4f}{error}", *(" ".join(str(x) for x in r["jumps"][key]) for key in ("accepted", "rejected")),
                  f"{100 * statistics.mean(r['jumps']['share']):.1f} %"]
    else:
        words += ["", "", "", ""]
    print("| " + " | ".join(words) + " |")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    options.add_argument("--runs", type=pathlib.Path)
    options.add_argument("--parse", action="store_true")
    options.add_argument("--steps", type=int, default=300)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--rate", type=float, default=2e-3, help="of the config: what RATES are times of")
    options.add_argument("--methods", default="linear,least_squares,dmd")
    options.add_argument("--config", type=pathlib.Path)
    options.add_argument("--name", default="cpu")
    options.add_argument("--hardware", default=processor())
    options.add_argument("--date", default=str(datetime.date.today()))
    options.add_argument("settings", nargs="*")
    o = options.parse_args()
    bench = Bench(o)
    rate, search = bench.best_rate(o.rate)
    plain, slow = bench.arm("plain", None, rate), bench.arm("plain-slow", None, SMALL * rate)
    table = {"AdamW": row(plain, plain)}
    for method in o.methods.split(","):
        table[method] = row(bench.arm(method, method, rate), plain)
    table["AdamW, an eighth of the rate"] = row(slow, slow)
    table["linear, an eighth of the rate"] = row(bench.arm("linear-slow", "linear", SMALL * rate), slow)
    report = {"what": "predictive phases beside plain AdamW with its own best learning rate, at equal time", "date": o.date,
              "hardware": o.hardware, "seconds_are": "processor time" if bench.on_cpu else "wall time", "parameters": plain[0]["params"],
              "command": " ".join(["bench/phases.py", f"--steps {o.steps} --seeds {o.seeds}", *([f"--config {o.config}"] if o.config else []), *o.settings]),
              "phases": " ".join(bench.phases), "rates": {f"{r * o.rate:g}": x["eval_loss"] for r, x in search.items()}, "runs": rounded(table)}
    path = pathlib.Path("bench/results") / f"{o.date}-{o.name}-phases.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    print("| run | rate | steps | evaluation loss of each seed | mean | beside plain | accepted | rejected | probes |\n|---|---|---|---|---|---|---|---|---|")
    for name, r in table.items():
        show(name, r)
    return 0


if __name__ == "__main__":
    sys.exit(main())
