"""What a framework prints as its peak memory: whose bytes, and in which unit.

Frameworks read different counters: the whole device (context and communication buffers included), what the
allocator took, or what tensors held; and divide by 10⁹ or by 2³⁰. Only the framework's name is looked at.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from twofold.perf import Floats
from twofold.training import Memory, software_family

GIB = float(2**30)


@dataclass(frozen=True, slots=True)
class Counter:
    """One convention, or one for each row."""

    counts: Literal["device", "reserved", "allocated"] | NDArray[np.str_]
    unit_bytes: Floats


BY_WORD = {"bridge": Counter("allocated", 1e9), "nemo": Counter("allocated", 1e9)}
"""Where one framework of a family differs: words of its name."""
BY_FAMILY = {
    "megatron": Counter("allocated", GIB),
    "megatron-legacy": Counter("device", 1e9),
    "nanotron": Counter("allocated", 1e9),
    "fsdp": Counter("reserved", GIB),
}
USUAL = Counter("reserved", GIB)


def counter(framework: str, precision: str) -> Counter:
    """The convention of a framework.

    >>> counter("torchtitan 0", "bf16").counts
    'reserved'
    """
    word = next((word for word in BY_WORD if word in framework.lower()), "")
    return BY_WORD.get(word) or BY_FAMILY.get(software_family(framework, precision), USUAL)


def printed_states(held: Memory, how: Counter) -> NDArray[np.float64]:
    """Weights, gradients and optimiser in the unit that a framework prints."""
    return np.asarray(held.states_bytes / how.unit_bytes)


def printed(held: Memory, how: Counter) -> NDArray[np.float64]:
    """The number that a framework prints of what each layout holds."""
    counts = np.asarray(how.counts)
    counted = np.where(counts == "device", held.device_bytes, held.reserved_bytes)
    return np.asarray(np.where(counts == "allocated", held.allocated_bytes, counted) / how.unit_bytes)
