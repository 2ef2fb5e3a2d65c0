"""How the benchmark of the public MoE table routes its tokens: rows and experts of the busiest rank.

The table says `balanced` or `power_law_A`. Under the latter each expert's share is drawn from a power law,
shares are scaled to all routed tokens and rounded, what rounding lost goes to experts at random, and the rank
that is timed is the one with the most rows. The mean over a few draws stands for the one draw that was timed.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
DRAWS = 24
SEED = 7


@cache
def busiest_rank(tokens: int, experts: int, topk: int, ranks: int, distribution: str) -> tuple[float, float]:
    """Rows and touched experts of the busiest of `ranks` ranks that share `experts` evenly.

    Shapes   scalars in, two floats out.
    Units    counts.
    Source   The distributions that the table's rows name.
    Limits   balanced: the mean of all ranks; one rank: all rows. At least one row and one expert.
    """
    local, routed = experts // ranks, tokens * topk
    if distribution == "balanced":
        return routed / ranks, float(min(local, max(1, -(-routed // ranks))))
    counts = _drawn(tokens, experts, topk, float(distribution.rpartition("_")[2]))
    by_rank = counts.reshape(DRAWS, ranks, local)
    rows = by_rank.sum(axis=2)
    busiest = by_rank[np.arange(DRAWS), rows.argmax(axis=1)]
    return max(1.0, float(rows.max(axis=1).mean())), max(1.0, float((busiest > 0).sum(axis=1).mean()))


def _drawn(tokens: int, experts: int, topk: int, exponent: float) -> Array:
    """Rows of each expert, one line per draw."""
    generator = np.random.default_rng(SEED)
    routed = tokens * topk
    low, high = (1.0, 0.8 * tokens) if routed > experts else (0.01, 2.0)
    uniform = generator.random((DRAWS, experts))
    power = 1.0 - exponent
    drawn = ((high**power - low**power) * uniform + low**power) ** (1.0 / power)
    counts: Array = np.round(drawn / drawn.sum(axis=1, keepdims=True) * routed)
    for line in counts:
        missing = routed - int(line.sum())
        order = generator.permutation(experts)
        whole, part = divmod(abs(missing), experts)
        line += np.sign(missing) * whole
        line[order[:part]] += np.sign(missing)
    clipped: Array = np.clip(counts, 0.0, float(tokens))
    return clipped
