"""What a named factor does to training software: the same name means the same in draws and in calibration."""

from collections.abc import Mapping
from dataclasses import fields, replace

import numpy as np

from twofold.perf import Floats
from twofold.training.stack import Stack

HELD_BESIDE_STATES = ("activation_factor", "fragmentation_fraction", "logits_bytes", "workspace_bytes")


def scale_stack(stack: Stack, factors: Mapping[str, Floats]) -> Stack:
    """Software with launch times divided by `host`, exposed shares multiplied by `overlap`, and what memory
    holds beside the states, whose bytes are known, multiplied by `memory_use`; the rest stays.
    """
    host, overlap = factors.get("host", 1.0), factors.get("overlap", 1.0)
    timed = [f.name for f in fields(Stack) if "host" in f.name and f.name.endswith("_s")]
    shares = [f.name for f in fields(Stack) if f.name.endswith("_exposed_fraction")]
    changed = {name: getattr(stack, name) / host for name in timed}
    changed |= {name: np.minimum(getattr(stack, name) * overlap, 1.0) for name in shares}
    if "memory_use" in factors:
        changed |= {name: getattr(stack, name) * factors["memory_use"] for name in HELD_BESIDE_STATES}
    return replace(stack, **changed)
