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


class Frames(nn.Module):
    """The same layers for every step of a sequence, in the language of lists."""
    rate = 0.05
    config = {"input": [3, 6, 5, 2],
              "layers": [{"frames": [{"conv": {"out": 4, "kernel": 3}}, "batch_norm", "relu", "global_mean"]}, "flatten",
                         {"linear": 3}],
              "loss": [{"huber": {"hardest": 0.5, "hardest_factor": 3.0}}, {"variance": {"weight": 0.1}},
                       {"hinge": {"weight": 0.5}}]}

    def __init__(self):
        super().__init__()
        self.add_module("0", nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)))
        self.add_module("2", nn.Linear(12, 3))

    def samples(self):
        return {"input": torch.randn(7, 3, 6, 5, 2), "target": torch.randn(7, 3)}

    def loss(self, d):
        net, x, y = getattr(self, "0"), d["input"], d["target"]
        e = [F.relu(net(x[:, t].permute(0, 3, 1, 2))).mean((2, 3)) for t in range(3)]
        p = getattr(self, "2")(torch.stack(e, 2).flatten(1))  # channels first, as flatten has it
        each = F.huber_loss(p, y, reduction="none").mean(1)
        weights = torch.ones_like(each)
        weights[each.topk(3).indices] = 3.0
        return (weights * each).mean() + 0.1 * (1 - p.var() / (y.var() + 1e-8)) ** 2 + 0.5 * F.relu(p - y).mean()


class Block3d(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.conv, self.norm = nn.Conv3d(i, o, 3, padding=1), nn.GroupNorm(8, o)

    def forward(self, x):
        return F.gelu(self.norm(self.conv(x)))


class UNet3d(nn.Module):
    def __init__(self, c, embed):
        super().__init__()
        self.enc0, self.enc1, self.enc2, self.mid = Block3d(3, c), Block3d(c, 2 * c), Block3d(2 * c, 4 * c), Block3d(4 * c, 8 * c)
        self.down0 = nn.Conv3d(c, c, 2, 2, padding=(0, 1, 1))
        self.down1 = nn.Conv3d(2 * c, 2 * c, 2, 2, padding=(0, 1, 1))
        self.embed = nn.Linear(8 * c, embed)
        self.dec2, self.dec1, self.dec0 = Block3d(12 * c, 4 * c), Block3d(4 * c, 2 * c), Block3d(2 * c, c)
        self.up1, self.up0 = nn.ConvTranspose3d(4 * c, 2 * c, 2, 2), nn.ConvTranspose3d(2 * c, c, 2, 2)
        self.mask = nn.Conv3d(c, 1, 1)

    def forward(self, x):
        s0 = self.enc0(x)
        s1 = self.enc1(self.down0(s0))
        s2 = self.enc2(self.down1(s1))
        h = self.mid(s2)
        z = self.embed(h.mean((2, 3, 4)))
        h = self.dec2(torch.cat([h, s2], 1))
        for up, dec, s in ((self.up1, self.dec1, s1), (self.up0, self.dec0, s0)):
            h = up(h)
            h = dec(torch.cat([h, F.interpolate(s, h.shape[2:], mode="trilinear")], 1))
        return z, F.interpolate(self.mask(h), x.shape[2:], mode="trilinear")


class Residual2d(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o)
        if i != o:
            self.skip = nn.Conv2d(i, o, 1)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.skip(x) if hasattr(self, "skip") else x))


class Detector(nn.Module):
    names = ("heat", "offset", "size", "intensity")

    def __init__(self, c, width, hidden, embed):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, c, 7, 2, 3), nn.BatchNorm2d(c))
        self.res0, self.res1, self.res2 = Residual2d(c, c), Residual2d(c, 2 * c), Residual2d(2 * c, 4 * c)
        for i in range(3):
            self.add_module(f"lateral{i}", nn.Conv2d(c << i, width, 1))
            self.add_module(f"smooth{i}", nn.Conv2d(width, width, 3, padding=1))
        self.heads = nn.ModuleDict({n: nn.Sequential(nn.Conv2d(width, hidden, 3, padding=1), nn.BatchNorm2d(hidden), nn.ReLU(),
                                                     nn.Conv2d(hidden, k, 1)) for n, k in zip(self.names, (1, 2, 2, 1))})
        self.embed = nn.Linear(width, embed)

    def frame(self, x):
        c0 = self.res0(F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1))
        c1 = self.res1(F.max_pool2d(c0, 2))
        c2 = self.res2(F.max_pool2d(c1, 2))
        up = lambda x, like: F.interpolate(x, like.shape[2:], mode="bilinear")
        l1 = self.lateral1(c1)
        p1 = self.smooth1(l1 + up(self.smooth2(self.lateral2(c2)), l1))  # the finest level is not read
        return [h(p1) if i < 2 else F.relu(h(p1)) for i, h in enumerate(self.heads.values())], p1.mean((2, 3))

    def forward(self, x):
        frames = [self.frame(x[:, :, t]) for t in range(x.shape[2])]
        heads = [torch.stack([f[0][i] for f in frames], 1).permute(0, 1, 3, 4, 2) for i in range(4)]
        return self.embed(torch.stack([f[1] for f in frames], 1).mean(1)), heads


class EncoderLayer(nn.Module):
    def __init__(self, d, heads, hidden, first):
        super().__init__()
        self.heads, self.first = heads, first
        self.attn = nn.ModuleDict({n: nn.Linear(d, d) for n in ("q", "k", "v", "out")})
        self.linear1, self.linear2 = nn.Linear(d, hidden), nn.Linear(hidden, d)
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def attend(self, x):
        B, T, d = x.shape
        q, k, v = (self.attn[n](x).view(B, T, self.heads, -1).transpose(1, 2) for n in "qkv")
        return self.attn["out"](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, T, d))

    def forward(self, x):
        feed = lambda x: self.linear2(F.gelu(self.linear1(x)))
        if self.first:
            x = x + self.attend(self.norm1(x))
            return x + feed(self.norm2(x))
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + feed(x))


class Siamese(nn.Module):
    def __init__(self, c, d, up, hidden, grid, size):
        super().__init__()
        self.grid, self.size = grid, size
        chain = [3, c, 2 * c, 4 * c, 8 * c]
        self.encoder = nn.ModuleDict()
        for i in range(4):
            self.encoder[f"conv{i}"] = nn.Conv2d(chain[i], chain[i + 1], 3, padding=1)
            self.encoder[f"norm{i}"] = nn.BatchNorm2d(chain[i + 1])
        self.proj = nn.Linear(8 * c, d)
        self.pos = nn.Parameter(torch.randn(2 * grid[0] * grid[1], d) * 0.02)
        self.layers = nn.ModuleList([EncoderLayer(d, 4, d, False) for _ in range(2)])
        self.decoder, chain = nn.ModuleDict(), [d, up, up // 2, up // 4]
        for i in range(3):
            self.decoder[f"up{i}"] = nn.ConvTranspose2d(chain[i], chain[i + 1], 4, 2, 1)
            self.decoder[f"norm{i}"] = nn.BatchNorm2d(chain[i + 1])
        self.decoder["mask"] = nn.Conv2d(up // 4, 1, 3, padding=1)
        self.integrity = nn.Sequential(nn.Linear(d, hidden), nn.ReLU(), nn.Linear(hidden, 1), nn.Tanh())
        self.embed = nn.Linear(d, d)

    def tokens(self, x):
        for i in range(4):
            x = F.relu(self.encoder[f"norm{i}"](self.encoder[f"conv{i}"](x)))
            x = F.max_pool2d(x, 2) if i < 3 else x
        return self.proj(F.adaptive_avg_pool2d(x, self.grid).flatten(2).transpose(1, 2))

    def forward(self, video):
        T = video.shape[2]
        x = torch.cat([self.tokens(video[:, :, t]) for t in (T // 4, 3 * T // 4)], 1) + self.pos
        for layer in self.layers:
            x = layer(x)
        n = self.grid[0] * self.grid[1]
        change = x[:, n:] - x[:, :n]
        y = change.transpose(1, 2).reshape(len(x), -1, *self.grid)
        for i in range(3):
            y = F.relu(self.decoder[f"norm{i}"](self.decoder[f"up{i}"](y)))
        y = F.interpolate(self.decoder["mask"](y), self.size, mode="bilinear")
        return self.embed(x.mean(1)), y, self.integrity(change.mean(1))


class Tracks(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.rows = nn.Sequential(nn.Linear(18, w(128)), nn.ReLU(), nn.Identity(), nn.Linear(w(128), w(64)), nn.ReLU(),
                                  nn.Linear(w(64), w(64)))
        self.score = nn.Sequential(nn.Linear(w(64), w(32)), nn.ReLU(), nn.Linear(w(32), 1))
        self.embed = nn.Sequential(nn.Linear(w(64), w(256)), nn.ReLU(), nn.Linear(w(256), w(256)))
        head = lambda n: nn.Sequential(nn.Linear(w(256), w(128)), nn.ReLU(), nn.Identity(), nn.Linear(w(128), w(64)), nn.ReLU(),
                                       nn.Linear(w(64), n))
        self.tau, self.kind = head(1), head(2)

    def forward(self, x, mask):
        a, b = x[..., :3], x[..., 3:]
        h = self.rows(torch.cat([x, a - b, a * b, a * a, b * b], -1))
        p = torch.softmax(self.score(h)[..., 0].masked_fill(mask == 0, -1e4), 1)
        z = self.embed((p[..., None] * h).sum(1))
        return z, F.softplus(self.tau(z)), self.kind(z)


class Vectors(nn.Sequential):
    def __init__(self, w):
        super().__init__(nn.Linear(69, w(128)), nn.LayerNorm(w(128)), nn.GELU(), nn.Identity(), nn.Linear(w(128), w(192)),
                         nn.LayerNorm(w(192)), nn.GELU())
        self.importance = nn.Sequential(nn.Linear(w(192), w(64)), nn.ReLU(), nn.Linear(w(64), 69))

    def forward(self, v):
        a = v.view(-1, 3, 3, 3)
        d = v[:, 1:] - v[:, :-1]
        features = [(a[:, :, i] * a[:, :, (i + 1) % 3]).sum(-1) for i in range(3)]
        features += [a.norm(dim=-1).flatten(1), d.reshape(-1, 2, 3, 3).norm(dim=-1).flatten(1)]
        x = torch.cat([v.flatten(1), d.flatten(1)] + features, 1)
        for i in range(7):
            x = self[i](x)
        return x


class Tempo(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.proj = nn.Linear(32, d)
        self.layers = nn.ModuleList([EncoderLayer(d, 4, 4 * d, True) for _ in range(2)])
        self.out = nn.Sequential(nn.Linear(3 * d, d), nn.LayerNorm(d), nn.GELU(), nn.Identity(), nn.Linear(d, d))

    def forward(self, v):
        x = self.proj(F.pad(v, (0, 23)))
        d = x.shape[-1]
        angle = torch.arange(3)[:, None] * 10000.0 ** (-(torch.arange(d) // 2 * 2).double() / d)
        x = x + torch.where(torch.arange(d) % 2 == 0, angle.sin(), angle.cos()).to(x)
        for layer in self.layers:
            x = layer(x)
        return self.out(x.flatten(1))


class Fusion(nn.Module):
    def __init__(self, w):
        super().__init__()
        d = w(512)
        self.image, self.thermal = nn.Linear(w(512) + w(256), d), nn.Linear(2 * w(256), d)
        self.radar = nn.Linear(2 * w(192), d)
        self.add_module("class", nn.Linear(32, d))
        self.classes = nn.Module()
        self.classes.weight = nn.Parameter(0.1 * torch.randn(100, 32))
        self.classes.unknown = nn.Parameter(0.1 * torch.randn(1, 32))
        self.modality = nn.Parameter(0.02 * torch.randn(4, d))
        self.layers = nn.ModuleList([EncoderLayer(d, 8, 4 * d, False) for _ in range(3)])
        self.out = nn.Sequential(nn.Linear(d, d), nn.LayerNorm(d), nn.GELU())
        head = lambda: nn.Sequential(nn.Linear(d, w(256)), nn.ReLU(), nn.Identity(), nn.Linear(w(256), w(64)), nn.ReLU(),
                                     nn.Linear(w(64), 1))
        self.first, self.second = head(), head()
        self.events = nn.ModuleDict({"0": nn.Linear(d // 4 + 3, d // 2), "3": nn.Linear(d // 2, d)})
        self.events.kinds = nn.Parameter(torch.randn(6, d // 4))

    def forward(self, image, thermal, radar, cls):
        c = torch.cat([self.classes.weight, self.classes.unknown])[cls]
        x = torch.stack([self.image(image), self.thermal(thermal), self.radar(radar), getattr(self, "class")(c)], 1)
        x = x + self.modality
        for layer in self.layers:
            x = layer(x)
        x = self.out(x.mean(1))
        return self.first(x), self.second(x)


def mean_of_samples(x):
    return x.flatten(1).mean(1).mean()


class ThreeBranch(nn.Module):
    """All branches, every width / 16 (at least 8), clips of 5 frames of 18 x 24."""
    rate = 0.01
    most_elements = 4096
    config = {"model_type": "three_branch", "frames": 5, "image_height": 18, "image_width": 24, "width_divisor": 16,
              "dropout_scale": 0, "siamese": "cnn", "tracks": True, "grid_height": 2, "grid_width": 3}

    def __init__(self):
        super().__init__()
        w = lambda n: max(n // 16, 8)
        self.unet3d = UNet3d(w(32), w(512))
        self.siamese = Siamese(w(32), w(256), w(128), w(64), (2, 3), (18, 24))
        self.detector = Detector(w(32), w(128), w(64), w(256))
        self.tracks, self.vectors, self.tempo, self.fusion = Tracks(w), Vectors(w), Tempo(w(192)), Fusion(w)

    def samples(self):
        B, T, H, W = 3, 5, 18, 24
        bits = lambda *s: (torch.rand(*s) > 0.5).float()
        # the level that is read has an eighth of a frame's sides
        return {"video_a": torch.rand(B, T, H, W, 3), "video_b": torch.rand(B, T, H, W, 1), "vectors": torch.randn(B, 3, 9),
                "tracks": torch.randn(B, 10, 6), "track_mask": bits(B, 10), "class": torch.tensor([7, 100, 99]),
                "mask": bits(B, T, H, W, 1), "change": bits(B, H, W, 1), "integrity": torch.randn(B, 1),
                "heat": bits(B, T, 2, 3, 1), "boxes": torch.randn(B, T, 2, 3, 5), "tau": torch.randn(B, 1),
                "kind": torch.tensor([1, 0, 1]), "outcomes": torch.tensor([[1., 1.], [1., 0.], [0., 1.]])}

    def loss(self, d):
        video = d["video_a"].permute(0, 4, 1, 2, 3)
        z1, mask = self.unet3d(video)
        z2, change, integrity = self.siamese(video)
        z3, (heat, offset, size, intensity) = self.detector(d["video_b"].permute(0, 4, 1, 2, 3))
        z4, tau, kind = self.tracks(d["tracks"], d["track_mask"])
        z5, z6 = self.vectors(d["vectors"]), self.tempo(d["vectors"])
        a, b = self.fusion(torch.cat([z1, z2], 1), torch.cat([z3, z4], 1), torch.cat([z5, z6], 1), d["class"])
        bce = lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none")
        m, t = mask.permute(0, 2, 3, 4, 1), d["mask"]
        p = torch.sigmoid(m)
        dice = 1 - (2 * (p * t).flatten(1).sum(1) + 1) / (p.flatten(1).sum(1) + t.flatten(1).sum(1) + 1)
        q, t = torch.sigmoid(heat), d["heat"]
        focal = (0.25 * t + 0.75 * (1 - t)) * (q * (1 - t) + (1 - q) * t) ** 2 * bce(heat, t)
        box = d["boxes"].split([2, 2, 1], -1)
        loss = 0.5 * mean_of_samples(bce(m, d["mask"])) + 0.5 * dice.mean() + mean_of_samples(focal)
        loss = loss + 0.25 * (F.l1_loss(offset, box[0]) + F.smooth_l1_loss(size, box[1]) + F.l1_loss(intensity, box[2]))
        loss = loss + 0.5 * mean_of_samples(bce(change.permute(0, 2, 3, 1), d["change"]))
        loss = loss + 0.25 * (F.smooth_l1_loss(integrity, d["integrity"]) + F.smooth_l1_loss(tau, d["tau"]))
        loss = loss + 0.25 * F.cross_entropy(kind, d["kind"])
        y = torch.cat([d["outcomes"][:, :1], d["outcomes"].min(1, keepdim=True).values], 1)
        x = torch.cat([a, torch.minimum(b, a)], 1)
        loss = loss + 2 * bce(x, y).mean() + 0.5 * (torch.sigmoid(x) - y).pow(2).mean()
        return loss + 0.2 * F.relu(torch.sigmoid(b) - torch.sigmoid(a)).mean()


if __name__ == "__main__":
    for seed, name, network in ((2, "frame_cnn", FrameCnn), (3, "three_branch", ThreeBranch), (4, "frames", Frames)):
        torch.manual_seed(seed)
        write_all(((name, network()),))
