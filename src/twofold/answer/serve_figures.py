"""What a load's outcome is under every draw: quantiles, rates and money of one chosen layout, with ranges."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twofold.answer.quick_serve import Chosen, ServingQuestion, drawn_replica, under_load
from twofold.answer.ranges import Drawn, drawn, serving_spread
from twofold.answer.uncertainty import Draws, Spread
from twofold.core import Estimate
from twofold.inference import Replica, Served, weights_bytes
from twofold.perf import Constants, Floats, bytes_per_weight, one

METRICS, QUANTILES = ("ttft", "tpot", "e2e"), ("p50", "p95", "p99")
# Bytes of a narrow weight's own digits: what a format takes over them are its scales.
BARE_BYTES = {"fp8_block": 1.0, "mxfp8": 1.0, "int4": 0.5, "nvfp4": 0.5, "fp4": 0.5, "mxfp4": 0.5}


@dataclass(frozen=True, slots=True)
class Figures:
    """The middle of a load's outcome and the same under every draw."""

    question: ServingQuestion
    replica: Replica
    constants: Constants
    draws: Draws
    middle: Served
    under_draws: Served

    def rate(self, name: str) -> Drawn:
        """`requests_per_s` or `output_tokens_per_s`. Arrivals at a given rate leave at that rate."""
        value = one(getattr(self.middle, name))
        if self.question.rate_per_s is not None:
            return Drawn(value, np.full(self._count, value))
        return drawn(value, getattr(self.under_draws, name), self._spread("output"))

    def latency(self, metric: str, which: str) -> Drawn:
        """One quantile of one latency; a whole answer spreads as its longer part, the tokens, does."""
        middle, under = (
            getattr(getattr(served, metric), f"{which}_s") for served in (self.middle, self.under_draws)
        )
        spread = self._spread("tpot" if metric == "e2e" else metric)
        return drawn(middle, np.broadcast_to(_ended(under), (self._count, 1)), spread)

    def percentiles(self) -> dict[str, Estimate]:
        """`ttft_p50` … `e2e_p99`, in seconds."""
        return {f"{m}_{q}": self.latency(m, q).estimate("s") for m in METRICS for q in QUANTILES}

    def usd_per_1k_output_tokens(self) -> Estimate | None:
        """What all accelerators cost per 1,000 output tokens at this load; None without a price."""
        price = self.question.machines.price
        if price is None:
            return None
        listed = price.usd_per_accelerator_h
        in_doubt = np.ravel(self.draws["price"]) if listed.low < listed.high else np.ones(self._count)
        usd_per_s = listed.value * self.question.machines.accelerator_count / 3600
        spent = Drawn(usd_per_s, usd_per_s * in_doubt)
        return self.rate("output_tokens_per_s").inverse(spent.times(1e3)).estimate("USD")

    @property
    def _count(self) -> int:
        return int(np.size(self.draws["host"]))

    def _spread(self, metric: str) -> Spread | None:
        load = "open" if self.question.rate_per_s is not None else "closed"
        replica = self.replica
        device = replica.cluster.device
        return serving_spread(self.constants, self.question.model, metric, load, device, replica.engine)


def figures_of(chosen: Chosen, question: ServingQuestion, constants: Constants, draws: Draws) -> Figures:
    """Evaluate a layout's load once more under every draw."""
    under = under_load(drawn_replica(chosen.replica, draws), question)
    return Figures(question, chosen.replica, constants, draws, chosen.served, under)


def scales_bytes(replica: Replica) -> float:
    """Bytes of the scales of narrow weights, whole model: what a format takes over its bare digits."""
    fmt = replica.weights_format
    if fmt not in BARE_BYTES:
        return 0.0
    parts = weights_bytes(replica.shape, fmt)
    quantised = one(parts.experts_bytes)
    if one(replica.shape.experts) == 0 or bytes_per_weight(fmt) >= 1.0:
        quantised += one(parts.attention_bytes) + one(parts.ffn_bytes) + one(parts.other_bytes)
    return quantised * (1 - BARE_BYTES[fmt] / bytes_per_weight(fmt))


def _ended(latency_s: Floats) -> NDArray[np.float64]:
    """Under some draws an open loop saturates: those answers take as long as the slowest that do end."""
    values = np.asarray(latency_s, float)
    finite = np.isfinite(values)
    return np.where(finite, values, np.max(values[finite], initial=0.0))
