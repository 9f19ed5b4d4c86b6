"""Compares the losses of our runs with PyTorch's on the same batches: numbers as JSON, curves as SVG.

    python3 bench/loss_report.py PEER.jsonl OUT_PREFIX HARDWARE WHAT PEER_WHAT NAME=METRICS.jsonl ... [bits:NAME=METRICS.jsonl ...]

Writes OUT_PREFIX.json and OUT_PREFIX.svg and prints a line per run. The relative difference of a step is
(ours - PyTorch's) / PyTorch's; drift is the slope of a straight line through it times the number of steps, beside
its standard error. The first run is the one drawn, and the one that must hold: exit status 1 when its mean
difference is LIMIT or more, or its last quarter leans to one side by as much. The losses and gradient norms of all
`bits:` runs must be the same to the last bit.
"""
import json
import math
import sys
from datetime import date

LIMIT = 0.005


def read_losses(path):
    lines = [json.loads(line) for line in open(path)]
    return [line for line in lines if line.get("kind", "step") == "step"]


def compare(ours, peer):
    n = min(len(ours), len(peer))
    d = [(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(ours, peer)]
    mean_x, mean_d = (n - 1) / 2, sum(d) / n
    spread = sum((i - mean_x) ** 2 for i in range(n))
    slope = sum((i - mean_x) * (x - mean_d) for i, x in enumerate(d)) / spread
    rest = [x - mean_d - slope * (i - mean_x) for i, x in enumerate(d)]
    error = math.sqrt(sum(r * r for r in rest) / max(n - 2, 1) / spread)
    quarter = max(n // 4, 1)
    return dict(
        steps=n, tokens=ours[n - 1]["tokens"], first_loss=[ours[0]["loss"], peer[0]["loss"]],
        last_loss=[mean(x["loss"] for x in ours[max(n - 10, 0) : n]), mean(x["loss"] for x in peer[max(n - 10, 0) : n])],
        mean_relative_difference=mean(abs(x) for x in d), largest_relative_difference=max(abs(x) for x in d),
        mean_signed_difference=mean_d, by_quarter=[mean(abs(x) for x in d[k : k + quarter]) for k in range(0, 4 * quarter, quarter)],
        last_quarter_signed=mean(d[-quarter:]), drift=slope * n, drift_standard_error=error * n,
        mean_relative_norm_difference=mean(abs(a["grad_norm"] / b["grad_norm"] - 1) for a, b in zip(ours, peer)),
        median_step_ms=[median(x["step_ms"] for x in ours), median(x["step_ms"] for x in peer)]), d


def same_bits(runs):
    """Name -> whether its every loss and norm equals the first run's; the first is left out."""
    figures = {}
    for run in runs:
        name, path = run.split("=", 1)
        figures[name] = [(x["loss"], x["grad_norm"]) for x in read_losses(path)]
    names = list(figures)
    equal = {name: bool(figures[name]) and figures[name] == figures[names[0]] for name in names[1:]}
    for name, is_equal in equal.items():
        print(f"bits {name}: {len(figures[name])} steps {'equal those of' if is_equal else 'DIFFER FROM'} {names[0]}")
    return equal


def mean(xs):
    xs = list(xs)
    return sum(xs) / len(xs)


def median(xs):
    xs = sorted(xs)
    return xs[len(xs) // 2]


def rounded(x):
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    if isinstance(x, list):
        return [rounded(v) for v in x]
    return float(f"{x:.4g}") if isinstance(x, float) else x


# ---- the drawing --------------------------------------------------------------------------------

LEFT, RIGHT, WIDTH, HEIGHT = 62, 14, 760, 470
OURS, PEER, GRID, TEXT = "#c2410c", "#2563eb", "#d4d4d8", "#3f3f46"


def ticks(low, high, n):
    """About n round numbers between low and high."""
    if high <= low:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / n))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (m * step) <= n)
    return [step * k for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


class Panel:
    def __init__(self, top, bottom, xs, low, high):
        self.top, self.bottom, self.last, self.low, self.high = top, bottom, max(xs), low, high
        self.parts = []

    def x(self, v):
        return LEFT + (WIDTH - LEFT - RIGHT) * v / self.last

    def y(self, v):
        return self.bottom - (self.bottom - self.top) * (v - self.low) / ((self.high - self.low) or 1)

    def axes(self, label, unit):
        for v in ticks(self.low, self.high, 6):
            self.parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.y(v):.1f}" y2="{self.y(v):.1f}" stroke="{GRID}"/>'
                              f'<text x="{LEFT - 6}" y="{self.y(v) + 4:.1f}" text-anchor="end">{v:g}{unit}</text>')
        for v in ticks(0, self.last, 10):
            self.parts.append(f'<text x="{self.x(v):.1f}" y="{self.bottom + 16}" text-anchor="middle">{v:g}</text>')
        self.parts.append(f'<text x="{LEFT}" y="{self.top - 7}" font-weight="600">{label}</text>')

    def curve(self, xs, ys, colour, width=1.3, extra=""):
        points = " ".join(f"{self.x(a):.1f},{self.y(min(max(b, self.low), self.high)):.1f}" for a, b in zip(xs, ys))
        self.parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}" {extra}/>')


def draw(ours, peer, d, result, what):
    n = result["steps"]
    xs = range(1, n + 1)
    a, b = [x["loss"] for x in ours[:n]], [x["loss"] for x in peer[:n]]
    top = Panel(52, 285, xs, math.floor(min(a + b)), math.ceil(max(a + b)))
    top.axes("loss", "")
    top.curve(xs, b, PEER, 2.6, 'stroke-opacity="0.55"')
    top.curve(xs, a, OURS)
    size = max(1e-12, sorted(abs(x) for x in d)[int(0.99 * (n - 1))] * 130)
    low = Panel(335, 440, xs, -size, size)
    low.axes("(Snug - PyTorch) / PyTorch", " %")
    low.curve(xs, [100 * x for x in d], OURS, 1)
    middle, mean_d = (n + 1) / 2, result["mean_signed_difference"]
    line = [100 * (mean_d + result["drift"] / n * (x - middle)) for x in (1, n)]
    low.curve([1, n], line, TEXT, 1.5, 'stroke-dasharray="5 3"')
    key = (f'<text x="{WIDTH - RIGHT}" y="70" text-anchor="end" fill="{OURS}">Snug</text>'
           f'<text x="{WIDTH - RIGHT}" y="86" text-anchor="end" fill="{PEER}">PyTorch</text>'
           f'<text x="{WIDTH - RIGHT}" y="328" text-anchor="end">mean {100 * result["mean_relative_difference"]:.3g} %, '
           f'drift {100 * result["drift"]:+.2g} ± {100 * result["drift_standard_error"]:.1g} %</text>'
           f'<text x="{LEFT}" y="20" font-size="14" font-weight="600">{what}</text>'
           f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 3}" text-anchor="end">step</text>')
    body = "\n".join(top.parts + low.parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11" '
            f'fill="{TEXT}">\n<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n{body}\n{key}\n</svg>\n')


def main(peer_path, prefix, hardware, what, peer_what, *runs):
    peer, results, drawn = read_losses(peer_path), {}, None
    equal = same_bits([run[5:] for run in runs if run.startswith("bits:")])
    for run in (run for run in runs if not run.startswith("bits:")):
        name, path = run.split("=", 1)
        ours = read_losses(path)
        result, d = compare(ours, peer)
        results[name] = result
        drawn = drawn or (ours, d, name)
        print(f"loss {name}: {result['steps']} steps, loss {result['first_loss'][0]:.4f} -> {result['last_loss'][0]:.4f} "
              f"(PyTorch {result['last_loss'][1]:.4f}), mean difference {100 * result['mean_relative_difference']:.4g} %, "
              f"largest {100 * result['largest_relative_difference']:.3g} %, signed {100 * result['mean_signed_difference']:+.3g} %, "
              f"drift {100 * result['drift']:+.3g} +- {100 * result['drift_standard_error']:.2g} %")
    ours, d, name = drawn
    report = dict(what=what, date=str(date.today()), hardware=hardware, command="bench/loss_compare.sh", peer=peer_what,
                  loss_comparison=rounded(results), same_bits=equal, losses=dict(snug=[round(x["loss"], 5) for x in ours], pytorch=[round(x["loss"], 5) for x in peer]))
    text = json.dumps(report, indent=1)
    with open(prefix + ".json", "w") as file:
        file.write(compact_lists(text) + "\n")
    with open(prefix + ".svg", "w") as file:
        file.write(draw(ours, peer, d, results[name], what))
    first = results[name]
    holds = first["mean_relative_difference"] < LIMIT and abs(first["last_quarter_signed"]) < LIMIT and all(equal.values())
    print(f"loss {name}: {'holds' if holds else 'DOES NOT HOLD'} (limit {100 * LIMIT:g} %)")
    return 0 if holds else 1


def compact_lists(text):
    """Lists of numbers on one line."""
    import re
    return re.sub(r"\[\s+([-\d.,e+\s]+?)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m[1]) + "]", text)


if __name__ == "__main__":
    if len(sys.argv) < 7:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
