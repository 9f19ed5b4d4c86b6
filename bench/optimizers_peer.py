#!/usr/bin/env python3
"""Whether update rules do over a whole run what their authors' code does: the demo's model on the demo's text, beside PyTorch
with the reference of each rule, from the same weights on the same batches, in f32 on the CPU.

    bench/optimizers_peer.py [--build FOLDER] [--steps N] [--only NAME ...]       needs PyTorch and transformers
    bench/optimizers_peer.py --suite steady --text FILE ...                       the model and the text of that suite of bench/optimizers.py

Writes bench/results/DATE-cpu-optimizers-peer.json (of `steady` optimizers-peer-steady.json; OUT: another folder). The rules here are those of bench/optimizers.py with its settings;
references: torch.optim.AdamW, transformers' Adafactor, Lion's and Muon's updates as published.

Training makes differences of rounding grow, by some rules within fifty steps to those between any two runs. So the
reference runs a second time from weights that are off by 1e-7 of themselves: how far it is then from itself is how
closely anything can agree with it.
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

from adamw_8bit import processor, text_of
from loss_report import compare, mean, read_losses, rounded
from optimizer_suites import DEMO, SUITES

RULES = {name: DEMO[name] for name in ("adamw f32", "lion", "adafactor", "muon")}


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2."""

    def __init__(self, groups, betas):
        super().__init__(groups, {"lr": 0.0, "betas": betas})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * torch.sign(b1 * m + (1 - b1) * p.grad))
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


def orthogonal(g, steps=5, eps=1e-7):
    """Jordan et al. 2024: the quintic Newton-Schulz iteration."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.T if g.shape[0] > g.shape[1] else g
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if g.shape[0] > g.shape[1] else x


class Muon(torch.optim.Optimizer):
    """With Nesterov's momentum, and updates as large as AdamW's (Liu et al. 2025)."""

    def __init__(self, params, weight_decay, momentum=0.95):
        super().__init__(params, {"lr": 0.0, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.lerp_(p.grad, 1 - group["momentum"])
                update = orthogonal(p.grad.lerp(m, group["momentum"]))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * 0.2 * max(p.shape) ** 0.5 * update)


def adamw(params, c):
    groups = [{"params": [p for p in params if p.dim() >= 2], "weight_decay": c["weight_decay"]},
              {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.0, betas=(c["adam_beta1"], c["adam_beta2"]), eps=c["adam_epsilon"])


def make_optimizers(model, c):
    params = dict(model.named_parameters())
    matrices = [p for p in params.values() if p.dim() >= 2]
    groups = [{"params": matrices, "weight_decay": c["weight_decay"]},
              {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0}]
    if c["optim"] == "lion":
        return [Lion(groups, (c["adam_beta1"], c["adam_beta2"]))]
    if c["optim"] == "adafactor":
        return [transformers.optimization.Adafactor(groups, lr=1e-3, scale_parameter=False, relative_step=False, warmup_init=False)]
    if c["optim"] == "muon":
        hidden = [p for name, p in params.items() if p.dim() == 2 and "embed" not in name and "lm_head" not in name]
        rest = [p for p in params.values() if not any(p is h for h in hidden)]
        return [Muon(hidden, c["weight_decay"]), adamw(rest, c)]
    return [adamw(list(params.values()), c)]


def nudge(model):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1 + 1e-7 * torch.randn(p.shape, generator=generator))


def peer_losses(model_folder, batches, metrics, nudged=False):
    lines = [json.loads(line) for line in open(metrics)]
    c = next(line["config"] for line in lines if line["kind"] == "config")
    rates = [line["lr"] for line in lines if line["kind"] == "step"]
    data = torch.frombuffer(bytearray(batches.read_bytes()), dtype=torch.int32).view(-1, 2, c["per_device_train_batch_size"], c["max_seq_length"])
    model = transformers.AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    if nudged:
        nudge(model)
    optimizers = make_optimizers(model, c)
    for (tokens, targets), rate in zip(data.long(), rates):
        logits = model(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), c["max_grad_norm"]).item()
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
        model.zero_grad()
        yield {"loss": loss.item(), "grad_norm": norm, "step_ms": 0.0}


def snug(o, *words):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    options.add_argument("--suite", choices=["demo", "steady"], default="demo")
    options.add_argument("--text", type=pathlib.Path)
    options.add_argument("--steps", type=int, default=240)
    options.add_argument("--threads", type=int)
    options.add_argument("--only", choices=RULES, nargs="*")
    options.add_argument("--date", default=str(datetime.date.today()))
    o = options.parse_args()
    suite, folder, results = SUITES[o.suite], pathlib.Path(tempfile.mkdtemp()), {}
    common = [*suite["words"], f"max_steps={o.steps}", f"datasets.0.path={o.text or text_of(o.build)}", "device=cpu", "eval_strategy=no",
              "save_strategy=no", "logging_steps=1", "report_to=none", "overwrite_output_dir=true"]
    if o.threads:
        common.append(f"num_threads={o.threads}")
        torch.set_num_threads(o.threads)
    snug(o, o.build / "snug", "export", "configs/demo.yaml", *common, "--checkpoint", "none", "--dtype", "f32", "-o", folder / "model")
    snug(o, o.build / "bench_dump_batches", folder / "batches", "configs/demo.yaml", *common)
    for name in o.only or RULES:
        run = folder / name.replace(" ", "-")
        snug(o, o.build / "snug", "train", "configs/demo.yaml", *common, *RULES[name], "model=", f"model_name_or_path={folder / 'model'}", f"output_dir={run}")
        ours = read_losses(run / "metrics.jsonl")
        theirs, nudged = (list(peer_losses(folder / "model", folder / "batches", run / "metrics.jsonl", yes)) for yes in (False, True))
        r, _ = compare(ours, theirs)
        r.pop("median_step_ms")
        own = [abs(a["loss"] / b["loss"] - 1) for a, b in zip(nudged, theirs)]
        quarter = max(len(own) // 4, 1)
        r["nudged"] = {"mean_relative_difference": mean(own), "largest_relative_difference": max(own),
                       "by_quarter": [mean(own[k : k + quarter]) for k in range(0, 4 * quarter, quarter)]}
        results[name] = {"settings": " ".join(RULES[name]), **r}
        print(f"{name}: last loss {r['last_loss'][0]:.4f}, the reference's {r['last_loss'][1]:.4f}; mean difference "
              f"{100 * r['mean_relative_difference']:.4f} %, largest {100 * r['largest_relative_difference']:.3f} %; the reference's from "
              f"itself, nudged: {100 * mean(own):.4f} %, {100 * max(own):.3f} %", flush=True)
    report = {"what": f"{suite['what']}, update rules beside their references in PyTorch: same weights, same batches, f32",
              "date": o.date, "hardware": processor(), "command": f"bench/optimizers_peer.py --suite {o.suite} --steps {o.steps}",
              "peer": f"torch {torch.__version__}, transformers {transformers.__version__}", "rules": rounded(results)}
    if not o.only or "OUT" in os.environ:
        path = pathlib.Path(os.environ.get("OUT", "bench/results")) / f"{o.date}-cpu-optimizers-peer{'-steady' if o.suite == 'steady' else ''}.json"
        path.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
