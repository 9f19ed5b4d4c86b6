"""The work of tools/mutate.sh, which says what it does and takes.

A test here is one function of a test program: SNUG_TEST lets a program run it alone (tests/support/one_function.c).
Which lines it executes is what gcov counted in the chosen files while it ran; a fault is then shown to the tests that
execute its line, the quickest first, until one of them fails.
"""
import argparse
import concurrent.futures
import glob
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from mutate_faults import apply, chosen, words

HERE = os.getcwd()
ROOT = os.path.join(HERE, "build-mutate")
TREE, BUILD, SEEN, SANITIZED = (os.path.join(ROOT, name) for name in ("tree", "build", "seen", "build-asan"))
SLOWNESS = 1  # of a test, beside what it took when it was looked at
N_AT_ONCE = os.cpu_count() or 1


def output_of(*command, cwd=None):
    return subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout


# ---- the copy and its build -----------------------------------------------------------------------------------------

def make_copy():
    drop_copy()
    os.makedirs(ROOT, exist_ok=True)
    output_of("git", "worktree", "add", "--quiet", "--detach", TREE, "HEAD")


def drop_copy():
    shutil.rmtree(TREE, ignore_errors=True)
    output_of("git", "worktree", "prune")


def configure(files, *settings):
    """Compiles through a script, so that the chosen files can be counted by gcov and later compiled without it."""
    launcher = os.path.join(ROOT, "compile")
    with open(launcher, "w") as f:
        f.write("#!/bin/bash\n[ ! -e %s/counting ] || for word; do case $word in\n" % ROOT)
        f.write("    %s) exec \"$@\" --coverage ;;\n" % " | ".join(os.path.join(TREE, path) for path in files))
        f.write("esac; done\nexec %s \"$@\"\n" % (shutil.which("ccache") or "env"))
    os.chmod(launcher, 0o755)
    output_of("cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
              f"-DCMAKE_C_COMPILER_LAUNCHER={launcher}", "-DCMAKE_EXE_LINKER_FLAGS=--coverage", *settings)


def use_sanitizers(files):
    """A build of its own from here on: what reads past an end or is never freed fails there."""
    global BUILD, SLOWNESS
    BUILD, SLOWNESS = SANITIZED, 10
    configure(files, "-DSNUG_SANITIZE=ON", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O1 -g1")


def build(*targets):
    with open(os.path.join(ROOT, "build.log"), "w") as log:
        return subprocess.run(["cmake", "--build", BUILD, "-j", str(N_AT_ONCE), "--target", *targets], stdout=log,
                              stderr=subprocess.STDOUT).returncode == 0


def build_or_stop(*targets):
    if not build(*targets):
        sys.exit("the tree does not build without a fault: build-mutate/build.log")


def build_anew(files, counting, *targets):
    """Everything, the chosen files compiled with gcov's counters or without."""
    mark = os.path.join(ROOT, "counting")
    if counting:
        open(mark, "w").close()
    elif os.path.exists(mark):
        os.remove(mark)
    for path in files:
        os.utime(os.path.join(TREE, path))
    build_or_stop(*targets)


def sum_of_program():
    with open(os.path.join(BUILD, "snug"), "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


# ---- tests ----------------------------------------------------------------------------------------------------------

def programs(pattern):
    """Sources of the test programs whose names match."""
    found = []
    for path in sorted(glob.glob(os.path.join(TREE, "tests/*/test_*.c"))):
        folder, name = path[:-2].split("/")[-2:]
        if folder != "cuda" and re.search(pattern, f"{folder}/{name}"):
            found.append((f"{folder}/{name}", path))
    return found


def target_of(program):
    return program.replace("/", "_")


def functions_of(path, commands):
    """Names of the functions a test program consists of, as the compiler sees them: tables may be made by macros."""
    words_ = re.findall(r"(?:-I|-D|-isystem )\S+", commands[path])
    words_ = [part for w in words_ for part in w.split()]
    text = output_of("gcc", "-E", "-P", *[w.replace('\\"', '"') for w in words_], path)
    return re.findall(r'\{\s*"(\w+)",\s*\1\s*,', text)


def run(program, function, limit, counts=None):
    """None when it passes, else why not."""
    env = dict(os.environ, OMP_NUM_THREADS="2", SNUG_TEST=function, GCOV_PREFIX=counts or os.path.join(ROOT, "counts"))
    with subprocess.Popen([os.path.join(BUILD, target_of(program))], cwd=TREE, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as process:
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "hangs"
    return None if process.returncode in (0, 77) else said.decode(errors="replace")


def lines_counted(counts):
    """{file: [lines executed, lines not]} of what one run left, which is then removed."""
    found = {}
    data = glob.glob(counts + "/**/*.gcda", recursive=True)
    for path in data:
        os.symlink(path[len(counts):-4] + "gcno", path[:-4] + "gcno")
    if data:
        for text in output_of("gcov", "--stdout", "--json-format", *data, cwd=ROOT).splitlines():
            for entry in json.loads(text)["files"]:
                lines = {line["line_number"]: line["count"] > 0 for line in entry["lines"]}
                found[os.path.relpath(os.path.join(TREE, entry["file"]), TREE)] = [
                    [n for n in lines if lines[n]], [n for n in lines if not lines[n]]]
    shutil.rmtree(counts, ignore_errors=True)
    return found


def look_at(program, function):
    counts = os.path.join(ROOT, "counts", f"{target_of(program)}.{function}")
    start = time.monotonic()
    failure = run(program, function, 300, counts)
    seconds = time.monotonic() - start
    return {"program": program, "function": function, "seconds": seconds, "failure": failure,
            "lines": lines_counted(counts)}


def key_of(path, files):
    """Changes when anything does that a test program's lines depend on."""
    parts = output_of("git", "rev-parse", "HEAD:src", "HEAD:tests/support", "HEAD:tests/golden", cwd=TREE).split()
    folder = os.path.dirname(path)
    parts += [output_of("git", "hash-object", f).strip() for f in sorted({path, *glob.glob(folder + "/[!t]*.c")})]
    return hashlib.sha256(" ".join(parts + files).encode()).hexdigest()[:24]


def look_at_tests(pattern, files, pool):
    """All tests with their times and lines; those of programs that did not change are read from the last time."""
    with open(os.path.join(BUILD, "compile_commands.json")) as f:
        commands = {c["file"]: c["command"] for c in json.load(f)}
    os.makedirs(SEEN, exist_ok=True)
    every, new = [], []
    for program, path in programs(pattern):
        kept = os.path.join(SEEN, f"{target_of(program)}.{key_of(path, files)}.json")
        if os.path.exists(kept):
            with open(kept) as f:
                every += json.load(f)
        else:
            new.append((program, path, kept))
    if new:
        print(f"looking at {len(new)} test programs", flush=True)
        build_anew(files, True, "snug_cli", *[target_of(program) for program, _, _ in new])
    for program, path, kept in new:
        tests = list(pool.map(lambda function: look_at(program, function), functions_of(path, commands)))
        for test in tests:
            if test["failure"]:
                print(f"left out: {program} {test['function']} fails without a fault\n{test['failure']}", flush=True)
        tests = [test for test in tests if not test["failure"]]
        with open(kept, "w") as f:
            json.dump(tests, f)
        every += tests
    return every


# ---- faults ---------------------------------------------------------------------------------------------------------

def executes(test, path, line):
    return line in test["lines"].get(path, ((), ()))[0]


def able_to_notice(path, number, tests):
    """Those that execute the line: a statement over several is counted at its first. Of a line that is no statement,
    such as an entry of a table, those that execute anything in the file."""
    counted = {line for test in tests for lines in test["lines"].get(path, ()) for line in lines}
    line = next((line for line in range(number, max(0, number - 8), -1) if line in counted), None)
    if line:
        return [test for test in tests if executes(test, path, line)]
    return [test for test in tests if test["lines"].get(path, ((), ()))[0]]


def noticed_by(fault, tests, pool):
    """The first test that fails, or None; and how many could."""
    path, number = fault[0], fault[1]
    able = able_to_notice(path, number, tests)
    able.sort(key=lambda t: t["seconds"] / (1 + 3 * t.get("noticed", {}).get(path, 0)))  # those that often do, sooner
    begin, n = 0, 4
    while begin < len(able):  # linked a few at a time: most programs are never needed
        some = able[begin:begin + n]
        if not build(*sorted({target_of(t["program"]) for t in some})):
            return "the linker", len(able)
        runs = {pool.submit(run, t["program"], t["function"], 10 + 5 * SLOWNESS * t["seconds"]): t for t in some}
        for done in concurrent.futures.as_completed(runs):
            if done.result():
                for other in runs:
                    other.cancel()
                concurrent.futures.wait(runs)
                counts = runs[done].setdefault("noticed", {})
                counts[path] = counts.get(path, 0) + 1
                return "{program} {function}".format(**runs[done]), len(able)
        begin, n = begin + n, n * 2
    return None, len(able)


def is_wanted(number, only):
    ranges = [part.split("-") for part in only.split()]
    return not ranges or any(int(r[0]) <= number <= int(r[-1]) for r in ranges)


def try_faults(options, tests, pool):
    whole = sum_of_program()
    counts = {"noticed": 0, "missed": 0, "void": 0, "same": 0}
    for number, fault in enumerate(chosen(options.seed, options.count, options.files)):
        if not is_wanted(number, options.only):
            continue
        output_of("git", "checkout", "--quiet", "--", ".", cwd=TREE)
        apply(fault)
        if not build("snug_cli"):
            result = "void"
        elif sum_of_program() == whole:
            result = "same"
        else:
            by, n_able = noticed_by(fault, tests, pool)
            result = "noticed" if by else "missed"
            print(f"{result:8} {number}\t{words(fault)}\t" + (f"by {by}" if by else f"{n_able} tests execute it"), flush=True)
        if result == "missed":
            diff = output_of("git", "diff", "-U0", cwd=TREE).splitlines()
            print("\n".join(line for line in diff if re.match(r"[-+] ", line)), flush=True)
        counts[result] += 1
    print("{noticed} of {tried} faults noticed, {void} did not compile, {same} left the program the same".format(
        tried=counts["noticed"] + counts["missed"], **counts))
    return counts["missed"] == 0


def main():
    parser = argparse.ArgumentParser(prog="tools/mutate.sh")
    parser.add_argument("-n", dest="count", type=int, default=20)
    parser.add_argument("-s", dest="seed", type=int, default=1)
    parser.add_argument("-t", dest="tests", default=".")
    parser.add_argument("-o", dest="only", default="")
    parser.add_argument("-a", dest="sanitize", action="store_true")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    make_copy()
    try:
        os.chdir(TREE)
        configure(options.files)
        with concurrent.futures.ThreadPoolExecutor(N_AT_ONCE) as pool:
            tests = look_at_tests(options.tests, options.files, pool)
            if options.sanitize:
                use_sanitizers(options.files)
            build_anew(options.files, False, "snug_cli")
            good = try_faults(options, tests, pool)
    finally:
        os.chdir(HERE)
        drop_copy()
    return 0 if good else 1


sys.exit(main())
