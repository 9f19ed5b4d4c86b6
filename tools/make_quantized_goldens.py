"""Writes what bitsandbytes and PEFT say of quantised weights: tests/golden/quantized.safetensors, tests/golden/llama_nf4,
tests/golden/qwen3_moe_nf4, tests/golden/llama_int8, tests/golden/adapters/llama_qlora and qwen3_moe_qlora.

    pip install "torch==2.8.0" transformers peft bitsandbytes safetensors numpy
    python3 tools/make_quantized_goldens.py

Codes are those of bitsandbytes' plain operations (bitsandbytes.backends.default), which its GPU kernels agree with; the CPU's
table for 8-bit codes does not always give the nearest. llama_nf4 is tests/golden/llama as bitsandbytes would store it,
qwen3_moe_nf4 the same with every expert's layers, and the adapters' logits, gradients and steps are PEFT's beside the
dequantised weights.
"""
import json
import os
import shutil

import bitsandbytes
import bitsandbytes.functional as B
import torch
from bitsandbytes.backends.default import ops as plain
from bitsandbytes.utils import pack_dict_to_tensor
from safetensors.torch import load_file

import make_adapter_goldens as adapters
from make_goldens import GOLDEN, configs, write

BLOCK, GROUP, TAIL = 64, 256, 2048


def quantize_scales(absmax):
    """Codes, scales of groups, offset."""
    offset, code = absmax.double().mean().float(), B.create_dynamic_map()
    borders = (code[:-1] + code[1:]) / 2
    codes, groups = [], []
    for part in (absmax - offset).split(GROUP):
        scale = part.abs().max()
        share = part * (1.0 / scale) if len(part) == GROUP else part / scale
        codes.append(torch.bucketize(share, borders).to(torch.uint8))
        groups.append(scale)
    return torch.cat(codes), torch.stack(groups), offset


def quantize(x, kind, nested):
    """A tensor as bitsandbytes stores it: name's suffix -> tensor; and its numbers again."""
    bounds, order = plain._get_4bit_quantize_bounds(kind, x.device)
    blocks = x.float().reshape(-1, BLOCK)
    absmax = blocks.abs().max(dim=-1)[0]
    codes = order[torch.bucketize(blocks * (1.0 / absmax.view(-1, 1)), bounds)].to(torch.uint8).reshape(-1)
    packed = (codes[::2] << 4 | codes[1::2]).unsqueeze(1)
    assert torch.equal(packed, B.quantize_4bit(x.float(), blocksize=BLOCK, quant_type=kind)[0])
    state = dict(quant_type=kind, blocksize=BLOCK, dtype="float32", shape=tuple(x.shape))
    out = {"": packed, ".absmax": absmax, ".quant_map": B.get_4bit_type(kind, device="cpu")}
    if nested:
        scales, groups, offset = quantize_scales(absmax)
        code = B.create_dynamic_map()
        state.update(nested_blocksize=GROUP, nested_dtype="float32", nested_offset=offset.item())
        out.update({".absmax": scales, ".nested_absmax": groups, ".nested_quant_map": code})
        absmax = plain._dequantize_blockwise_compute(scales, groups, code, GROUP, torch.float32) + offset
    out[".quant_state.bitsandbytes__" + kind] = pack_dict_to_tensor(state)
    numbers = plain._dequantize_4bit_compute(packed.reshape(-1), absmax, out[".quant_map"], BLOCK, x.shape, torch.float32)
    return out, numbers


def make_blocks():
    """A matrix, its codes of every kind, and the end of what they stand for."""
    x = torch.randn(34, 512, generator=torch.Generator().manual_seed(1)).bfloat16()
    out = {"x": x}
    for kind in ("nf4", "fp4"):
        for nested in (False, True):
            parts, numbers = quantize(x, kind, nested)
            name = kind + ("_nested" if nested else "")
            out.update({name + (suffix or ".codes"): t for suffix, t in parts.items() if "quant_state" not in suffix})
            if nested:
                state = parts[".quant_state.bitsandbytes__" + kind]
                out[name + ".offset"] = torch.tensor([json.loads(bytes(state.tolist()))["nested_offset"]])
            out[name + ".numbers"] = numbers.reshape(-1)[-TAIL:].clone()
    codes, scales, _ = torch.ops.bitsandbytes.int8_vectorwise_quant(x.float())
    numbers = torch.ops.bitsandbytes.int8_vectorwise_dequant(codes, scales)
    out.update({"int8.codes": codes, "int8.absmax": scales, "int8.numbers": numbers.reshape(-1)[-TAIL:].clone()})
    write(os.path.join(GOLDEN, "quantized.safetensors"), out)


def is_linear(name):
    return "_proj.weight" in name


def make_model(base):
    """tests/golden/BASE with its linear layers in NF4 with double quantisation; what they stand for."""
    source, folder = os.path.join(GOLDEN, base), os.path.join(GOLDEN, base + "_nf4")
    os.makedirs(folder, exist_ok=True)
    stored, numbers = {}, {}
    for name, x in load_file(os.path.join(source, "model.safetensors")).items():
        parts, numbers[name] = quantize(x, "nf4", True) if is_linear(name) else ({"": x}, x)
        stored.update({name + suffix: t for suffix, t in parts.items()})
    write(os.path.join(folder, "model.safetensors"), stored)
    with open(os.path.join(source, "config.json")) as f:
        config = json.load(f)
    config["quantization_config"] = dict(
        quant_method="bitsandbytes", load_in_4bit=True, load_in_8bit=False, _load_in_4bit=True, _load_in_8bit=False,
        bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype="float32",
        bnb_4bit_quant_storage="uint8", llm_int8_skip_modules=None, llm_int8_threshold=6.0)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write("\n")
    given = load_file(os.path.join(source, "golden.safetensors"))
    write(os.path.join(folder, "golden.safetensors"), {k: given[k] for k in ("tokens", "targets")})
    return numbers


def make_8bit():
    """tests/golden/llama with its linear layers as bitsandbytes' own 8-bit ones save themselves (load_in_8bit)."""
    source, folder = os.path.join(GOLDEN, "llama"), os.path.join(GOLDEN, "llama_int8")
    os.makedirs(folder, exist_ok=True)
    stored = {}
    for name, x in load_file(os.path.join(source, "model.safetensors")).items():
        if not is_linear(name):
            stored[name] = x
            continue
        layer = bitsandbytes.nn.Linear8bitLt(x.shape[1], x.shape[0], bias=False, has_fp16_weights=False)
        layer.weight = bitsandbytes.nn.Int8Params(x.clone(), requires_grad=False, has_fp16_weights=False)
        state = layer.to("cpu").state_dict()
        assert set(state) == {"weight", "SCB", "weight_format"} and state["weight"].dtype == torch.int8
        stored.update({name.removesuffix("weight") + n: t for n, t in state.items()})
    write(os.path.join(folder, "model.safetensors"), stored)
    with open(os.path.join(source, "config.json")) as f:
        config = json.load(f)
    config["quantization_config"] = dict(quant_method="bitsandbytes", load_in_4bit=False, load_in_8bit=True,
                                         _load_in_4bit=False, _load_in_8bit=True, llm_int8_skip_modules=None,
                                         llm_int8_threshold=6.0)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write("\n")
    given = load_file(os.path.join(source, "golden.safetensors"))
    write(os.path.join(folder, "golden.safetensors"), {k: given[k] for k in ("tokens", "targets")})


def make_adapter(base, modules):
    """By make_adapter_goldens, which finds the dequantised weights where it looks for a model's."""
    numbers = make_model(base)
    folder, name = os.path.join(GOLDEN, base + "_nf4"), base + "_qlora"
    path, kept = os.path.join(folder, "model.safetensors"), os.path.join(folder, "kept.safetensors")
    plain_configs = configs
    adapters.ADAPTERS[name] = (base + "_nf4", dict(r=4, lora_alpha=8, target_modules=modules))
    adapters.configs = lambda: {base + "_nf4": plain_configs()[base]}
    shutil.move(path, kept)
    try:
        write(path, numbers)
        assert any(adapters.make_adapter(name, seed) for seed in range(1, 30))
    finally:
        shutil.move(kept, path)


def main():
    torch.set_num_threads(1)
    make_blocks()
    make_8bit()
    make_adapter("llama", adapters.ATTENTION + adapters.MLP)
    make_adapter("qwen3_moe", adapters.ATTENTION)


if __name__ == "__main__":
    main()
