#!/usr/bin/env python3
"""Kills a training run at random moments, resumes it each time, and compares it in the end with a
run that nobody disturbed: the same losses and the same weights, bit for bit, and no checkpoint that
was finished is ever lost. One of the runs has everything on disk, and leaves nothing there."""
import json
import os
import random
import signal
import subprocess
import time

from torture import CONFIG, DISK, Torture, digest, leftovers

N_KILLS, LANES = 236, 2
N_STEPS = 10 ** 9  # no run comes to its end before it is killed
WHOLE_LIMIT_S = 120  # of a run that nobody kills: all the steps that came between the kills, at a stretch


def checkpoints(folder):
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(int(n.split("-")[1]) for n in names if n.startswith("checkpoint-"))


def arguments(t, out, n_steps, disk=None):
    away = [a.format(disk=disk) for a in DISK] if disk else []
    return ["train", t.path("tiny.yaml"), f"output_dir={out}", f"max_steps={n_steps}",
            "resume_from_checkpoint=auto", "save_steps=7", "-q"] + away


def kill_once(t, out, after_s, disk):
    environment = dict(os.environ, OMP_NUM_THREADS="1", XDG_CACHE_HOME=t.path("cache"))
    p = subprocess.Popen([t.binary] + arguments(t, out, N_STEPS, disk), env=environment,
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    time.sleep(after_s)
    p.send_signal(signal.SIGKILL)
    err = p.communicate()[1]
    with t.lock:
        t.n_runs += 1
        if p.returncode != -signal.SIGKILL:
            t.faults.append(f"ended by itself with {p.returncode}: {err[-300:]}\n    {p.args}")


def losses(out):
    """By step, from the last checkpoint's record."""
    newest = checkpoints(out)[-1]
    with open(os.path.join(out, f"checkpoint-{newest}", "trainer_state.json")) as f:
        return {h["step"]: h["loss"] for h in json.load(f)["log_history"] if "loss" in h}


def lane(t, number):
    chance = random.Random(t.options.seed * 1000 + number)
    out, newest = t.path(f"lane{number}"), 0
    disk = t.path("disk") if number == 1 else None
    n_kills = (t.options.only or N_KILLS) // LANES
    for _ in range(n_kills):
        kill_once(t, out, chance.uniform(0.02, 0.7), disk)
        now = checkpoints(out)
        if newest and (not now or now[-1] < newest):
            with t.lock:
                t.faults.append(f"{out}: checkpoint-{newest} was finished and is gone; left: {now}")
        newest = now[-1] if now else 0
    last = newest + 10
    resumed = t.run(*arguments(t, out, last, disk), limit_s=WHOLE_LIMIT_S)
    whole = t.path(f"whole{number}")
    reference = t.run(*arguments(t, whole, last), limit_s=WHOLE_LIMIT_S)
    if not (t.expect_ended(resumed, {0}) and t.expect_ended(reference, {0})):
        return
    files = [f"checkpoint-{last}/model.safetensors", f"checkpoint-{last}/optimizer.safetensors"]
    if digest(*[os.path.join(out, f) for f in files]) != digest(*[os.path.join(whole, f) for f in files]):
        t.fault(resumed, f"weights after {n_kills} kills are not those of {last} steps at a stretch")
    if losses(out) != losses(whole):
        t.fault(resumed, "losses are not those of an undisturbed run")
    rest = [n for n in leftovers(out) if "checkpoint" in os.path.basename(n)]
    if disk and os.listdir(disk):
        rest += os.listdir(disk)
    if rest:
        t.fault(resumed, f"left behind: {rest}")


def main():
    t = Torture("kills", __doc__)
    t.write("tiny.yaml", CONFIG)
    t.map(lambda n: lane(t, n), list(range(LANES)))
    t.finish(f"{t.options.only or N_KILLS} kills")


main()
