#!/usr/bin/env python3
"""The planner against the clock: models trained for a few steps inside budgets, what was predicted beside what was measured.

    bench/budgets.py [--peer PROGRAM] [--steps N] [--ranks N] [--rungs] [--rounds N] [--turn N] [--clock MHZ] [--seconds N]
                     [--into RESULTS] [PATTERN ...]
    bench/budgets.py --draw RESULTS                              docs/budgets.svg: tokens/s against the budget

Runs BUILD (build-cuda)/snug and, for what is compared, bench_turns. A case is a model and a budget; PATTERN (a shell pattern)
chooses among them, without one all are run. The first steps of a run are slow, then it slows down as the device gets warm: two
dozen and more are wanted, of which the second half counts. With --peer (a PyTorch program like the one tools/gpu_bench.py
takes) the cases of PEERS run first over there, and ours then gets the memory that PyTorch took as its budget.

With --ranks the N best plans of a case by prediction are run, and the one that is the fastest in the first three rounds is the
chosen one, as with plan_trials: N; it is then held against the others in the rounds after them, which have chosen nothing. With --rungs
it is also held against what people set by hand, from one lever to all of them; a rung that comes out as a program that is run
already is not run again. All of that in one process, by turns: one and the same program differs by a percent from process to
process. A device at the limit of its power changes its clock all the time, by as much: --clock holds it where it can, for the
turns alone (NVIDIA, as root); a clock that the device can keep under load compares plans as it would run them.
--seconds bounds the whole call: cases that would begin later are left out.
One file, bench/results/DATE-HARDWARE-budgets.json (OUT: another folder), has it all; --into: what that file has of other cases
is kept.
"""
import argparse
import contextlib
import datetime
import fnmatch
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from loss_report import LEFT, OURS, PEER, RIGHT, TEXT, WIDTH, Panel

COMMON = ("device=cuda gradient_accumulation_steps=1 max_grad_norm=0 datasets.0.type=synthetic eval_strategy=no save_strategy=no "
          "report_to=none overwrite_output_dir=true warmup_steps=1 logging_steps=1")
EIGHT_BIT = "bf16=true master_dtype=bf16 gradient_dtype=bf16 optim=adamw_8bit"
PURE = "bf16=true master_dtype=bf16 gradient_dtype=bf16 optim_state_dtype=bf16"
GPT2 = f"configs/gpt2-1558m.yaml per_device_train_batch_size=8 {EIGHT_BIT}"
LLAMA = f"configs/llama-1b.yaml per_device_train_batch_size=8 {PURE}"
CASES = {f"gpt2-1558m-{n}gib": f"{GPT2} device_memory={n}GiB" for n in (24, 16, 12, 8, 6, 4)}
CASES |= {f"llama-1b-{n}gib": f"{LLAMA} device_memory={n}GiB" for n in (16, 10, 6)}
CASES |= {
    "gpt2-350m-3gib": f"configs/gpt2-350m.yaml per_device_train_batch_size=16 {PURE} device_memory=3GiB",
    "gpt2-124m-2gib": f"configs/gpt2-124m.yaml per_device_train_batch_size=32 {PURE} device_memory=2GiB",
    "qwen2.5-7b-13gib": f"configs/qwen2.5-7b.yaml per_device_train_batch_size=32 {EIGHT_BIT} device_memory=13.3GiB host_memory=48GiB",
    "qwen2.5-7b-24gib": f"configs/qwen2.5-7b.yaml per_device_train_batch_size=16 {EIGHT_BIT} device_memory=24GiB host_memory=48GiB",
    "qwen2.5-14b-16gib": f"configs/qwen2.5-14b.yaml per_device_train_batch_size=32 {EIGHT_BIT} device_memory=16GiB host_memory=100GiB",
}
# PyTorch's case, compiled with an activation_memory_budget, or with every block checkpointed: ours with that memory.
PEERS = {
    "llama-1b,8,bf16pure,0.5,0": LLAMA, "llama-1b,8,bf16pure,0.3,0": LLAMA, "llama-1b,8,bf16pure,1,1": LLAMA,
    "gpt2-1558m,8,bf16pure,0.5,0": f"configs/gpt2-1558m.yaml per_device_train_batch_size=8 {PURE}",
    "gpt2-1558m,8,bf16pure,0.3,0": f"configs/gpt2-1558m.yaml per_device_train_batch_size=8 {PURE}",
    "gpt2-1558m,8,bf16pure,1,1": f"configs/gpt2-1558m.yaml per_device_train_batch_size=8 {PURE}",
}
# What people set by hand: levers alone and together, in the order in which they make room. Each is open (auto: as much as
# it takes) or pulled all the way, and those that are not named are off.
LEVERS = {"moved": "activation_offloading", "recomputed": "gradient_checkpointing", "states": "offload_optimizer", "weights": "offload_param"}
RUNGS = [f"open: {levers}" for levers in ("nothing", "moved", "recomputed", "moved recomputed", "states", "recomputed states",
                                          "moved recomputed states", "recomputed states weights")]
RUNGS += [f"all: {levers}" for levers in ("recomputed", "recomputed states", "recomputed states weights", "moved recomputed states weights")]
HOPELESS = 0.95  # of the chosen plan's speed: a rung that is predicted to be slower than this is not run
CHOOSING = 6  # turns of a plan, there and back in three rounds: by these one is chosen, as with plan_trials


def rung_settings(rung):
    how, _, levers = rung.partition(": ")
    pulled = {"open": "auto", "all": "true"}[how]
    return " ".join(f"{key}={pulled if lever in levers.split() else 'false'}" for lever, key in LEVERS.items())


def snug(verb, settings, *more):
    command = [os.path.join(os.environ.get("BUILD", "build-cuda"), "snug"), verb, *settings.split(), *COMMON.split(), *more, "--json"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def planned(settings):
    """What a run would be, without a run; None: it does not fit."""
    done = snug("plan", settings)
    plan = json.loads(done.stdout) if done.stdout.strip() else {}
    return plan if done.returncode == 0 and plan.get("fits") else None


def identity(run):
    """Equal for equal programs, whatever may not be done in them."""
    return tuple(run["predicted"][k] for k in ("arena_bytes", "host_bytes", "step_ms"))


def lines_of(folder, kind):
    return [line for line in map(json.loads, open(os.path.join(folder, "metrics.jsonl"))) if line["kind"] == kind]


def train(settings, steps):
    """What a run said of itself, or why there was none. What counts is the second half of its steps."""
    with tempfile.TemporaryDirectory() as folder:
        done = snug("train", settings, f"max_steps={steps}", f"output_dir={folder}", "--quiet")
        if done.returncode:
            return {"error": done.stderr.strip()[-400:], "exit": done.returncode}
        step_ms = statistics.median(line["step_ms"] for line in lines_of(folder, "step")[steps // 2:])
    run = json.loads(done.stdout)
    predicted, measured = run["predicted"], run["measured"]
    rate = predicted["tokens_per_s"]
    return {
        "settings": settings, "tokens_per_s": round(rate * predicted["step_ms"] / step_ms), "predicted_tokens_per_s": round(rate),
        "predicted_step_ms": predicted["step_ms"], "device_bytes": measured["device_bytes"], "predicted_device_bytes": predicted["device_bytes"],
        "arena_bytes": measured["arena_bytes"], "predicted_arena_bytes": predicted["arena_bytes"],
        "losses": run["losses"], "plan_rank": run["plan_rank"],
    }


def close_rungs(name, settings, best):
    """Rungs that are worth a run: name -> settings; and of the others what was planned: name -> result."""
    rungs = {f"{name}, {rung}": rung_settings(rung) for rung in RUNGS}
    known, close, others = {identity(best): "plan 1"}, {}, {}
    with ThreadPoolExecutor(12) as pool:
        plans = pool.map(planned, [f"{settings} {more}" for more in rungs.values()])
    for (rung, more), plan in zip(rungs.items(), plans):
        result = {"settings": f"{settings} {more}"}
        if not plan:
            others[rung] = {**result, "fits": False}
            continue
        result |= {"predicted_tokens_per_s": round(plan["predicted"]["tokens_per_s"]), "run": False}
        if identity(plan) in known:
            others[rung] = {**result, "same_as": known[identity(plan)]}
        elif plan["predicted"]["tokens_per_s"] < HOPELESS * best["predicted"]["tokens_per_s"]:
            others[rung] = result
        else:
            known[identity(plan)] = rung
            close[rung] = more
    return close, others


@contextlib.contextmanager
def held_clock(mhz):
    """The device's clock at so many MHz; 0, or where that is not allowed: as it likes."""
    held = bool(mhz and shutil.which("nvidia-smi")) and subprocess.run(
        ["nvidia-smi", f"--lock-gpu-clocks={mhz},{mhz}"], capture_output=True, check=False).returncode == 0
    if mhz and not held:
        print("the clock cannot be held: turns will differ by more", flush=True)
    try:
        yield held
    finally:
        if held:
            subprocess.run(["nvidia-smi", "--reset-gpu-clocks"], capture_output=True, check=False)


def take_turns(settings, groups, o):
    """The best plans of the settings and those of groups of more settings, by turns in one process."""
    command = [os.path.join(os.environ.get("BUILD", "build-cuda"), "bench_turns"), f"ranks={o.ranks}", f"rounds={o.rounds}", f"turn={o.turn}",
               *settings.split(), *COMMON.split()]
    for group in groups:
        command += ["--", *group.split()]
    with held_clock(o.clock) as held:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-400:])
    return [{**json.loads(line), "clock_mhz": o.clock if held else None} for line in done.stdout.splitlines()]


def choose(turns):
    """Of the best plans the one that is the fastest in its first turns; too slow for as many as others is none of them."""
    listed = [t for t in turns if t["plan"].startswith("plan ") and t["turns_ms"]]
    n = min(max(len(t["turns_ms"]) for t in listed), CHOOSING)
    return min((t for t in listed if len(t["turns_ms"]) >= n), key=lambda t: statistics.mean(t["turns_ms"][:n]))


def held_against(chosen, other, n_choosing):
    """What the chosen plan is faster by, from turns that have chosen nothing where both had such."""
    n = min(len(t["turns_ms"]) for t in (chosen, other))
    begin = n_choosing if n > n_choosing else 0
    mine, theirs = (t["turns_ms"][begin:n] for t in (chosen, other))
    ratios = [b / a for a, b in zip(mine, theirs)]
    return {"planned_ms": other["planned_ms"], "turns_ms": other["turns_ms"], "chosen_turns_ms": chosen["turns_ms"], "counted_from": begin,
            "clock_mhz": other["clock_mhz"],
            "chosen_is_faster_by": statistics.mean(theirs) / statistics.mean(mine) - 1,
            "standard_error": statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 1.0}


def compare(name, settings, best, o):
    """The plan that is chosen, and what it is held against: its rank, its turns, name -> result."""
    close, result = close_rungs(name, settings, best) if o.rungs else ({}, {})
    turns = take_turns(settings, close.values(), o)
    chosen = choose(turns)
    tokens = best["predicted"]["tokens_per_s"] * best["predicted"]["step_ms"]
    names = {more: rung for rung, more in close.items()}
    for t in turns:
        if t is chosen:
            continue
        other = names.get(t["plan"], f"{name}, {t['plan']}")
        one = {"settings": f"{settings} {t['plan']}" if t["plan"] in names else f"{settings} plan_rank={t['plan'].split()[-1]}"}
        if "same_as" in t:
            result[other] = {**one, "run": False, "same_as": t["same_as"], "predicted_tokens_per_s": round(tokens / t["planned_ms"])}
        else:
            result[other] = {**one, "predicted_tokens_per_s": round(tokens / t["planned_ms"]),
                             "tokens_per_s": round(tokens / statistics.mean(t["turns_ms"])), **held_against(chosen, t, CHOOSING if o.ranks > 1 else 0)}
    return int(chosen["plan"].split()[-1]), chosen, result


def run_case(name, settings, o):
    """The chosen plan, and what it is held against: name -> result."""
    rank, chosen, others = 1, None, {}
    best = planned(settings) if o.rungs or o.ranks > 1 else None
    if best:
        try:
            rank, chosen, others = compare(name, settings, best, o)
        except RuntimeError as problem:
            print(f"{name:50} turns: {problem}", flush=True)
    result = {name: train(f"{settings} plan_rank={rank}", o.steps), **others}
    if chosen:
        result[name] |= {"turns_ms": chosen["turns_ms"], "planned_ms": chosen["planned_ms"]}
    for other, r in result.items():
        show(other, r)
    return result


def show(name, r):
    if "error" in r:
        print(f"{name:50} {r['error']}", flush=True)
        return
    if "tokens_per_s" not in r:
        words = "does not fit" if not r.get("fits", True) else f"predicted {r['predicted_tokens_per_s']:,} tok/s: not run"
        print(f"{name:50} {words}" + (f", as {r['same_as']}" if "same_as" in r else ""), flush=True)
        return
    if "chosen_is_faster_by" in r:
        n = len(r["turns_ms"])
        print(f"{name:50} {r['tokens_per_s']:>9,} tok/s by turns  chosen {1 + r['chosen_is_faster_by']:.4f}x ± {r['standard_error']:.4f} "
              f"of {n - r['counted_from']} turns  predicted {r['planned_ms']:.2f}  {r['turns_ms']}", flush=True)
        return
    time_off, memory_off = (r[f"predicted_{k}"] / r[k] - 1 for k in ("tokens_per_s", "device_bytes"))
    ratio = f"  {r['ratio']:.3f}x of the peer" if "ratio" in r else ""
    ratio += f"  plan {r['plan_rank']}  {r['turns_ms']}" if "turns_ms" in r else ""
    print(f"{name:50} {r['tokens_per_s']:>9,} tok/s (predicted {time_off:+.1%})  {r['device_bytes'] / 2**30:6.2f} GiB "
          f"(predicted {memory_off:+.2%}){ratio}", flush=True)


def against_peer(program, patterns, steps):
    """PyTorch first, each case by itself; then ours in its memory: one after the other, as they come."""
    for spec, settings in PEERS.items():
        if not any(fnmatch.fnmatch(spec, p) for p in patterns):
            continue
        done = subprocess.run([sys.executable, program, f"{spec},{steps}"], capture_output=True, text=True, check=False)
        peer = json.loads(done.stdout.strip().splitlines()[-1]) if done.stdout.strip() else {"error": done.stderr[-300:]}
        if "error" in peer or "tok_s" not in peer:
            print(spec, peer, flush=True)
            continue
        ours = train(f"{settings} device_memory={peer['device_gib']}GiB", steps)
        if "error" not in ours:
            ours["ratio"] = ours["tokens_per_s"] / peer["tok_s"]
        print(f"{spec:34} {peer['tok_s']:>9,} tok/s in {peer['device_gib']:6.2f} GiB (PyTorch)")
        show(spec, ours)
        yield spec, {"peer": peer, "ours": ours}


def draw_model(cases, model, title, top):
    """A panel: predicted as a line, measured as dots, by the budget in GiB."""
    points = sorted((int(name.split("-")[-1][:-3]), r) for name, r in cases.items() if "," not in name and name.rpartition("-")[0] == model and "error" not in r)
    budgets = [b for b, _ in points]
    panel = Panel(top, top + 150, [0, *budgets], 0, max(r["predicted_tokens_per_s"] for _, r in points) / 1000 * 1.05)
    panel.axes(title, "")
    panel.curve(budgets, [r["predicted_tokens_per_s"] / 1000 for _, r in points], PEER, 2.5, 'stroke-opacity="0.6"')
    for b, r in points:
        panel.parts.append(f'<circle cx="{panel.x(b):.1f}" cy="{panel.y(r["tokens_per_s"] / 1000):.1f}" r="3.2" fill="{OURS}"/>')
    return panel.parts


def draw(result):
    parts = draw_model(result["cases"], "gpt2-1558m", "GPT-2 1558M, 8 x 1024 tokens, 8-bit states: thousand tokens/s", 52)
    parts += draw_model(result["cases"], "llama-1b", "Llama 1.1B, 8 x 2048 tokens, bf16 states: thousand tokens/s", 262)
    body = "\n".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 450" font-family="sans-serif" font-size="11" fill="{TEXT}">\n'
            f'<rect width="{WIDTH}" height="450" fill="#ffffff"/>\n'
            f'<text x="{LEFT}" y="20" font-size="14" font-weight="600">Speed inside a budget: predicted (line) and measured (dots), {result["hardware"]}</text>\n'
            f'<text x="{WIDTH - RIGHT}" y="446" text-anchor="end">device_memory, GiB</text>\n{body}\n</svg>\n')


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--peer")
    options.add_argument("--steps", type=int, default=24)
    options.add_argument("--ranks", type=int, default=1)
    options.add_argument("--rungs", action="store_true")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--turn", type=int, default=6, help="steps of a turn that count")
    options.add_argument("--clock", type=int, default=0, help="MHz")
    options.add_argument("--into", type=pathlib.Path)
    options.add_argument("--seconds", type=float, default=float("inf"))
    options.add_argument("--date", default=str(datetime.date.today()))
    options.add_argument("--hardware", default="h200")
    options.add_argument("patterns", nargs="*", default=["*"])
    options.add_argument("--draw", type=pathlib.Path)
    o = options.parse_args()
    if o.draw:
        pathlib.Path("docs/budgets.svg").write_text(draw(json.loads(o.draw.read_text())))
        return
    result = {"date": o.date, "hardware": o.hardware, "common": COMMON, "steps": o.steps, "cases": {}, "ranks": {}, "rungs": {}, "peers": {}}
    if o.into and o.into.exists():
        result = {**json.loads(o.into.read_text()), "date": o.date}
    path = pathlib.Path(os.environ.get("OUT", "bench/results")) / f"{o.date}-{o.hardware}-budgets.json"
    began = time.monotonic()
    for name, settings in CASES.items():
        if not any(fnmatch.fnmatch(name, p) for p in o.patterns):
            continue
        if time.monotonic() - began > o.seconds:
            print(f"{name}: left out, no time for it", flush=True)
            continue
        for section in ("ranks", "rungs"):
            result[section] = {other: r for other, r in result[section].items() if not other.startswith(name + ",")}
        for case, r in run_case(name, settings, o).items():
            result["cases" if case == name else "ranks" if ", plan " in case else "rungs"][case] = r
        path.write_text(json.dumps(result, indent=1) + "\n")
    for spec, both in against_peer(o.peer, o.patterns, o.steps) if o.peer else ():
        result["peers"][spec] = both
        path.write_text(json.dumps(result, indent=1) + "\n")


main()
