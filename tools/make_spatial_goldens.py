"""Writes tests/golden/spatial.safetensors: convolutions, norms by channel, pools and resizing as PyTorch computes them.

    python3 tools/make_spatial_goldens.py        in the environment of tools/make_goldens.py; PyTorch and safetensors do

Everything is computed in float64 from float32 inputs and stored as float32, channels last as in Snug's graphs. The
metadata says for each case which op it is and with which attributes; its tensors are `<case>.in0` .., `<case>.out0` ..,
`<case>.dout0`, a random gradient of the first output, and `<case>.din0` .. where there is a gradient.
"""
import os

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

GOLDEN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "golden")
CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}

generator = torch.Generator().manual_seed(14)
tensors, metadata = {}, {}


def normal(*shape):
    return torch.randn(shape, generator=generator)


def channels_last(x):
    return x.movedim(1, -1) if x.dim() > 2 else x


def text(attrs):
    show = lambda v: str(list(v)).replace(" ", "") if isinstance(v, (list, tuple)) else str(v).lower()
    return " {" + ", ".join(f"{k}={show(v)}" for k, v in attrs.items()) + "}" if attrs else ""


def add(case, op, function, inputs, **attrs):
    """function(*inputs) -> an output or several, all in PyTorch's layout; gradients are of the first."""
    leaves = [x.double().requires_grad_() for x in inputs]
    out = function(*leaves)
    out = out if isinstance(out, tuple) else (out,)
    metadata[case] = op + text(attrs)
    entries = {f"in{i}": x for i, x in enumerate(inputs)}
    entries.update({f"out{i}": x.detach() for i, x in enumerate(out)})
    if out[0].requires_grad and op != "running_average":
        entries["dout0"] = normal(*out[0].shape)
        out[0].backward(entries["dout0"].double())
        entries.update({f"din{i}": x.grad for i, x in enumerate(leaves) if x.grad is not None})
    for name, x in entries.items():
        x = channels_last(x)
        tensors[f"{case}.{name}"] = (x.float() if x.is_floating_point() else x).contiguous().clone()


def conv(case, x, w, bias=True, stride=1, pad=0, pad_after=None, dilation=1, groups=1):
    axes = len(x) - 2
    spread = lambda v: list(v) if isinstance(v, (list, tuple)) else [v] * axes
    stride, pad, dilation = spread(stride), spread(pad), spread(dilation)
    after = pad if pad_after is None else spread(pad_after)
    padding = [p for pair in reversed(list(zip(pad, after))) for p in pair]
    inputs = [normal(*x), normal(*w)] + ([normal(w[0])] if bias else [])
    add(case, "conv", lambda x, w, b=None: CONV[axes](F.pad(x, padding), w, b, stride, 0, dilation, groups), inputs,
        stride=stride, pad_before=pad, pad_after=after, dilation=dilation, groups=groups)


def transposed(case, x, w, stride, pad, out_pad=0, groups=1):
    axes = len(x) - 2
    x, w = normal(*x), normal(*w)
    run = lambda x, w: TRANSPOSED[axes](x, w, None, stride, pad, out_pad, groups)
    add(case, "conv_grad_input", run, [x, w], stride=[stride] * axes, pad_before=[pad] * axes, pad_after=[pad] * axes,
        groups=groups, size=run(x, w).shape[2:])


def convolutions():
    conv("conv1d", (2, 3, 13), (5, 3, 4), stride=3, pad=2, pad_after=1)
    conv("conv2d", (2, 3, 7, 5), (4, 3, 3, 3), pad=1)
    conv("conv2d_stride", (1, 4, 9, 8), (6, 4, 3, 3), stride=2, pad=0, pad_after=1, bias=False)
    conv("conv2d_dilated", (1, 4, 9, 7), (6, 2, 3, 2), dilation=[2, 3], pad=[2, 1], groups=2)
    conv("conv2d_depthwise", (2, 17, 5, 6), (17, 1, 3, 3), pad=1, groups=17)
    conv("conv2d_depthwise_stride", (1, 6, 8, 7), (6, 1, 3, 3), stride=2, pad=1, groups=6)
    conv("conv2d_multiplier", (1, 3, 5, 5), (6, 1, 3, 3), pad=1, groups=3)
    conv("conv2d_1x1", (2, 5, 3, 4), (7, 5, 1, 1))
    conv("conv2d_stem", (1, 3, 13, 11), (5, 3, 7, 7), stride=2, pad=3)
    conv("conv3d", (1, 2, 4, 5, 6), (3, 2, 3, 3, 3), stride=2, pad=[0, 1, 1])
    conv("conv3d_same", (1, 2, 3, 4, 5), (4, 2, 3, 3, 3), pad=1)
    transposed("transposed_k4s2p1", (1, 4, 3, 5), (4, 3, 4, 4), 2, 1)
    transposed("transposed_out_pad", (1, 4, 3, 4), (4, 2, 3, 3), 2, 1, out_pad=1)
    transposed("transposed_groups", (1, 4, 3, 4), (4, 3, 2, 2), 2, 0, groups=2)
    transposed("transposed_3d", (1, 3, 2, 3, 2), (3, 2, 2, 2, 2), 2, 0)


def batch_norm(x, gamma, beta, eps=1e-5):
    axes = [i for i in range(x.dim()) if i != 1]
    variance, mean = torch.var_mean(x, axes, unbiased=False)
    y = F.batch_norm(x, None, None, gamma, beta, True, 0.0, eps)
    return y, mean.detach(), torch.rsqrt(variance + eps).detach()


def group_norm(groups, eps=1e-5):
    def run(x, gamma, beta):
        parts = x.reshape(x.shape[0], groups, -1)
        variance, mean = torch.var_mean(parts, -1, unbiased=False)
        return F.group_norm(x, groups, gamma, beta, eps), mean.detach(), torch.rsqrt(variance + eps).detach()
    return run


def running(case, of_variance, momentum=0.1, eps=1e-5):
    """What PyTorch's batch norm makes of its running statistics in one training step."""
    x, start = 2 * normal(3, 5, 4, 2) + 1, 1 + normal(5).abs()
    mean, var = start.double().clone(), start.double().clone()
    F.batch_norm(x.double(), mean, var, None, None, True, momentum, eps)
    variance, average = torch.var_mean(x.double(), [0, 2, 3], unbiased=False)
    statistic = torch.rsqrt(variance + eps) if of_variance else average
    add(case, "running_average", lambda r, s: (var if of_variance else mean), [start, statistic.float()],
        momentum=momentum, epsilon=eps, count=x.numel() // 5, of_variance=of_variance)


def norms():
    x, gamma, beta = 2 * normal(3, 6, 5, 3) + 1, 1 + 0.3 * normal(6), normal(6)
    add("batch_norm", "batch_norm", batch_norm, [x, gamma, beta])
    add("batch_norm_3d", "batch_norm", lambda x, g, b: batch_norm(x, g, b, 1e-3), [normal(2, 3, 2, 3, 4), gamma[:3], beta[:3]],
        epsilon=0.001)
    mean, var = normal(6), 0.5 + normal(6).abs()
    add("batch_norm_inference", "batch_norm_inference",
        lambda x, g, b, m, v: F.batch_norm(x, m.detach(), v.detach(), g, b, False, 0.0, 1e-5), [x, gamma, beta, mean, var])
    running("running_mean", False)
    running("running_variance", True)
    for case, groups in (("group_norm", 3), ("layer_of_group_norm", 1), ("instance_norm", 6)):
        add(case, "group_norm", group_norm(groups), [x, gamma, beta], groups=groups)


def pools():
    for case, shape, kernel, stride, pad in (("k3s2p1", (2, 3, 7, 6), 3, 2, 1), ("k2s2", (1, 5, 6, 4), 2, 2, 0),
                                             ("1d", (2, 4, 9), 3, 1, 1), ("3d", (1, 2, 4, 5, 6), 3, 2, 1)):
        axes = len(shape) - 2
        attrs = dict(kernel=[kernel] * axes, stride=[stride] * axes, pad_before=[pad] * axes, pad_after=[pad] * axes)
        add("max_pool_" + case, "max_pool", lambda x: MAX_POOL[axes](x, kernel, stride, pad), [normal(*shape)], **attrs)
        for count in (True, False):
            add(f"avg_pool_{case}_{'all' if count else 'inside'}", "avg_pool",
                lambda x: AVG_POOL[axes](x, kernel, stride, pad, count_include_pad=count), [normal(*shape)], **attrs,
                count_padding=count)
    for shape, out in (((1, 1, 90, 160), (8, 14)), ((2, 3, 7, 9), (3, 4)), ((1, 2, 5, 3), (7, 3)), ((2, 4, 11), (4,)),
                       ((1, 2, 3, 4, 5), (2, 3, 2))):
        case = "adaptive_" + "x".join(map(str, shape[2:]))
        add(case, "adaptive_avg_pool", lambda x: ADAPTIVE[len(out)](x, out), [normal(*shape)], out=out)


def resizes():
    for shape, out in (((1, 3, 5, 7), (11, 10)), ((2, 2, 9, 8), (4, 5)), ((1, 2, 4, 4), (8, 8)), ((2, 3, 5), (12,)),
                       ((1, 2, 3, 4, 5), (5, 7, 4))):
        for mode in ("nearest", LINEAR[len(out)]):
            case = f"resize_{'x'.join(map(str, shape[2:]))}_{mode}"
            add(case, "resize", lambda x: F.interpolate(x, out, mode=mode), [normal(*shape)], out=out,
                linear=mode != "nearest")


convolutions()
norms()
pools()
resizes()
metadata["cases"] = " ".join(metadata)
path = os.path.join(GOLDEN, "spatial.safetensors")
save_file(tensors, path, metadata=dict(metadata, format="pt"))
os.chmod(path, 0o644)
print(f"{len(metadata) - 1} cases, {len(tensors)} tensors, {os.path.getsize(path)} bytes")
