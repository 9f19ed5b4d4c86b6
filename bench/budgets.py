#!/usr/bin/env python3
"""The planner against the clock: models trained for a few steps inside budgets, what was predicted beside what was measured.

    bench/budgets.py [--peer PROGRAM] [--steps N] [--trials N] [--ranks N] [--rungs] [--rounds N] [--seconds N] [PATTERN ...]
    bench/budgets.py --draw RESULTS                              docs/budgets.svg: tokens/s against the budget

Runs BUILD (build-cuda)/snug. A case is a model and a budget; PATTERN (a shell pattern) chooses among them, without one all
are run. The first steps of a run are slow, then it slows down as the device gets warm: two dozen and more are wanted, of which
the second half counts. With --peer (a PyTorch program
like the one tools/gpu_bench.py takes) the cases of PEERS run first over there, and ours then gets the memory that PyTorch
took as its budget. With --trials the chosen plan is the one that a run with plan_trials: N settles on, else the best by
prediction. With --ranks the N best plans of each case by prediction are run as well: with --trials by turns in one process,
in a second run with plan_trials that chooses nothing, else each in a process of its own; with --rungs what people set by
hand as well, from one lever to all of them; a rung that comes out as a program that was run is not run again. One and the
same program differs by a percent or two from run to run: with --rounds plans that come close to the chosen one run N times,
by turns with it, and medians are compared. --seconds bounds the whole call: cases that would begin later are left out.
One file, bench/results/DATE-HARDWARE-budgets.json (OUT: another folder), has it all.
"""
import argparse
import datetime
import fnmatch
import json
import os
import pathlib
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
CLOSE = 0.99  # of the chosen plan's speed: what runs again, where there are rounds


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


def turns_of(folder):
    """Of a run with trials: milliseconds of each turn of each plan, by rank. A turn is the median of six steps; three before
    it do not count where the plan has changed, and a dozen more where the run begins."""
    turns, rank, steps, warm = {}, 1, [], 15
    for line in map(json.loads, open(os.path.join(folder, "metrics.jsonl"))):
        if line["kind"] == "step":
            steps.append(line["step_ms"])
        if line["kind"] != "trials":
            continue
        timed = steps[warm:]
        turns.setdefault(rank, []).extend(statistics.median(timed[i:i + 6]) for i in range(0, len(timed) - 5, 6))
        rank, steps, warm = line["plan_rank"], [], 3
        if line["settled"]:
            break
    return turns


def train(settings, steps):
    """What a run said of itself, or why there was none. What counts is the second half of its steps."""
    with tempfile.TemporaryDirectory() as folder:
        done = snug("train", settings, f"max_steps={steps}", f"output_dir={folder}", "--quiet")
        if done.returncode:
            return {"error": done.stderr.strip()[-400:], "exit": done.returncode}
        step_ms = statistics.median(line["step_ms"] for line in lines_of(folder, "step")[steps // 2:])
        trials = lines_of(folder, "trials")
        turns = turns_of(folder) if trials else {}
    run = json.loads(done.stdout)
    predicted, measured = run["predicted"], run["measured"]
    rate = predicted["tokens_per_s"]
    return {
        "settings": settings, "tokens_per_s": round(rate * predicted["step_ms"] / step_ms), "predicted_tokens_per_s": round(rate),
        "predicted_step_ms": predicted["step_ms"], "device_bytes": measured["device_bytes"], "predicted_device_bytes": predicted["device_bytes"],
        "arena_bytes": measured["arena_bytes"], "predicted_arena_bytes": predicted["arena_bytes"],
        "losses": run["losses"], "program": identity(run), "plan_rank": run["plan_rank"],
        **({"trials": trials[-1]["tried"], "turns": turns} if trials else {}),
    }


def run_trials(settings, n):
    """Steps for two turns of each plan, and twice as many again for those that are close."""
    return train(f"{settings} plan_trials={n}", 12 + 9 * (6 * n + 1))


def choose(settings, o):
    """The plan of a case: its rank, and what the trials of it found. Rates are measured before: with others a rank is
    another plan's."""
    if o.trials < 2:
        return 1, {}
    planned(settings)
    tried = run_trials(settings, o.trials)
    found = {"trials": tried["trials"]} if "trials" in tried else {}
    for t in found.get("trials", ()):
        print(f"{'':50} plan {t['plan_rank']} {t['step_ms']:.2f} ms in {t['turns']} turns, planned {t['planned_ms']:.2f}", flush=True)
    return tried.get("plan_rank", 1), found


def by_turns(name, settings, rank, o):
    """The best plans against the chosen one, by turns in one process: the turns that both have had."""
    run = run_trials(settings, max(o.trials, o.ranks))
    if rank not in run.get("turns", {}):
        yield f"{name}, plans by turns", {"error": run.get("error", f"plan {rank} had no turn")}
        return
    planned_ms = {t["plan_rank"]: t["planned_ms"] for t in run["trials"]}
    tokens = run["predicted_tokens_per_s"] * run["predicted_step_ms"]
    for other in sorted(set(run["turns"]) - {rank}):
        n = min(len(run["turns"][k]) for k in (rank, other))
        mine, theirs = (statistics.mean(run["turns"][k][:n]) for k in (rank, other))
        ratios = [b / a for a, b in zip(run["turns"][rank][:n], run["turns"][other])]
        error = statistics.stdev(ratios) / n ** 0.5 if n > 1 else 1.0
        yield f"{name}, plan {other}", {"settings": f"{settings} plan_rank={other}", "plan_rank": other, "predicted_step_ms": planned_ms[other],
                                        "tokens_per_s": round(tokens / theirs), "predicted_tokens_per_s": round(tokens / planned_ms[other]),
                                        "turns": run["turns"][other][:n], "chosen_turns": run["turns"][rank][:n],
                                        "chosen_planned_ms": planned_ms[rank], "chosen_is_faster_by": theirs / mine - 1,
                                        "standard_error": error}


def contenders(name, settings, chosen, o):
    """Other plans of a case: name and settings."""
    for rank in range(1, o.ranks + 1) if o.trials < 2 else ():
        if rank != chosen:
            yield f"{name}, plan {rank}", f"{settings} plan_rank={rank}"
    for rung in RUNGS if o.rungs else ():
        yield f"{name}, {rung}", f"{settings} {rung_settings(rung)}"


def run_contenders(others, chosen, steps):
    """Each as it runs, or as far as it is worth while: those that do not fit, would be far behind, or are a program that was
    run already, are only planned."""
    known = {chosen["program"]: "the chosen plan"}
    with ThreadPoolExecutor(12) as pool:
        plans = pool.map(planned, [settings for _, settings in others])
    for (name, settings), plan in zip(others, plans):
        if not plan:
            yield name, {"settings": settings, "fits": False}
            continue
        predicted, program = round(plan["predicted"]["tokens_per_s"]), identity(plan)
        if program in known:
            yield name, {"settings": settings, "predicted_tokens_per_s": predicted, "run": False, "same_as": known[program]}
        elif predicted < HOPELESS * chosen["predicted_tokens_per_s"]:
            yield name, {"settings": settings, "predicted_tokens_per_s": predicted, "run": False}
        else:
            known[program] = name
            yield name, train(settings, steps)


def again(chosen, others, rounds, steps):
    """Those that come close, by turns with the chosen plan; what counts is the median."""
    ran = [r for r in others if "tokens_per_s" in r and "turns" not in r]
    for r in (chosen, *ran):
        r["runs"] = [r["tokens_per_s"]]
    for _ in range(rounds - 1):
        close = [r for r in ran if r["tokens_per_s"] > CLOSE * chosen["tokens_per_s"]]
        for r in [chosen, *close] if close else ():
            once = train(r["settings"], steps)
            r["runs"].append(once["tokens_per_s"])
            r["tokens_per_s"] = round(statistics.median(r["runs"]))
            r["same_bits"] = r.get("same_bits", True) and once["losses"] == r["losses"]


def run_case(name, settings, o):
    """The chosen plan, and what it is held against: name -> result."""
    rank, trials = choose(settings, o)
    chosen = {**train(f"{settings} plan_rank={rank}", o.steps), **trials}
    result = {name: chosen}
    show(name, chosen)
    if "error" in chosen:
        return result
    for t in trials.get("trials", ()):
        if t["plan_rank"] == rank and abs(t["planned_ms"] / chosen["predicted_step_ms"] - 1) > 1e-6:
            chosen["as_tried"] = False
            print(f"{'':50} rates were measured again: the plan of rank {rank} is not the one that was tried", flush=True)
    for other, r in by_turns(name, settings, rank, o) if o.trials > 1 and o.ranks > 0 else ():
        result[other] = r
        show(other, r, chosen)
    for other, r in run_contenders(list(contenders(name, settings, rank, o)), chosen, o.steps):
        result[other] = r
        show(other, r, chosen)
    again(chosen, [r for r in result.values() if r is not chosen], o.rounds, o.steps)
    for other, r in result.items():
        if len(r.get("runs", ())) > 1:
            show(other, r, chosen)
        r.pop("program", None)
    return result


def show(name, r, chosen=None):
    if "error" in r:
        print(f"{name:50} {r['error']}", flush=True)
        return
    if "tokens_per_s" not in r:
        words = "does not fit" if not r.get("fits", True) else f"predicted {r['predicted_tokens_per_s']:,} tok/s: not run"
        print(f"{name:50} {words}" + (f", as {r['same_as']}" if "same_as" in r else ""), flush=True)
        return
    if "turns" in r and chosen:
        print(f"{name:50} {r['tokens_per_s']:>9,} tok/s by turns in one process  chosen {1 + r['chosen_is_faster_by']:.4f}x "
              f"± {r['standard_error']:.4f} of {len(r['turns'])} turns each", flush=True)
        return
    time_off, memory_off = (r[f"predicted_{k}"] / r[k] - 1 for k in ("tokens_per_s", "device_bytes"))
    ratio = f"  {r['ratio']:.3f}x of the peer" if "ratio" in r else ""
    ratio += f"  chosen {chosen['tokens_per_s'] / r['tokens_per_s']:.3f}x" if chosen and chosen is not r else ""
    ratio += f"  runs {r['runs']}" if "runs" in r else ""
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
    options.add_argument("--trials", type=int, default=1)
    options.add_argument("--ranks", type=int, default=1)
    options.add_argument("--rungs", action="store_true")
    options.add_argument("--rounds", type=int, default=1)
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
    path = pathlib.Path(os.environ.get("OUT", "bench/results")) / f"{o.date}-{o.hardware}-budgets.json"
    began = time.monotonic()
    for name, settings in CASES.items():
        if not any(fnmatch.fnmatch(name, p) for p in o.patterns):
            continue
        if time.monotonic() - began > o.seconds:
            print(f"{name}: left out, no time for it", flush=True)
            continue
        for case, r in run_case(name, settings, o).items():
            result["cases" if case == name else "ranks" if ", plan " in case else "rungs"][case] = r
        path.write_text(json.dumps(result, indent=1) + "\n")
    for spec, both in against_peer(o.peer, o.patterns, o.steps) if o.peer else ():
        result["peers"][spec] = both
        path.write_text(json.dumps(result, indent=1) + "\n")


main()
