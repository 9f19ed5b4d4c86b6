#!/usr/bin/env python3
"""Small instances of the networks over sequences and graphs as PyTorch trains them, for tests/train/test_networks.c.

    python3 tools/make_sequence_goldens.py tests/golden/networks
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

from make_network_goldens import write_all
from make_video_goldens import EncoderLayer, FrameCnn


def variant(name, **keys):
    return {"model_type": "frame_cnn", "temporal_frames": 3, "image_height": 16, "image_width": 24, "width_divisor": 16,
            "dropout_scale": 0, "architecture": {"name": name}, **keys}


class Variant(FrameCnn):
    """FrameCnn with the channels 4, 8, 16, without the scores of frames."""
    rate = 0.002

    def __init__(self):
        nn.Module.__init__(self)
        a, b, c = 4, 8, 16
        self.gate = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.ReLU(), nn.Conv2d(1, 1, 1), nn.Sigmoid())
        self.conv = nn.ModuleList([nn.Conv2d(i, o, 3, padding=1) for i, o in ((1, a), (a, b), (b, c))])
        self.norm = nn.ModuleList([nn.BatchNorm2d(n) for n in (a, b, c)])
        self.film = nn.Sequential(nn.Linear(2, 256), nn.ReLU(), nn.Linear(256, 2 * a))
        self.head = nn.Sequential(nn.Linear(c, c), nn.BatchNorm1d(c), nn.LeakyReLU(0.01), nn.Identity(), nn.Linear(c, c // 2),
                                  nn.BatchNorm1d(c // 2), nn.LeakyReLU(0.01), nn.Identity(), nn.Linear(c // 2, 1))

    def samples(self):
        return {"images": torch.randn(6, 3, 16, 24, 1), "scalars": torch.randn(6, 2), "target": torch.randn(6, 1)}

    def maps(self, x, film):
        x = x * self.gate(x)
        for i in range(3):
            x = F.leaky_relu(self.norm[i](self.conv[i](x)), 0.01)
            if i == 0:
                gamma, beta = film.chunk(2, 1)
                x = gamma[:, :, None, None] * x + beta[:, :, None, None]
            x = F.max_pool2d(x, 2)
        return x

    def frame(self, x, film):
        return self.maps(x, film).mean((2, 3))

    def vector(self, d):
        film = self.film(d["scalars"])
        x = d["images"]
        return self.over(torch.stack([self.frame(x[:, t].permute(0, 3, 1, 2), film) for t in range(x.shape[1])], 1))

    def over(self, e):
        return e.mean(1)

    def loss(self, d):
        p, y = self.head(self.vector(d)), d["target"]
        each = F.huber_loss(p, y, reduction="none")[:, 0]
        weights = torch.ones_like(each)
        weights[each.topk(int(0.35 * len(each))).indices] = 1.5
        return (weights * each).mean() + 0.5 * (1 - p.var() / (y.var() + 1e-8)) ** 2


class MultiScale(Variant):
    config = variant("multi_scale")

    def __init__(self):
        super().__init__()
        c = 16
        self.scale = nn.ModuleList([nn.ModuleDict({"conv": nn.Conv1d(c, c, k, padding=1), "norm": nn.BatchNorm1d(c)})
                                    for k in (2, 3)])
        self.attn = nn.ModuleDict({n: nn.Linear(3 * c, 3 * c) for n in ("q", "k", "v", "out")})
        self.merge, self.merge_norm = nn.Linear(3 * c, c), nn.LayerNorm(c)

    def over(self, e):
        B, T, _ = e.shape
        parts = [e] + [F.relu(s["norm"](s["conv"](e.transpose(1, 2))[..., :T])).transpose(1, 2) for s in self.scale]
        x = torch.cat(parts, 2)
        q, k, v = (self.attn[n](x).view(B, T, 4, -1).transpose(1, 2) for n in "qkv")
        x = self.attn["out"](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, T, -1))
        return self.merge_norm(self.merge(x.mean(1)))


class GraphAttention(nn.Module):
    """The equations of Velickovic et al. 2018 with dense matrices: weights where there is no edge are 0."""

    def __init__(self, n_in, width, heads):
        super().__init__()
        self.heads, self.width = heads, width
        self.lin = nn.Linear(n_in, heads * width, bias=False)
        self.att_src = nn.Parameter(torch.randn(1, heads, width) * 0.3)
        self.att_dst = nn.Parameter(torch.randn(1, heads, width) * 0.3)
        self.bias = nn.Parameter(torch.zeros(heads * width))

    def forward(self, x, near):
        B, N, _ = x.shape
        h = self.lin(x).view(B, N, self.heads, self.width)
        source, target = (h * self.att_src).sum(-1), (h * self.att_dst).sum(-1)
        e = F.leaky_relu(target[:, :, None] + source[:, None], 0.2).masked_fill(~near[None, :, :, None], float("-inf"))
        return torch.einsum("btsh,bshc->bthc", e.softmax(2), h).flatten(2) + self.bias


class Gnn(Variant):
    config = variant("gnn", attention_heads=2)

    def __init__(self):
        super().__init__()
        self.gat = nn.ModuleList([GraphAttention(16, 16, 2), GraphAttention(32, 16, 1)])
        self.gat_norm = nn.LayerNorm(16)

    def frame(self, x, film):
        x = self.maps(x, film)
        h, w = x.shape[2:]
        i = torch.arange(h * w)
        far = (i[:, None] // w - i[None] // w).abs() + (i[:, None] % w - i[None] % w).abs()
        x = x.flatten(2).transpose(1, 2)
        x = self.gat[1](F.elu(self.gat[0](x, far <= 1)), far <= 1)
        return self.gat_norm(x).mean(1)


class StateSpace(nn.Module):
    """Mamba's layer (Gu and Dao 2023), step by step."""

    def __init__(self, d, states=16, kernel=4, expand=2):
        super().__init__()
        inner, rank = expand * d, (d + 15) // 16
        self.inner, self.rank, self.states = inner, rank, states
        self.in_proj = nn.Linear(d, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, kernel, padding=kernel - 1, groups=inner)
        self.x_proj = nn.Linear(inner, rank + 2 * states, bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, states + 1).float()).repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, d, bias=False)

    def forward(self, x):
        T = x.shape[1]
        x, z = self.in_proj(x).chunk(2, -1)
        x = F.silu(self.conv1d(x.transpose(1, 2))[..., :T]).transpose(1, 2)
        dt, b, c = self.x_proj(x).split([self.rank, self.states, self.states], -1)
        dt, a = F.softplus(self.dt_proj(dt)), -torch.exp(self.A_log)
        h, ys = x.new_zeros(len(x), self.inner, self.states), []
        for t in range(T):
            h = torch.exp(dt[:, t, :, None] * a) * h + dt[:, t, :, None] * b[:, t, None] * x[:, t, :, None]
            ys.append((h * c[:, t, None]).sum(-1))
        return self.out_proj((torch.stack(ys, 1) + self.D * x) * F.silu(z))


class Ssm(Variant):
    config = variant("ssm")

    def __init__(self):
        super().__init__()
        self.ssm = StateSpace(16)

    def over(self, e):
        return self.ssm(e).mean(1)


class Lstm(Variant):
    config = variant("lstm")

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(16, 16, 2, batch_first=True)

    def over(self, e):
        return self.lstm(e)[0].mean(1)


class PlainCnn(Variant):
    rate = 0.05
    config = variant("cnn")

    def __init__(self):
        nn.Module.__init__(self)
        a, b, c = 4, 8, 16
        self.conv = nn.ModuleList([nn.Conv2d(i, o, 3, padding=1) for i, o in ((1, a), (a, b), (b, c))])
        self.head = nn.ModuleDict({"0": nn.Linear(c, c), "4": nn.Linear(c, c // 2), "8": nn.Linear(c // 2, 1)})

    def samples(self):
        d = super().samples()
        return {**d, "images": 5 * d["images"]}

    def loss(self, d):
        head = self.head
        run = lambda x: head["8"](F.relu(head["4"](F.relu(head["0"](x)))))
        p, y = run(self.vector(d)), d["target"]
        each = F.huber_loss(p, y, reduction="none")[:, 0]
        weights = torch.ones_like(each)
        weights[each.topk(int(0.35 * len(each))).indices] = 1.5
        return (weights * each).mean() + 0.5 * (1 - p.var() / (y.var() + 1e-8)) ** 2

    def vector(self, d):
        x = d["images"].mean(1).permute(0, 3, 1, 2)
        for conv in self.conv:
            x = F.max_pool2d(F.relu(conv(x)), 2)
        return x.mean((2, 3))


class Sequences(nn.Module):
    """Layers over sequences in the language of lists."""
    rate = 0.05
    config = {"input": [5, 6],
              "layers": [{"gru": {"hidden": 4, "layers": 2, "bidirectional": True}}, {"encoder": {"heads": 2, "hidden": 12}},
                         {"lstm": 6}, {"state_space": {"states": 3, "kernel": 2}}, {"attention": {"heads": 3}}, "global_mean",
                         {"linear": 2}],
              "loss": "mse"}

    def __init__(self):
        super().__init__()
        self.add_module("0", nn.GRU(6, 4, 2, batch_first=True, bidirectional=True))
        self.add_module("1", EncoderLayer(8, 2, 12, False))
        self.add_module("2", nn.LSTM(8, 6, batch_first=True))
        self.add_module("3", StateSpace(6, 3, 2))
        self.add_module("4", nn.ModuleDict({n: nn.Linear(6, 6) for n in ("q", "k", "v", "out")}))
        self.add_module("6", nn.Linear(6, 2))

    def samples(self):
        return {"input": torch.randn(4, 5, 6), "target": torch.randn(4, 2)}

    def loss(self, d):
        m = lambda i: getattr(self, str(i))
        x = m(3)(m(2)(m(1)(m(0)(d["input"])[0]))[0])
        B, T, _ = x.shape
        q, k, v = (m(4)[n](x).view(B, T, 3, -1).transpose(1, 2) for n in "qkv")
        x = m(4)["out"](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, T, -1))
        return F.mse_loss(m(6)(x.mean(1)), d["target"])


class Graphs(nn.Module):
    """Attention between the places of an image."""
    rate = 0.05
    config = {"input": [3, 4, 2], "layers": [{"graph_attention": {"out": 3, "heads": 2}}, "elu", "global_mean", {"linear": 1}],
              "loss": "mse"}

    def __init__(self):
        super().__init__()
        self.add_module("0", GraphAttention(2, 3, 2))
        self.add_module("3", nn.Linear(6, 1))

    def samples(self):
        return {"input": torch.randn(4, 3, 4, 2), "target": torch.randn(4, 1)}

    def loss(self, d):
        i = torch.arange(12)
        near = (i[:, None] // 4 - i[None] // 4).abs() + (i[:, None] % 4 - i[None] % 4).abs() <= 1
        x = F.elu(getattr(self, "0")(d["input"].flatten(1, 2), near)).mean(1)
        return F.mse_loss(getattr(self, "3")(x), d["target"])


if __name__ == "__main__":
    nets = (("multi_scale", MultiScale), ("gnn", Gnn), ("ssm", Ssm), ("lstm", Lstm), ("plain_cnn", PlainCnn),
            ("sequences", Sequences), ("graphs", Graphs))
    for seed, (name, network) in enumerate(nets):
        torch.manual_seed(20 + seed)
        write_all(((name, network()),))
