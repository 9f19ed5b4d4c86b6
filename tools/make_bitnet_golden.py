"""Writes tests/golden/bitnet: a small model of BitNet b1.58 as transformers computes it.

    python3 tools/make_bitnet_golden.py        (the environment: tools/make_goldens.py)

transformers' own layers round weights and activations ("online", straight-through gradients). Everything is in
float64, as in make_goldens.py. A number next to the middle between two integers is rounded one way in float32 and the
other way in float64, or after sums in another order; from there on runs go apart, within 20 steps by several hundredths
of the loss. Until when they do not is measured: float32 runs of PyTorch from weights that are moved by a rounding have
to take the same steps. The seed is one for which those are many; their number is `adamw_steps_alike`.
"""
import contextlib
import os

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # transformers compiles the rounding otherwise, and not in float64

import torch
import transformers
from transformers.integrations import bitnet

from make_goldens import (GOLDEN, LLAMA, PLAIN_ROPE, all_double, gradients, legacy_config, make_batch, randomise,
                          train, write)

SEEDS, RUNS, ALIKE = 400, 24, 9  # float32 runs of a seed; steps that all of them have to take alike
NUDGE, SAME = 2e-7, 3e-6  # of a weight, and of a loss
CONFIG = dict(quant_method="bitnet", linear_class="autobitlinear", quantization_mode="online")


def build():
    config = transformers.BitNetConfig(**LLAMA, hidden_act="silu", attention_bias=False, rope_parameters=PLAIN_ROPE)
    model = transformers.BitNetForCausalLM(config)
    own = transformers.BitNetQuantConfig(linear_class="autobitlinear", quantization_mode="online")
    with torch.device("cpu"):
        model = bitnet.replace_with_bitnet_linear(model, modules_to_not_convert=["lm_head"], quantization_config=own)
    for layer in model.modules():
        if isinstance(layer, bitnet.AutoBitLinear) and layer.weight.is_meta:
            layer.to_empty(device="cpu")
    return model.to(torch.get_default_dtype()).train()


def train_from(model, weights, batch, double, nudge=0.0, seed=0):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for n, p in model.named_parameters():
            p.copy_(weights[n].double() * (1 + nudge * torch.randn(p.shape, generator=g, dtype=torch.float64)))
    with all_double() if double else contextlib.nullcontext():
        return train(model, *batch)


def steps_alike(wide, narrow, weights, batch):
    """How many steps float32 runs take as the float64 run does; 0: fewer than are wanted."""
    want, counts = train_from(wide, weights, batch, True)[0], []
    for run in range(RUNS):
        got = train_from(narrow, weights, batch, False, NUDGE if run else 0.0, run)[0]
        counts.append(int(((got - want).abs() / want.clamp(min=1) <= SAME).int().cumprod(0).sum()))
        if counts[-1] < ALIKE:
            return 0
    return min(counts)


def main():
    with all_double():
        model = build()
    narrow = build()
    rounded = [m for m in model.modules() if isinstance(m, bitnet.AutoBitLinear)]
    assert len(rounded) == 14 and all(m.online_quant for m in rounded)
    for seed in range(SEEDS):
        randomise(model, seed)
        tokens, targets = make_batch(seed + 100)
        weights = {n: p.detach().float() for n, p in model.named_parameters()}
        alike = steps_alike(model, narrow, weights, (tokens, targets))
        if alike:
            break
    else:
        raise SystemExit("no seed is good enough")
    folder = os.path.join(GOLDEN, "bitnet")
    os.makedirs(folder, exist_ok=True)
    with torch.no_grad():  # what is stored is what is computed with
        for n, p in model.named_parameters():
            p.copy_(weights[n].double())
    model.config.quantization_config = CONFIG
    model.config.architectures = ["BitNetForCausalLM"]
    model.config.save_pretrained(folder)
    legacy_config(folder)
    write(os.path.join(folder, "model.safetensors"), weights)
    with all_double():
        logits, loss, _, grads = gradients(model, tokens, targets)
        losses, norms = train(model, tokens, targets)
    out = dict(tokens=tokens.int(), targets=targets.int(), logits=logits.float(), loss=loss.reshape(1),
               adamw_losses=losses, adamw_grad_norms=norms, adamw_steps_alike=torch.tensor([alike], dtype=torch.int32),
               **{"grad." + n: g.float() for n, g in grads.items()})
    write(os.path.join(folder, "golden.safetensors"), out)
    print(f"bitnet: seed {seed}, loss {loss.item():.6f}, after 20 steps {losses[-1].item():.6f}; "
          f"{alike} steps of {RUNS} float32 runs are alike")


main()
