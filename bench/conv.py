"""Convolutions on the CPU beside PyTorch's, in one run: forward and both gradients, f32.

    python3 bench/conv.py build/bench_conv [threads=2] [seconds=0.3] [rounds=2] [NAME...]

Needs PyTorch. For each case: the best time of Snug's kernels and of PyTorch's (channels last, as Snug's are), in
turns, and how many times faster Snug is. With threads=1 the times are of the processor. All inputs are in memory before the clock starts.
"""
import re
import subprocess
import sys
import time

import torch

# name: x [N, D.., C], w [O, K.., C / groups], stride, pad, groups
CASES = {
    "3x3": ([8, 56, 56, 64], [128, 3, 3, 64], 1, 1, 1),
    "3x3-s2": ([8, 56, 56, 128], [128, 3, 3, 128], 2, 1, 1),
    "3x3-deep": ([8, 7, 7, 512], [512, 3, 3, 512], 1, 1, 1),
    "1x1": ([8, 56, 56, 256], [64, 1, 1, 256], 1, 0, 1),
    "1x1-up": ([8, 28, 28, 128], [512, 1, 1, 128], 1, 0, 1),
    "depthwise": ([8, 56, 56, 144], [144, 3, 3, 1], 1, 1, 144),
    "depthwise-s2": ([8, 56, 56, 144], [144, 3, 3, 1], 2, 1, 144),
    "stem": ([8, 224, 224, 3], [64, 7, 7, 3], 2, 3, 1),
    "grouped": ([8, 28, 28, 256], [256, 3, 3, 8], 1, 1, 32),
    "frames-gate": ([2, 220, 320, 1], [1, 3, 3, 1], 1, 1, 1),
    "frames-0": ([2, 220, 320, 1], [32, 3, 3, 1], 1, 1, 1),
    "frames-1": ([2, 110, 160, 32], [64, 3, 3, 32], 1, 1, 1),
    "frames-2": ([2, 55, 80, 64], [128, 3, 3, 64], 1, 1, 1),
    "residual": ([32, 32, 32, 32], [32, 3, 3, 32], 1, 1, 1),
    "3d": ([2, 16, 28, 28, 32], [64, 3, 3, 3, 32], 1, 1, 1),
}


def snug(program, threads, seconds, case):
    x, w, stride, pad, groups = case
    axes = len(x) - 2
    listed = lambda v: ",".join(map(str, v))
    command = [program, str(threads), str(seconds), "x=" + listed(x), "w=" + listed(w),
               "stride=" + listed([stride] * axes), "pad=" + listed([pad] * axes), "groups=%d" % groups]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(t) for t in re.findall(r"([0-9.]+) ms", out)]


def best_ms(function, seconds):
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    function()
    best, total, n = 1e30, 0.0, 0
    while n < 3 or total < seconds:
        start = clock()
        function()
        t = clock() - start
        best, total, n = min(best, t), total + t, n + 1
    return best * 1e3


def peer(seconds, case):
    x, w, stride, pad, groups = case
    axes = len(x) - 2
    layout = torch.channels_last if axes == 2 else torch.channels_last_3d
    to_torch = lambda s: torch.rand(s[0], s[-1], *s[1:-1]).sub_(0.5).contiguous(memory_format=layout)
    x, w = to_torch(x), to_torch(w)
    conv = {2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}[axes]
    with torch.no_grad():
        y = conv(x, w, None, stride, pad, 1, groups)

        def backward(mask):
            return torch.ops.aten.convolution_backward(y, x, w, None, [stride] * axes, [pad] * axes, [1] * axes, False,
                                                       [0] * axes, groups, mask)
        return [best_ms(lambda: conv(x, w, None, stride, pad, 1, groups), seconds),
                best_ms(lambda: backward([True, False, False]), seconds),
                best_ms(lambda: backward([False, True, False]), seconds)]


def main():
    settings = dict(threads=2, seconds=0.3, rounds=2)
    names = []
    for a in sys.argv[2:]:
        key, _, value = a.partition("=")
        settings.update({key: float(value)}) if value else names.append(a)
    threads = int(settings["threads"])
    torch.set_num_threads(threads)
    print("%-13s %-8s %9s %9s %7s %9s" % ("case", "", "Snug ms", "torch ms", "times", "GFLOP/s"))
    for name in names or CASES:
        case = CASES[name]
        x, w, stride, pad, groups = case
        flops = 2.0 * x[0] * w[0]
        for size, kernel in zip(x[1:-1], w[1:-1]):
            flops *= ((size + 2 * pad - kernel) // stride + 1) * kernel
        flops *= w[-1]
        ours, theirs = [1e30] * 3, [1e30] * 3
        for _ in range(int(settings["rounds"])):
            ours = [min(a, b) for a, b in zip(ours, snug(sys.argv[1], threads, settings["seconds"], case))]
            theirs = [min(a, b) for a, b in zip(theirs, peer(settings["seconds"], case))]
        for what, a, b in zip(("forward", "dx", "dw"), ours, theirs):
            print("%-13s %-8s %9.3f %9.3f %7.2f %9.1f" % (name, what, a, b, b / a, flops / a / 1e6), flush=True)


main()
