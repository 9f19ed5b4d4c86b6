#!/usr/bin/env python3
"""Makes the n-th allocation fail, for every command: it succeeds or says in one line that memory ran
out, with exit code 1; nothing half-written stays, and no checkpoint is lost."""
import os
import random
import shutil

from torture import CONFIG, Torture, digest, leftovers

N_TRIALS = 2763
N_FIRST = 100  # every one of the first, then some of the rest

COMMANDS = {
    "plan": ["plan", "{config}", "max_steps=2", "-q"],
    "train": ["train", "{config}", "output_dir={work}/out", "max_steps=2", "save_steps=2", "-q"],
    "resume": ["train", "{config}", "output_dir={work}/out", "max_steps=5", "--resume", "-q"],
    "generate": ["generate", "{config}", "output_dir={base}/out", "-n", "4", "-q"],
    "eval": ["eval", "{config}", "output_dir={base}/out", "eval_max_batches=1", "-q"],
    "export": ["export", "{config}", "output_dir={base}/out", "-o", "{work}/model", "-q"],
    "tokenize": ["tokenize", "{config}", "{base}/a.txt", "-o", "{work}/a.bin", "-q"],
}


def prepare(t, name, work):
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    if name == "resume":
        shutil.copytree(t.path("base", "out"), os.path.join(work, "out"))


def run(t, name, work, nth, count=None):
    settings = {"LD_PRELOAD": t.shim(), "SHIM_CALL": "malloc", "SHIM_NTH": str(nth)}
    if count:
        settings["SHIM_COUNT"] = count
    words = [a.format(config=t.path("base", "tiny.yaml"), base=t.path("base"), work=work)
             for a in COMMANDS[name]]
    return t.run(*words, env=settings)


def count_allocations(t, name):
    work, count = t.path("reference"), t.path("count")
    prepare(t, name, work)
    result = run(t, name, work, 0, count)
    if not t.expect_ended(result, {0}):
        return 0
    with open(count) as f:
        return int(f.read())


def shares(counts):
    """How many allocations of each command fail: N_TRIALS in all; what one has too few of, the others make up for."""
    left, found = N_TRIALS, {}
    for i, name in enumerate(sorted(counts, key=counts.get)):
        found[name] = min(counts[name], -(-left // (len(counts) - i)))
        left -= found[name]
    return found


def trials(t):
    chance = random.Random(t.options.seed)
    counts = {name: count_allocations(t, name) for name in COMMANDS}
    found = []
    for name, n in shares(counts).items():
        first = min(N_FIRST, n)
        picks = list(range(1, first + 1))
        picks += sorted(chance.sample(range(first + 1, counts[name] + 1), n - first))
        found += [(name, k) for k in picks]
    return found


def main():
    t = Torture("allocations", __doc__)
    t.write("base/tiny.yaml", CONFIG)
    t.write("base/a.txt", "".join(f"line {i} of some text\n" for i in range(2000)))
    first = t.run("train", t.path("base", "tiny.yaml"), f"output_dir={t.path('base', 'out')}",
                  "max_steps=3", "-q")
    t.expect_ended(first, {0})
    kept = digest(t.path("base", "out", "checkpoint-3", "model.safetensors"))
    jobs = list(enumerate(trials(t)))

    def one(item):
        i, (name, nth) = item
        work = t.path(f"work{i}")
        prepare(t, name, work)
        result = run(t, name, work, nth)
        t.expect_ended(result, {0, 1})
        if leftovers(work):
            t.fault(result, f"left behind: {leftovers(work)}")
        if name == "resume" and digest(os.path.join(work, "out/checkpoint-3/model.safetensors")) != kept:
            t.fault(result, "the last checkpoint is lost")
        shutil.rmtree(work, ignore_errors=True)

    t.map(one, jobs)
    t.finish(f"{len(jobs)} failed allocations")


main()
