"""The suites of bench/optimizers.py: which update rules run on which model and text, and with what settings."""

BASE = "adamw f32"
SPLIT = ["bf16=true", "master_dtype=24bit"]
DEMO = {
    BASE: ["optim=adamw"],
    "adamw bf16, f32 masters": ["optim=adamw", "bf16=true"],
    "adamw_8bit, 24-bit masters": ["optim=adamw_8bit", *SPLIT],
    "lion": ["optim=lion", "learning_rate=6e-4", "weight_decay=0.17"],
    "lion_8bit": ["optim=lion_8bit", "learning_rate=6e-4", "weight_decay=0.17"],
    "adafactor": ["optim=adafactor"],
    "muon": ["optim=muon"],
    "muon_8bit": ["optim=muon_8bit"],
}
RATE, DECAY = 2e-3, 0.1  # AdamW's in configs/demo.yaml


def lion(rate, *more, beside=RATE):
    """Lion as its authors have it for language: AdamW's product of rate and weight decay, at a smaller rate."""
    return ["bf16=true", f"learning_rate={rate:g}", f"weight_decay={beside * DECAY / rate:.3g}", "adam_beta1=0.95", "adam_beta2=0.98", *more]


def seeded(rules, seeds, key):
    """Each rule with each seed."""
    return {f"{name}, seed {seed}": [*words, f"{key}={seed}"] for seed in seeds for name, words in rules.items()}


LONG = {
    BASE: ["optim=adamw", "tf32=true"],
    **seeded({name: DEMO[name] for name in ("adamw bf16, f32 masters", "adamw_8bit, 24-bit masters")}, (42, 1, 2), "seed"),
    "lion 3e-4": lion(3e-4, "optim=lion"),
    "lion 6e-4": lion(6e-4, "optim=lion"),
    "lion 1.5e-4": lion(1.5e-4, "optim=lion"),
    "lion 5e-5": lion(5e-5, "optim=lion", "weight_decay=1"),
    "lion_8bit 1.5e-4": lion(1.5e-4, "optim=lion_8bit"),
    "adamw bf16, f32 masters, 5e-4": [*DEMO["adamw bf16, f32 masters"], "learning_rate=5e-4"],
    "adamw_8bit, 24-bit masters, 5e-4": [*DEMO["adamw_8bit, 24-bit masters"], "learning_rate=5e-4"],
    "adafactor, 5e-4": ["optim=adafactor", "bf16=true", "learning_rate=5e-4"],
    "muon, 5e-4": ["optim=muon", "bf16=true", "learning_rate=5e-4"],
}
# Contexts so short that copying from far back is worth nothing: without the sudden drop of the loss, which comes at another step
# in every run whatever the rule, runs can be told apart. NUDGED, which only adds in another order, says how far.
SHORT_RATE = 1e-3
NUDGED = f"{BASE}, sums in another order"


def nudged(batch):
    return ["optim=adamw", f"per_device_train_batch_size={batch // 2}", "gradient_accumulation_steps=2"]


SHORT = seeded({
    BASE: ["optim=adamw", "tf32=true"],
    NUDGED: [*nudged(256), "tf32=true"],
    "adamw_8bit, 24-bit masters": DEMO["adamw_8bit, 24-bit masters"],
    "adamw bf16, f32 masters": DEMO["adamw bf16, f32 masters"],
    "adafactor": ["optim=adafactor", "bf16=true"],
    "lion": lion(SHORT_RATE / 10, "optim=lion", beside=SHORT_RATE),
    "muon": ["optim=muon", "bf16=true"],
    "lion_8bit": lion(SHORT_RATE / 10, "optim=lion_8bit", beside=SHORT_RATE),
    "muon_8bit": ["optim=muon_8bit", "bf16=true"],
}, (1, 2, 3), "seed")
# A smaller model and fewer steps are steadier still: what the bytes of AdamW's states and masters are worth shows here.
STEADY = seeded({
    BASE: ["optim=adamw"],
    NUDGED: nudged(64),
    "adamw bf16, f32 masters": DEMO["adamw bf16, f32 masters"],
    "adamw_8bit, 24-bit masters": DEMO["adamw_8bit, 24-bit masters"],
}, range(1, 13), "seed")
# Batches as large as Lion's authors ask for. Rates and betas of both are the best of what was tried with another seed: AdamW at
# 1e-3, 2e-3, 3e-3, 5e-3 and 1e-2, beta2 0.95 and 0.99; Lion at 1e-4 to 3e-3, betas from 0.8, 0.9 to 0.9, 0.99.
LARGE_RATE = 3e-3
LARGE_LION = ["bf16=true", "learning_rate=6e-4", f"weight_decay={LARGE_RATE * DECAY / 6e-4:.3g}", "adam_beta1=0.8", "adam_beta2=0.9"]
LARGE = seeded({
    BASE: ["optim=adamw", "tf32=true"],
    "lion": [*LARGE_LION, "optim=lion"],
    "lion_8bit": [*LARGE_LION, "optim=lion_8bit"],
    "adamw_8bit, 24-bit masters": DEMO["adamw_8bit, 24-bit masters"],
}, (1, 2, 3), "seed")

LLAMA_11M = ["device=cuda", "model.hidden_size=384", "model.intermediate_size=1152", "model.num_hidden_layers=6", "model.num_attention_heads=6",
             "model.num_key_value_heads=6", "model.max_position_embeddings=256"]
LLAMA_1M = ["model.hidden_size=192", "model.intermediate_size=576", "model.num_hidden_layers=3", "model.num_attention_heads=3",
            "model.num_key_value_heads=3", "model.max_position_embeddings=64"]
SHORT_DATA = ["max_seq_length=64", "val_set_size=0.02", f"learning_rate={SHORT_RATE:g}", "cosine_min_lr_ratio=0"]
ITS_DATA = ["max_seq_length=256", "per_device_train_batch_size=64", "val_set_size=0.02", "eval_max_batches=48"]
ITS_TEXT = "Llama 11M on the text of tools/make_text_corpus.py, byte by byte, 64 x 256 bytes a step"
SUITES = {
    "demo": {"config": "configs/demo.yaml", "runs": DEMO, "steps": 320, "top": 4.0, "words": [], "drawing": "docs/optimizers.svg",
             "what": "Llama 3.5M of configs/demo.yaml on its text"},
    "long": {"config": "configs/demo.yaml", "runs": LONG, "steps": 3000, "top": 2.0, "drawing": "docs/optimizers-long.svg",
             "words": [*LLAMA_11M, *ITS_DATA, "warmup_steps=100", "cosine_min_lr_ratio=0"], "what": ITS_TEXT},
    "short": {"config": "configs/demo.yaml", "runs": SHORT, "steps": 2000, "top": 2.0, "drawing": "docs/optimizers-short.svg",
              "words": [*LLAMA_11M, *SHORT_DATA, "per_device_train_batch_size=256", "per_device_eval_batch_size=256", "eval_max_batches=64", "warmup_steps=400"],
              "what": "Llama 11M on the text of tools/make_text_corpus.py, byte by byte, 256 x 64 bytes a step"},
    "steady": {"config": "configs/demo.yaml", "runs": STEADY, "steps": 600, "top": 3.0, "drawing": "docs/optimizers-steady.svg",
               "words": [*LLAMA_1M, *SHORT_DATA, "per_device_train_batch_size=64", "per_device_eval_batch_size=64", "eval_max_batches=96", "warmup_steps=150"],
               "what": "Llama 1.4M on the text of tools/make_text_corpus.py, byte by byte, 64 x 64 bytes a step"},
    "large": {"config": "configs/demo.yaml", "runs": LARGE, "steps": 1500, "top": 2.4, "drawing": "docs/optimizers-large.svg",
              "words": ["device=cuda", *LLAMA_1M, *SHORT_DATA, f"learning_rate={LARGE_RATE:g}", "adam_beta2=0.95", "per_device_train_batch_size=1024",
                        "per_device_eval_batch_size=512", "eval_max_batches=24", "warmup_steps=150"],
              "what": "Llama 1.4M on the text of tools/make_text_corpus.py, byte by byte, 1024 x 64 bytes a step"},
}
