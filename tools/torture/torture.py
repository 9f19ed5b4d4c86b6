"""What the torture scripts share: a tiny model, runs of the program, and the tally of faults."""
import argparse
import collections
import concurrent.futures
import hashlib
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
TIME_LIMIT_S = 25  # on the processor: other programs may have it too
WAITS = 4  # times as long by the clock
MOST_SHOWN = 200  # faults, one by one

CONFIG = """\
model:
  model_type: llama
  vocab_size: 257
  hidden_size: 32
  intermediate_size: 64
  num_hidden_layers: 2
  num_attention_heads: 2
  num_key_value_heads: 1
  max_position_embeddings: 96
tokenizer: bytes
datasets:
  - type: synthetic
    n_tokens: 9000
max_seq_length: 32
per_device_train_batch_size: 2
learning_rate: 1e-3
lr_scheduler_type: constant
num_threads: 1
seed: 7
logging_steps: 1
save_steps: 3
save_total_limit: 2
report_to: none
device: cpu
device_memory: 256MiB
host_memory: 256MiB
"""
# Weights, states and saved activations are in files of a folder while it trains.
DISK = ["offload_folder={disk}", "offload_optimizer=disk", "offload_param=disk",
        "activation_offloading=disk"]


class Result:
    def __init__(self, command, environment, code, out, err):
        self.command, self.environment = command, environment
        self.code, self.out, self.err = code, out, err

    def errors(self):
        """Lines of errors; what is indented below one belongs to it."""
        return [line for line in self.err.splitlines()
                if line.startswith("error: ")]

    def shown(self):
        """The command line that shows it again."""
        settings = [f"{k}={shlex.quote(v)}" for k, v in self.environment.items()]
        return " ".join(settings + [shlex.quote(word) for word in self.command])


class Torture:
    """A scratch folder, the binary, and what went wrong."""

    def __init__(self, name, description, more=None):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("build", help="build folder with the program")
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--keep", action="store_true", help="keep the scratch folder")
        parser.add_argument("--only", type=int, default=0, help="at most so many trials, spread over all")
        if more:
            more(parser)
        self.options = parser.parse_args()
        self.name = name
        self.folder = tempfile.mkdtemp(prefix=f"snug-torture-{name}-")
        self.binary = self.program("snug")
        self.n_runs, self.faults = 0, []
        self.lock = threading.Lock()

    def program(self, name):
        """A copy of a program of the build folder, which builds do not disturb."""
        if not os.path.exists(self.path(name)):
            shutil.copy2(self.built(name), self.path(name))
        return self.path(name)

    def built(self, name):
        return os.path.abspath(os.path.join(self.options.build, name))

    def is_sanitized(self):
        """A sanitizer has memory of its own."""
        with open(self.binary, "rb") as f:
            return b"__asan_init" in f.read()

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as f:
            f.write(text)
        return self.path(name)

    def shim(self):
        """The library that makes calls fail."""
        library = self.path("shim.so")
        if not os.path.exists(library):
            subprocess.run([os.environ.get("CC", "cc"), "-O1", "-w", "-shared", "-fPIC", "-o", library,
                            os.path.join(HERE, "shim.c"), "-ldl"], check=True)
        return library

    def run(self, *arguments, env=None, limit_s=TIME_LIMIT_S, program="snug"):
        """Runs snug; a run that does not end is a fault of its own (code None)."""
        extra = dict(env or {})
        full = dict(os.environ, OMP_NUM_THREADS="1",
                    XDG_CACHE_HOME=self.path("cache"), **extra)
        command = [self.built(program)] + [str(a) for a in arguments]

        def limit():
            resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5))
        try:
            p = subprocess.run([self.program(program)] + command[1:], env=full, stdin=subprocess.DEVNULL, capture_output=True,
                               timeout=WAITS * limit_s, errors="replace", preexec_fn=limit)
            code, out, err = None if p.returncode == -signal.SIGXCPU else p.returncode, p.stdout, p.stderr
        except subprocess.TimeoutExpired as e:
            code, out, err = None, "", (e.stderr or b"").decode(errors="replace")
        with self.lock:
            self.n_runs += 1
        return Result(command, extra, code, out, err)

    def fault(self, result, why):
        with self.lock:
            self.faults.append(f"{why}\n    {result.shown()}\n    {result.err.strip()[-400:]}")

    def expect_ended(self, result, codes):
        """Ended by itself with one of these codes, and one line that says why unless all is well."""
        if result.code is None:
            self.fault(result, "did not end in time")
        elif result.code < 0:
            self.fault(result, f"ended by signal {-result.code}")
        elif result.code not in codes:
            self.fault(result, f"exit code {result.code}")
        elif result.code != 0 and len(result.errors()) != 1:
            self.fault(result, f"exit code {result.code} with {len(result.errors())} error lines")
        else:
            return True
        return False

    def map(self, work, items):
        """work(item) for all, two at a time."""
        if 0 < self.options.only < len(items):
            items = items[::-(-len(items) // self.options.only)]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
            list(pool.map(work, items))

    def finish(self, what):
        kinds = collections.Counter(fault.splitlines()[0] for fault in self.faults)
        for fault in self.faults[:MOST_SHOWN]:
            print(f"FAULT {fault}")
        for kind, n in kinds.items():
            print(f"{n} x {kind}")
        print(f"{self.name}: {what}, {self.n_runs} runs, {len(self.faults)} faults")
        if self.options.keep:
            print(f"kept: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
        sys.exit(1 if self.faults else 0)


def digest(*paths):
    """Of files' contents; None when one is missing."""
    h = hashlib.sha256()
    for path in paths:
        if not os.path.exists(path):
            return None
        with open(path, "rb") as f:
            h.update(f.read())
    return h.hexdigest()


def leftovers(folder):
    """Names of unfinished things anywhere under a folder."""
    found = []
    for root, folders, files in os.walk(folder):
        found += [os.path.join(root, n) for n in folders + files
                  if n.startswith((".tmp-", ".old-")) or ".tmp-" in n]
    return found
