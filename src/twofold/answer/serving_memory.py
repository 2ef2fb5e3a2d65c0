"""Ranges of a serving replica's memory: what its engine takes, what buffers need, and what the cache gets."""

import numpy as np

from twofold.answer.uncertainty import factor_ends
from twofold.core import Estimate, Source
from twofold.inference import Replica, capacity
from twofold.perf import Constants


def taken_bytes(replica: Replica, constants: Constants) -> Estimate:
    """What the engine takes of one accelerator's memory; as told, or as far as engines' defaults range."""
    usable = _one(capacity(replica).usable_bytes)
    if replica.memory_fraction is not None:
        return Estimate(usable, usable, usable, "B", Source.ASSUMED)
    row = constants.estimate("serving_memory_fraction", engine=replica.engine.name)
    return Estimate(usable, usable * row.low / row.value, usable * row.high / row.value, "B", row.source)


def buffers_bytes(replica: Replica, constants: Constants) -> Estimate:
    """Activations, logits, graphs and communication of one accelerator."""
    held = _one(capacity(replica).buffers_bytes)
    low, high = factor_ends(constants, "memory_use")
    return Estimate(held, held * low, held * high, "B")


def cache_bytes(replica: Replica, constants: Constants) -> Estimate:
    """The cache of one accelerator: what the engine takes more it gets, what buffers take more it lacks."""
    taken, buffers = taken_bytes(replica, constants), buffers_bytes(replica, constants)
    cache = max(_one(capacity(replica).kv_bytes), 0.0)
    least = cache - (taken.value - taken.low) - (buffers.high - buffers.value)
    most = cache + (taken.high - taken.value) + (buffers.value - buffers.low)
    return Estimate(cache, min(max(least, 0.0), cache), most, "B")


def _one(value: object) -> float:
    return float(np.ravel(np.asarray(value, float))[0])
