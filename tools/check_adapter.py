"""Adapters between Snug and PEFT, both ways.

    python3 tools/check_adapter.py build/snug

Snug trains adapters of every kind beside the models of tests/golden and exports them, alone and merged: PEFT loads the
one, transformers the other, and their logits are equal. Snug merges the adapters that PEFT wrote (tests/golden/adapters):
transformers with the result computes what PEFT does with the adapter. Needs torch, transformers and peft.
"""
import os
import subprocess
import sys
import tempfile

import peft
import torch
import transformers
from safetensors.torch import load_file

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden")
TOLERANCE = 1e-5  # of the largest logit

# Model -> settings of an adapter that Snug trains beside it.
TRAINED = {
    "llama": ["lora_target_modules=all-linear", "lora_r=4"],
    "mistral": ["lora_target_modules=[q_proj, v_proj, down_proj]", "use_dora=true"],
    "qwen2": ["lora_target_modules=[q_proj, k_proj, v_proj]", "lora_bias=lora_only", "rank_pattern={v_proj: 2}"],
    "qwen3": ["lora_target_modules=all-linear", "use_rslora=true", "lora_modules_to_save=[lm_head]"],
    "gpt2": ["lora_target_modules=[c_attn, c_proj]", "lora_alpha=16"],
}


def snug(*arguments):
    result = subprocess.run([sys.argv[1], *arguments], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def logits(model, tokens):
    with torch.no_grad():
        return model.eval()(tokens).logits


def compare(what, base, adapter, merged):
    folder = os.path.join(GOLDEN, base)
    tokens = load_file(os.path.join(folder, "golden.safetensors"))["tokens"].long()
    beside = logits(peft.PeftModel.from_pretrained(load(folder), adapter), tokens)
    inside, before = logits(load(merged), tokens), logits(load(folder), tokens)
    scale = beside.abs().max()
    error, change = ((beside - x).abs().max() / scale for x in (inside, before))
    print(f"{what}: merged differs by {error:.1e}, the adapter changes logits by {change:.1e}")
    assert error < TOLERANCE < change


def main():
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as work:
        for base, settings in TRAINED.items():
            out, adapter, merged = (os.path.join(work, base + x) for x in ("-run", "-adapter", "-merged"))
            config = os.path.join(work, base + ".yaml")
            with open(config, "w") as f:
                f.write(f"model_name_or_path: {os.path.join(GOLDEN, base)}\ntokenizer: bytes\nadapter: lora\n"
                        "datasets: [{type: random, n_tokens: 4000}]\nmax_seq_length: 24\nmax_steps: 8\n"
                        f"learning_rate: 0.01\ndevice: cpu\noutput_dir: {out}\n")
            snug("train", config, "--quiet", *settings)
            snug("export", config, "-o", adapter, *settings)
            snug("export", config, "-o", merged, "--merge", *settings)
            compare(f"trained by Snug beside {base}", base, adapter, merged)
        adapters = os.path.join(GOLDEN, "adapters")
        for name in sorted(os.listdir(adapters)):
            merged = os.path.join(work, name)
            snug("export", os.path.join(adapters, name), "-o", merged, "--merge")
            compare(f"{name} of PEFT", name.split("_")[0], os.path.join(adapters, name), merged)


if __name__ == "__main__":
    main()
