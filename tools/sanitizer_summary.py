#!/usr/bin/env python3
"""What compute-sanitizer said, by kernel: ours apart from the libraries'.

    tools/sanitizer_summary.py LOG ...        a log per tool and program, as tools/gpu-run.sh sanitize writes them

A kernel is ours when a __global__ function of src/device/cuda has its name. Every finding is listed with how often
it occurred. The exit status is 1 when one is in a kernel of ours, or in a library's kernel without an entry in
KNOWN: a finding there is only passed over for a reason that is written down.
"""
import collections
import pathlib
import re
import sys

SOURCES = pathlib.Path(__file__).resolve().parent.parent / "src" / "device" / "cuda"
# (part of the tool's message, pattern of the kernel's name): why it is harmless.
KNOWN = {
    ("Race reported", r"^cudnn_generated_\w*sdpa_sm90"):
        "cuDNN's warps hand shared memory over by TMA and barriers in memory, which racecheck follows in part only; "
        "the attention tests compare its bits from run to run",
}


def our_kernels():
    text = "\n".join(p.read_text() for p in SOURCES.rglob("*.cu*"))
    text = re.sub(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)", "", text)
    return set(re.findall(r"__global__\s+(?:static\s+)?void\s+(\w+)\s*\(", text))


def kernel_name(text):
    """`void space::name<8, float>(float*)+0x40 in file.cu:12` -> name"""
    text = re.sub(r"\+0x[0-9a-f]+.*", "", text).removeprefix("void ")
    while (shorter := re.sub(r"<[^<>]*>|\([^()]*\)", "", text)) != text:
        text = shorter
    return re.split(r"::", text.strip())[-1].strip() or "?"


def findings(path):
    """(message, kernel) -> count, and the tool's own last line."""
    found, head, summary = collections.Counter(), None, "no summary: it did not come to its end"
    for line in path.read_text(errors="replace").splitlines():
        if not line.startswith("========="):
            continue
        text = line[9:]
        if "SUMMARY" in text:
            summary = text.strip()
        elif race := re.match(r" (?:Error|Warning): (.*?) (?:access )?at (.*)", text):
            found[race[1], kernel_name(race[2])] += 1
            head = None
        elif re.match(r" \S", text):
            head = re.sub(r"0x[0-9a-f]+|\d+", "N", text.strip())
        elif head and (place := re.match(r"\s+at (.*)", text)):
            found[head, kernel_name(place[1])] += 1
            head = None
        elif head and "Host Frame" in text:  # an API call's error: no kernel
            found[head, "(host)"] += 1
            head = None
    return found, summary


def reason(message, kernel):
    return next((why for (part, name), why in KNOWN.items() if part in message and re.search(name, kernel)), None)


def report(path, ours):
    """The lines to show of one log, and whether something in it is to be looked at."""
    text = path.read_text(errors="replace")
    found, summary = findings(path)
    failed = len(re.findall(r"^\[  FAILED  \] \w+$", text, re.M))
    took = re.search(r"^took (\d+ s: .*)$", text, re.M)
    lines = [f"{path.stem}: {summary}{f'; {failed} tests failed' if failed else ''}{f' ({took[1][:200]})' if took else ''}"]
    bad = failed > 0 or "SUMMARY" not in summary or not (found or re.search(r": 0 (errors|hazards)", summary))
    for (message, kernel), n in found.most_common(30):
        why = None if kernel in ours else reason(message, kernel)
        owner = "OURS" if kernel in ours else "library"
        bad |= why is None
        lines.append(f"  {n:6} {owner:8} {kernel[:90]}: {message[:120]}{f' (known: {why})' if why else ''}")
    return lines, bad


def main(paths):
    """Logs TOOL-PROGRAM.NUMBER.log of one tool and program make one line where they are clean."""
    ours, clean, bad = our_kernels(), collections.Counter(), False
    for path in map(pathlib.Path, paths):
        lines, wrong = report(path, ours)
        bad |= wrong
        if wrong or len(lines) > 1:
            print("\n".join(lines))
        else:
            clean[path.stem.partition(".")[0]] += 1
    for group, n in clean.items():
        print(f"{group}: clean{f' ({n} runs)' if n > 1 else ''}")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) if len(sys.argv) > 1 else __doc__)
