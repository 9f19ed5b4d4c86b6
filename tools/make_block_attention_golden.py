#!/usr/bin/env python3
"""Attention under a block-sparse mask as PyTorch computes it with the mask as a dense matrix, for
tests/model/test_attention_blocks.c: packed queries, keys and values, outputs, and gradients.

    python3 tools/make_block_attention_golden.py tests/golden/block_attention.safetensors
"""
import sys

import torch
from safetensors.torch import save_file

TOKENS, HEADS, KV_HEADS, SIZE, BLOCK, LOCAL = 230, 2, 1, 4, 16, 3


def main(path):
    generator = torch.Generator().manual_seed(3)
    qkv = torch.randn(1, TOKENS, (HEADS + 2 * KV_HEADS) * SIZE, generator=generator).double().requires_grad_()
    heads = qkv.view(1, TOKENS, -1, SIZE).transpose(1, 2)
    q, k, v = heads.split([HEADS, KV_HEADS, KV_HEADS], 1)
    i, j = torch.arange(TOKENS)[:, None], torch.arange(TOKENS)[None, :]
    mask = (j <= i) & (j // BLOCK > i // BLOCK - LOCAL)
    share = lambda x: x.repeat_interleave(HEADS // KV_HEADS, 1)
    y = torch.nn.functional.scaled_dot_product_attention(q, share(k), share(v), attn_mask=mask)
    y = y.transpose(1, 2).reshape(1, TOKENS, -1)
    dy = torch.randn(y.shape, generator=generator).double()
    y.backward(dy)
    tensors = dict(qkv=qkv.detach(), out=y.detach(), dout=dy, dqkv=qkv.grad)
    save_file({n: t.float().contiguous() for n, t in tensors.items()}, path, metadata={"format": "pt"})


main(sys.argv[1])
