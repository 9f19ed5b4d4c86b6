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
# Contexts so short that copying from far back is worth nothing: without its sudden drop of the loss, which comes at another step
# in every run whatever the rule, training is steady, and AdamW in f32 that only adds in another order (NUDGED) says how steady.
NUDGED = f"{BASE}, sums in another order"
STEADY_RATE = 1e-3
STEADY = seeded({
    BASE: ["optim=adamw", "tf32=true"],
    NUDGED: ["optim=adamw", "tf32=true", "per_device_train_batch_size=128", "gradient_accumulation_steps=2"],
    "adamw_8bit, 24-bit masters": DEMO["adamw_8bit, 24-bit masters"],
}, (1, 2, 3), "seed")
STEADY |= seeded({
    "adamw bf16, f32 masters": DEMO["adamw bf16, f32 masters"],
    "adafactor": ["optim=adafactor", "bf16=true"],
    "lion": lion(STEADY_RATE / 10, "optim=lion", beside=STEADY_RATE),
    "muon": ["optim=muon", "bf16=true"],
    "lion_8bit": lion(STEADY_RATE / 10, "optim=lion_8bit", beside=STEADY_RATE),
    "muon_8bit": ["optim=muon_8bit", "bf16=true"],
}, (1, 2, 3), "seed")
STEADY |= seeded({f"{BASE} without tf32": ["optim=adamw"]}, (1,), "seed")

LLAMA_11M = ["device=cuda", "model.hidden_size=384", "model.intermediate_size=1152", "model.num_hidden_layers=6", "model.num_attention_heads=6",
             "model.num_key_value_heads=6", "model.max_position_embeddings=256"]
ITS_DATA = ["max_seq_length=256", "per_device_train_batch_size=64", "val_set_size=0.02", "eval_max_batches=48"]
ITS_TEXT = "Llama 11M on the text of tools/make_text_corpus.py, byte by byte, 64 x 256 bytes a step"
SUITES = {
    "demo": {"config": "configs/demo.yaml", "runs": DEMO, "steps": 320, "top": 4.0, "words": [], "drawing": "docs/optimizers.svg",
             "what": "Llama 3.5M of configs/demo.yaml on its text"},
    "long": {"config": "configs/demo.yaml", "runs": LONG, "steps": 3000, "top": 2.0, "drawing": "docs/optimizers-long.svg",
             "words": [*LLAMA_11M, *ITS_DATA, "warmup_steps=100", "cosine_min_lr_ratio=0"], "what": ITS_TEXT},
    "steady": {"config": "configs/demo.yaml", "runs": STEADY, "steps": 2000, "top": 2.0, "drawing": "docs/optimizers-steady.svg",
               "words": [*LLAMA_11M, "max_seq_length=64", "per_device_train_batch_size=256", "per_device_eval_batch_size=256",
                         "val_set_size=0.02", "eval_max_batches=64", f"learning_rate={STEADY_RATE:g}", "warmup_steps=400", "cosine_min_lr_ratio=0"],
               "what": "Llama 11M on the text of tools/make_text_corpus.py, byte by byte, 256 x 64 bytes a step"},
}
