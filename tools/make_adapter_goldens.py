"""Writes tests/golden/adapters/: what PEFT says our adapters must compute, on the models of tests/golden.

    pip install "torch==2.8.0" transformers peft safetensors numpy
    python3 tools/make_adapter_goldens.py                 writes tests/golden/adapters/ and checks itself
    python3 tools/make_adapter_goldens.py llama_lora      only these

Adapters get random matrices, so that every gradient is there. As in make_goldens.py, logits, losses and gradients are
computed in float64 from the float32 numbers, and the twenty steps are those of the same recipe.
"""
import json
import os
import sys

import peft
import torch
from safetensors.torch import load_file

from make_goldens import GOLDEN, STEPS, all_double, build, configs, double_copy, gradients, train, write

FOLDER = os.path.join(GOLDEN, "adapters")
ATTENTION, MLP = ["q_proj", "k_proj", "v_proj", "o_proj"], ["gate_proj", "up_proj", "down_proj"]

# Name -> base model, what LoraConfig is given.
ADAPTERS = {
    "llama_lora": ("llama", dict(r=4, lora_alpha=8, target_modules=ATTENTION + MLP)),
    # Parts of packed products, and numbers by module.
    "llama_patterns": ("llama", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"],
                                     rank_pattern={"v_proj": 2, "layers.1.self_attn.q_proj": 3},
                                     alpha_pattern={"v_proj": 3, "down_proj": 16}, modules_to_save=["lm_head"])),
    "qwen2_lora": ("qwen2", dict(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj"])),
    "qwen3_rslora": ("qwen3", dict(r=4, lora_alpha=8, use_rslora=True, target_modules=ATTENTION)),
    "mistral_dora": ("mistral", dict(r=4, lora_alpha=8, use_dora=True, target_modules=["q_proj", "v_proj"] + MLP)),
    "qwen2_dora": ("qwen2", dict(r=2, lora_alpha=2, use_dora=True, target_modules=ATTENTION)),
    "qwen2_bias": ("qwen2", dict(r=2, lora_alpha=4, bias="lora_only", target_modules=["q_proj", "k_proj", "v_proj"])),
    # Experts of mixtures, all parts of them and some.
    "qwen3_moe_lora": ("qwen3_moe", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"] + MLP)),
    "qwen2_moe_lora": ("qwen2_moe", dict(r=3, lora_alpha=6, target_modules=["o_proj", "up_proj", "down_proj"],
                                         rank_pattern={"down_proj": 2}, alpha_pattern={"up_proj": 12})),
    "gpt2_lora": ("gpt2", dict(r=4, lora_alpha=8, fan_in_fan_out=True, target_modules=["c_attn", "c_proj", "c_fc"])),
}


class Experts(torch.nn.ModuleList):
    """The experts of a layer as linear layers of their own, which transformers 4 has and PEFT puts adapters beside."""

    def __init__(self, stacked):
        super().__init__()
        self.act = stacked.act_fn.forward  # a module would be one of the list
        for gate_up, down in zip(stacked.gate_up_proj, stacked.down_proj):
            parts = dict(zip(("gate_proj", "up_proj"), gate_up.chunk(2)), down_proj=down)
            expert = torch.nn.Module()
            for name, weight in parts.items():
                layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
                layer.weight = torch.nn.Parameter(weight.detach().clone())
                expert.add_module(name, layer)
            self.append(expert)

    def forward(self, hidden, chosen, weights):
        out = torch.zeros_like(hidden)
        for i, expert in enumerate(self):
            row, slot = torch.where(chosen == i)
            x = hidden[row]
            y = expert.down_proj(self.act(expert.gate_proj(x)) * expert.up_proj(x))
            out = out.index_add(0, row, y * weights[row, slot, None])
        return out


def with_experts_apart(model, options):
    """The model with experts that an adapter can be beside, where it names them."""
    if any(n in options["target_modules"] for n in MLP):
        for layer in (m for m in list(model.modules()) if hasattr(getattr(m, "mlp", None), "experts")):
            layer.mlp.experts = Experts(layer.mlp.experts)
            peft.tuners.tuners_utils.is_transformers_ge_v5 = False  # its modules have the names of version 4
    return model


def stored_name(name):
    """A parameter's name in adapter_model.safetensors."""
    name = name.replace(".modules_to_save.default.", ".").replace(".default.", ".")
    return name.replace("lora_magnitude_vector.weight", "lora_magnitude_vector")


def adapted(model, options, seed, numbers=None):
    """The model with its adapter: random numbers, or those given."""
    config = peft.LoraConfig(task_type="CAUSAL_LM", **options)
    with_adapter = peft.get_peft_model(with_experts_apart(model, options), config, autocast_adapter_dtype=False)
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in with_adapter.named_parameters():
            if not p.requires_grad:
                continue
            if numbers:
                p.copy_(numbers[name])
            elif "lora_magnitude_vector" in name:
                p.mul_(1 + 0.2 * torch.randn(p.shape, generator=g).to(p.dtype))
            else:
                p.copy_(0.15 * torch.randn(p.shape, generator=g))
    return with_adapter.train()


def trained(model):
    return {n: p for n, p in model.named_parameters() if p.requires_grad}


def only_trained(model):
    """The model with no parameters but those that are not frozen, for the functions of make_goldens."""
    chosen = trained(model)
    model.named_parameters = lambda *a, **k: iter(chosen.items())
    model.parameters = lambda recurse=True: iter(list(chosen.values()))
    return model


def save(model, folder, name):
    model.save_pretrained(folder)
    for extra in set(os.listdir(folder)) - {"adapter_config.json", "adapter_model.safetensors", "golden.safetensors"}:
        os.remove(os.path.join(folder, extra))
    path = os.path.join(folder, "adapter_config.json")
    with open(path) as f:
        config = json.load(f)
    config["base_model_name_or_path"] = "tests/golden/" + name
    config["target_modules"] = sorted(config["target_modules"])
    with open(path, "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write("\n")
    os.chmod(os.path.join(folder, "adapter_model.safetensors"), 0o644)


def stacked(model, stored):
    """A checkpoint's tensors as the model has them: those of experts, which transformers stacks, one behind the other."""
    out = {}
    for name, p in model.state_dict().items():
        root, last = name.rpartition(".")[::2]
        parts = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}.get(last)
        if root.endswith(".experts") and parts:
            out[name] = torch.stack([torch.cat([stored[f"{root}.{i}.{part}.weight"] for part in parts])
                                     for i in range(p.shape[0])])
        elif name in stored:
            out[name] = stored[name]
    return out


def load(model, path):
    missing = model.load_state_dict(stacked(model, load_file(path)), strict=False).missing_keys
    assert set(missing) <= {"lm_head.weight"}, missing  # that of a tied embedding


def make_adapter(name, seed):
    """Whether float32 PyTorch stays near: where a gradient is all but 0, Adam's first steps go by its rounding."""
    base, options = ADAPTERS[name]
    folder = os.path.join(FOLDER, name)
    os.makedirs(folder, exist_ok=True)
    config = configs()[base]
    given = load_file(os.path.join(GOLDEN, base, "golden.safetensors"))
    tokens, targets = given["tokens"].long(), given["targets"].long()
    plain = build(config)
    load(plain, os.path.join(GOLDEN, base, "model.safetensors"))
    twin = double_copy(plain, config)
    model = adapted(plain, options, seed)
    save(model, folder, base)
    numbers = {n: p.detach().clone() for n, p in trained(model).items()}
    with all_double():
        twin = only_trained(adapted(twin, options, seed, numbers))
        logits, loss, _, grads = gradients(twin, tokens, targets)
        losses, norms = train(twin, tokens, targets)
    losses32, _ = train(only_trained(model), tokens, targets)
    saved = load_file(os.path.join(folder, "adapter_model.safetensors"))
    assert set(saved) == {stored_name(n) for n in grads}, (set(saved) ^ {stored_name(n) for n in grads})
    out = dict(logits=logits.float(), loss=loss.reshape(1), adamw_losses=losses, adamw_grad_norms=norms)
    out.update({"grad." + stored_name(n): g.float() for n, g in grads.items()})
    write(os.path.join(folder, "golden.safetensors"), out)
    spread = (losses32 - losses).abs().max().item()
    print(f"{name}, seed {seed}: {len(grads)} tensors, loss {loss.item():.6f}, after {STEPS} steps {losses[-1].item():.6f}; "
          f"float32 PyTorch differs by {spread:.1e}")
    return spread < 2e-6


def main(wanted):
    torch.set_num_threads(1)
    for name in wanted or ADAPTERS:
        assert any(make_adapter(name, seed) for seed in range(1, 30))


if __name__ == "__main__":
    main(sys.argv[1:])
