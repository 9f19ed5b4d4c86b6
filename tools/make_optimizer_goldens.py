#!/usr/bin/env python3
"""Writes tests/golden/optimizers.safetensors: parameters after a few steps of each update rule, as their references have
them: transformers' Adafactor, torch.optim.Muon written down again (it is in PyTorch from 2.9 on), Lion by its paper, and
Lion with 8-bit states as bitsandbytes has it. Parameters and gradients come from formulas that the test knows too.

    tools/make_optimizer_goldens.py [FILE]          needs torch, transformers and safetensors
"""
import math
import sys

import numpy as np
import torch
from safetensors.torch import save_file
from transformers.optimization import Adafactor

from make_adamw_8bit_golden import BLOCK, create_dynamic_map, f32, quantise

STEPS, LR, DECAY = 4, 0.02, 0.1
SHAPES = {"wide": (6, 10), "tall": (12, 5), "bias": (7,)}
HELD = {"pieces": ([4, 2, 6], (12, 5)), "pieces_bias": ([3, 4], (7,)),
        "experts": ([4, 2], (2, 6, 5)), "experts_bias": ([3, 2], (2, 5)),
        "conv": ("channels last", (2, 3, 2, 5)), "conv_3d": ("channels last", (2, 2, 3, 2, 3)), "conv_1d": ("channels last", (3, 4, 5))}


def start(shape):
    i = np.arange(math.prod(shape), dtype=np.float64)
    return torch.from_numpy(np.cos(0.11 * i + 0.5).astype(np.float32)).reshape(shape)


def gradient(shape, step):
    i = np.arange(math.prod(shape), dtype=np.float64)
    x = np.sin(0.37 * i * (1 + 0.01 * i) + 1.3 * step) * 10.0 ** (-3 + (i % 7) / 3)
    return torch.from_numpy(x.astype(np.float32)).reshape(shape)


def lion(p, shape):
    m, beta1, beta2 = torch.zeros(shape), 0.9, 0.99
    for step in range(1, STEPS + 1):
        g = gradient(shape, step)
        p = p * (1 - LR * DECAY) - LR * torch.sign(beta1 * m + (1 - beta1) * g)
        m = beta2 * m + (1 - beta2) * g
    return p


def lion_8bit(n):
    """bitsandbytes' kOptimizerStatic8bit1StateBlockwise, every result rounded to f32."""
    table, p = create_dynamic_map(True), [float(x) for x in start((n,))]
    codes, absmax, beta1, beta2 = [0] * n, [0.0] * (n // BLOCK), f32(0.9), f32(0.99)
    for step in range(1, STEPS + 1):
        g = [float(x) for x in gradient((n,), step)]
        m = [f32(table[c] * absmax[i // BLOCK]) for i, c in enumerate(codes)]
        for i in range(n):
            way = f32(f32(m[i] * beta1) + f32(f32(1.0 - 0.9) * g[i]))
            p[i] = f32(f32(p[i] * f32(1.0 - f32(LR) * DECAY)) - f32(f32(LR) * ((way > 0) - (way < 0))))
            m[i] = f32(f32(m[i] * beta2) + f32(f32(1.0 - 0.99) * g[i]))
        for b in range(n // BLOCK):
            block = range(b * BLOCK, (b + 1) * BLOCK)
            absmax[b] = max(abs(m[i]) for i in block)
            for i in block:
                codes[i] = quantise(table, f32(m[i] / absmax[b]))
                if (table[codes[i]] < 0) != (m[i] < 0):
                    codes[i] += 1 if m[i] > 0 else -1
    return torch.tensor(p), torch.tensor(codes, dtype=torch.uint8)


def adafactor(apart=lambda x: [x], together=lambda parts: parts[0], **options):
    """apart: the tensors that checkpoints have of a parameter; together: the parameter again."""
    def run(p, shape):
        params = [torch.nn.Parameter(x.clone()) for x in apart(p)]
        rule = Adafactor(params, lr=None if options.get("relative_step") else LR, weight_decay=DECAY,
                         **{"scale_parameter": False, "relative_step": False, "warmup_init": False, **options})
        for step in range(1, STEPS + 1):
            for x, grad in zip(params, apart(gradient(shape, step))):
                x.grad = grad.contiguous()
            rule.step()
        return together([x.detach() for x in params])
    return run


def adafactor_held(name):
    """Parameters that hold several tensors, or one that files have otherwise: every number of a tensor's own matters."""
    own = {"decay_rate": -0.5, "clip_threshold": 0.7, "scale_parameter": True, "relative_step": True}
    rows, shape = HELD[name]
    if rows == "channels last":
        return adafactor(lambda x: [x.movedim(-1, 1)], lambda parts: parts[0].movedim(1, -1), **own)(start(shape), shape)
    if name.startswith("experts"):
        return adafactor(lambda x: [part for expert in x for part in expert.split(rows)],
                         lambda parts: torch.cat(parts).reshape(shape), **own)(start(shape), shape)
    return adafactor(lambda x: x.split(rows), torch.cat, **own)(start(shape), shape)


def newton_schulz(x, steps):
    """torch.optim._muon._zeropower_via_newtonschulz, in f32."""
    transposed = x.shape[0] > x.shape[1]
    x = x.T if transposed else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if transposed else x


def adamw(p, shape):
    p = torch.nn.Parameter(p)
    rule = torch.optim.AdamW([p], lr=LR, betas=(0.9, 0.99), eps=1e-8, weight_decay=DECAY)
    for step in range(1, STEPS + 1):
        p.grad = gradient(shape, step)
        rule.step()
    return p.detach()


def muon(momentum, nesterov, match_rms, ns_steps, rows=None):
    def run(p, shape):
        if len(shape) < 2:
            return adamw(p, shape)
        buf = torch.zeros(shape)
        for step in range(1, STEPS + 1):
            g = gradient(shape, step)
            buf.lerp_(g, 1 - momentum)
            update = g.lerp(buf, momentum) if nesterov else buf
            parts = []
            for x in update.split(rows or shape[0]):
                a, b = x.shape
                factor = 0.2 * math.sqrt(max(a, b)) if match_rms else math.sqrt(max(1, a / b))
                parts.append(factor * newton_schulz(x, ns_steps))
            p = p * (1 - LR * DECAY) - LR * torch.cat(parts)
        return p
    return run


RULES = {
    "lion": lion,
    "adafactor": adafactor(),
    "adafactor_relative": adafactor(decay_rate=-0.5, clip_threshold=0.7, scale_parameter=True, relative_step=True),
    "adafactor_warmup": adafactor(scale_parameter=True, relative_step=True, warmup_init=True),
    "muon": muon(0.95, True, False, 5),
    "muon_rms": muon(0.8, False, True, 3),
}


def main():
    out = {f"{rule}.{name}": run(start(shape), shape) for rule, run in RULES.items() for name, shape in SHAPES.items()}
    out.update({f"adafactor_held.{name}": adafactor_held(name) for name in HELD})
    out["muon_pieces.tall"] = muon(0.95, True, False, 5, [4, 2, 6])(start(SHAPES["tall"]), SHAPES["tall"])
    out["lion_8bit.p"], out["lion_8bit.codes"] = lion_8bit(4096)
    out = {k: v.contiguous() for k, v in out.items()}
    save_file(out, sys.argv[1] if len(sys.argv) > 1 else "tests/golden/optimizers.safetensors",
              metadata={"lr": str(LR), "weight_decay": str(DECAY), "steps": str(STEPS)})


if __name__ == "__main__":
    main()
