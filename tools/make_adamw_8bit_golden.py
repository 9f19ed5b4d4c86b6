#!/usr/bin/env python3
"""Writes tests/golden/adamw_8bit.safetensors: the 8-bit dynamic maps and one update of AdamW with
8-bit states, as bitsandbytes has them (functional.create_dynamic_map and the kernel
kOptimizerStatic8bit2StateBlockwise), written down again in plain Python with every result rounded to
f32. Needs nothing but the standard library."""
import json
import math
import random
import struct
import sys
from fractions import Fraction

BLOCK = 256


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def create_dynamic_map(signed):
    """The numbers that bitsandbytes means, each rounded once. Its own come out of torch.linspace in
    f32 and differ in the last place, by the machine they are made on."""
    data = [Fraction(0), Fraction(1)]
    for i in range(7):
        n = 2**i if signed else 2 ** (i + 1)
        border = [Fraction(1, 10) + Fraction(9, 10) * k / n for k in range(n + 1)]
        for a, b in zip(border, border[1:]):
            value = (a + b) / 2 * Fraction(10) ** (i - 6)
            data += [value, -value] if signed else [value]
    return [f32(float(x)) for x in sorted(data)]


def quantise(table, x):
    """The nearest; borders are midpoints rounded to f32."""
    code = 0
    while code < 255 and x > f32(0.5 * f32(table[code] + table[code + 1])):
        code += 1
    return code


def update(p, g, codes1, absmax1, codes2, absmax2, maps, rule):
    lr, beta1, beta2, eps, step = rule
    n = len(p)
    correction1, correction2 = 1.0 - beta1**step, math.sqrt(1.0 - beta2**step)
    step_size = f32(-lr * correction2 / correction1)
    out = {"p": [], "m": [], "v": [], "m_absmax": [], "v_absmax": []}
    for at in range(0, n, BLOCK):
        block = range(at, min(at + BLOCK, n))
        s1 = [f32(f32(f32(maps[0][codes1[i]] * absmax1[at // BLOCK]) * f32(beta1)) +
                  f32(f32(1.0 - beta1) * g[i])) for i in block]
        s2 = [f32(f32(f32(maps[1][codes2[i]] * absmax2[at // BLOCK]) * f32(beta2)) +
                  f32(f32(f32(1.0 - beta2) * g[i]) * g[i])) for i in block]
        s1, s2 = [f32(x) for x in s1], [f32(x) for x in s2]
        for k, i in enumerate(block):
            denominator = f32(f32(math.sqrt(s2[k])) + f32(correction2 * eps))
            out["p"].append(f32(p[i] + f32(step_size * f32(s1[k] / denominator))))
        most1, most2 = max(abs(x) for x in s1), max(abs(x) for x in s2)
        out["m_absmax"].append(most1)
        out["v_absmax"].append(most2)
        for x in s1:
            code = quantise(maps[0], f32(x / most1))
            if (maps[0][code] < 0) != (x < 0):  # the sign is kept
                code += 1 if x > 0 else -1
            out["m"].append(code)
        out["v"] += [quantise(maps[1], f32(x / most2)) for x in s2]
    return out


def write(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, (dtype, values) in tensors.items():
        raw = bytes(values) if dtype == "U8" else struct.pack("<%df" % len(values), *values)
        header[name] = {"dtype": dtype, "shape": [len(values)],
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def main():
    rng = random.Random(8)
    n, n_blocks = 700, 3
    maps = create_dynamic_map(True), create_dynamic_map(False)
    p = [f32(rng.gauss(0, 0.5)) for _ in range(n)]
    g = [f32(rng.gauss(0, 1) * 10 ** rng.uniform(-4, -1)) for _ in range(n)]
    codes1 = [rng.randrange(256) for _ in range(n)]
    codes2 = [rng.randrange(256) for _ in range(n)]
    absmax1 = [f32(10 ** rng.uniform(-4, -1)) for _ in range(n_blocks)]
    absmax2 = [f32(10 ** rng.uniform(-7, -3)) for _ in range(n_blocks)]
    rule = (f32(1e-3), 0.9, 0.999, 1e-8, 7)
    out = update(p, g, codes1, absmax1, codes2, absmax2, maps, rule)
    tensors = {"map_signed": ("F32", maps[0]), "map_unsigned": ("F32", maps[1]),
               "p": ("F32", p), "g": ("F32", g), "m": ("U8", codes1), "m_absmax": ("F32", absmax1),
               "v": ("U8", codes2), "v_absmax": ("F32", absmax2)}
    for name in out:
        tensors["new_" + name] = ("U8" if name in "mv" else "F32", out[name])
    write(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/adamw_8bit.safetensors", tensors,
          {"lr": "1e-3", "beta1": "0.9", "beta2": "0.999", "epsilon": "1e-8", "step": "7"})


if __name__ == "__main__":
    main()
