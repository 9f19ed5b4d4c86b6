#!/usr/bin/env python3
"""Small instances of the networks over frames and clips as PyTorch trains them, for tests/train/test_networks.c.

    python3 tools/make_video_goldens.py tests/golden/networks
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

from make_network_goldens import write_all


class FrameCnn(nn.Module):
    """Frames of 10 x 13 through one network with the channels 8, 16, 32; attention over the frames."""
    rate = 0.002
    config = {"model_type": "frame_cnn", "temporal_frames": 3, "image_height": 10, "image_width": 13, "width_divisor": 8,
              "dropout_scale": 0}

    def __init__(self):
        super().__init__()
        a, b, c = 8, 16, 32
        self.gate = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.ReLU(), nn.Conv2d(1, 1, 1), nn.Sigmoid())
        self.conv = nn.ModuleList([nn.Conv2d(i, o, 3, padding=1) for i, o in ((1, a), (a, b), (b, c))])
        self.norm = nn.ModuleList([nn.BatchNorm2d(n) for n in (a, b, c)])
        self.film = nn.Sequential(nn.Linear(2, 256), nn.ReLU(), nn.Linear(256, 2 * a))
        self.score = nn.Sequential(nn.Linear(c, c // 2), nn.ReLU(), nn.Linear(c // 2, 1))
        self.head = nn.Sequential(nn.Linear(c, c), nn.BatchNorm1d(c), nn.LeakyReLU(0.01), nn.Identity(), nn.Linear(c, c // 2),
                                  nn.BatchNorm1d(c // 2), nn.LeakyReLU(0.01), nn.Identity(), nn.Linear(c // 2, 1))

    def samples(self):
        return {"images": torch.randn(8, 3, 10, 13, 1), "scalars": torch.randn(8, 2), "target": torch.randn(8, 1)}

    def frame(self, x, film):
        x = x * self.gate(x)
        for i in range(3):
            x = F.leaky_relu(self.norm[i](self.conv[i](x)), 0.01)
            if i == 0:
                gamma, beta = film.chunk(2, 1)
                x = gamma[:, :, None, None] * x + beta[:, :, None, None]
            x = F.max_pool2d(x, 2)
        return x.mean((2, 3))

    def loss(self, d):
        x, film, y = d["images"], self.film(d["scalars"]), d["target"]
        e = torch.stack([self.frame(x[:, t].permute(0, 3, 1, 2), film) for t in range(x.shape[1])], 1)
        p = self.head((torch.softmax(self.score(e), 1) * e).sum(1))
        each = F.huber_loss(p, y, reduction="none")[:, 0]
        weights = torch.ones_like(each)
        weights[each.topk(int(0.35 * len(each))).indices] = 1.5
        return (weights * each).mean() + 0.5 * (1 - p.var() / (y.var() + 1e-8)) ** 2


if __name__ == "__main__":
    torch.manual_seed(2)
    write_all((("frame_cnn", FrameCnn()),))
