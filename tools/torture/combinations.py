#!/usr/bin/env python3
"""Trains small networks with random combinations of features, without a budget and inside random ones: losses and
weights are the same bits, the predicted peak of every tier is the measured one, budgets hold, what the advice of a
refusal says fits, a run that is cut off and goes on under another budget ends where it would have, nothing stays in
offload_folder, and every other command takes what was trained. The n-th config is a function of the seed;
`--case N` tries that one alone, `--reduce` then makes it smaller while it still shows the same fault."""
import copy
import glob
import json
import os
import random
import re
import shutil
import subprocess
import threading
import time

import draw
from torture import Torture, digest

N_CASES = 150
N_STEPS = 6
N_LIVE_STEPS = 40
LIMIT_S = 60
CONTEXT_VARIES = 512 << 10  # what a process holds beside its arena counts where memory is apart
BUGS = {"ERR_INTERNAL", "ERR_PROGRAM", "ERR_SHAPE", "ERR_MEMORY", "ERR_DEVICE_MEMORY", "ERR_IO"}
CARDS = ["rtx4090", "h100", "t4", "rtx3060", "v100-16", "b200"] * 5 + ["all"]
AWAY = ["activation_offloading", "offload_optimizer", "offload_param"]
DTYPES = ["f32", "bf16", "f16", "q8_0", "q4_0", "q4_k_m", "tq2_0"]
ADVICE = re.compile(r"^ {2,}(\S+=.*?) {3}\((.*)\)$")
NEEDS = re.compile(r"(device|host|disk) memory needs .*?\((\d+) bytes\)")


class Fault(Exception):
    def __init__(self, kind, result):
        super().__init__(kind)
        self.kind, self.result = kind, result


# ---- a case: a config, and what is done with it ----------------------------------------------------------------

def case(seed, number, files):
    r = random.Random(seed * 1000003 + number)
    settings = draw.config(r, files)
    return {"settings": settings, "number": number, "apart": r.random() < 0.35,
            # of what lies between the least and all there is of each memory; None: no budget
            "device": r.choice([0, 0, 0.02, 0.1, 0.3, 0.6, 0.9, None]), "host": r.choice([None, None, 0, 0.2, 0.5]),
            "disk": r.random() < 0.5, "disk_share": r.choice([None, None, 0.5, 1]),
            "away": {k: "disk" for k in AWAY if r.random() < 0.25},
            "below": r.choice([None, None, None, 0.3, 0.7, 0.95]),  # the least: what is said then
            "again": r.choice([0, 0.2, 0.5, 1]), "kill_s": r.choice([None, None, r.uniform(0.05, 0.6)]),
            "live": [r.random() for _ in range(3)] if r.random() < 0.12 else [],
            "others": r.random() < 0.25, "card": r.choice(CARDS), "dtype": r.choice(DTYPES)}


class Trial:
    """One case in a folder of its own."""

    def __init__(self, t, c, tally):
        self.t, self.c, self.tally = t, c, tally
        self.folder = t.path(f"case{c['number']}-{threading.get_ident()}-{time.monotonic_ns()}")
        os.makedirs(self.folder)
        self.disk = os.path.join(self.folder, "disk")
        os.makedirs(self.disk)
        self.config = os.path.join(self.folder, "case.yaml")
        with open(self.config, "w") as f:
            f.writelines(f"{k}: {json.dumps(v)}\n" for k, v in c["settings"].items())
        self.program = "snug-apart" if c["apart"] else "snug"

    def snug(self, command, *words, codes=(0,)):
        """The JSON that it prints; a fault where it ends in another way than it may."""
        result = self.t.run(command, self.config, *words, "--json", "-q", limit_s=LIMIT_S,
                            program=self.program)
        try:
            result.json = json.loads(result.out)
        except ValueError:
            result.json = {}
        error = result.json.get("error", {})
        what = f"{command}: "
        if result.code is None:
            raise Fault(what + "does not end", result)
        if "Sanitizer" in result.err or "runtime error" in result.err:
            raise Fault(what + "sanitizer", result)
        if result.code < 0:
            raise Fault(what + f"signal {-result.code}", result)
        if error.get("status") in BUGS:
            raise Fault(what + error["status"], result)
        if result.code == 1 and error.get("status") == "ERR_NUMERIC":
            return result
        if result.code not in codes:
            raise Fault(what + f"exit code {result.code} {error.get('status')}", result)
        if result.code and not error.get("message"):
            raise Fault(what + "no message", result)
        if not result.json:
            raise Fault(what + "no JSON", result)
        return result

    # -- training ------------------------------------------------------------------------------------------------

    def train(self, name, *words, codes=(0, 3)):
        result = self.snug("train", f"max_steps={N_STEPS}", f"output_dir={self.folder}/{name}", *words, codes=codes)
        if os.listdir(self.disk):
            raise Fault("train: left in offload_folder", result)
        if result.code == 0:
            self.expect_measured(result)
        return result

    def expect_measured(self, result):
        predicted, measured = result.json["predicted"], result.json["measured"]
        # What is planned for the longest record, or for the next micro-batch, does not have to come.
        may_be_less = not result.json["steps"] or {"group_by_length", "dynamic_batch"} & set(self.c["settings"])
        for tier in ("arena_bytes", "host_bytes", "disk_bytes"):
            if measured[tier] > predicted[tier] or (measured[tier] < predicted[tier] and not may_be_less):
                raise Fault(f"train: {tier} predicted otherwise", result)
        budget = result.json["budget"]
        for tier, needs in (("device_bytes", budget["device_needs"]), ("host_bytes", budget["host_needs"])):
            if needs > budget[tier]:
                raise Fault(f"train: {tier} over its budget", result)
        if predicted["disk_bytes"] > budget["disk_bytes"]:
            raise Fault("train: disk_bytes over its budget", result)
        held = measured["resident_bytes"] - (0 if self.c["apart"] else predicted["arena_bytes"])
        is_bounded = any(w.startswith("host_memory=") for w in result.command) and not self.t.is_sanitized()
        if is_bounded and held > budget["host_bytes"]:
            raise Fault("train: the process holds more than its budget", result)

    def outcome(self, name):
        """Weights and states of the last checkpoint, evaluations."""
        folder = os.path.join(self.folder, name)
        last = os.path.join(folder, f"checkpoint-{N_STEPS}")
        files = sorted(glob.glob(os.path.join(last, "*.safetensors")))
        evaluations = {}
        with open(os.path.join(folder, "metrics.jsonl")) as f:
            for line in map(json.loads, f):
                if line.get("kind") == "eval":
                    evaluations[line["step"]] = line["loss"]
        return digest(*files), [os.path.basename(n) for n in files], evaluations

    def expect_same(self, result, name, n_last):
        """As the reference; of a run that went on the last losses."""
        if "dynamic_batch" in self.c["settings"]:
            return  # sums are added up in another order
        if result.json["losses"] != self.reference.json["losses"][N_STEPS - n_last:]:
            raise Fault(f"train: losses differ ({name})", result)
        weights, files, evaluations = self.outcome(name)
        wanted = self.outcome("reference")
        if evaluations != wanted[2]:
            raise Fault(f"train: evaluations differ ({name})", result)
        if files != wanted[1] or weights != wanted[0]:
            raise Fault(f"train: weights differ ({name})", result)

    # -- budgets -------------------------------------------------------------------------------------------------

    def budget(self, share):
        """A budget of device memory between the least there is and all that is asked for."""
        most = self.reference.json["budget"]["device_needs"]
        return f"device_memory={int(self.least + share * max(most - self.least, 0))}B"

    def within(self):
        """Words for the budgets of the case. The host's and the disk's go by what a plan without them takes."""
        c, words = self.c, []
        if c["device"] is not None:
            words.append(self.budget(c["device"]))
        if c["disk"]:
            words += [f"offload_folder={self.disk}"] + [f"{k}={v}" for k, v in c["away"].items()]
        if c["host"] is None and (not c["disk"] or c["disk_share"] is None):
            return words
        planned = self.snug("plan", *words, codes=(0, 3)).json
        needs, arena = planned["budget"]["host_needs"], planned["predicted"]["host_bytes"]
        if c["host"] is not None:
            words.append(f"host_memory={int(needs - (1 - c['host']) * arena)}B")
        if c["disk"] and c["disk_share"] is not None:
            words.append(f"disk_memory={int(c['disk_share'] * planned['predicted']['disk_bytes']) or 4096}B")
        return words

    def find_least(self):
        refused = self.snug("plan", "device_memory=1KiB", codes=(0, 3))
        message = refused.json["error"]["message"]
        found = NEEDS.search(message)
        if not found or found.group(1) != "device":
            raise Fault("plan: refused without saying what is needed", refused)
        self.least = int(found.group(2)) + (CONTEXT_VARIES if self.c["apart"] else 0)
        if self.c["below"] is None:
            return
        self.check_advice(refused, ["device_memory=1KiB"])
        below = int(self.c["below"] * self.least)
        refused = self.snug("plan", f"device_memory={below}B", codes=(0, 3))
        if refused.code == 3:
            self.check_advice(refused, [f"device_memory={below}B"])

    def check_advice(self, refused, words):
        for line in refused.json["error"]["message"].splitlines():
            found = ADVICE.match(line)
            # A budget of the host has the process in it, which is never twice the same.
            if not found or (any(w.startswith("host_memory") for w in words) and "host_memory" not in line):
                continue
            self.count("advice tried")
            pasted = self.snug("plan", *words, *found.group(1).split(), codes=(0, 2, 3))
            if pasted.code != 0:
                pasted.err += f"\nadvice was: {line}\n"
                raise Fault(f"plan: advice does not fit ({pasted.code})", pasted)

    def check_budgets(self):
        self.find_least()
        words = self.within()
        result = self.train("within", *words)
        self.words = words
        if result.code == 0:
            self.count("inside a budget")
            self.expect_same(result, "within", N_STEPS)
            return
        self.count("refused for a budget")
        if words == [self.budget(0)]:
            raise Fault("train: the least that was said to fit does not", result)
        self.check_advice(result, words)

    # -- everything ----------------------------------------------------------------------------------------------

    def count(self, what):
        with self.t.lock:
            self.tally[what] = self.tally.get(what, 0) + 1

    def run(self):
        self.reference = self.train("reference", codes=(0, 2))
        if self.reference.code:
            self.count("refused: " + self.reference.json["error"]["status"])
            self.refusal = self.reference.json["error"]["message"]
            return
        self.count("trained")
        self.check_budgets()
        self.cut_off()
        if self.c["live"]:
            self.change_budgets()
        if self.c["others"]:
            self.other_commands()

    def cut_off(self):
        """Goes on from the middle under another budget; the middle is a checkpoint, or wherever it was killed."""
        first = self.words + [f"max_steps={N_STEPS}", f"output_dir={self.folder}/cut"]
        within = os.path.join(self.folder, "within")
        if self.c["kill_s"]:
            self.kill(first)
            go_on = "resume_from_checkpoint=auto"
        elif os.path.isdir(os.path.join(within, "checkpoint-2")):
            shutil.copytree(within, os.path.join(self.folder, "cut"))
            for step in range(3, N_STEPS + 1):
                shutil.rmtree(os.path.join(self.folder, "cut", f"checkpoint-{step}"), ignore_errors=True)
            go_on = "resume_from_checkpoint=last"
        else:
            return
        result = self.train("cut", go_on, self.budget(self.c["again"]))
        if result.code == 0:
            self.count("cut off and gone on")
            self.expect_same(result, "cut", len(result.json["losses"]))

    def start(self, words, stdout=subprocess.DEVNULL):
        environment = dict(os.environ, OMP_NUM_THREADS="1", XDG_CACHE_HOME=self.t.path("cache"))
        return subprocess.Popen([self.t.program(self.program), "train", self.config, "-q", *words], env=environment,
                                stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.DEVNULL)

    def change_budgets(self):
        """Of a run at work; its losses stay what they are."""
        words = [f"max_steps={N_LIVE_STEPS}", "save_strategy=no", "eval_strategy=no", "load_best_model_at_end=false"]
        plain = self.snug("train", *words, f"output_dir={self.folder}/plain")
        out, log = os.path.join(self.folder, "live"), os.path.join(self.folder, "live.json")
        with open(log, "w") as f:
            p = self.start([*words, "--json", f"output_dir={out}", f"offload_folder={self.disk}"], stdout=f)
        while p.poll() is None and not os.path.exists(os.path.join(out, ".snug-live")):
            time.sleep(0.01)
        for share in self.c["live"]:
            if p.poll() is None:
                asked = self.t.run("budget", out, self.budget(share), "-q", limit_s=LIMIT_S, program=self.program)
                self.count(f"budget of a run changed, exit code {asked.code}")
                if asked.code not in (0, 2, 3):
                    raise Fault(f"budget: exit code {asked.code}", asked)
        p.wait()
        with open(log) as f:
            text = f.read()
        if p.returncode or os.listdir(self.disk):
            plain.err = text
            raise Fault(f"train: changed budgets end with {p.returncode}", plain)
        if "dynamic_batch" not in self.c["settings"] and json.loads(text)["losses"] != plain.json["losses"]:
            raise Fault("train: losses differ where budgets change", plain)

    def kill(self, words):
        p = self.start(words)
        time.sleep(self.c["kill_s"])
        p.kill()
        p.wait()
        if os.listdir(self.disk):
            raise Fault("train: left in offload_folder when killed", self.reference)

    def other_commands(self):
        f, out = self.folder, f"output_dir={self.folder}/reference"
        text = "tokenizer" in self.c["settings"]
        self.snug("plan", *self.words, "--html", f"{f}/a.html", "--svg", f"{f}/a.svg", "--snapshot", f"{f}/a.pickle",
                  codes=(0, 3))
        self.snug("plan", "--gpu", self.c["card"], codes=(0, 2, 3))
        self.snug("plan", "--sweep", f"device_memory={self.least}B..{2 * self.least}B/3", codes=(0, 2, 3))
        self.snug("plan", "--what-if", codes=(0, 2, 3))
        self.snug("eval", out, codes=(0, 2))
        self.snug("export", out, "-o", f"{f}/exported")
        if "adapter" in self.c["settings"]:
            self.snug("export", out, "--merge", "-o", f"{f}/merged", codes=(0, 2))
        if text:
            self.snug("export", out, "-o", f"{f}/model.gguf", "--dtype", self.c["dtype"], codes=(0, 2))
            self.snug("generate", out, "-n", "4", "--prompt", "ab")
            self.snug("chat", out, "-n", "4", "--prompt", "ab", "chat_template=chatml", codes=(0, 2))
            self.snug("data", codes=(0, 2))

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


# ---- faults ----------------------------------------------------------------------------------------------------

def attempt(t, c, tally):
    """The fault it shows, or None; what was refused is noted."""
    trial = Trial(t, c, tally)
    try:
        trial.run()
    except Fault as fault:
        return fault
    finally:
        c["refusal"] = getattr(trial, "refusal", None)
        trial.close()
    return None


def reduce(t, c, kind):
    """The case without every key that the fault does not need."""
    for key in [k for k in c["settings"] if k not in ("model", "datasets", "device", "tokenizer")]:
        less = copy.deepcopy(c)
        del less["settings"][key]
        fault = attempt(t, less, {})
        if fault and fault.kind == kind:
            c = less
            print(f"without {key}: the same", flush=True)
    return c


def write_files(t):
    text = "".join(f"line {i} of some text\n" for i in range(300))
    chats = [{"messages": [{"role": "user", "content": f"say {i}"}, {"role": "assistant", "content": "word " * (1 + i % 5)}]}
             for i in range(24)]
    pairs = [{"prompt": f"say {i}", "chosen": "yes " * (1 + i % 3), "rejected": "no " * (1 + i % 4)} for i in range(24)]
    return {"text": t.write("a.txt", text), "chats": t.write("chats.jsonl", "".join(json.dumps(c) + "\n" for c in chats)),
            "pairs": t.write("pairs.jsonl", "".join(json.dumps(p) + "\n" for p in pairs))}


def main():
    t = Torture("combinations", __doc__, lambda p: (
        p.add_argument("--cases", type=int, default=N_CASES), p.add_argument("--first", type=int, default=0),
        p.add_argument("--case", type=int), p.add_argument("--saved", help="a case as JSON, in place of drawing one"),
        p.add_argument("--reduce", action="store_true", help="make cases with a fault smaller"),
        p.add_argument("--refusals", action="store_true", help="print why configs were refused")))
    t.program("snug-apart")
    files, tally = write_files(t), {}
    first, n = t.options.first, t.options.cases
    numbers = [t.options.case or 0] if t.options.case is not None or t.options.saved else list(range(first, first + n))

    def one(number):
        c = case(t.options.seed, number, files)
        if t.options.saved:
            with open(t.options.saved) as f:
                c = json.loads(f.read())
            for d in c["settings"]["datasets"]:
                d.update({k: t.path(os.path.basename(v)) for k, v in d.items() if k == "path"})
        fault = attempt(t, c, tally)
        if fault:
            t.fault(fault.result, fault.kind)
            print(f"case {number}: {fault.kind}\n{json.dumps(c)}\n    {fault.result.shown()}\n"
                  f"    {fault.result.err[-600:]}", flush=True)
        if t.options.refusals and c["refusal"]:
            print(f"case {number} refused: {c['refusal']}", flush=True)
        if fault and t.options.reduce:
            print(json.dumps(reduce(t, c, fault.kind), indent=1))

    t.map(one, numbers)
    for what, times in sorted(tally.items()):
        print(f"{times} {what}")
    t.finish(f"{len(numbers)} configs")


main()
