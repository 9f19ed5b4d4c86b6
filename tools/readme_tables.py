"""Fills the marked parts of README.md: results from bench/results/*.json, the demo from a log of `make demo`.

    python3 tools/readme_tables.py [DEMO_LOG]
"""
import glob
import json
import re
import sys


def gib(n):
    return f"{n / 2**30:.2f} GiB"


def results():
    rows = ["| case | Snug | PyTorch | speed | memory |", "|---|---|---|---|---|"]
    for path in sorted(glob.glob("bench/results/*.json")):
        r = json.load(open(path))
        if "pytorch" not in r:
            continue
        mid = lambda xs: sorted(xs)[len(xs) // 2]
        rows.append(f"| {r['what']}<br>{r['hardware']}, {r['date']} | {mid(r['snug']['tokens_per_s']):,.0f} tok/s, "
                    f"{gib(r['snug']['resident_bytes'])} | {mid(r['pytorch']['tokens_per_s']):,.0f} tok/s, "
                    f"{gib(r['pytorch']['resident_bytes'])} | **{r['ratio']['tokens_per_s']:.2f}x** | "
                    f"**{r['ratio']['resident_bytes']:.2f}x** |")
    return "\n".join(rows)


def demo(path):
    return "```\n" + open(path).read().rstrip() + "\n```"


def fill(text, name, body):
    return re.sub(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", lambda m: m[1] + re.sub(r"[ \t]+$", "", body, flags=re.M) + "\n" + m[2], text, flags=re.S)


text = open("README.md").read()
text = fill(text, "results", results())
if len(sys.argv) > 1:
    text = fill(text, "demo", demo(sys.argv[1]))
open("README.md", "w").write(text)
