"""Fills the marked parts of README.md: results from bench/results/*.json, the demo from a log of `make demo`.

    python3 tools/readme_tables.py [DEMO_LOG]
"""
import glob
import json
import os
import re
import sys

PLOT = "docs/loss-gpt2-124m.svg"


def gib(n):
    return f"{n / 2**30:.2f} GiB"


def middle(xs):
    return sorted(xs)[len(xs) // 2]


def percent(predicted, measured):
    return f"{100 * (predicted / measured - 1):+.1f} %".replace("-0.0", "+0.0")


def row(r):
    s, p = r["snug"], r["pytorch"]
    figure = lambda side: f"{middle(side['tokens_per_s']):,.0f} tok/s, {gib(side['resident_bytes'])}"
    note = f"<br>{p['mode']}" if "mode" in p else ""
    return (f"| {r['what']} | {figure(s)} | {figure(p)}{note} | **{r['ratio']['tokens_per_s']:.2f}x** | "
            f"**{r['ratio']['resident_bytes']:.2f}x** | {percent(s['predicted_bytes'], s['resident_bytes'])}, "
            f"{percent(s['predicted_step_ms'], middle(s['step_ms']))} |")


def results():
    """One table for each machine, the cases in the order of bench/targets.json."""
    order = [case["name"] for case in json.load(open("bench/targets.json"))["cases"]]
    tables = {}
    for path in sorted(glob.glob("bench/results/*.json")):
        r = json.load(open(path))
        if "pytorch" in r and "ratio" in r:
            tables.setdefault(r["hardware"], []).append(r)
    parts = []
    for hardware, rs in tables.items():
        rs.sort(key=lambda r: order.index(r["case"]) if r.get("case") in order else -1)
        versions = ", ".join(sorted({r["pytorch"]["version"] for r in rs}))
        parts.append("\n".join([f"**{hardware}** ({max(r['date'] for r in rs)}, PyTorch {versions}):", "",
                                "| case | Snug | PyTorch | speed | memory | predicted memory, time |", "|---|---|---|---|---|---|",
                                *map(row, rs)]))
    return "\n\n".join(parts)


def loss():
    """What bench/loss_compare.sh found on a GPU, newest first; nothing when it has not been run."""
    lines = []
    for path in sorted(glob.glob("bench/results/*-loss-gpt2-124m.json"), reverse=True):
        r = json.load(open(path))
        lines += [f"{r['what']} ({r['hardware']}, {r['date']}; peer: {r['peer']}), from the same weights on the same batches:", "",
                  "| precision | steps | last loss, ours | PyTorch's | mean difference | largest | drift over the run |",
                  "|---|---|---|---|---|---|---|"]
        for name, c in r["loss_comparison"].items():
            lines.append(f"| {name} | {c['steps']} | {c['last_loss'][0]:.3f} | {c['last_loss'][1]:.3f} | {100 * c['mean_relative_difference']:.3f} % | "
                         f"{100 * c['largest_relative_difference']:.2f} % | {100 * c['drift']:+.3f} ± {100 * c['drift_standard_error']:.3f} % |")
        if os.path.exists(PLOT):
            lines += ["", f"![Losses of both, and their difference]({PLOT})"]
        break
    return "\n".join(lines)


def out_of_core():
    """What bench/out_of_core.py found: models that are larger than the device memory they are given."""
    rows, note = [], ""
    for path in sorted(glob.glob("bench/results/*-out-of-core-*.json")):
        r = json.load(open(path))
        x = r["out_of_core"]
        if not x["device_memory_gib"] or "tokens_per_s" not in x:
            continue
        host = f"{x['host_memory_gib']:g} GiB" if x["host_memory_gib"] else "what is free"
        note = f"{r['hardware']}, {r['date']}; {r['numerics']}"
        rows.append(f"| {r['what']} | {x['device_memory_gib']:g} GiB, {host} | {x['device_gib']:.2f} GiB, {x.get('host_gib') or x['predicted_host_gib']:.1f} GiB | "
                    f"**{x['tokens_per_s']:,.0f} tok/s** | {percent(x['predicted_device_gib'], x['device_gib'])}, "
                    f"{percent(x['tokens_per_s'], x['predicted_tokens_per_s'])} |")
    if not rows:
        return ""
    return "\n".join([f"All parameters trained ({note}):", "",
                      "| case | budgets: device, host | taken: device (measured), host | speed | predicted memory, time |",
                      "|---|---|---|---|---|", *rows])


def newest(pattern):
    """What the newest of these results says; None: there is none."""
    paths = sorted(glob.glob(f"bench/results/{pattern}"))
    return json.load(open(paths[-1])) if paths else None


def disk_row(r, title, budgets):
    x = r["disk"]
    return (f"| {title} | {budgets} | {x['device_gib']:.2f} GiB, {x['host_gib']:.1f} GiB, {x['disk_bytes'] / 2**30:.1f} GiB | "
            f"**{x['tokens_per_s']:,} tok/s** | {x['of_what_the_rate_allows']:.2f} | {percent(x['predicted_device_gib'], x['device_gib'])}, "
            f"{percent(x['tokens_per_s'], x['predicted_tokens_per_s'])} |")


def groups_row(r, title, suffix):
    grouped, alone = (r["cases"][name + suffix]["tokens_per_s"][-1] for name in ("groups", "none"))
    return f"| {title} | **{grouped:,} tok/s** | {alone:,} tok/s | **{grouped / alone:.2f}x** |"


def disk():
    """Models that are larger than device and host together, and micro-batches that share what is fetched."""
    small, large, groups, states = (newest(f"*-h200-{name}.json") for name in ("disk-qwen2.5-7b", "disk-qwen2.5-32b", "groups-qwen2.5-7b", "groups-states-qwen2.5-7b"))
    if not (small and large and groups and states):
        return ""
    return "\n".join([
        f"Device and host are full, the rest is on disk ({small['hardware']}, {small['date']}; numerics as above; beside what the rates that the disk kept "
        "up during the run allow):", "",
        "| case | budgets: device, host | taken: device, host, disk | speed | of the disk's rate | predicted memory, time |",
        "|---|---|---|---|---|---|",
        disk_row(small, "Qwen2.5-7B, 32k tokens a step, no clipping", "13.3 GiB, 24 GiB"),
        disk_row(large, "Qwen2.5-32B, 32k tokens a step, exact clipping, two steps", "24 GiB, 110 GiB"), "",
        f"Micro-batches of 4k tokens that run block by block in groups (Qwen2.5-7B, {groups['date']}):", "",
        "| case | in groups, as planned | one after the other | speed |", "|---|---|---|---|",
        groups_row(groups, "8-bit states, 32k tokens a step in 13.3 GiB and 48 GiB, no clipping", ""),
        groups_row(groups, "the same, exact clipping", ", clipped to norm 1"),
        groups_row(states, "f32 states, 16k tokens a step in 40 GiB and 100 GiB, no clipping", "")])


PEER_BUDGETS = {"0.5,0": "`activation_memory_budget` 0.5", "0.3,0": "`activation_memory_budget` 0.3", "1,1": "every block checkpointed"}


def against_budgets(r):
    """PyTorch's own ways to save memory, and ours in the memory that it took."""
    rows = []
    for spec, both in sorted(r["peers"].items()):
        model, batch, _, kind = spec.split(",", 3)
        peer, ours = both["peer"], both["ours"]
        rows.append(f"| {model}, B {batch} | {PEER_BUDGETS[kind]} | {peer['tok_s']:,} tok/s, {peer['device_gib']:.2f} GiB | "
                    f"{ours['tokens_per_s']:,} tok/s, {ours['device_bytes'] / 2**30:.2f} GiB | **{ours['ratio']:.2f}x** |")
    return ["PyTorch compiled, with its own ways to save memory, and Snug with the memory that it took as `device_memory` (same call; bf16 weights, "
            "gradients and states, no clipping):", "", "| model | PyTorch with | PyTorch | Snug | speed |", "|---|---|---|---|---|", *rows, ""]


def against_rungs(r):
    """What is set by hand: the fastest of it, beside the chosen plan."""
    faster = {}
    for rung, x in r["rungs"].items():
        if "chosen_is_faster_by" in x:
            case = rung.partition(",")[0]
            faster[case] = min(faster.get(case, (1.0, 0.0)), (x["chosen_is_faster_by"], x["standard_error"]))
    if not faster:
        return []
    least, error = min(faster.values())
    return [f"Against the best of twelve ways to set recomputation and offloading by hand, by turns in one process, the chosen plans run at "
            f"{1 + least:.3f} (± {error:.3f}) to {1 + max(faster.values())[0]:.3f}x.", ""]


def budgets():
    """What bench/budgets.py found: the newest file."""
    paths = sorted(glob.glob("bench/results/*-budgets.json"))
    if not paths:
        return ""
    r = json.load(open(paths[-1]))
    rows = [f"| {name.rpartition('-')[0]} | {name.rpartition('-')[2][:-3]} GiB | {x['device_bytes'] / 2**30:.2f} GiB | **{x['tokens_per_s']:,} tok/s** | "
            f"{percent(x['predicted_device_bytes'], x['device_bytes'])}, {percent(x['tokens_per_s'], x['predicted_tokens_per_s'])} |"
            for name, x in r["cases"].items() if "error" not in x]
    return "\n".join([f"Nothing but `device_memory` given ({r['hardware']}, {r['date']}, no clipping, {r['steps']} steps; settings: bench/results):", "",
                      "| model | budget | taken | speed | predicted memory, time |", "|---|---|---|---|---|", *rows, "",
                      *against_rungs(r), *against_budgets(r),
                      "![Predicted and measured speed against the budget](docs/budgets.svg)"])


def planning_table(r, asked):
    """Of each model, beside so many busy programs: the first plan, one that is searched for, and the same again."""
    busy = next(iter(r["cases"].values())).keys()
    heads = [f"beside {n} busy programs" if int(n) else "alone" for n in busy]
    times = lambda t: f"{t['first_s']:.1f}, {middle(t['searched_s']):.1f}, {max(t['kept_s']):.1f} s"
    return [f"| `snug plan`{asked} ({r['date']}) | {' | '.join(heads)} |", "|---|" + "---|" * len(heads),
            *(f"| {name} | " + " | ".join(times(c[n]) for n in busy) + " |" for name, c in r["cases"].items())]


def planning():
    """What bench/planning.py found: the newest files."""
    tables = [["", *planning_table(r, asked)] for asked, pattern in ((" for the H200 that is there", "*-gpu-planning.json"), (" `--gpu h200`", "*-cpu-planning.json"))
              if (r := newest(pattern))]
    intro = "How long a plan takes on two processors: the first (nothing in the cache, no kernel timed), another of such shapes that is searched for, and one that is asked for again."
    return "\n".join([intro, *(line for table in tables for line in table)]) if tables else ""


WORKLOADS = {
    "per-frame-cnn-full": "per-frame CNN, full (B 20, T 5, 440 x 640, bf16 products), before norms were fused",
    "per-frame-cnn-full-9gib": "the same in 9 GiB, with fused norms (PyTorch checkpointed)",
    "per-frame-cnn-small-4gib": "per-frame CNN, small (B 16), in 4 GiB",
    "three-branch-39gib": "three branches (B 2, 16 frames of 1280 x 720), in 39 GiB",
    "wide-autoencoder": "wide autoencoder, 8.5 B parameters (B 2, bf16, 8-bit states; PyTorch eager, bf16 states, no clipping)",
    "wide-autoencoder-33gib": "the same in 33 GiB, exact clipping, with a faster update",
    "experts-small": "mixture of experts, 317 M parameters (B 12, T 256; PyTorch eager)",
    "experts-small-6gib": "the same in 6 GiB",
    "lora-8b-26gib": "LoRA r 16, Llama 8B shape, bf16, in 26 GiB",
    "lora-8b-nf4-16gib": "the same on NF4 weights, in 16 GiB",
    "lora-8b-nf4-8gib": "in 8 GiB",
    "lora-8b-nf4-6gib": "in 6 GiB",
    "lora-70b-nf4-40gib": "Llama 70B shape on NF4 weights, r 16, in 40 GiB",
    "lora-70b-nf4-24gib": "in 24 GiB, weights on the host",
}


def workload_row(title, mine, peer):
    rate = f"{mine['tokens_per_second']:,.0f} tok/s" if "tokens_per_second" in mine else f"{mine['step_ms']:.1f} ms"
    theirs = ""
    if peer and "error" not in peer:
        theirs = (f"{peer['tok_s']:,} tok/s" if "tok_s" in peer else f"{peer['ms']} ms") + f", {peer['device_gib']} GiB"
    return (f"| {title} | **{rate}**, {gib(mine['device_bytes'])} | {theirs} | {percent(mine['predicted_device_bytes'], mine['device_bytes'])}, "
            f"{percent(mine['predicted_step_ms'], mine['step_ms'])} |")


def workloads():
    """What bench/workloads.py found: the newest file."""
    paths = sorted(p for p in glob.glob("bench/results/*-workloads.json") if "-cpu-" not in p)
    if not paths:
        return ""
    r = json.load(open(paths[-1]))
    rows = [workload_row(title, r["cases"][name]["ours"], r["cases"][name]["peer"])
            for name, title in WORKLOADS.items() if "step_ms" in r["cases"].get(name, {}).get("ours", {})]
    return "\n".join([f"Other networks, and fine-tuning ({r['hardware'].upper()}, {r['date']}, {r['steps']} steps; PyTorch compiled unless said, on the "
                      "same day and kind of machine; settings: bench/results):", "",
                      "| case | Snug | PyTorch | predicted memory, time |", "|---|---|---|---|", *rows])


def demo(path):
    return "```\n" + open(path).read().rstrip() + "\n```"


def fill(text, name, body):
    body = re.sub(r"[ \t]+$", "", body, flags=re.M)
    body = body + "\n" if body else ""
    return re.sub(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", lambda m: m[1] + body + m[2], text, flags=re.S)


text = open("README.md").read()
text = fill(text, "results", results())
text = fill(text, "out-of-core", out_of_core())
text = fill(text, "disk", disk())
text = fill(text, "budgets", budgets())
text = fill(text, "planning", planning())
text = fill(text, "workloads", workloads())
text = fill(text, "loss", loss())
if len(sys.argv) > 1:
    text = fill(text, "demo", demo(sys.argv[1]))
open("README.md", "w").write(text)
