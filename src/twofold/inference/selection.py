"""Tables that answer which hardware, which layout, which context: one axis at a time, by the same models."""

import numpy as np
from numpy.typing import NDArray

from twofold.inference.replica import Replica
from twofold.perf import HALF_BYTES, Floats, ModelShape, bytes_per_weight

Array = NDArray[np.float64]


def chips_needed(shape: ModelShape, weights_format: str, memory_bytes: float, fraction: float = 0.9) -> int:
    """Devices that the weights alone take: the honest count for SRAM parts (R-069)."""
    total = float(np.max(shape.weights_bytes(weights_format).total_bytes))
    return int(np.ceil(total / (memory_bytes * fraction)))


def communication_bytes_per_token(replica: Replica) -> Floats:
    """Bytes that one accelerator sends per token: all-reduces of TP, hand-offs of PP, all-to-alls of EP.

    Formula  2(n−1)/n·hidden·2 B per all-reduce, two per layer (one where experts exchange instead), plus
             (dispatch + combine)·(n−1)/n per layer of experts over `ep` > `tp`, plus hidden·2 B per hand-off
    Units    B per token that passes through the accelerator's rank.
    Source   R-053; ring and direct-exchange volumes.
    """
    shape, tp, ep = replica.shape, np.asarray(replica.tp, float), np.asarray(replica.ep, float)
    spread = (ep > tp) & (np.asarray(shape.experts) > 0)
    reduces = 2.0 * shape.layers - np.where(spread, shape.moe_layers, 0.0)
    reduced = reduces * 2.0 * (tp - 1.0) / tp * shape.hidden * HALF_BYTES
    one_layer = shape.exchange_bytes_per_token(ep, bytes_per_weight(replica.activation_format)) / tp
    exchanged = np.where(spread, shape.moe_layers * (ep - 1.0) / np.maximum(ep, 1.0) * one_layer, 0.0)
    handed = np.where(np.asarray(replica.pp) > 1, shape.hidden * HALF_BYTES / tp, 0.0)
    total: Floats = reduced + exchanged + handed
    return total
