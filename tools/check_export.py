"""Does transformers compute from a directory exported by `snug export` what it should?

    python3 tools/check_export.py EXPORTED --reference HF_DIRECTORY     same logits as that model
    python3 tools/check_export.py EXPORTED --logits FILE.safetensors    same logits as in the file

A logits file holds `tokens` I32 [B, T] and `logits` F32 [B, T, V], as tests/golden/*/golden.safetensors
does. Against a reference directory the tokens are random (--seed). Prints the largest absolute
difference as a share of the largest logit; exits 1 when that is above --tolerance, 2 on bad usage.
The environment is that of make_goldens.py.
"""
import argparse
import sys

import torch
import transformers
from safetensors.torch import load_file


def logits_of(directory, tokens):
    """(logits in float32, what transformers could not place) of the model in `directory`."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    with torch.no_grad():
        return model.eval()(tokens, use_cache=False).logits, info


def misplaced(info):
    """Tensor names that the loader missed, did not expect or found in another shape."""
    return [str(name) for key in ("missing_keys", "unexpected_keys", "mismatched_keys") for name in info.get(key, ())]


def main():
    parser = argparse.ArgumentParser(description="Compares an exported model with a reference in transformers.")
    parser.add_argument("exported")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--reference", help="directory of a Hugging Face model")
    source.add_argument("--logits", help="safetensors file with tokens and logits")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    if args.logits:
        stored = load_file(args.logits)
        tokens, expected = stored["tokens"].long(), stored["logits"].float()
    else:
        config = transformers.AutoConfig.from_pretrained(args.reference)
        generator = torch.Generator().manual_seed(args.seed)
        length = min(64, getattr(config, "max_position_embeddings", 64))
        tokens = torch.randint(0, config.vocab_size, (2, length), generator=generator)
        expected, _ = logits_of(args.reference, tokens)

    got, info = logits_of(args.exported, tokens)
    names = misplaced(info)
    if names:
        print(f"FAIL tensors missing, unexpected or of another shape: {', '.join(names)}")
        return 1
    if got.shape != expected.shape:
        print(f"FAIL logits are {list(got.shape)}, expected {list(expected.shape)}")
        return 1
    error = ((got - expected).abs().max() / expected.abs().max()).item()
    passed = error <= args.tolerance  # a NaN fails
    print(f"{'ok' if passed else 'FAIL'} max relative error {error:.3e} (tolerance {args.tolerance:.1e})")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
