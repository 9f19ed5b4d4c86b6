#!/usr/bin/env python3
"""Gives every numeric key of a config and of a model values that nobody chooses: a plan, and two
steps of training where the plan fits, end within 25 s with exit code 0, 2, 3 or 5 and one line that
says why."""
import os
import re
import resource

from torture import CONFIG, HERE, Torture

ODD = ["0", "-1", "1", "2", "3", "7", "0.5", "1e-320", "1e308", "-1e308", "2147483647", "2147483648",
       "4294967297", "9223372036854775807", "9223372036854775808", "9" * 60, "nan", "inf", "-inf", "''",
       "1e6", "0x10", "1e400", "1_000", "-0.0", "65537", "1e19"]
MODEL_KEYS = {
    "llama": ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
              "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings",
              "rms_norm_eps", "rope_theta", "initializer_range", "bos_token_id", "eos_token_id",
              "attention_dropout"],
    "gpt2": ["vocab_size", "n_embd", "n_layer", "n_head", "n_inner", "n_positions",
             "layer_norm_epsilon", "initializer_range", "embd_pdrop", "resid_pdrop", "attn_pdrop"],
}
GPT2 = """\
model:
  model_type: gpt2
  vocab_size: 257
  n_embd: 32
  n_head: 2
  n_layer: 2
  n_positions: 96
"""
LONGER = {"max_steps", "num_train_epochs", "gradient_accumulation_steps", "train_batch_size"}
NUMERIC = "INT|FLOAT|BYTES|AUTO_INT|DURATION"
CODES = {0, 2, 3, 5}
MEMORY_LIMIT = 6 << 30


def numeric_keys():
    """From the schema, so that a new key is tried too."""
    with open(os.path.join(HERE, "..", "..", "src", "config", "config.def")) as f:
        return re.findall(rf"^KEY\((\w+),\s*(?:{NUMERIC}),", f.read(), re.MULTILINE)


def trials():
    found = [("llama", key, value) for key in numeric_keys() for value in ODD]
    found += [("llama", f"datasets.0.{key}", value) for key in ("n_tokens",) for value in ODD]
    found += [(model, f"model.{key}", value) for model, keys in MODEL_KEYS.items() for key in keys for value in ODD]
    return found


def main():
    t = Torture("numbers", __doc__)
    text = CONFIG.replace("device: cpu\n", "device: cpu\nval_set_size: 0.1\n")
    configs = {"llama": t.write("tiny.yaml", text), "gpt2": t.write("gpt2.yaml", GPT2 + text[text.index("tokenizer:"):])}
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    jobs = list(enumerate(trials()))

    def one(item):
        i, (model, key, value) = item
        # A thousand threads have more address space than the limit leaves.
        codes = CODES | {1} if key == "num_threads" else CODES
        out = f"output_dir={t.path(f'out{i}')}"
        words = ["max_steps=2", out, f"{key}={value}", "-q"]
        planned = t.run("plan", configs[model], *words)
        # Keys that make a run longer are honoured: such a run is long.
        if not t.expect_ended(planned, codes) or planned.code != 0 or key in LONGER:
            return
        # A loss that stops being finite is an honest end of such a run.
        t.expect_ended(t.run("train", configs[model], *words), CODES | {1})

    t.map(one, jobs)
    t.finish(f"{len(jobs)} numbers")


main()
