#!/usr/bin/env python3
"""Small networks as PyTorch trains them, for tests/train/test_networks.c: weights, samples, gradients of the first
step, losses and weights of ten steps of plain SGD, all in float64 from float32 weights.

    python3 tools/make_network_goldens.py tests/golden/networks
"""
import json
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

STEPS = 10


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


class Branches(nn.ModuleList):
    def __init__(self, lists, add=False):
        super().__init__(lists)
        self.add = add

    def forward(self, *x):
        ends = [b(x[i] if len(x) > 1 else x[0]) for i, b in enumerate(self)]
        return sum(ends) if self.add else torch.cat(ends, 1)


def per_sample(x):
    return x.flatten(1).mean(1)


class Mlp(nn.Sequential):
    rate = 0.05
    config = {
        "input": [6],
        "layers": [{"linear": 12}, "batch_norm", {"leaky_relu": 0.1}, {"linear": {"out": 9, "bias": False}},
                   "layer_norm", "elu", {"linear": 3}, "softplus"],
        "loss": [{"huber": {"delta": 0.5}}, {"l1": {"weight": 0.5}}, {"cosine": {"weight": 0.25}}],
    }

    def __init__(self):
        super().__init__(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.LeakyReLU(0.1), nn.Linear(12, 9, bias=False),
                         nn.LayerNorm(9), nn.ELU(), nn.Linear(9, 3), nn.Softplus())

    def samples(self):
        return {"input": torch.randn(8, 6), "target": torch.randn(8, 3)}

    def loss(self, d):
        y = self(d["input"])
        cosine = 1 - F.cosine_similarity(y, d["target"], dim=1)
        return F.huber_loss(y, d["target"], delta=0.5) + 0.5 * F.l1_loss(y, d["target"]) + 0.25 * cosine.mean()


def conv_norm(i, o, **k):
    return [nn.Conv2d(i, o, 3, padding=1, bias=False, **k), nn.BatchNorm2d(o)]


class Cnn(nn.Sequential):
    rate = 0.05
    config = {
        "input": [9, 7, 3],
        "layers": [{"conv": {"out": 8, "kernel": 3, "padding": 1, "bias": False}}, "batch_norm", "relu",
                   {"residual": [{"conv": {"out": 8, "kernel": 3, "padding": 1, "bias": False, "groups": 4}}, "batch_norm",
                                 "gelu"]},
                   {"max_pool": 2}, {"conv": {"out": 6, "kernel": [3, 2], "stride": [2, 1], "padding": [1, 0]}}, "silu",
                   "flatten", {"dropout": 0}, {"linear": 5}],
        "loss": {"cross_entropy": {"label_smoothing": 0.1}},
    }

    def __init__(self):
        super().__init__(*conv_norm(3, 8), nn.ReLU(), Residual(*conv_norm(8, 8, groups=4), nn.GELU()), nn.MaxPool2d(2),
                         nn.Conv2d(8, 6, (3, 2), (2, 1), (1, 0)), nn.SiLU(), nn.Flatten(), nn.Dropout(0), nn.Linear(24, 5))

    def samples(self):
        return {"input": torch.randn(6, 3, 9, 7), "target": torch.tensor([0, 4, 2, 1, 3, 2])}

    def loss(self, d):
        return F.cross_entropy(self(d["input"]), d["target"], label_smoothing=0.1)


class BranchNet(nn.Module):
    rate = 0.05
    config = {
        "inputs": {"image": [6, 5, 2], "facts": [4]},
        "layers": [{"branch": [[{"input": "image"}, {"conv": {"out": 4, "kernel": 3, "padding": "same"}}, {"group_norm": 2},
                                "tanh", "global_mean", {"linear": 10}], [{"input": "facts"}, {"linear": 10}]],
                    "join": "add"}, "relu"],
        "heads": {"mask": [{"linear": 12}, {"reshape": [3, 2, 2]},
                           {"conv_transpose": {"out": 3, "kernel": 2, "stride": 2}},
                           {"resize": {"out": [6, 5], "mode": "linear"}}, {"conv": {"out": 1, "kernel": 1}}],
                  "amount": [{"linear": 2}]},
        "loss": {"mask": [{"bce": {"weight": 0.5}}, {"dice": {"weight": 0.5}}, {"focal": {"weight": 2.0}}],
                 "amount": {"smooth_l1": {"beta": 0.5, "weight": 0.25}}},
    }

    def __init__(self):
        super().__init__()
        image = nn.Sequential(nn.Identity(), nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Tanh(),
                              nn.AdaptiveAvgPool2d(1), nn.Linear(4, 10))
        self.add_module("0", Branches([image, nn.Sequential(nn.Identity(), nn.Linear(4, 10))], add=True))
        self.heads = nn.ModuleDict({
            "mask": nn.Sequential(nn.Linear(10, 12), nn.Identity(), nn.ConvTranspose2d(2, 3, 2, 2), nn.Identity(),
                                  nn.Conv2d(3, 1, 1)),
            "amount": nn.Sequential(nn.Linear(10, 2))})

    def samples(self):
        return {"image": torch.rand(6, 2, 6, 5), "facts": torch.randn(6, 4),
                "mask_target": (torch.rand(6, 6, 5, 1) > 0.5).float(), "amount_target": torch.randn(6, 2)}

    def loss(self, d):
        image, facts = getattr(self, "0")
        a = image[3](image[2](image[1](d["image"])))
        x = F.relu(image[5](a.mean((2, 3))) + facts[1](d["facts"]))
        m = self.heads["mask"]
        # ours has the channels last: the row of 12 numbers is [3, 2, 2] with 2 channels
        y = m[2](m[0](x).view(-1, 3, 2, 2).permute(0, 3, 1, 2))
        y = m[4](F.interpolate(y, (6, 5), mode="bilinear", align_corners=False)).permute(0, 2, 3, 1)
        t, p = d["mask_target"], torch.sigmoid(y)
        bce = F.binary_cross_entropy_with_logits(y, t, reduction="none")
        dice = 1 - (2 * (p * t).flatten(1).sum(1) + 1) / (p.flatten(1).sum(1) + t.flatten(1).sum(1) + 1)
        wrong = p * (1 - t) + (1 - p) * t
        focal = (0.25 * t + 0.75 * (1 - t)) * wrong ** 2 * bce
        amount = F.smooth_l1_loss(self.heads["amount"](x), d["amount_target"], beta=0.5)
        return 0.5 * bce.mean() + 0.5 * dice.mean() + 2 * focal.mean() + 0.25 * amount


def chain(dims, norm_last=True, order="nrd"):
    """Linear, then batch norm, ReLU and dropout (of rate 0); order rd swapped in the audio encoder has no effect then."""
    out = []
    for i, (a, b) in enumerate(zip(dims, dims[1:])):
        out.append(nn.Linear(a, b))
        if norm_last or i < len(dims) - 2:
            out += [nn.BatchNorm1d(b), nn.ReLU(), nn.Identity()]
    return out


class Autoencoder(nn.Module):
    """The wide autoencoder with all widths / 256 (at least 8), two frames of 2 x 3 pixels, four mels.
    Its batch norms of a few samples make much of little differences: the steps are small."""
    rate = 0.0001
    config = {"model_type": "wide_autoencoder", "frames": 4, "frame_skip": 2, "frame_height": 2, "frame_width": 3,
              "audio_mode": "mel", "n_mels": 4, "text_dim": 10, "n_voxels": 30, "width_divisor": 256, "dropout_scale": 0}

    def __init__(self):
        super().__init__()
        V, A, X, N, frame, mels = 36, 4 * 65, 10, 30, 18, 4
        w = lambda n: max(8, n // 256)
        self.video_encoder = nn.Sequential(*chain([V, w(4096), w(2048), w(1024)]))
        self.audio_encoder = nn.Sequential(*chain([A, w(512), w(256)]))
        self.text_encoder = nn.Sequential(*chain([X, w(512), w(256)]))
        self.trunk = nn.Sequential(*chain([24, w(1536), w(4096), w(8000)]), nn.Linear(w(8000), w(2048)), nn.BatchNorm1d(w(2048)))
        self.voxel_head = nn.Sequential(*chain([w(2048), w(16384), N], False))
        self.decoder = nn.Sequential(*chain([w(2048), w(8000), w(4096), w(2048), w(1536)]))
        self.video_decoder = nn.Sequential(*chain([w(1536), w(2048), w(4096), frame], False))
        ups = [m for _ in range(3) for m in (nn.ConvTranspose1d(mels, mels, 4, 2, 1), nn.BatchNorm1d(mels), nn.ReLU())]
        self.audio_decoder = nn.Sequential(*chain([w(1536), w(2048), w(2048), mels * 8], False), *ups,
                                           nn.Conv1d(mels, mels, 3, padding=1))
        self.text_decoder = nn.Sequential(*chain([w(1536), w(1024), w(1024), X], False))

    def samples(self):
        return {"video": torch.rand(8, 36), "audio": torch.randn(8, 260), "text": torch.randn(8, 10), "voxels": torch.randn(8, 30)}

    def loss(self, d):
        v, a, t = d["video"], d["audio"], d["text"]
        z = self.trunk(torch.cat([self.video_encoder(v), self.audio_encoder(a), self.text_encoder(t)], 1))
        x = self.decoder(z)
        audio = self.audio_decoder[9:](self.audio_decoder[:9](x).view(-1, 4, 8))
        ends = [(torch.sigmoid(self.video_decoder(x)), v[:, :18]), (F.pad(audio, (0, 1)).flatten(1), a),
                (self.text_decoder(x), t), (self.voxel_head(z), d["voxels"])]
        return sum(F.mse_loss(p, q) / q.std() for p, q in ends)


def write(folder, net):
    os.makedirs(folder, exist_ok=True)
    net.train()
    config = {"model_type": "network", **net.config}
    json.dump(config, open(f"{folder}/config.json", "w"), indent=1)
    state = lambda: {k: v.detach().float().contiguous().clone() for k, v in net.state_dict().items() if "num_batches" not in k}
    save_file(state(), f"{folder}/model.safetensors")
    data = {k: v.int() if v.dtype == torch.int64 else v for k, v in net.samples().items()}
    save_file({k: v.contiguous() for k, v in data.items()}, f"{folder}/data.safetensors")
    data = {k: v.long() if v.dtype == torch.int32 else v.double() for k, v in data.items()}
    net.double()
    golden, losses = {}, []
    for step in range(STEPS):
        net.zero_grad()
        loss = net.loss(data)
        losses.append(loss.item())
        loss.backward()
        with torch.no_grad():
            for name, p in net.named_parameters():
                if step == 0:
                    golden["grad." + name] = p.grad.float().contiguous().clone()
                p -= net.rate * p.grad
    golden |= {"trained." + k: v for k, v in state().items()}
    golden["losses"] = torch.tensor(losses, dtype=torch.float64)
    save_file(golden, f"{folder}/golden.safetensors")
    print(folder, [round(x, 4) for x in losses])


def write_all(nets):
    for name, net in nets:
        with torch.no_grad():  # norms that do nothing hide mistakes
            for p in net.parameters():
                if p.dim() == 1:
                    p += 0.1 * torch.randn_like(p)
        write(os.path.join(sys.argv[1], name), net)


if __name__ == "__main__":
    torch.manual_seed(1)
    write_all((("mlp", Mlp()), ("cnn", Cnn()), ("branches", BranchNet()), ("wide_autoencoder", Autoencoder())))
