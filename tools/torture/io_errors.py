#!/usr/bin/env python3
"""Makes the n-th call of open, write, fsync, ... fail, for every command that reads or writes files.
A run then succeeds or says in one line what is wrong; outputs are whole or absent; the last
checkpoint stays, and going on from it gives the weights of a run without errors."""
import os
import shutil
import xml.etree.ElementTree

from torture import CONFIG, DISK, Torture, digest, leftovers

ERRORS = {
    "open": ["EIO", "EACCES"], "write": ["ENOSPC", "short", "EINTR"], "read": ["EIO", "short", "EINTR"],
    "fsync": ["EIO", "ENOSPC"], "rename": ["EIO", "ENOSPC"], "mkdir": ["ENOSPC"], "unlink": ["EIO"],
    "mmap": ["EIO"], "close": ["EIO"],
}
STICKY = {("write", "ENOSPC")}
HARMLESS = {"short", "EINTR"}  # the call is repeated: the run must succeed
N_PER_COMBINATION = 12
N_STEPS = 6


class Command:
    """Arguments with {work} for the run's own folder, and what it makes."""

    def __init__(self, name, arguments, outputs):
        self.name, self.arguments, self.outputs = name, arguments, outputs

    def words(self, t, work):
        return [a.format(base=t.path("base"), work=work, config=t.path("base", "tiny.yaml"))
                for a in self.arguments]


TRAIN = ["train", "{config}", "output_dir={work}/out", f"max_steps={N_STEPS}",
         "resume_from_checkpoint=auto", "-q"]
COMMANDS = [
    Command("train", TRAIN, ["out/checkpoint-6/model.safetensors"]),
    Command("resume", TRAIN, ["out/checkpoint-6/model.safetensors"]),
    Command("from disk", TRAIN + [a.format(disk="{work}/disk") for a in DISK],
            ["out/checkpoint-6/model.safetensors"]),
    Command("export", ["export", "{config}", "output_dir={base}/out", "-o", "{work}/model", "-q"],
            ["model/model.safetensors", "model/config.json"]),
    Command("tokenize", ["tokenize", "{config}", "{base}/a.txt", "-o", "{work}/a.bin", "-q"], ["a.bin"]),
    Command("eval", ["eval", "{config}", "output_dir={base}/out", "-c", "last", "eval_max_batches=2",
                     "-q"], []),
    Command("plan", ["plan", "{config}", "max_steps=2", "--svg", "{work}/a.svg", "-q"], ["a.svg"]),
]


def prepare(t, command, work):
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    if command.name == "resume":
        shutil.copytree(t.path("base", "out"), os.path.join(work, "out"))


def run(t, command, work, call, nth, error=None, count=None):
    settings = {"LD_PRELOAD": t.shim(), "SHIM_CALL": call, "SHIM_NTH": str(nth), "SHIM_UNDER": t.folder,
                "SHIM_PLAIN": "1"}
    if error:
        settings["SHIM_ERROR"] = error
    if (call, error) in STICKY:
        settings["SHIM_STICKY"] = "1"
    if count:
        settings["SHIM_COUNT"] = count
    return t.run(*command.words(t, work), env=settings)


def drawing(path):
    """A picture shows measured times, which differ from run to run: it is whole, or not."""
    try:
        return xml.etree.ElementTree.parse(path).getroot().tag
    except FileNotFoundError:
        return None
    except xml.etree.ElementTree.ParseError:
        return "torn"


def outputs(command, work):
    paths = [os.path.join(work, o) for o in command.outputs]
    return [drawing(p) if p.endswith(".svg") else digest(p) for p in paths]


def check_training(t, command, work, failed, wanted):
    """Going on without errors ends where a run without errors ends."""
    again = t.run(*COMMANDS[0].words(t, work))
    if t.expect_ended(again, {0}):
        if outputs(command, work) != wanted:
            t.fault(failed, "after going on the weights are not those of an undisturbed run")
        rest = [n for n in leftovers(work) if "checkpoint" in os.path.basename(n)]
        if rest:
            t.fault(failed, f"left behind after going on: {rest}")


def check(t, command, work, call, error, result, wanted):
    ended = t.expect_ended(result, {0} if error in HARMLESS else {0, 1, 2, 5})
    if ended and result.code == 0 and outputs(command, work) != wanted:
        t.fault(result, "succeeded, but the output is not what it should be")
    if command.name in ("train", "resume", "from disk"):
        kept = os.path.isdir(os.path.join(work, "out", "checkpoint-3"))
        if command.name == "resume" and not kept and not os.path.isdir(
                os.path.join(work, "out", "checkpoint-6")):
            t.fault(result, "the last checkpoint is lost")
        disk = os.path.join(work, "disk")
        if call != "unlink" and os.path.isdir(disk) and os.listdir(disk):
            t.fault(result, f"left in offload_folder: {os.listdir(disk)}")
        check_training(t, command, work, result, wanted)
        return
    if result.code != 0 and any(outputs(command, work)):
        t.fault(result, "failed, but left an output")
    if call != "unlink" and leftovers(work):
        t.fault(result, f"left behind: {leftovers(work)}")


def trials(t):
    """(command, call, error, n, reference outputs) for every combination that has calls."""
    found = []
    for command in COMMANDS:
        for call, errors in ERRORS.items():
            work, count = t.path("reference"), t.path("count")
            prepare(t, command, work)
            result = run(t, command, work, call, 0, count=count)
            if not t.expect_ended(result, {0}):
                continue
            wanted = outputs(command, work)
            with open(count) as f:
                n = int(f.read())
            picks = sorted({1 + i * max(n - 1, 0) // max(N_PER_COMBINATION - 1, 1)
                            for i in range(N_PER_COMBINATION)} & set(range(1, n + 1)))
            found += [(command, call, e, k, wanted) for e in errors for k in picks]
    return found


def main():
    t = Torture("io_errors", __doc__)
    t.write("base/tiny.yaml", CONFIG)
    t.write("base/a.txt", "".join(f"line {i} of some text\n" for i in range(20000)))
    first = t.run("train", t.path("base", "tiny.yaml"), f"output_dir={t.path('base', 'out')}",
                  "max_steps=3", "-q")
    t.expect_ended(first, {0})
    jobs = list(enumerate(trials(t)))

    def one(item):
        i, (command, call, error, n, wanted) = item
        work = t.path(f"work{i}")
        prepare(t, command, work)
        result = run(t, command, work, call, n, error)
        check(t, command, work, call, error, result, wanted)
        shutil.rmtree(work, ignore_errors=True)

    t.map(one, jobs)
    t.finish(f"{len(jobs)} errors")


main()
