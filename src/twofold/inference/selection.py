"""Tables that answer which hardware, which layout, which context: one axis at a time, by the same models."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twofold.inference.replica import Replica, capacity, max_sequences
from twofold.inference.search import Hardware, ModelVariant, search
from twofold.inference.slo import TrafficClass, bottleneck
from twofold.perf import HALF_BYTES, Floats, ModelShape, bytes_per_weight

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class HardwareRow:
    """How one accelerator serves one model under one promise. Costs are None without a price."""

    offer: str
    accelerators_per_replica: int
    weights_format: str
    output_tokens_per_s_per_accelerator: float
    usd_per_1k_output_tokens: float | None
    bound_by: str
    gain_fraction: float  # of the rate within the promise, for 20 % more of what binds
    reason: str  # why it cannot, or empty


def hardware_table(
    variant: ModelVariant, traffic: TrafficClass, offers: Sequence[Hardware]
) -> tuple[HardwareRow, ...]:
    """Each offer's cheapest way to serve a model within a promise, cheapest token first, failures last."""
    rows = [_hardware_row(variant, traffic, offer) for offer in offers]
    return tuple(
        sorted(rows, key=lambda row: (bool(row.reason), row.usd_per_1k_output_tokens or float("inf")))
    )


def _hardware_row(variant: ModelVariant, traffic: TrafficClass, offer: Hardware) -> HardwareRow:
    found = search([variant], [traffic], [offer], availability_fraction=0.0)
    if found.best is None:
        return HardwareRow(offer.name, 0, "", 0.0, None, "", 0.0, found.binding)
    pool = found.best.pools[0]
    binds, gain = next(iter(bottleneck(pool.replica, traffic).items()))
    size = float(np.max(pool.replica.accelerator_count))
    tokens = pool.limit_per_s * float(np.mean(traffic.lengths.output_tokens)) / size
    price = offer.price_usd_per_accelerator_h
    return HardwareRow(
        offer=offer.name,
        accelerators_per_replica=round(size),
        weights_format=pool.replica.weights_format,
        output_tokens_per_s_per_accelerator=tokens,
        usd_per_1k_output_tokens=None if price is None else price / 3600.0 / tokens * 1e3,
        bound_by=binds,
        gain_fraction=gain,
        reason="",
    )


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


def cache_switches(replica: Replica, context_tokens: float, input_tokens: float) -> dict[str, float]:
    """Sequences at once with each way of keeping the cache switched on by itself (R-043)."""
    room = float(np.max(capacity(replica).usable_bytes))
    cache = replica.cache
    contiguous = replace(cache, block_tokens=float(np.max(replica.shape.max_context_tokens)))
    ways = {
        "paged": replica,
        "contiguous": replace(replica, cache=contiguous),
        "8-bit cache": replace(replica, kv_format="fp8"),
        "half the prompt shared": replace(replica, cache=replace(cache, shared_prefix_fraction=0.5)),
        "offloaded to the host": replace(replica, cache=replace(cache, offload_bytes=room)),
    }
    return {
        name: float(np.max(max_sequences(way, context_tokens, input_tokens))) for name, way in ways.items()
    }
