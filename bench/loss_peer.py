"""The PyTorch side of bench/loss_compare.sh: trains the same GPT-2 on the same batches and prints every loss.

    python3 bench/loss_peer.py MODEL_FOLDER BATCHES METRICS [f32|bf16|fp16] [cuda|cpu] >losses.jsonl

MODEL_FOLDER is the initial model as `snug export --checkpoint none` writes it, BATCHES what bench_dump_batches
writes, METRICS the metrics.jsonl of our run: from its first line come the hyper-parameters, from its step lines
the learning rates. The optimizer is torch.optim.AdamW with decay on matrices only, clipping is
torch.nn.utils.clip_grad_norm_; bf16 and fp16 mean autocast over f32 weights (fp16 with a GradScaler).
Needs only PyTorch: the GPT-2 below and the safetensors reader are written out.
"""
import json
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def read_safetensors(path):
    """8 bytes of header length, a JSON header, raw tensors."""
    raw = bytearray(path.read_bytes())
    n = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + n])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        first, last = (8 + n + offset for offset in entry["data_offsets"])
        flat = torch.frombuffer(raw[first:last], dtype=DTYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"]).float()
    return tensors


class Dense(nn.Module):
    """x W + b with W as [in, out], the way GPT-2's files store it."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(n_in, n_out)), nn.Parameter(torch.empty(n_out))

    def forward(self, x):
        return F.linear(x, self.weight.t(), self.bias)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.c_attn, self.c_proj = heads, Dense(width, 3 * width), Dense(width, width)

    def forward(self, x):
        batch, seq, width = x.shape
        q, k, v = (t.view(batch, seq, self.heads, -1).transpose(1, 2) for t in self.c_attn(x).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, seq, width))


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.c_fc, self.c_proj = Dense(width, hidden), Dense(hidden, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads, hidden, eps):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width, eps), Attention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width, eps), Mlp(width, hidden)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    """Names as in the files, so that load_state_dict checks that nothing is missing."""

    def __init__(self, c):
        super().__init__()
        width, eps = c["n_embd"], c["layer_norm_epsilon"]
        self.wte, self.wpe = nn.Embedding(c["vocab_size"], width), nn.Embedding(c["n_positions"], width)
        self.h = nn.ModuleList(Block(width, c["n_head"], c["n_inner"], eps) for _ in range(c["n_layer"]))
        self.ln_f = nn.LayerNorm(width, eps)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=-100)


def load_model(folder, device):
    model = Gpt2(json.loads((folder / "config.json").read_text()))
    tensors = read_safetensors(folder / "model.safetensors")
    model.load_state_dict({name.removeprefix("transformer."): t for name, t in tensors.items()})
    return model.to(device)


def read_metrics(path):
    lines = [json.loads(line) for line in open(path)]
    config = next(line["config"] for line in lines if line["kind"] == "config")
    return config, [line["lr"] for line in lines if line["kind"] == "step"]


def make_optimizer(model, c, device):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [dict(params=matrices, weight_decay=c["weight_decay"]), dict(params=vectors, weight_decay=0.0)]
    return torch.optim.AdamW(groups, lr=0.0, betas=(c["adam_beta1"], c["adam_beta2"]), eps=c["adam_epsilon"],
                             fused=device == "cuda")


def main(folder, batches, metrics, precision="f32", device="cuda" if torch.cuda.is_available() else "cpu"):
    c, rates = read_metrics(metrics)
    n_micro, shape = c["gradient_accumulation_steps"], (c["per_device_train_batch_size"], c["max_seq_length"])
    data = torch.frombuffer(bytearray(pathlib.Path(batches).read_bytes()), dtype=torch.int32).view(-1, n_micro, 2, *shape)
    model = load_model(pathlib.Path(folder), device)
    optimizer = make_optimizer(model, c, device)
    dtype = {"f32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    scaler = torch.amp.GradScaler(device, enabled=precision == "fp16")
    for step, rate in enumerate(rates):
        start, loss = time.perf_counter(), 0.0
        for group in optimizer.param_groups:
            group["lr"] = rate
        for tokens, targets in data[step].to(device).long():
            with torch.autocast(device, dtype, enabled=dtype is not None):
                part = model(tokens, targets) / n_micro
            scaler.scale(part).backward()
            loss += part.item()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), c["max_grad_norm"] or float("inf")).item()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        ms = 1e3 * (time.perf_counter() - start)
        print(json.dumps(dict(step=step + 1, loss=loss, grad_norm=norm, lr=rate, step_ms=ms)), flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
