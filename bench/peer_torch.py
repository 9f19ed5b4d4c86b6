"""The PyTorch side of a side-by-side run: a language-model training step, CPU or GPU.

    OMP_NUM_THREADS=2 python3 bench/peer_torch.py gpt2-124m batch=4 seq=256
    python3 bench/peer_torch.py llama-1b batch=8 precision=amp compile=1 -- gpt2-124m batch=32 precision=amp

A case is a model name followed by key=value settings; `--` starts the next case. Settings: batch (4), seq (the
model's), steps (10, after 3 to warm up), precision fp32 | amp (float32 weights, bfloat16 products) | bf16 (all of it
bfloat16), compile 0 | 1, checkpoint 0 | 1 (recompute each block), lr (1e-4), profile 0 | 1 (operators by own time,
on stderr). Each case runs in a process of its own, so that its peak memory is its own, and prints one JSON line:
tokens_per_s and step_ms (median), step_ms_min, rss_bytes (peak resident set), on a GPU also allocated_bytes and device_bytes,
the thread set-up and the load of the machine. Needs only PyTorch.
"""
import json
import os
import resource
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

# family ("qwen": llama with biases on q, k and v), layers, width, heads, key/value heads, hidden width of the MLP,
# vocabulary, positions, tied head
MODELS = {
    "gpt2-tiny": ("gpt2", 4, 256, 4, 4, 1024, 50304, 256, True),
    "gpt2-124m": ("gpt2", 12, 768, 12, 12, 3072, 50304, 1024, True),
    "gpt2-350m": ("gpt2", 24, 1024, 16, 16, 4096, 50304, 1024, True),
    "gpt2-1558m": ("gpt2", 48, 1600, 25, 25, 6400, 50304, 1024, True),
    "llama-1b": ("llama", 22, 2048, 32, 4, 5632, 32000, 2048, False),
    "llama-7b": ("llama", 32, 4096, 32, 32, 11008, 32000, 2048, False),
    "llama-8b": ("llama", 32, 4096, 32, 8, 14336, 128256, 2048, False),
    "qwen-7b": ("qwen", 28, 3584, 28, 4, 18944, 152064, 1024, False),
    "qwen-14b": ("qwen", 48, 5120, 40, 8, 13824, 152064, 1024, False),
}
DEFAULTS = dict(batch=4, seq=0, steps=10, precision="fp32", compile=0, checkpoint=0, lr=1e-4, profile=0)


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads, qkv_bias, out_bias):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.size, bias=qkv_bias)
        self.out = nn.Linear(width, width, bias=out_bias)

    def forward(self, x, rotation):
        batch, seq, width = x.shape
        heads = self.qkv(x).view(batch, seq, -1, self.size).transpose(1, 2)
        q, k, v = heads.split([self.heads, self.kv_heads, self.kv_heads], 1)
        if rotation is not None:
            q, k = rotate(q, *rotation), rotate(k, *rotation)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        return self.out(y.transpose(1, 2).reshape(batch, seq, width))


def rotate(x, cos, sin):
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Block(nn.Module):
    def __init__(self, family, width, heads, kv_heads, hidden):
        super().__init__()
        self.gated = family != "gpt2"
        norm = RMSNorm if self.gated else nn.LayerNorm
        self.norm1, self.norm2 = norm(width), norm(width)
        self.attention = Attention(width, heads, kv_heads, qkv_bias=family != "llama", out_bias=not self.gated)
        self.up = nn.Linear(width, hidden * (2 if self.gated else 1), bias=not self.gated)
        self.down = nn.Linear(hidden, width, bias=not self.gated)

    def forward(self, x, rotation):
        x = x + self.attention(self.norm1(x), rotation)
        y = self.up(self.norm2(x))
        if self.gated:
            gate, y = y.chunk(2, -1)
            return x + self.down(F.silu(gate) * y)
        return x + self.down(F.gelu(y, approximate="tanh"))


class LanguageModel(nn.Module):
    def __init__(self, shape, seq, recompute):
        super().__init__()
        family, layers, width, heads, kv_heads, hidden, vocab, positions, tied = shape
        self.recompute, self.rotation = recompute, None
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(max(positions, seq), width) if family == "gpt2" else None
        self.blocks = nn.ModuleList(Block(family, width, heads, kv_heads, hidden) for _ in range(layers))
        self.norm = (nn.LayerNorm if family == "gpt2" else RMSNorm)(width)
        self.head = nn.Linear(width, vocab, bias=False)
        if tied:
            self.head.weight = self.tokens.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        if family != "gpt2":
            size = width // heads
            frequency = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
            angle = torch.outer(torch.arange(seq, dtype=torch.float32), frequency)
            self.rotation = (angle.cos(), angle.sin())

    def forward(self, ids, targets):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions.weight[: ids.shape[1]]
        rotation = self.rotation and tuple(t.to(x) for t in self.rotation)
        for block in self.blocks:
            x = checkpoint(block, x, rotation, use_reentrant=False) if self.recompute else block(x, rotation)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())


def parse_case(words):
    name, settings = words[0], dict(DEFAULTS)
    if name not in MODELS:
        sys.exit(f"peer_torch: no model {name}; there are {', '.join(MODELS)}")
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key not in settings:
            sys.exit(f"peer_torch: no setting {key}; there are {', '.join(settings)}")
        settings[key] = type(DEFAULTS[key])(value)
    settings["seq"] = settings["seq"] or MODELS[name][7]
    return name, settings


def show_profile(step):
    with torch.profiler.profile() as profile:
        step()
    print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=15, max_name_column_width=50), file=sys.stderr)


def measure(name, s):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16 if s["precision"] == "bf16" else torch.float32)  # no f32 copy on the way
    with torch.device(device):
        model = LanguageModel(MODELS[name], s["seq"], bool(s["checkpoint"]))
        torch.set_default_dtype(torch.float32)
        vocab = MODELS[name][6]
        ids, targets = (torch.randint(0, vocab, (s["batch"], s["seq"])) for _ in range(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=s["lr"], fused=True)
    function = torch.compile(model) if s["compile"] else model

    def step():
        with torch.autocast(device, torch.bfloat16, enabled=s["precision"] == "amp"):
            loss = function(ids, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()  # waits for the device

    for _ in range(3):
        step()
    times = []
    for _ in range(s["steps"]):
        start = time.perf_counter()
        loss = step()
        times.append(time.perf_counter() - start)
    times.sort()
    median = times[len(times) // 2]
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    result = dict(model=name, **s, device=device, params=sum(p.numel() for p in model.parameters()), loss=loss,
                  step_ms=median * 1e3, step_ms_min=times[0] * 1e3, tokens_per_s=s["batch"] * s["seq"] / median, rss_bytes=rss)
    if device == "cuda":
        free, total = torch.cuda.mem_get_info()
        result.update(allocated_bytes=torch.cuda.max_memory_allocated(), device_bytes=total - free)
    if s["profile"]:
        show_profile(step)
    return result


def set_up():
    lines = [line.strip() for line in torch.__config__.parallel_info().splitlines()]
    return dict(torch=torch.__version__, threads=torch.get_num_threads(), load=os.getloadavg()[0],
                cpu_capability=torch.backends.cpu.get_cpu_capability(),
                libraries=[line for line in lines if line.startswith(("OpenMP", "Intel"))])


def main(words):
    if words[:1] == ["--one"]:
        print(json.dumps(dict(measure(*parse_case(words[1:])), **set_up())), flush=True)
        return 0
    cases, failed = [[]], 0
    for word in words:
        if word == "--":
            cases.append([])
        else:
            cases[-1].append(word)
    for case in filter(None, cases):
        name, s = parse_case(case)
        run = subprocess.run([sys.executable, os.path.abspath(__file__), "--one", *case])
        if run.returncode:
            failed = 1
            print(json.dumps(dict(model=name, **s, error=f"exit status {run.returncode}")), flush=True)
    return failed


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
