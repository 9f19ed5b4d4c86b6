"""Writes tests/golden/preferences/: what PyTorch and PEFT say DPO must compute, on models and adapters of tests/golden.

    pip install "torch==2.8.0" transformers peft safetensors numpy
    python3 tools/make_preference_goldens.py

The loss is TRL's (DPOTrainer, loss_type "sigmoid"), written out:

    reward = beta (log p - log q)              of each answer; q: the model with its adapter off
    loss   = -(1 - e) log sigmoid(margin) - e log sigmoid(-margin),       margin = reward of chosen - of rejected

The mean over pairs is minimised. As in make_goldens.py everything is computed in float64 from the float32 numbers.
"""
import os

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from make_adapter_goldens import ADAPTERS, adapted, only_trained, stored_name, trained
from make_goldens import BETAS, CLIP, DECAY, EPS, GOLDEN, LR, VOCAB, all_double, build, configs, double_copy, write

FOLDER = os.path.join(GOLDEN, "preferences")
IGNORE, PAIRS, LENGTH, STEPS = -100, 4, 24, 10
# Name -> adapter of tests/golden/adapters, beta, label smoothing.
CASES = {"llama": ("llama_lora", 0.1, 0.0), "qwen2": ("qwen2_lora", 0.3, 0.1)}


def make_pairs(seed):
    """Pairs of sequences [PAIRS, 2, LENGTH] that share a prompt; answers of several lengths are the labels."""
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCAB, (PAIRS, 2, LENGTH), generator=g)
    targets = torch.full((PAIRS, 2, LENGTH), IGNORE)
    for i in range(PAIRS):
        prompt = 4 + 2 * i
        tokens[i, 1, :prompt] = tokens[i, 0, :prompt]
        for k in range(2):
            end = LENGTH - 3 * k - i
            tokens[i, k, end:] = 0
            targets[i, k, prompt - 1:end - 1] = tokens[i, k, prompt:end]
    return tokens, targets


def log_probabilities(model, tokens, targets):
    rows, due = tokens.reshape(-1, LENGTH), targets.reshape(-1, LENGTH)
    logits = model(rows, use_cache=False).logits
    each = -F.cross_entropy(logits.reshape(-1, VOCAB), due.reshape(-1), ignore_index=IGNORE, reduction="none")
    return each.reshape(PAIRS, 2, LENGTH).sum(-1)


def dpo(log_p, log_q, beta, smoothing):
    rewards = beta * (log_p - log_q)
    margins = rewards[:, 0] - rewards[:, 1]
    losses = -(1 - smoothing) * F.logsigmoid(margins) - smoothing * F.logsigmoid(-margins)
    return losses.mean(), rewards


def train(model, tokens, targets, log_q, beta, smoothing):
    params = list(model.parameters())
    opt = torch.optim.AdamW(params, lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)
    losses = []
    for _ in range(STEPS):
        opt.zero_grad()
        loss, _ = dpo(log_probabilities(model, tokens, targets), log_q, beta, smoothing)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, CLIP)
        opt.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def make(name, seed):
    adapter, beta, smoothing = CASES[name]
    base, options = ADAPTERS[adapter]
    config = configs()[base]
    tokens, targets = make_pairs(seed)
    plain = build(config)
    plain.load_state_dict(load_file(os.path.join(GOLDEN, base, "model.safetensors")), strict=False)
    stored = load_file(os.path.join(GOLDEN, "adapters", adapter, "adapter_model.safetensors"))
    twin = double_copy(plain, config)
    with all_double():
        model = adapted(twin, options, 1)
        with torch.no_grad():
            for n, p in trained(model).items():
                p.copy_(stored[stored_name(n)])
        with torch.no_grad(), model.disable_adapter():
            log_q = log_probabilities(model, tokens, targets)
        model = only_trained(model)
        log_p = log_probabilities(model, tokens, targets)
        loss, rewards = dpo(log_p, log_q, beta, smoothing)
        loss.backward()
        grads = {stored_name(n): p.grad.clone() for n, p in trained(model).items()}
        losses = train(model, tokens, targets, log_q, beta, smoothing)
    out = dict(tokens=tokens.int(), targets=targets.int(), reference=log_q.float(), log_p=log_p.detach().float(),
               rewards=rewards.detach().float(), loss=loss.detach().reshape(1), adamw_losses=losses)
    out.update({"grad." + n: g.float() for n, g in grads.items()})
    write(os.path.join(FOLDER, name + ".safetensors"), out)
    print(f"{name}: loss {loss.item():.6f}, after {STEPS} steps {losses[-1].item():.6f}")


def main():
    torch.set_num_threads(1)
    os.makedirs(FOLDER, exist_ok=True)
    for seed, name in enumerate(CASES):
        make(name, seed + 1)


if __name__ == "__main__":
    main()
