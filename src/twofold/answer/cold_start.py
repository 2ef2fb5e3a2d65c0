"""How long a replica takes from a granted machine to its first answer: reading weights, and warming up."""

import numpy as np

from twofold.answer.ranges import Drawn, drawn
from twofold.answer.uncertainty import Draws, Spread
from twofold.contracts.results import Part
from twofold.core import Source
from twofold.inference import Replica, cold_start_s

WARM_UP_RANGE_S = (20.0, 90.0)  # what engines log of start, capture and first requests
READING, WARMING = "read weights", "warm up"  # as plans and estimates name the two parts


def cold_start_parts(replica: Replica, load_bytes_per_s: float, draws: Draws) -> tuple[Part, Part]:
    """Reading, which scales with bytes over bandwidth, and warming up, which does not."""
    read, warming = _drawn_parts(replica, load_bytes_per_s, draws)
    whole_s = read.middle + warming.middle
    return (
        Part(READING, read.estimate("s", Source.ASSUMED), read.middle / whole_s),
        Part(WARMING, warming.estimate("s", Source.ASSUMED), warming.middle / whole_s),
    )


def cold_start(replica: Replica, load_bytes_per_s: float, draws: Draws) -> Drawn:
    """Both parts under every draw: their sum spreads less than the sum of their ends."""
    read, warming = _drawn_parts(replica, load_bytes_per_s, draws)
    return Drawn(read.middle + warming.middle, read.samples + warming.samples)


def _drawn_parts(replica: Replica, load_bytes_per_s: float, draws: Draws) -> tuple[Drawn, Drawn]:
    warm_s = float(np.max(cold_start_s(replica, np.inf)))
    rates = load_bytes_per_s * np.ravel(draws["storage"])
    read_s = float(np.max(cold_start_s(replica, load_bytes_per_s))) - warm_s
    read = drawn(read_s, np.asarray(cold_start_s(replica, rates), float) - warm_s)
    low_s, high_s = WARM_UP_RANGE_S
    logged = Spread(low_s / warm_s, high_s / warm_s, "engines' start-up logs")
    return read, drawn(warm_s, warm_s / np.ravel(draws["host"]), logged)
