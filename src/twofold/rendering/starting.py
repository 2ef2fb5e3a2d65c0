"""How long the first start of a replica may take, before what started it gives it up."""

from math import ceil

from twofold.core.display import format_bytes
from twofold.perf.formats import bytes_per_weight
from twofold.rendering.given import Given
from twofold.rendering.records import ServedPool
from twofold.rendering.runtimes import UNKNOWN_START_S

# What a planned start has not: an image that is pulled and unpacked, files that no cache holds yet.
FIRST_RATIO = 3
# What a node gets of a hub, 1 Gbit/s: assumed, and low, since a limit that is too long costs less.
HUB_BYTES_PER_S = 125e6


def start_limit(pool: ServedPool, given: Given) -> tuple[int, str]:
    """Seconds of the first start, the planned one with room and the weights from the hub; and why."""
    start = pool.service.cold_start_s
    read_s, said = UNKNOWN_START_S, "how long a start takes is not in the plan"
    if start:
        at = f"serving.{pool.service.name}.cold_start_s"
        read_s, said = (
            FIRST_RATIO * start.high,
            f"{FIRST_RATIO} × {at}, its upper end: the first pulls the image",
        )
    held = _weights_bytes(pool, given)
    if held:
        said += f"; {format_bytes(held)} of weights from a hub at {format_bytes(HUB_BYTES_PER_S)}/s"
    return ceil(read_s + held / HUB_BYTES_PER_S), said


def _weights_bytes(pool: ServedPool, given: Given) -> float:
    """Of the checkpoint as it is published; 0 for what its owner brings."""
    if pool.is_own:
        return 0.0
    model = given.models[pool.pool.model]
    return model.parameters * bytes_per_weight(given.native_formats[pool.weights])
