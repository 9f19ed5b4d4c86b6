#!/usr/bin/env python3
"""Attention with padded keys as PyTorch computes it: the op (for tests/model/test_masks.c: outputs and gradients
under scaled_dot_product_attention's attn_mask), and a small network of nn.MultiheadAttention under key_padding_mask with
ten steps of training (for tests/train/test_networks.c).

    python3 tools/make_masked_goldens.py tests/golden/networks tests/golden/cross_attention.safetensors
"""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

from make_network_goldens import write_all

BATCH, QUERIES, KEYS, HEADS, KV_HEADS, SIZE = 3, 5, 121, 4, 2, 6


def write_op(path):
    """The last sample is padding alone: zeros, by definition."""
    draw = torch.Generator().manual_seed(5)
    q = torch.randn(BATCH, QUERIES, HEADS * SIZE, generator=draw).double().requires_grad_()
    kv = torch.randn(BATCH, KEYS, 2 * KV_HEADS * SIZE, generator=draw).double().requires_grad_()
    mask = torch.rand(BATCH, KEYS, generator=draw) < 0.6
    mask[1, 7:] = False
    mask[2] = False
    split = lambda x: x.view(*x.shape[:2], -1, SIZE).transpose(1, 2)
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in split(kv[:2]).chunk(2, 1))
    y = F.scaled_dot_product_attention(split(q[:2]), k, v, attn_mask=mask[:2, None, None])
    y = torch.cat([y.transpose(1, 2).flatten(2), torch.zeros(1, QUERIES, HEADS * SIZE).double()])
    dy = torch.randn(y.shape, generator=draw).double()
    y.backward(dy)
    tensors = dict(q=q.detach(), kv=kv.detach(), out=y.detach(), dout=dy, dq=q.grad, dkv=kv.grad)
    save_file({n: t.float().contiguous() for n, t in tensors.items()} | {"mask": mask.int()}, path, metadata={"format": "pt"})


class Attention(nn.Module):
    """The layer of the lists, with the arithmetic of nn.MultiheadAttention."""

    def __init__(self, d, d_from, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d_from, d), nn.Linear(d_from, d)
        self.out = nn.Linear(d, d)

    def forward(self, x, source, mask=None):
        d = x.shape[2]
        y, _ = F.multi_head_attention_forward(
            *(t.transpose(0, 1) for t in (x, source, source)), d, self.heads, None,
            torch.cat([self.q.bias, self.k.bias, self.v.bias]), None, None, False, 0.0, self.out.weight, self.out.bias,
            key_padding_mask=None if mask is None else mask == 0, need_weights=False, use_separate_proj_weight=True,
            q_proj_weight=self.q.weight, k_proj_weight=self.k.weight, v_proj_weight=self.v.weight)
        return y.transpose(0, 1)


class Encoder(nn.Module):
    def __init__(self, d, heads, hidden):
        super().__init__()
        self.attn = Attention(d, d, heads)
        self.linear1, self.linear2 = nn.Linear(d, hidden), nn.Linear(hidden, d)
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, x, mask):
        x = self.norm1(x + self.attn(x, x, mask))
        return self.norm2(x + self.linear2(F.gelu(self.linear1(x))))


class Masked(nn.Module):
    """A masked encoder that a question attends to, and a masked and a plain attention."""
    rate = 0.05
    config = {"inputs": {"question": [4, 6], "passage": [9, 8]},
              "layers": [{"input": "passage"}, {"encoder": {"heads": 2, "hidden": 12, "mask": "passage_mask", "name": "memory"}},
                         {"input": "question"}, {"attention": {"heads": 3, "mask": "question_mask"}},
                         {"cross_attention": {"heads": 2, "from": "memory", "mask": "passage_mask"}},
                         {"cross_attention": {"heads": 3, "from": "passage"}}, "global_mean", {"linear": 2}],
              "loss": "mse"}

    def __init__(self):
        super().__init__()
        self.memory = Encoder(8, 2, 12)
        self.add_module("3", Attention(6, 6, 3))
        self.add_module("4", Attention(6, 8, 2))
        self.add_module("5", Attention(6, 8, 3))
        self.add_module("7", nn.Linear(6, 2))

    def samples(self):
        passage = (torch.arange(9) < torch.tensor([9, 4, 1, 7, 6])[:, None]).long()
        question = torch.tensor([[1, 1, 1, 1], [0, 1, 0, 1], [1, 0, 0, 0], [1, 1, 1, 0], [0, 0, 1, 1]])
        return {"question": torch.randn(5, 4, 6), "passage": torch.randn(5, 9, 8), "passage_mask": passage,
                "question_mask": question, "target": torch.randn(5, 2)}

    def loss(self, d):
        m = lambda i: getattr(self, str(i))
        memory = self.memory(d["passage"], d["passage_mask"])
        x = m(3)(d["question"], d["question"], d["question_mask"])
        x = m(5)(m(4)(x, memory, d["passage_mask"]), d["passage"])
        return F.mse_loss(m(7)(x.mean(1)), d["target"])


if __name__ == "__main__":
    torch.manual_seed(41)
    write_all((("masked", Masked()),))
    write_op(sys.argv[2])
