"""Learning rates by step, as transformers' schedulers (and PyTorch's ReduceLROnPlateau) give them.

    python tools/make_schedule_golden.py >tests/golden/schedules.json

Needs torch and transformers. Each case is a list of settings for Snug and what comes of them.
"""
import json

import torch
from transformers.optimization import get_scheduler

STEPS, WARMUP, PEAK = 24, 4, 0.01

# name, its warm-up, lr_scheduler_kwargs, the same as settings
CASES = [
    ("linear", WARMUP, {}, []),
    ("cosine", WARMUP, {}, []),
    ("cosine", 0, {"num_cycles": 1.5}, ["lr_num_cycles=1.5"]),
    ("cosine_with_restarts", WARMUP, {}, []),
    ("cosine_with_restarts", WARMUP, {"num_cycles": 3}, ["lr_scheduler_kwargs.num_cycles=3"]),
    ("polynomial", WARMUP, {}, []),
    ("polynomial", WARMUP, {"lr_end": 0.001, "power": 2.0}, ["lr_end=0.001", "lr_power=2"]),
    ("constant", 0, {}, []),
    ("constant_with_warmup", WARMUP, {}, []),
    ("inverse_sqrt", WARMUP, {}, []),
    ("inverse_sqrt", 0, {"timescale": 5}, ["lr_timescale=5"]),
    ("cosine_with_min_lr", WARMUP, {"min_lr": 0.002}, ["min_lr=0.002"]),
    ("cosine_with_min_lr", WARMUP, {"min_lr_rate": 0.1, "num_cycles": 1.0},
     ["lr_scheduler_kwargs.min_lr_rate=0.1", "lr_num_cycles=1"]),
    ("warmup_stable_decay", WARMUP, {"num_decay_steps": 10}, ["lr_decay_steps=10"]),
    ("warmup_stable_decay", WARMUP,
     {"num_decay_steps": 6, "num_stable_steps": 3, "min_lr_ratio": 0.1, "warmup_type": "cosine",
      "decay_type": "1-sqrt"},
     ["lr_decay_steps=6", "lr_stable_steps=3", "min_lr_ratio=0.1", "lr_warmup_type=cosine",
      "lr_decay_type=1-sqrt"]),
    ("warmup_stable_decay", WARMUP,
     {"num_decay_steps": 8, "warmup_type": "1-sqrt", "decay_type": "linear"},
     ["lr_decay_steps=8", "lr_warmup_type=1-sqrt", "lr_decay_type=linear"]),
]

# metrics of evaluations, kwargs, settings
PLATEAUS = [
    ([5, 4, 4, 4, 3.9999, 3, 3.5, 3.4, 3.3, 2, 2, 2, 2], {"patience": 1, "factor": 0.5},
     ["lr_plateau_patience=1", "lr_plateau_factor=0.5"]),
    ([5, 5, 5, 5, 5, 5, 5, 5, 5, 5], {"patience": 0, "cooldown": 2, "factor": 0.2, "min_lr": 0.001},
     ["lr_plateau_patience=0", "lr_plateau_cooldown=2", "lr_plateau_factor=0.2", "min_lr=0.001"]),
    ([5, 4.9, 4.5, 4.4, 4.0, 3.9], {"patience": 0, "threshold": 0.05},
     ["lr_plateau_patience=0", "lr_plateau_threshold=0.05"]),
]


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)


def rates(name, warmup, kwargs):
    o = optimizer()
    s = get_scheduler(name, o, num_warmup_steps=warmup, num_training_steps=STEPS,
                      scheduler_specific_kwargs=kwargs)
    out = []
    for _ in range(STEPS):
        out.append(o.param_groups[0]["lr"])
        o.step()
        s.step()
    return out


def plateau(metrics, kwargs):
    o = optimizer()
    s = torch.optim.lr_scheduler.ReduceLROnPlateau(o, **kwargs)
    out = []
    for m in metrics:
        s.step(m)
        out.append(o.param_groups[0]["lr"])
    return out


schedules = [{"settings": [f"lr_scheduler_type={name}", f"warmup_steps={warmup}"] + settings,
              "rates": rates(name, warmup, kwargs)}
             for name, warmup, kwargs, settings in CASES]
plateaus = [{"settings": settings, "metrics": metrics, "rates": plateau(metrics, kwargs)}
            for metrics, kwargs, settings in PLATEAUS]
lines = ",\n".join(json.dumps(c) for c in schedules)
others = ",\n".join(json.dumps(c) for c in plateaus)
print('{"steps": %d, "peak": %r,\n"schedules": [\n%s],\n"plateaus": [\n%s]}'
      % (STEPS, PEAK, lines, others))
