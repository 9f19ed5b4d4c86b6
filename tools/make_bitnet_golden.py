"""Writes tests/golden/bitnet: a small model of BitNet b1.58 as transformers computes it.

    python3 tools/make_bitnet_golden.py        (the environment: tools/make_goldens.py)

transformers' own layers round weights and activations ("online", straight-through gradients). Everything is in
float64, as in make_goldens.py. A number next to the middle between two integers would be rounded one way in float32
and the other way in float64: the seed is one for which none of the rounded numbers of the batch is that close.
"""
import os

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # transformers compiles the rounding otherwise, and not in float64

import torch
import transformers
from transformers.integrations import bitnet

from make_goldens import (GOLDEN, LLAMA, PLAIN_ROPE, all_double, gradients, legacy_config, make_batch, randomise,
                          train, write)

MARGIN, SEEDS = 4e-5, 400
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


def margin_of(model, tokens):
    """How far from a middle the rounded numbers are, at least."""
    least, rounding = [1.0], torch.Tensor.round

    def watched(x):
        least[0] = min(least[0], ((x.abs() % 1) - 0.5).abs().min().item())
        return rounding(x)
    torch.Tensor.round = watched
    try:
        with torch.no_grad():
            model(tokens, use_cache=False)
    finally:
        torch.Tensor.round = rounding
    return least[0]


def main():
    with all_double():
        model = build()
    rounded = [m for m in model.modules() if isinstance(m, bitnet.AutoBitLinear)]
    assert len(rounded) == 14 and all(m.online_quant for m in rounded)
    for seed in range(SEEDS):
        randomise(model, seed)
        tokens, targets = make_batch(seed + 100)
        with all_double():
            if margin_of(model, tokens) > MARGIN:
                break
    else:
        raise SystemExit("no seed is good enough")
    folder = os.path.join(GOLDEN, "bitnet")
    os.makedirs(folder, exist_ok=True)
    weights = {n: p.detach().float() for n, p in model.named_parameters()}
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
               adamw_losses=losses, adamw_grad_norms=norms, **{"grad." + n: g.float() for n, g in grads.items()})
    write(os.path.join(folder, "golden.safetensors"), out)
    print(f"bitnet: seed {seed}, loss {loss.item():.6f}, after 20 steps {losses[-1].item():.6f}")


main()
