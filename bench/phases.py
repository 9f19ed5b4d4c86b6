#!/usr/bin/env python3
"""Predictive phases, averages and predicted gradients beside plain AdamW at equal time, on real text, over several seeds.

    bench/phases.py [--device cpu|cuda] [--config FILE] [--corpus FILE] [--seconds S | --steps N] [--seeds N]
                    [--settings linear,dmd,rejected,lookahead,ema,control] [--micro N --batch N] [--rate R] [--rates 0.5,1,2,4] [--slow]
                    [--build FOLDER] [--runs FOLDER [--parse]] [--name NAME] [--hardware TEXT] [--out PATH] [key=value ...]

Plain AdamW first looks for its own learning rate (--rates times --rate, the first seed; one of them is no search);
everything after it has that rate. With --slow one more pair has an eighth of it, to show what jumps do where the rate
is too small. A run has --steps, or as many as plain training takes --seconds for. Each setting has as many fewer as its steps take
longer, by a trial of a quarter of them (at least until after a jump), and a schedule that ends where it ends. Time is that of the processors on the CPU (others
may be at work there, so what a step takes is the quickest tenth of three trials, and what comes between steps its share of
their time), and of the clock on a GPU. key=value goes to every run.
Predicted gradients are of the micro-batches of a step: `micro` is plain training in --micro of them (of a step of --batch
samples, which is the config's), `control` predicts where that pays, `control_always` whether or not, `control_never` measures only.

On the CPU without a config: the text of `make demo` and a small Llama. On a GPU, within 200 seconds:

    tools/make_text_corpus.py build/corpus build/snug 26000000           # real text and its tokens, 13 MB
    bench/phases.py --build build-cuda --device cuda --config configs/gpt2-124m.yaml --corpus build/corpus/train.bin --seconds 4 --batch 4 \\
        --rate 6e-4 --rates 1 --name h200-gpt2-124m --hardware H200

Writes bench/results/DATE-NAME-phases.json (or --out: a file, or a folder for it) and prints the table.
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

DEMO = pathlib.Path("configs/demo.yaml")
SMALL = 0.125
TRIAL, TRIALS = 0.25, 3
MODEL = ["model.hidden_size=64", "model.intermediate_size=192", "model.num_hidden_layers=2", "max_seq_length=64", "num_threads=1"]
PHASES = {"phase_warmup_steps": 60, "full_steps": 40, "correct_steps": 5, "snapshot_count": 5, "snapshot_steps": 5,
          "max_predict_steps": 40, "probe_batches": 8}
TRIAL_STEPS = PHASES["phase_warmup_steps"] + PHASES["full_steps"] + 10  # with a jump in it: that is what phases cost
# What each setting adds; those with a key of PHASES have all of them. "rejected": no difference is enough.
SETTINGS = {
    "linear": ["predictive_phases=linear"], "least_squares": ["predictive_phases=least_squares"], "dmd": ["predictive_phases=dmd"],
    "rejected": ["predictive_phases=linear", "jump_z=1000"],
    "lookahead": ["lookahead_steps=5"], "ema": ["ema_decay=0.99"],
    "micro": [], "control": ["predicted_gradients=residual"],
    "control_always": ["predicted_gradients=residual", "control_threshold=1e30"],
    "control_never": ["predicted_gradients=residual", "control_threshold=0"],
}
IN_MICRO_BATCHES = ("micro", "control", "control_always", "control_never")
DEFAULT = "linear,dmd,rejected,lookahead,ema,control,control_always"
COLUMNS = "| run | rate | steps | evaluation loss of each seed | mean | beside plain | seconds | what it did |\n|---|---|---|---|---|---|---|---|"


class Bench:
    def __init__(self, o):
        self.o, self.on_cpu = o, o.device == "cpu"
        self.folder = o.runs or pathlib.Path(tempfile.mkdtemp())
        own = {word.split("=")[0]: word for word in o.settings_of_all}
        self.phases = [own.pop(key, f"{key}={value}") for key, value in PHASES.items()]
        self.words = [f"device={o.device}", *own.values()]
        if not o.config:
            self.words = [*MODEL, *self.words]
        if o.corpus or not o.config:
            held_out = "val_set_size" in own or "val_set_size" in (o.config or DEMO).read_text()
            self.words = [f"datasets={o.corpus or text_of(o.build)}", *([] if held_out else ["val_set_size=0.02"]), *self.words]
        self.steps = o.steps

    def settings(self, name):
        words = list(SETTINGS[name]) if name else []
        if name in IN_MICRO_BATCHES:
            words += [f"per_device_train_batch_size={self.o.batch // self.o.micro}", f"gradient_accumulation_steps={self.o.micro}"]
        return [*words, *(self.phases if any(w.startswith("predictive_phases") for w in words) else [])]

    def run(self, name, steps, rate, seed, words, evaluates=True):
        """The summary of a run, kept beside it: with --parse it is not run again."""
        folder = self.folder / name
        kept = folder / "bench.json"
        if self.o.parse and kept.exists():
            return json.loads(kept.read_text())
        command = [str(self.o.build / "snug"), "train", str(self.o.config or DEMO), f"output_dir={folder}",
                   *self.words, f"max_steps={steps}", f"learning_rate={rate:g}", f"seed={seed}",
                   *(["eval_strategy=steps", f"eval_steps={steps}", f"per_device_eval_batch_size={self.o.batch}", f"eval_max_batches={self.o.eval_batches}"] if evaluates else ["eval_strategy=no"]),
                   f"warmup_steps={max(steps // 10, 1)}", "save_strategy=no", "report_to=none", "overwrite_output_dir=true", "log_format=quiet", *words]
        used, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stdout}")
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        lines = [json.loads(line) for line in open(folder / "metrics.jsonl")]
        end, plan = lines[-1], next(x for x in lines if x["kind"] == "plan")
        of_steps = [x["t"] for x in lines if x["kind"] in ("step", "jump", "control")]
        quick = sorted(x["step_ms"] for x in lines if x["kind"] == "step")
        evals = [x["loss"] for x in lines if x["kind"] == "eval"]
        result = {"steps": steps, "rate": rate, "seed": seed, "whole_seconds": time.monotonic() - began,
                  "processor_seconds": now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime,
                  "train_seconds": of_steps[-1] - of_steps[0], "eval_loss": evals[-1] if evals else None,
                  "arena_bytes": end["arena_bytes"], "host_bytes": plan["host_bytes"], "params": plan["params"],
                  "quick_step": 1e-3 * quick[len(quick) // 10], "share": sum(end.get(key, {}).get("share", 0) for key in ("phases", "control")),
                  "phases": end.get("phases"), "control": end.get("control")}
        kept.write_text(json.dumps(result))
        shown = f"{result['eval_loss']:.4f}" if evals else "none"
        print(f"{name}: {steps} steps, {result['whole_seconds']:.1f} s, evaluation {shown}", flush=True)
        return result

    def step_seconds(self, name, rate, words, steps):
        """Of one step, what comes between steps included."""
        if not self.on_cpu:
            return self.run(f"{name}-trial", steps, rate, 1, words, evaluates=False)["train_seconds"] / (steps - 1)
        trials = [self.run(f"{name}-trial-{i}", steps, rate, 1, words, evaluates=False) for i in range(TRIALS)]
        return min(t["quick_step"] for t in trials) / (1 - statistics.mean(t["share"] for t in trials))

    def calibrate(self):
        """How many steps plain training has, and what one of them takes."""
        n = self.steps // 4 if self.steps else self.o.calibration
        self.plain_step = self.step_seconds("plain", self.o.rate, [], max(int(n), 2))
        self.steps = self.steps or max(int(self.o.seconds / self.plain_step), 4)
        print(f"a step of plain training takes {1e3 * self.plain_step:.2f} ms: {self.steps} of them", flush=True)

    def best_rate(self):
        rates = [float(r) for r in self.o.rates.split(",")]
        if len(rates) == 1:
            return rates[0] * self.o.rate, {}
        runs = {r: self.run(f"rate-{r}", self.steps, r * self.o.rate, 1, []) for r in rates}
        return min(runs, key=lambda r: runs[r]["eval_loss"]) * self.o.rate, runs

    def arm(self, name, setting, rate):
        """Runs of every seed. As many steps fewer as those of a trial take longer."""
        words, steps = self.settings(setting), self.steps
        if setting:
            cost = self.o.costs.get(setting)
            took = self.plain_step * cost if cost else self.step_seconds(name, rate, words, min(max(int(TRIAL * steps), TRIAL_STEPS), steps))
            most = 4 if setting in IN_MICRO_BATCHES else 1 # else what it takes less is noise
            steps = max(int(steps * min(self.plain_step / took, most)), 2)
        return [self.run(f"{name}-{seed}", steps, rate, seed, words) for seed in range(1, self.o.seeds + 1)]


def row(bench, runs, plain):
    losses = [r["eval_loss"] for r in runs]
    pairs = [r["eval_loss"] - p["eval_loss"] for r, p in zip(runs, plain)]
    out = {"learning_rate": runs[0]["rate"], "steps": runs[0]["steps"], "eval_losses": losses, "mean": statistics.mean(losses),
           "seconds": [r["processor_seconds" if bench.on_cpu else "train_seconds"] for r in runs],
           "arena_bytes": runs[0]["arena_bytes"], "host_bytes": runs[0]["host_bytes"]}
    if runs is not plain:
        out |= {"difference": statistics.mean(pairs), "standard_error": statistics.stdev(pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else None}
    if runs[0]["phases"]:
        out["jumps"] = {key: [r["phases"][key] for r in runs] for key in ("accepted", "rejected", "withheld", "undone", "jumped_steps", "share")}
    if runs[0]["control"]:
        out["control"] = {key: [r["control"][key] for r in runs] for key in runs[0]["control"]}
    return out


def did(r):
    words = []
    if "jumps" in r:
        words += [f"{key} {' '.join(str(x) for x in r['jumps'][key])}" for key in ("accepted", "rejected")]
        words += [f"probes {100 * statistics.mean(r['jumps']['share']):.1f} %"]
    if "control" in r:
        c = {key: statistics.mean(x) for key, x in r["control"].items()}
        words += [f"predicted {100 * c['predicted_steps'] / r['steps']:.0f} % of the steps", f"variance x{c['variance_ratio']:.2f}",
                  f"cost x{c['cost_ratio']:.2f}", f"measuring {100 * c['share']:.1f} %"]
    return ", ".join(words)


def show(name, r):
    words = [name, f"{r['learning_rate']:g}", str(r["steps"]), " ".join(f"{x:.4f}" for x in r["eval_losses"]), f"{r['mean']:.4f}", ""]
    if "difference" in r:
        words[-1] = f"{r['difference']:+.4f}" + (f" ± {r['standard_error']:.4f}" if r["standard_error"] is not None else "")
    print("| " + " | ".join([*words, f"{statistics.mean(r['seconds']):.1f}", did(r)]) + " |")


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    p.add_argument("--runs", type=pathlib.Path)
    p.add_argument("--parse", action="store_true")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--config", type=pathlib.Path)
    p.add_argument("--corpus", type=pathlib.Path, help="a text or token file, instead of the config's data")
    p.add_argument("--seconds", type=float, help="of training, each run")
    p.add_argument("--steps", type=int, help="of plain training, instead of --seconds")
    p.add_argument("--calibration", type=int, default=50, help="steps by which --seconds become steps")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--settings", default=DEFAULT, help="beside plain: " + ", ".join(SETTINGS))
    p.add_argument("--micro", type=int, default=4, help="micro-batches of a step, for predicted gradients")
    p.add_argument("--batch", type=int, default=8, help="samples of a step")
    p.add_argument("--costs", default="", help="of a step beside a plain one, by setting, instead of trials: micro=1,control=1.02")
    p.add_argument("--rate", type=float, default=2e-3)
    p.add_argument("--rates", default="0.5,1,2,4", help="times --rate, for plain training to choose from")
    p.add_argument("--slow", action="store_true", help="plain and linear at an eighth of the rate too")
    p.add_argument("--eval-batches", type=int, default=64)
    p.add_argument("--name", default="cpu")
    p.add_argument("--hardware", default=processor())
    p.add_argument("--date", default=str(datetime.date.today()))
    p.add_argument("--out", type=pathlib.Path)
    p.add_argument("settings_of_all", nargs="*", metavar="key=value")
    o = p.parse_args()
    o.costs = {word.split("=")[0]: float(word.split("=")[1]) for word in filter(None, o.costs.split(","))}
    unknown = [s for s in o.settings.split(",") if s and s not in SETTINGS]
    if unknown:
        p.error(f"--settings: there is no {', '.join(unknown)}; there are {', '.join(SETTINGS)}")
    if (o.seconds is None) == (o.steps is None):
        o.steps = 300 if o.seconds is None else p.error("--seconds and --steps: one of them")
    return o


def main():
    o = options()
    bench, began = Bench(o), time.monotonic()
    bench.calibrate()
    rate, search = bench.best_rate()
    plain = bench.arm("plain", None, rate)
    table = {"AdamW": row(bench, plain, plain)}
    for name in filter(None, o.settings.split(",")):
        table[name] = row(bench, bench.arm(name, name, rate), plain)
    if o.slow:
        slow = bench.arm("plain-slow", None, SMALL * rate)
        table["AdamW, an eighth of the rate"] = row(bench, slow, slow)
        table["linear, an eighth of the rate"] = row(bench, bench.arm("linear-slow", "linear", SMALL * rate), slow)
    report = {"what": "predictive phases, averages and predicted gradients beside plain AdamW at equal time", "date": o.date,
              "hardware": o.hardware, "seconds_are": "processor time" if bench.on_cpu else "wall time", "parameters": plain[0]["params"],
              "command": "bench/phases.py " + " ".join(w for i, w in enumerate(sys.argv) if i > 0 and not {w, sys.argv[i - 1]} & {"--runs", "--out"}), "whole_seconds": round(time.monotonic() - began, 1),
              "phases": " ".join(bench.phases), "rates": {f"{r * o.rate:g}": x["eval_loss"] for r, x in search.items()}, "runs": rounded(table)}
    path = o.out or pathlib.Path("bench/results")
    path = path / f"{o.date}-{o.name}-phases.json" if path.is_dir() else path
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(COLUMNS)
    for name, r in table.items():
        show(name, r)
    print(f"{report['whole_seconds']:.0f} seconds in all; {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
