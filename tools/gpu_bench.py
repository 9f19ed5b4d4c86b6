#!/usr/bin/env python3
"""Runs the cases of bench/targets.json on this machine's GPU, ours and PyTorch's by turns, and prints one table.

    tools/gpu_bench.py [bench] [peer] [profile] [NAME-PATTERN ...]     called by tools/gpu-run.sh
    tools/gpu_bench.py split FILE                                      FILE: gpu-bench.json of an earlier call

`bench` runs our side, `peer` PyTorch's: each peer once, in a process of its own, so that its memory is its own;
`profile` prints where the time of a step of ours goes, op by op (PROFILE_LINES of it, 24).
A side that is not run is taken from OUT/peer.jsonl or OUT/gpu-bench.json when an earlier call left them.
Every result is a file of bench/results (tools/readme_tables.py reads them); when OUT is set they are all in
OUT/gpu-bench.json, and `split` makes the files of it. Settings come by environment: BUILD (build-cuda), OUT, PEER
(bench/peer_torch.py, or a torch_lm.py with its way of being called), PEER_PYTHON, BENCH_SETTINGS (added to every
run of ours), BENCH_SECONDS and PEER_SECONDS (limit of one run), LIMIT_SECONDS (of the whole call: cases that come
too late are left out and the table still comes), QUICK=1 (only the first peer of a case).
"""
import fnmatch
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import date

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
GIB = 1 << 30
START = time.monotonic()


def setting(name, default):
    return os.environ.get(name) or default


def seconds_left(most):
    """What one more run may take; below 5 there is no point in starting it."""
    return min(most, float(setting("LIMIT_SECONDS", "1e9")) - (time.monotonic() - START))


def first_line(command, pattern=".*"):
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(pattern, text)
    return (found[1] if found and found.groups() else found[0]).strip() if found else ""


def hardware():
    ask = lambda key: first_line(["nvidia-smi", f"--query-gpu={key}", "--format=csv,noheader"])
    cuda = first_line(["nvcc", "--version"], r"release ([\d.]+)")
    return f"{ask('name') or 'GPU'}, CUDA {cuda or '?'}, driver {ask('driver_version') or '?'}"


# ---- the two sides ------------------------------------------------------------------------------

def run(command, log, most):
    """The standard output of a command, or None; what went wrong is in the log and on the screen."""
    limit = seconds_left(most)
    if limit < 5:
        print("  left out: no time", flush=True)
        return None
    log.write(f"== {' '.join(command)}\n".replace(str(ROOT) + "/", ""))
    log.flush()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, preexec_fn=os.setpgrp)
    try:
        text, _ = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # with the processes it started
        child.communicate()
        print(f"  stopped after {limit:.0f} s", flush=True)
        return None
    if child.returncode:
        log.flush()
        last = open(log.name, errors="replace").read().rstrip().splitlines()[-1:]
        print(f"  failed with exit status {child.returncode}: {''.join(last)[:300]}", flush=True)
        return None
    return text


def program(name):
    return str(ROOT / setting("BUILD", "build-cuda") / name)


def settings_of(case, common):
    return [*common.split(), *case["settings"].split(), *setting("BENCH_SETTINGS", "").split()]


def run_ours(case, common, log):
    folder = tempfile.mkdtemp()
    command = [program("snug"), "train", f"configs/{case['config']}.yaml", f"max_steps={case['steps']}", *settings_of(case, common),
               f"output_dir={folder}", "--json", "--quiet"]
    text = run(command, log, float(setting("BENCH_SECONDS", "75")))
    shutil.rmtree(folder, ignore_errors=True)
    return json.loads(text) if text else None


def run_profile(case, common, log):
    text = run([program("bench_profile"), f"configs/{case['config']}.yaml", *settings_of(case, common)], log, float(setting("BENCH_SECONDS", "75")))
    if text:
        log.write(text)
        lines = text.rstrip().splitlines()
        most = int(setting("PROFILE_LINES", "24"))
        print("\n".join("  " + line for line in (lines if len(lines) <= most else lines[: most - 2] + lines[-2:])), flush=True)


def peer_command(spec):
    script, python = setting("PEER", "bench/peer_torch.py"), setting("PEER_PYTHON", "python3")
    model, batch, mode = spec.split(",")
    if pathlib.Path(script).name == "torch_lm.py":
        return [python, script, f"{spec},1,0"]
    precision = {"bf16pure": "bf16", "amp": "amp", "fp32": "fp32"}[mode]
    return [python, script, model, f"batch={batch}", f"precision={precision}", "compile=1"]


def run_peer(spec, log):
    """One run in the words of our results, whichever program made it."""
    text = run(peer_command(spec), log, float(setting("PEER_SECONDS", "150")))
    if not text:
        return None
    r = json.loads(text.strip().splitlines()[-1])
    if r.get("error"):
        print(f"  peer {spec}: {r['error'][:200]}", flush=True)
        return None
    version = first_line([setting("PEER_PYTHON", "python3"), "-c", "from importlib.metadata import version; print(version('torch'))"])
    return dict(spec=spec, tokens_per_s=r.get("tok_s") or r["tokens_per_s"], step_ms=r.get("ms") or r["step_ms"],
                resident_bytes=int(r.get("device_bytes") or r["device_gib"] * GIB), version=version, date=str(date.today()))


# ---- results ------------------------------------------------------------------------------------

def make_result(case, ours, peers, machine):
    peer = max(peers, key=lambda p: p["tokens_per_s"], default=None)
    m, p = ours["measured"], ours["predicted"]
    result = dict(
        case=case["name"], what=f"{case['what']}, {case['precision']}", date=str(date.today()), hardware=machine,
        command=f"tools/gpu-run.sh bench peer {case['name']}", settings=" ".join(settings_of(case, "")),
        snug=dict(tokens_per_s=[round(ours["tokens_per_s"], 1)], resident_bytes=m["device_bytes"], predicted_bytes=p["device_bytes"],
                  arena_bytes=m["arena_bytes"], predicted_arena_bytes=p["arena_bytes"], step_ms=[round(m["step_ms"], 3)],
                  predicted_step_ms=round(p["step_ms"], 3), mfu=round(ours["mfu"], 4), losses=[round(ours["losses"][0], 4), round(ours["losses"][-1], 4)]))
    if peer:
        result["pytorch"] = dict(tokens_per_s=[peer["tokens_per_s"]], resident_bytes=peer["resident_bytes"], step_ms=[round(peer["step_ms"], 3)],
                                 version=peer["version"], mode=f"compiled, {peer['spec'].split(',')[2]}", date=peer["date"])
        result["ratio"] = dict(tokens_per_s=round(ours["tokens_per_s"] / peer["tokens_per_s"], 3),
                               resident_bytes=round(m["device_bytes"] / peer["resident_bytes"], 3))
        others = [x for x in peers if x is not peer]
        if others:
            result["other_peers"] = [{k: x[k] for k in ("spec", "tokens_per_s", "resident_bytes", "step_ms")} for x in others]
    result["goal"], result["published"] = case["goal"], case["published"]
    return result


def file_name(result):
    gpu = re.sub(r"[^a-z0-9]+", "-", result["hardware"].split(",")[0].lower().removeprefix("nvidia ")).strip("-")
    return f"{result['date']}-{gpu}-{result['case']}.json"


def write_results(results):
    RESULTS.mkdir(exist_ok=True)
    for result in results:
        for old in RESULTS.glob(f"*-{file_name(result)[11:]}"):  # one file a case and GPU: the newest
            old.unlink()
        (RESULTS / file_name(result)).write_text(json.dumps(result, indent=1) + "\n")


def table(results):
    cell = lambda value, form: form % value if value is not None else "-"
    heads = ("case", "tok/s", "peer", "ratio", "GiB", "peer", "ratio", "pred/meas", "ms", "pred/meas", "goal", "of goal", "GiB goal", "MFU", "loss")
    rows = [heads]
    for r in results:
        s, p, ratio, goal = r["snug"], r.get("pytorch"), r.get("ratio", {}), r["goal"] or {}
        speed = s["tokens_per_s"][0]
        rows.append((
            r["case"], "%.0f" % speed, cell(p and p["tokens_per_s"][0], "%.0f"), cell(ratio.get("tokens_per_s"), "%.3f"),
            "%.2f" % (s["resident_bytes"] / GIB), cell(p and p["resident_bytes"] / GIB, "%.2f"), cell(ratio.get("resident_bytes"), "%.3f"),
            "%.3f" % (s["predicted_bytes"] / s["resident_bytes"]), "%.2f" % s["step_ms"][0], "%.3f" % (s["predicted_step_ms"] / s["step_ms"][0]),
            cell(goal.get("tokens_per_s"), "%d"), cell(goal and speed / goal["tokens_per_s"] or None, "%.3f"), cell(goal.get("gib"), "%g"),
            "%.1f%%" % (100 * s["mfu"]), "%.3f>%.3f" % tuple(s["losses"])))
    for r in results:
        for engine, figure in r["published"].items():
            print(f"{r['case']}: {engine} {figure['tokens_per_s']:,} tok/s in {figure['gib']:g} GiB (measured before), "
                  f"ours {r['snug']['tokens_per_s'][0] / figure['tokens_per_s']:.3f}x in {r['snug']['resident_bytes'] / GIB / figure['gib']:.3f}x")
    widths = [max(len(row[k]) for row in rows) for k in range(len(heads))]
    for row in rows:
        print("  ".join(c.ljust(w) if k == 0 else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths))))


# ---- the call -----------------------------------------------------------------------------------

def load_lines(path):
    try:
        return [json.loads(line) for line in open(path)]
    except OSError:
        return []


def main(words):
    sides = {w for w in words if w in ("bench", "peer", "profile")}
    patterns = [w for w in words if w not in sides] or ["*"]
    targets = json.loads((ROOT / "bench" / "targets.json").read_text())
    cases = [c for c in targets["cases"] if any(fnmatch.fnmatch(c["name"], p) for p in patterns)]
    if not cases or not sides:
        sys.exit(f"no such case; there are {', '.join(c['name'] for c in targets['cases'])}" if sides else __doc__)
    out = pathlib.Path(setting("OUT", str(RESULTS)))
    out.mkdir(parents=True, exist_ok=True)
    scratch = out if os.environ.get("OUT") else pathlib.Path(setting("BUILD", "build-cuda"))
    peers = {p["spec"]: p for p in load_lines(setting("PEER_RESULTS", str(scratch / "peer.jsonl")))}
    bundle, machine, failed = scratch / "gpu-bench.json", hardware(), 0
    done = {r["case"]: r for r in json.loads(bundle.read_text())} if bundle.exists() else {}
    ran = set()
    with open(scratch / "bench.log", "a") as log:
        for case in cases:
            specs = case["peers"][:1] if os.environ.get("QUICK") else case["peers"]
            print(f"{case['name']}", flush=True)
            ours = run_ours(case, targets["settings"], log) if "bench" in sides else None
            failed |= "bench" in sides and ours is None
            if "profile" in sides:
                run_profile(case, targets["settings"], log)
            for spec in specs if "peer" in sides else []:
                if spec in ran:
                    continue
                ran.add(spec)
                if result := run_peer(spec, log):
                    peers[spec] = result
                    with open(scratch / "peer.jsonl", "a") as file:
                        file.write(json.dumps(result) + "\n")
            if ours:
                result = make_result(case, ours, [peers[s] for s in case["peers"] if s in peers], machine)
                done[case["name"]] = result
                speed = result["snug"]["tokens_per_s"][0]
                print(f"  {speed:,.0f} tok/s, {result['snug']['resident_bytes'] / GIB:.2f} GiB; {result.get('ratio', 'no peer')}", flush=True)
                bundle.write_text(json.dumps(list(done.values()), indent=1) + "\n")
    shown = [done[c["name"]] for c in cases if c["name"] in done]
    if not os.environ.get("OUT"):
        write_results(shown)
    print()
    table(shown)
    return int(failed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["split"] and len(sys.argv) == 3:
        write_results(json.loads(pathlib.Path(sys.argv[2]).read_text()))
    else:
        sys.exit(main(sys.argv[1:]))
