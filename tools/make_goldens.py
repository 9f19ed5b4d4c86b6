"""Writes tests/golden/: what an independent implementation says our models and ops must compute.

The environment, outside the repository (any machine, CPU only):

    python3 -m venv ~/oracle && . ~/oracle/bin/activate
    pip install "torch==2.8.0" transformers safetensors numpy
    python3 tools/make_goldens.py                 writes tests/golden/ and checks itself
    python3 tools/make_goldens.py llama ops       only these

Each model is built by transformers from a config and a seed, with every norm weight and bias made
random so that a forgotten one shows. tests/golden/README.md lists the tensors of the files.

Logits, losses and gradients are computed in float64 from the float32 weights and stored as float32:
transformers converts to float32 inside norms, softmax and RoPE, so `all_double` makes those
conversions go to float64 as well, and `check_gradient` proves with central differences that nothing
in the chain was rounded to float32. The twenty optimizer steps are run twice, in float32 as PyTorch
users would and in float64.
"""
import contextlib
import json
import os
import sys
import types

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(os.path.dirname(HERE), "tests", "golden")

BATCH, SEQ, VOCAB, IGNORE = 3, 24, 97, -100
STEPS, LR, BETAS, EPS, DECAY, CLIP = 20, 3e-3, (0.9, 0.95), 1e-8, 0.1, 1.0
SMOOTHING, Z_LOSS = 0.1, 1e-3

LLAMA = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=False,
             bos_token_id=1, eos_token_id=2)
GEMMA = dict(**{**LLAMA, "tie_word_embeddings": True}, head_dim=16, query_pre_attn_scalar=12, sliding_window=8,
             layer_types=["sliding_attention", "full_attention"], pad_token_id=None)
# Mixtures of experts: with the balance loss in what is minimised (wide factor, so that it shows), and without.
MIXTURE = {**LLAMA, "intermediate_size": 40}
PLAIN_ROPE = dict(rope_theta=10000.0, rope_type="default")
# original_max_position_embeddings is small so that all three ranges of the rule occur at head size 8.
LLAMA3_ROPE = dict(rope_theta=10000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=32)


def configs():
    """Name of the folder -> transformers config."""
    t = transformers
    return {
        "gpt2": t.GPT2Config(vocab_size=VOCAB, n_positions=64, n_embd=32, n_layer=2, n_head=4,
                             activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                             bos_token_id=1, eos_token_id=2),
        "llama": t.LlamaConfig(**LLAMA, rope_parameters=PLAIN_ROPE),
        "llama3": t.LlamaConfig(**{**LLAMA, "tie_word_embeddings": True}, rope_parameters=LLAMA3_ROPE),
        "qwen2": t.Qwen2Config(**LLAMA, rope_parameters={**PLAIN_ROPE, "rope_theta": 1e6}),
        "qwen3": t.Qwen3Config(**LLAMA, head_dim=16, rope_parameters={**PLAIN_ROPE, "rope_theta": 1e6}),
        "mistral": t.MistralConfig(**LLAMA, sliding_window=8, rope_parameters=PLAIN_ROPE),
        "olmo2": t.Olmo2Config(**LLAMA, pad_token_id=None, rope_parameters=PLAIN_ROPE),
        "smollm3": t.SmolLM3Config(**{**LLAMA, "tie_word_embeddings": True}, no_rope_layers=[1, 0], use_sliding_window=True,
                                   sliding_window=8, pad_token_id=None, rope_parameters={**PLAIN_ROPE, "rope_theta": 2e6}),
        "phi3": t.Phi3Config(**LLAMA, sliding_window=8, pad_token_id=None, original_max_position_embeddings=64,
                             rope_parameters={**PLAIN_ROPE, "partial_rotary_factor": 0.5}),
        "mixtral": t.MixtralConfig(**{**MIXTURE, "intermediate_size": 24}, num_local_experts=4, num_experts_per_tok=2,
                                   output_router_logits=True, router_aux_loss_coef=0.5, rope_parameters=PLAIN_ROPE),
        "qwen2_moe": t.Qwen2MoeConfig(**MIXTURE, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=16,
                                      shared_expert_intermediate_size=24, mlp_only_layers=[0],
                                      rope_parameters=PLAIN_ROPE),
        "qwen3_moe": t.Qwen3MoeConfig(**MIXTURE, head_dim=16, num_experts=8, num_experts_per_tok=3,
                                      moe_intermediate_size=16, norm_topk_prob=True, rope_parameters=PLAIN_ROPE),
        "olmoe": t.OlmoeConfig(**{**MIXTURE, "intermediate_size": 24}, pad_token_id=None, num_experts=4, num_experts_per_tok=2,
                               output_router_logits=True, router_aux_loss_coef=0.2, rope_parameters=PLAIN_ROPE),
        "moe": types.SimpleNamespace(model_type="moe", vocab_size=VOCAB, max_position_embeddings=64, hidden_size=32,
                                     num_hidden_layers=2, num_attention_heads=4, intermediate_size=24, num_experts=4,
                                     num_experts_per_tok=2, router_aux_loss_coef=0.3, router_z_loss_coef=0.05,
                                     layer_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False),
        # Caps low enough to bend scores and logits.
        "gemma2": t.Gemma2Config(**GEMMA, attn_logit_softcapping=2.0, final_logit_softcapping=5.0,
                                 rope_parameters=PLAIN_ROPE),
        "gemma3": t.Gemma3TextConfig(**GEMMA, rope_parameters={
            "full_attention": dict(rope_type="linear", factor=4.0, rope_theta=1e6), "sliding_attention": PLAIN_ROPE}),
        # Low enough to cut queries, keys and values.
        "olmoe_clip": t.OlmoeConfig(**{**MIXTURE, "intermediate_size": 8, "num_hidden_layers": 1}, pad_token_id=None,
                                    num_experts=2, num_experts_per_tok=1, clip_qkv=0.8, rope_parameters=PLAIN_ROPE),
    }


class Mixture(torch.nn.Module):
    """The decoder of model_type moe, written down once more: plain loops, no shared code."""

    def __init__(self, config):
        super().__init__()
        c = self.config = config
        n, inner = c.hidden_size, c.intermediate_size
        linear = torch.nn.Linear
        self.model = torch.nn.Module()
        self.model.embed_tokens = torch.nn.Embedding(c.vocab_size, n)
        self.model.layers = torch.nn.ModuleList()
        for _ in range(c.num_hidden_layers):
            layer = torch.nn.Module()
            layer.input_layernorm, layer.post_attention_layernorm = (torch.nn.LayerNorm(n, c.layer_norm_eps) for _ in "ab")
            layer.self_attn = torch.nn.ModuleDict({p + "_proj": linear(n, n) for p in "qkvo"})
            layer.mlp = torch.nn.Module()
            layer.mlp.gate = linear(n, c.num_experts)
            layer.mlp.experts = torch.nn.ModuleList(
                torch.nn.ModuleDict(dict(up_proj=linear(n, inner), down_proj=linear(inner, n)))
                for _ in range(c.num_experts))
            self.model.layers.append(layer)
        self.model.norm = torch.nn.LayerNorm(n, c.layer_norm_eps)
        self.lm_head = linear(n, c.vocab_size, bias=False)

    def attend(self, x, own):
        heads, (b, t, n) = self.config.num_attention_heads, x.shape
        d = n // heads
        q, k, v = (own[p + "_proj"](x).reshape(b, t, heads, d).transpose(1, 2) for p in "qkv")
        angle = torch.outer(torch.arange(t), (10000.0 ** (-torch.arange(0, d, 2) / d)).float()).to(x.dtype)
        cos, sin = (torch.cat([f(angle)] * 2, -1) for f in (torch.cos, torch.sin))
        q, k = (y * cos + torch.cat([-y[..., d // 2:], y[..., :d // 2]], -1) * sin for y in (q, k))
        return own["o_proj"](attention(q, k, v).transpose(1, 2).reshape(b, t, n))

    def mix(self, x, own):
        """The output of a layer, its balance loss and its z loss."""
        c, rows = self.config, x.reshape(-1, x.shape[-1])
        z = own.gate(rows)
        p = torch.softmax(z, -1)
        top, ids = p.topk(c.num_experts_per_tok, -1)
        weights, y = top / (top.sum(-1, keepdim=True) + 1e-9), torch.zeros_like(rows)
        for e, expert in enumerate(own.experts):
            out = expert["down_proj"](F.gelu(expert["up_proj"](rows)))
            y = y + ((ids == e) * weights).sum(-1, keepdim=True) * out
        share = torch.bincount(ids.reshape(-1), minlength=c.num_experts) / ids.numel()
        balance = c.num_experts * (share.to(p.dtype) * p.mean(0)).sum()
        return y.reshape(x.shape), balance, (torch.logsumexp(z, -1) ** 2).mean()

    def forward(self, tokens, use_cache=False):
        x, losses = self.model.embed_tokens(tokens), []
        for layer in self.model.layers:
            x = x + self.attend(layer.input_layernorm(x), layer.self_attn)
            y, *own = self.mix(layer.post_attention_layernorm(x), layer.mlp)
            x = x + y
            losses.append(torch.stack(own))
        balance, z_loss = torch.stack(losses).mean(0)
        return types.SimpleNamespace(logits=self.lm_head(self.model.norm(x)), aux_loss=balance, z_loss=z_loss)

    def save_pretrained(self, folder):
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(dict(vars(self.config), dtype="float32"), f, indent=2, sort_keys=True)
            f.write("\n")
        save_file({n: p.detach().clone() for n, p in self.named_parameters()},
                  os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})


@contextlib.contextmanager
def all_double():
    """Inside, every float32 that library code asks for is float64."""
    names, tensor = ("float32", "float"), torch.Tensor
    saved, saved_method = {n: getattr(torch, n) for n in names}, tensor.float
    try:
        torch.set_default_dtype(torch.float64)
        for n in names:
            setattr(torch, n, torch.float64)
        tensor.float = tensor.double
        yield
    finally:
        for n in names:
            setattr(torch, n, saved[n])
        tensor.float = saved_method
        torch.set_default_dtype(torch.float32)


def build(config):
    if config.model_type == "moe":
        return Mixture(config).train()
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").train()


def randomise(model, seed):
    g = torch.Generator().manual_seed(seed)
    centre = 0 if "Gemma" in type(model).__name__ else 1  # its norms add one
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=g)
            if p.dim() >= 2:
                p.copy_(0.15 * noise)
            elif name.endswith("bias"):
                p.copy_(0.2 * noise)
            else:
                p.copy_(centre + 0.3 * noise)


def double_copy(model, config):
    with all_double():
        twin = build(config)
    assert all(p.dtype == torch.float64 for p in twin.parameters())
    assert all(b.dtype == torch.float64 for n, b in twin.named_buffers() if "inv_freq" in n)
    with torch.no_grad():
        for (name, p), (twin_name, q) in zip(model.named_parameters(), twin.named_parameters()):
            assert name == twin_name
            q.copy_(p.double())
    return twin


def make_batch(seed):
    g = torch.Generator().manual_seed(seed)
    stream = torch.randint(0, VOCAB, (BATCH, SEQ + 1), generator=g)
    targets = stream[:, 1:].clone()
    targets[0, 0] = targets[1, 10] = targets[1, 11] = targets[2, SEQ - 1] = IGNORE
    return stream[:, :-1].contiguous(), targets


def mean_loss(logits, targets, smoothing=0.0, z_loss=0.0):
    """Mean over the valid tokens of cross entropy + z_loss * logsumexp^2."""
    logits, targets = logits.reshape(-1, VOCAB), targets.reshape(-1)
    loss = F.cross_entropy(logits, targets, ignore_index=IGNORE, label_smoothing=smoothing)
    if z_loss:
        lse = torch.logsumexp(logits, -1)[targets != IGNORE]
        loss = loss + z_loss * (lse * lse).mean()
    return loss


def losses_of(model, tokens, targets, **kw):
    """Logits, mean cross entropy, and the losses of routing by name where the config asks for them."""
    out = model(tokens, use_cache=False)
    routing = dict(balance_loss=getattr(out, "aux_loss", None), router_z_loss=getattr(out, "z_loss", None))
    return out.logits, mean_loss(out.logits, targets, **kw), {n: x for n, x in routing.items() if x is not None}


def minimised(model, loss, routing):
    factors = dict(balance_loss="router_aux_loss_coef", router_z_loss="router_z_loss_coef")
    return loss + sum(getattr(model.config, factors[n]) * x for n, x in routing.items())


def whole_loss(model, tokens, targets, **kw):
    return minimised(model, *losses_of(model, tokens, targets, **kw)[1:])


def gradients(model, tokens, targets, **kw):
    """Gradients of what is minimised; the loss that is returned is the cross entropy."""
    model.zero_grad()
    logits, loss, routing = losses_of(model, tokens, targets, **kw)
    minimised(model, loss, routing).backward()
    return logits.detach(), loss.detach(), routing, {n: p.grad.clone() for n, p in model.named_parameters()}


def by_expert(model, tensors):
    """Tensors of parameters under their names in checkpoints: those of experts, which transformers stacks, apart."""
    mixtral = model.config.model_type == "mixtral"
    names = dict(gate="w1", up="w3", down="w2") if mixtral else {n: n + "_proj" for n in ("gate", "up", "down")}
    out = {}
    for name, x in tensors.items():
        stored = name.replace(".mlp.", ".block_sparse_moe.") if mixtral else name
        root, _, last = stored.rpartition(".")
        if last not in ("gate_up_proj", "down_proj") or not root.endswith(".experts"):
            out[stored] = x
            continue
        for e, own in enumerate(x):
            parts = dict(zip(("gate", "up"), own.chunk(2))) if last == "gate_up_proj" else dict(down=own)
            out.update({f"{root}.{e}.{names[n]}.weight": part for n, part in parts.items()})
    return out


def check_gradient(model, tokens, targets, grads):
    """A float32 rounding anywhere in the chain would leave an error of 1e-7 in the loss and so of 5e-2 here."""
    step = 2e-6
    for name, p in model.named_parameters():
        direction = torch.randn(p.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        with torch.no_grad():
            ends = []
            for sign in (1, -2, 1):
                p.add_(direction, alpha=sign * step)
                ends.append(whole_loss(model, tokens, targets).item())
        expected, got = (ends[0] - ends[1]) / (2 * step), (grads[name] * direction).sum().item()
        assert abs(expected - got) < 1e-6 * max(1.0, abs(expected)), (name, expected, got)


def check_sliding_window(model, tokens, window, layers):
    """The first token must not reach past layers * (window - 1) positions, and must reach that far."""
    other = tokens.clone()
    other[:, 0] = (other[:, 0] + 1) % VOCAB
    with torch.no_grad():
        change = (model(tokens).logits - model(other).logits).abs().amax(dim=(0, 2))
    reach = layers * (window - 1)
    assert change[reach] > 0 and change[reach + 1:].max() == 0, change


def train(model, tokens, targets):
    """STEPS AdamW steps on one batch: losses and gradient norms (before clipping) of each step."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    opt = torch.optim.AdamW([dict(params=matrices, weight_decay=DECAY), dict(params=vectors, weight_decay=0.0)],
                            lr=LR, betas=BETAS, eps=EPS)
    losses, norms = [], []
    for _ in range(STEPS):
        opt.zero_grad()
        _, loss, routing = losses_of(model, tokens, targets)
        minimised(model, loss, routing).backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
        opt.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)


def trained_names(model):
    """The first matrix and the last norm: enough to see decay, its absence, and the step."""
    named = list(model.named_parameters())
    return [named[0][0], [n for n, p in named if p.dim() == 1 and n.endswith("weight")][-1]]


def legacy_config(folder):
    """The same config with the key names of transformers 4, which most published files have."""
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    rope = config.pop("rope_parameters", None)
    if rope and "full_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    if rope:
        config["rope_theta"] = rope.pop("rope_theta")
        if rope.get("partial_rotary_factor", 1.0) != 1.0:
            config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    if config["model_type"] == "qwen3_moe":
        config["num_experts"] = config.pop("num_local_experts")
    config["torch_dtype"] = config.pop("dtype", "float32")
    with open(os.path.join(folder, "config_v4.json"), "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write("\n")


def make_model(name, config, seed):
    folder = os.path.join(GOLDEN, name)
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(seed)
    model = build(config)
    randomise(model, seed)
    model.save_pretrained(folder)
    for extra in set(os.listdir(folder)) - {"config.json", "model.safetensors", "golden.safetensors"}:
        os.remove(os.path.join(folder, extra))
    os.chmod(os.path.join(folder, "model.safetensors"), 0o644)
    legacy_config(folder)

    tokens, targets = make_batch(seed + 100)
    with torch.no_grad():
        logits32 = model(tokens, use_cache=False).logits
    twin = double_copy(model, config)
    with all_double():
        logits, loss, routing, grads = gradients(twin, tokens, targets)
        check_gradient(twin, tokens, targets, grads)
        if getattr(config, "sliding_window", None) and "full_attention" not in (getattr(config, "layer_types", None) or []):
            check_sliding_window(twin, tokens, config.sliding_window, config.num_hidden_layers)
        _, smooth, _, smooth_grads = gradients(twin, tokens, targets, smoothing=SMOOTHING, z_loss=Z_LOSS)
        losses64, norms = train(twin, tokens, targets)
    losses32, _ = train(model, tokens, targets)

    pick = trained_names(twin)
    out = dict(tokens=tokens.int(), targets=targets.int(), logits=logits, loss=loss.reshape(1),
               smooth_loss=smooth.reshape(1), adamw_losses=losses64, adamw_losses_f32=losses32, adamw_grad_norms=norms)
    out.update({n: x.detach().reshape(1) for n, x in routing.items()})
    out.update({"grad." + n: g for n, g in by_expert(twin, grads).items()})
    out.update({"smooth_grad." + n: smooth_grads[n] for n in pick})
    out.update({"trained." + n: p.detach() for n, p in twin.named_parameters() if n in pick})
    keep_double = ("adamw_losses", "loss", "smooth_loss", "adamw_grad_norms", "balance_loss",
                   "router_z_loss")
    out = {n: x.float() if x.dtype == torch.float64 and n not in keep_double else x for n, x in out.items()}
    out["adamw_losses_f32"] = losses32.float()
    write(os.path.join(folder, "golden.safetensors"), out)
    error = ((logits32.double() - logits).abs().max() / logits.abs().max()).item()
    spread = (losses32 - losses64).abs().max().item()
    print(f"{name}: loss {loss.item():.6f}, grad norm {norms[0].item():.2f}, after {STEPS} steps {losses64[-1].item():.6f}; "
          f"float32 PyTorch differs by {error:.1e} (logits, relative) and {spread:.1e} (losses)")
    assert error < 1e-5 and spread < 1e-3


def write(path, tensors):
    save_file({n: x.contiguous().clone() for n, x in tensors.items()}, path, metadata={"format": "pt"})
    os.chmod(path, 0o644)


class Ops:
    """Collects `op.case.tensor` entries: inputs as given, outputs and gradients from float64."""

    def __init__(self):
        self.out, self.generator = {}, torch.Generator().manual_seed(7)

    def normal(self, *shape, scale=1.0):
        return scale * torch.randn(shape, generator=self.generator)

    def add(self, prefix, function, inputs, constants=None):
        """function(**inputs, **constants) -> y. Stores inputs, y, dy and d<input> = dy . dy/dinput."""
        leaves = {n: x.double().requires_grad_() for n, x in inputs.items()}
        y = function(**leaves, **(constants or {}))
        dy = torch.ones_like(y) if y.numel() == 1 else self.normal(*y.shape).double()
        y.backward(dy)
        entries = dict(inputs, y=y.detach().reshape(y.shape or (1,)), dy=dy.reshape(dy.shape or (1,)))
        entries.update({"d" + n: x.grad for n, x in leaves.items()})
        entries.update({n: x.int() for n, x in (constants or {}).items()})
        for n, x in entries.items():
            self.out[f"{prefix}.{n}"] = x.float() if x.dtype == torch.float64 else x


def attention(q, k, v, window=None):
    """Causal grouped-query attention, [B, H, T, D] with H a multiple of the heads of k and v; scale 1/sqrt(D)."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    n_q, n_k = q.shape[2], k.shape[2]
    i, j = torch.arange(n_q)[:, None] + (n_k - n_q), torch.arange(n_k)[None, :]
    mask = (j <= i) if window is None else (j <= i) & (j > i - window)
    scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), -1) @ v


def rms_norm(x, weight, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def make_ops():
    ops = Ops()
    normal = ops.normal
    x = torch.cat([torch.linspace(-6, 6, 25), normal(8, scale=3)]).reshape(3, 11)
    ops.add("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), dict(x=x))
    ops.add("gelu_erf", lambda x: F.gelu(x), dict(x=x))
    ops.add("silu", lambda x: F.silu(x), dict(x=x))
    ops.add("silu_gate", lambda gate, up: F.silu(gate) * up, dict(gate=normal(4, 7, scale=2), up=normal(4, 7)))

    rows, weight, bias = normal(5, 19, scale=2) + 3, 1 + normal(19, scale=0.3), normal(19)
    ops.add("layer_norm", lambda x, weight, bias: F.layer_norm(x, (19,), weight, bias, 1e-5),
            dict(x=rows, weight=weight, bias=bias))
    ops.add("rms_norm", lambda x, weight: rms_norm(x, weight, 1e-6), dict(x=rows, weight=weight))
    ops.add("softmax", lambda x: torch.softmax(x, -1), dict(x=normal(4, 13, scale=5)))

    heads = dict(q=normal(2, 4, 9, 8), k=normal(2, 2, 9, 8), v=normal(2, 2, 9, 8))
    ops.add("attention", attention, heads)
    ops.add("attention_window4", lambda q, k, v: attention(q, k, v, window=4), heads)

    logits = normal(12, 23, scale=3)
    targets = torch.randint(0, 23, (12,), generator=ops.generator)
    targets[3] = targets[11] = IGNORE

    def entropy(smoothing, z_loss):
        def f(logits, targets):
            lse = torch.logsumexp(logits, -1)[targets != IGNORE]
            return F.cross_entropy(logits, targets, ignore_index=IGNORE, label_smoothing=smoothing) + z_loss * (lse * lse).mean()
        return f

    for name, smoothing, z_loss in (("cross_entropy", 0.0, 0.0), ("cross_entropy_smooth", SMOOTHING, 0.0),
                                    ("cross_entropy_z", 0.0, Z_LOSS), ("cross_entropy_smooth_z", SMOOTHING, Z_LOSS)):
        ops.add(name, entropy(smoothing, z_loss), dict(logits=logits), dict(targets=targets))

    a, b, c = normal(6, 10), normal(7, 10), normal(7)
    ops.add("linear", lambda x, weight, bias: F.linear(x, weight, bias), dict(x=a, weight=b, bias=c))
    ids = torch.tensor([[0, 4, 4], [2, 0, 1]])
    ops.add("embedding", lambda table, ids: F.embedding(ids, table), dict(table=normal(5, 6)), dict(ids=ids))
    write(os.path.join(GOLDEN, "ops.safetensors"), ops.out)
    print(f"ops: {len(ops.out)} tensors")


def main(wanted):
    torch.set_num_threads(1)  # one order of summation, so that a rerun gives the same bytes
    os.makedirs(GOLDEN, exist_ok=True)
    for seed, (name, config) in enumerate(configs().items()):
        if not wanted or name in wanted:
            make_model(name, config, seed + 1)
            load_file(os.path.join(GOLDEN, name, "golden.safetensors"))
    if not wanted or "ops" in wanted:
        make_ops()


if __name__ == "__main__":
    main(sys.argv[1:])
