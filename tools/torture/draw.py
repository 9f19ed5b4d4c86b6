"""Draws configs of small networks with a random combination of features, for combinations.py. All that is drawn
is a mapping of config keys, so that a config which shows a fault can be made smaller key by key."""

LLAMAS = ["llama", "mistral", "qwen2", "qwen3", "olmo2", "smollm3", "phi3", "gemma2", "gemma3_text"]
MIXTURES = ["mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "moe"]
OPTIMIZERS = ["adamw", "adamw_8bit", "paged_adamw", "paged_adamw_8bit", "lion", "lion_8bit", "paged_lion_8bit",
              "adafactor", "muon", "muon_8bit", "sgd"]
WITH_BF16_STATES = {"adamw", "paged_adamw", "lion", "paged_lion", "sgd"}
CHAT_TEMPLATES = ["chatml", "llama3", "zephyr", "gemma"]


def gpt2(r):
    return {"model_type": "gpt2", "vocab_size": r.choice([257, 300]), "n_embd": r.choice([16, 32, 48]), "n_head": 2,
            "n_layer": r.randint(1, 4), "n_positions": 160, "resid_pdrop": r.choice([0, 0.1]),
            "attn_pdrop": r.choice([0, 0.1]), "embd_pdrop": r.choice([0, 0.1])}


def llama(r, family):
    width = r.choice([16, 32, 64])
    heads = r.choice([2, 4])
    model = {"model_type": family, "vocab_size": r.choice([257, 320, 1000]), "hidden_size": width,
             "intermediate_size": r.choice([32, 48, 128]), "num_hidden_layers": r.randint(1, 4),
             "num_attention_heads": heads, "num_key_value_heads": r.choice([1, 2]),
             "max_position_embeddings": 160, "tie_word_embeddings": r.random() < 0.5}
    if family in ("qwen3", "gemma2", "gemma3_text", "qwen3_moe"):
        model["head_dim"] = 8
    if family in ("mistral", "gemma2", "gemma3_text"):
        model["sliding_window"] = 8
    if family == "phi3":
        model["pad_token_id"] = 0
    return model


def mixture(r, family):
    if family == "moe":
        return {"model_type": "moe", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 32,
                "num_hidden_layers": r.randint(1, 3), "num_attention_heads": 2, "num_experts": r.choice([2, 4]),
                "max_position_embeddings": 160}
    model = llama(r, family)
    n_experts, per_token = r.choice([(2, 1), (4, 2), (8, 2)])
    model["num_local_experts" if family == "mixtral" else "num_experts"] = n_experts
    model["num_experts_per_tok"] = per_token
    if family in ("qwen2_moe", "qwen3_moe"):
        model["moe_intermediate_size"] = 16
    if family == "qwen2_moe":
        model["shared_expert_intermediate_size"] = 24
    return model


def convolutions(r):
    layers = [{"conv": {"out": 8, "kernel": 3, "padding": 1, "bias": r.random() < 0.5}},
              r.choice(["batch_norm", {"group_norm": 2}, "instance_norm"]), "relu",
              {"residual": [{"conv": {"out": 8, "kernel": 3, "padding": 1}}, "batch_norm", "silu"]},
              {"max_pool": 2}, {"dropout": 0.2}, "global_mean", {"linear": 5}]
    return {"input": [8, 8, 3], "layers": layers, "loss": "cross_entropy"}


def sequence(r):
    middle = r.choice([{"lstm": {"hidden": 12, "layers": 2}}, {"gru": {"hidden": 8, "bidirectional": True}},
                       {"state_space": {"states": 4}}, {"encoder": {"heads": 2, "hidden": 16}}])
    return {"input": [6, 8], "layers": [{"linear": 8}, middle, "global_mean", {"linear": 3}], "loss": "mse"}


def perceptron(r):
    layers = []
    for _ in range(r.randint(1, 4)):
        layers += [{"linear": r.choice([8, 24, 64])}, r.choice(["relu", "gelu", "tanh", "layer_norm"])]
    return {"input": [10], "layers": layers + [{"linear": 4}], "loss": r.choice(["cross_entropy", "mse", "huber"])}


def frames(r):
    return {"model_type": "frame_cnn", "temporal_frames": 3, "image_height": 10, "image_width": 12, "width_divisor": 8,
            "segments": r.choice(["frame", "sequence"]),
            "architecture": r.choice(["transformer", "multi_scale", "gnn", "ssm", "lstm", "cnn"])}


def three_branch(r):
    model = {"model_type": "three_branch", "frames": 4, "image_height": 16, "image_width": 24, "width_divisor": 16,
             "segments": r.choice(["frame", "sequence"])}
    if r.random() < 0.3:
        model["branches"] = "image"
    elif r.random() < 0.5:
        model.update(siamese="cnn", tracks=True, grid_height=2, grid_width=2)
    return model


NETWORKS = [(3, perceptron), (3, convolutions), (2, sequence), (1, frames), (1, three_branch)]


def maybe(r, chance, key, *values):
    return {key: r.choice(values)} if r.random() < chance else {}


def precision(r, optimizer):
    found = {}
    kind = r.choice(["f32", "f32", "bf16", "bf16", "fp16"])
    if kind == "fp16":
        found.update(fp16=True, **maybe(r, 0.5, "initial_scale_power", 4, 24))
    if kind == "bf16":
        found.update(bf16=True, **maybe(r, 0.5, "master_dtype", "bf16", "24bit"))
    if kind == "bf16":
        found.update(maybe(r, 0.3, "gradient_dtype", "bf16"))
    if optimizer in WITH_BF16_STATES:
        found.update(maybe(r, 0.2, "optim_state_dtype", "bf16"))
    return found


def training(r):
    optimizer = r.choice(OPTIMIZERS)
    found = {"optim": optimizer, "learning_rate": 1e-3, "lr_scheduler_type": r.choice(["constant", "cosine", "linear"]),
             "per_device_train_batch_size": r.choice([1, 2, 3]), "gradient_accumulation_steps": r.choice([1, 1, 2, 3, 4, 5])}
    if optimizer == "sgd":
        found.update(maybe(r, 0.7, "momentum", 0.9))
    found.update(precision(r, optimizer))
    found.update(maybe(r, 0.4, "max_grad_norm", 0, 0.01))
    found.update(maybe(r, 0.2, "weight_decay", 0.1))
    if "fp16" not in found:
        found.update(maybe(r, 0.2, "ema_decay", 0.9))
    if "fp16" not in found and found.get("master_dtype") != "24bit":
        found.update(maybe(r, 0.2, "lookahead_steps", 2))
    found.update(maybe(r, 0.15, "layerwise_lr_decay", 0.8))
    if r.random() < 0.15:
        found.update(predictive_phases=r.choice(["linear", "least_squares", "dmd"]), phase_warmup_steps=0, full_steps=3,
                     snapshot_count=3, snapshot_steps=1, probe_batches=2, correct_steps=1, max_predict_steps=2, jump_z=0)
    return found


def constraints(r, n_micro, paged):
    """What leaves the planner less to decide."""
    found = {}
    found.update(maybe(r, 0.2, "gradient_checkpointing", True, False, "0-0"))
    found.update(maybe(r, 0.2, "activation_offloading", True, False))
    if not paged:
        found.update(maybe(r, 0.2, "offload_optimizer", True, False))
    found.update(maybe(r, 0.2, "offload_param", True, False))
    found.update(maybe(r, 0.3, "micro_batch_group", *range(1, n_micro + 1)))
    return found


def adapters(r, model):
    found = {"adapter": r.choice(["lora", "lora", "qlora"]), "lora_r": r.choice([1, 4])}
    found.update(maybe(r, 0.2, "use_dora", True))
    found.update(maybe(r, 0.2, "use_rslora", True))
    if "use_dora" not in found:
        found.update(maybe(r, 0.3, "lora_dropout", 0.1))
    if found["adapter"] == "lora":
        found.update(maybe(r, 0.2, "load_in_8bit", True))
    if not model.get("tie_word_embeddings", True):
        found.update(maybe(r, 0.3, "lora_modules_to_save", ["lm_head"]))
    return found


def language(r, files):
    family = r.choice(["gpt2", *LLAMAS, "llama", *MIXTURES])
    model = gpt2(r) if family == "gpt2" else mixture(r, family) if family in MIXTURES else llama(r, family)
    found = {"model": model, "tokenizer": "bytes", "max_seq_length": r.choice([8, 16, 32])}
    kind = r.choice(["synthetic", "synthetic", "text", "chats", "pairs"])
    if kind == "synthetic":
        found["datasets"] = [{"type": "synthetic", "n_tokens": 4000}]
    else:
        found["datasets"] = [{"path": files[kind]}]
    if kind in ("chats", "pairs"):
        found["chat_template"] = r.choice(CHAT_TEMPLATES)
        found["max_seq_length"] = 160
    if kind == "chats":
        found.update(r.choice([{}, {"packing": True}, {"group_by_length": True}]))
        found.update(maybe(r, 0.2, "train_on_inputs", True))
    if kind == "pairs":
        found["rl"] = "dpo"
    if family == "llama" and r.random() < 0.3:
        found["quantization"] = "bitnet"
    elif r.random() < 0.3:
        found.update(adapters(r, model))
    elif r.random() < 0.2:
        found["freeze"] = r.choice([["0"], ["*.mlp.*"], ["*norm*"]])
    found.update(maybe(r, 0.1, "neftune_noise_alpha", 5))
    found.update(maybe(r, 0.2, "lmhead_chunks", 1, 2, 3))
    if kind != "pairs":
        found.update(maybe(r, 0.1, "label_smoothing_factor", 0.1))
        found.update(maybe(r, 0.1, "z_loss", 0.01))
    return found


def network(r, files):
    del files
    draw = r.choices([d for _, d in NETWORKS], [n for n, _ in NETWORKS])[0]
    return {"model": draw(r), "datasets": [{"type": "synthetic", "n_samples": 64}]}


def evaluation(r):
    if r.random() < 0.6:
        return {}
    found = {"eval_strategy": "steps", "eval_steps": r.choice([1, 2]), "eval_max_batches": 2,
             "val_set_size": r.choice([2, 0.1])}
    found.update(maybe(r, 0.3, "per_device_eval_batch_size", 1, 5))
    found.update(maybe(r, 0.2, "load_best_model_at_end", True))
    return found


def config(r, files):
    """A config as a mapping of keys."""
    found = language(r, files) if r.random() < 0.75 else network(r, files)
    found.update(training(r))
    if "tokenizer" in found and "rl" not in found and found["gradient_accumulation_steps"] > 1 and r.random() < 0.1:
        found.update(predicted_gradients="residual", control_steps=2, control_threshold=r.choice([1, 1e30]))
    found.update(evaluation(r))
    found.update(constraints(r, found["gradient_accumulation_steps"], "paged" in found["optim"]))
    if "tokenizer" in found and "rl" not in found:
        found.update(maybe(r, 0.1, "sample_prompts", ["a b"]))
    if not {"group_by_length", "predicted_gradients", "rl", "micro_batch_group"} & set(found) and r.random() < 0.07:
        found.update(dynamic_batch=True, dynamic_batch_every=1, dynamic_batch_warmup=1, dynamic_batch_smooth=1,
                     dynamic_batch_max=4)
    found.update(maybe(r, 0.07, "elastic_budgets", ["auto"]))
    found.update(seed=r.randint(1, 99), device="cpu", num_threads=1, report_to="none", save_steps=2)
    return found
