#!/usr/bin/env python3
"""Makes tests/golden/chat/jinja.json: the Jinja templates that GGUF files get where the config names a family, checked.

    pip install transformers gguf
    tools/make_chat_jinja_golden.py BUILD/snug

Each is taken out of a GGUF file that the program writes, rendered by transformers on the conversations of
tests/golden/chat/cases.json, and has to give the tokens that the templates of the models give there. What is written is
what the program makes: tests then hold it to the checked texts.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
from gguf import GGUFReader
from jinja2.exceptions import TemplateError
from safetensors.numpy import load_file, save_file
from transformers import PreTrainedTokenizerFast

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHAT = ROOT / "tests" / "golden" / "chat"
VOCAB = 704


def make_model(folder):
    """tests/golden/llama with as many tokens as a tokenizer has."""
    folder.mkdir()
    golden = ROOT / "tests" / "golden"
    shutil.copy(golden / "tokenizer" / "llama3.json", folder / "tokenizer.json")
    config = json.loads((golden / "llama" / "config.json").read_text())
    weights = load_file(golden / "llama" / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = np.zeros((VOCAB, weights[name].shape[1]), np.float32)
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": VOCAB}))
    save_file(weights, folder / "model.safetensors")


def template_of(program, name, folder):
    out = folder / f"{name}.gguf"
    subprocess.run([program, "export", str(folder / "model"), "-o", str(out), f"chat_template={name}"], check=True,
                   capture_output=True)
    return GGUFReader(out).fields["tokenizer.chat_template"].contents()


def rendered(tokenizer, template, messages, is_open):
    try:
        text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, add_generation_prompt=is_open)
    except TemplateError:
        return None
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def main():
    golden, texts = json.loads((CHAT / "cases.json").read_text()), {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        make_model(folder / "model")
        for family in golden["families"]:
            name = family["name"]
            if "careful helper" in family["templates"][0] or (name == "chatml" and family["bos"]):
                continue  # what a template has beside its family
            text = texts.setdefault(name, template_of(sys.argv[1], name, folder) if name not in texts else None)
            t = PreTrainedTokenizerFast(tokenizer_file=str(ROOT / family["tokenizer"]), bos_token=family["bos"],
                                        eos_token=family["eos"])
            for case in family["cases"]:
                got = rendered(t, text, golden["conversations"][case["conversation"]], case["open"])
                assert got == case.get("ids"), (name, case, got)
    lines = ",\n".join(f"{json.dumps(n)}: {json.dumps(x, ensure_ascii=False)}" for n, x in texts.items())
    (CHAT / "jinja.json").write_text("{\n" + lines + "\n}\n")
    print(f"{len(texts)} templates give the tokens of the models' own")


if __name__ == "__main__":
    main()
