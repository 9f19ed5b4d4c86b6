"""Writes tests/golden/gguf/: what llama.cpp's own tools make of our models, tokenizers and numbers.

    pip install "torch==2.8.0" transformers safetensors numpy gguf
    python3 tools/make_gguf_goldens.py LLAMA_CPP      a checkout of llama.cpp: its converter and its quantiser are run

`models.json` has for each model of tests/golden the keys and the tensors (name, dims, CRC-32 of the f32 bytes) of the
converter's file, `edits` being what was changed in the config so that llama.cpp has a form for it; and for tokenizers
their tokens and kinds. `quants.safetensors` has numbers as the `gguf` package encodes them, blocks and what it decodes
them to, and the error that llama.cpp's quantiser makes of the same numbers.
"""
import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zlib

import numpy as np
from safetensors.numpy import save_file

LLAMA_CPP = pathlib.Path(sys.argv[1])
sys.path[:0] = [str(LLAMA_CPP), str(LLAMA_CPP / "gguf-py")]
import gguf  # noqa: E402
from conversion import get_model_class  # noqa: E402
from conversion.base import ModelBase, TextModel  # noqa: E402

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"
MODELS = ["gpt2", "llama", "llama3", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "olmo2", "olmoe", "phi3",
          "gemma2", "gemma3", "smollm3"]
EDITS = {"gemma2": {"query_pre_attn_scalar": 16}, "gemma3": {"query_pre_attn_scalar": 16},
         "smollm3": {"no_rope_layers": [1, 1], "layer_types": ["full_attention"] * 2, "use_sliding_window": False}}
TOKENIZERS = ["gpt2", "llama3", "qwen2"]
# The last one is read for longrope alone.
LEFT_OUT = ("GGUF.", "general.name", "general.size_label", "phi3.rope.scaling.original_context_length")


def converted(name, folder):
    """The file that the converter makes of a model, without its tokenizer."""
    config = json.load(open(GOLDEN / name / "config.json")) | EDITS.get(name, {})
    if name == "gpt2":
        config["n_ctx"] = config["n_positions"]
    json.dump(config, open(folder / "config.json", "w"))
    shutil.copy(GOLDEN / name / "model.safetensors", folder)
    json.dump({"model": {"vocab": {str(i): i for i in range(97)}}, "added_tokens": []},
              open(folder / "tokenizer.json", "w"))
    kind = get_model_class(config["architectures"][0])
    kind.set_vocab = lambda self: None
    path = folder / "model.gguf"
    kind(folder, gguf.LlamaFileType.ALL_F32, path, hparams=ModelBase.load_hparams(folder, False)).write()
    return gguf.GGUFReader(path)


def model(name):
    with tempfile.TemporaryDirectory() as folder:
        reader = converted(name, pathlib.Path(folder))
        keys = {k: f.contents() for k, f in reader.fields.items() if not k.startswith(LEFT_OUT)}
        tensors = [[t.name, [int(d) for d in t.shape], zlib.crc32(t.data.tobytes())] for t in reader.tensors]
    return {"edits": EDITS.get(name, {}), "keys": keys, "tensors": tensors}


def tokenizer(name):
    """Tokens and kinds as the converter lists them."""
    n = 720
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(GOLDEN / "tokenizer" / f"{name}.json", f"{folder}/tokenizer.json")
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast"}, open(f"{folder}/tokenizer_config.json", "w"))
        stand_in = TextModel.__new__(TextModel)
        stand_in.dir_model, stand_in.hparams = pathlib.Path(folder), {"vocab_size": n}
        stand_in.get_vocab_base_pre = lambda tokenizer: ""
        tokens, kinds, _ = TextModel.get_vocab_base(stand_in)
        merges = gguf.SpecialVocab(folder, load_merges=True).merges
    return {"vocab_size": n, "tokens": crc(tokens), "kinds": zlib.crc32(np.array(kinds, np.int32).tobytes()),
            "merges": crc(merges)}


def crc(texts):
    return zlib.crc32("\n".join(texts).encode())


def reference():
    """llama.cpp's quantisers of blocks of 256."""
    source = LLAMA_CPP / "ggml" / "src"
    library = tempfile.mktemp(suffix=".so")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{source}", f"-I{source}/../include", "-o", library,
                    str(source / "ggml-quants.c"), "-lm", "-Wl,--unresolved-symbols=ignore-all"], check=True)
    return ctypes.CDLL(library, mode=os.RTLD_LAZY)


def rmse(x, y):
    return float(np.sqrt(np.mean((x.astype(np.float64) - y) ** 2)))


def quants():
    rng = np.random.default_rng(7)
    x = rng.standard_normal((8, 512)).astype(np.float32) * 0.02
    x[3] = rng.standard_t(3, 512) * 0.02  # a few large ones
    x[4] = np.abs(x[4]) + 0.5             # one sign, far from zero
    x[5, :256] = 0
    x[6, 1:32] = 0
    x[7] = np.linspace(-1, 1, 512)
    out = {"x": x}
    for kind in ("Q8_0", "Q4_0"):
        t = gguf.GGMLQuantizationType[kind]
        out[kind.lower()] = gguf.quants.quantize(x, t)
        out[kind.lower() + ".decoded"] = gguf.quants.dequantize(out[kind.lower()], t)
    lib, errors = reference(), {}
    for kind in ("Q4_K", "Q5_K", "Q6_K"):
        t = gguf.GGMLQuantizationType[kind]
        n_bytes = gguf.GGML_QUANT_SIZES[t][1] * x.size // 256
        blocks = np.zeros(n_bytes, np.uint8)
        getattr(lib, f"quantize_row_{kind[:3].lower()}K_ref")(
            x.ctypes.data_as(ctypes.c_void_p), blocks.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(x.size))
        blocks = blocks.reshape(8, -1)
        out[kind.lower()] = blocks
        out[kind.lower() + ".decoded"] = gguf.quants.dequantize(blocks, t)
        errors[kind.lower()] = str(rmse(x, out[kind.lower() + ".decoded"]))
    print("rmse of llama.cpp:", errors)
    return {k: np.ascontiguousarray(v) for k, v in out.items()}, errors


def main():
    folder = GOLDEN / "gguf"
    folder.mkdir(exist_ok=True)
    tensors, errors = quants()
    save_file(tensors, folder / "quants.safetensors", metadata=errors)
    listing = {"models": {name: model(name) for name in MODELS},
               "tokenizers": {name: tokenizer(name) for name in TOKENIZERS}}
    with open(folder / "models.json", "w") as f:
        json.dump(listing, f, separators=(",", ":"), ensure_ascii=True)
        f.write("\n")


if __name__ == "__main__":
    main()
