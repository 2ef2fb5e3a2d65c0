"""Tables beside a serving answer: weight formats, parallel layouts, ways to keep the cache, replicas."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from twofold.answer.quick_serve import (
    SIZES,
    Chosen,
    ServingQuestion,
    at_layout,
    candidate_layouts,
    choose,
    fitting,
    make_replica,
)
from twofold.answer.ranges import Drawn, drawn
from twofold.answer.serving_replica import DrawnLoad, draw_replica, layout_text, scales_bytes
from twofold.answer.uncertainty import Draws
from twofold.core.errors import InfeasibleError
from twofold.core.estimate import Estimate
from twofold.inference.fleet import throughput_of
from twofold.inference.replica import Replica, capacity, communication_bytes_per_token
from twofold.perf.constants import Constants
from twofold.perf.formats import bytes_per_weight
from twofold.perf.types import one

WEIGHT_FORMATS = ("bf16", "fp8", "int8", "int4", "fp4")


@dataclass(frozen=True, slots=True)
class Figures:
    """What a question's load gets, with ranges; what it costs."""

    question: ServingQuestion
    load: DrawnLoad

    def seconds(self, metric: str, which: str) -> Estimate:
        """One quantile of one latency."""
        return self.load.latency(metric, which).estimate("s")

    def rate(self, name: str) -> Drawn:
        """`requests_per_s` or `output_tokens_per_s`. Arrivals at a given rate leave at that rate."""
        value = one(getattr(self.load.middle, name))
        if self.question.rate_per_s is not None:
            return Drawn(value, np.full(self.load.replica.draws["host"].size, value))
        each = self.question.output_tokens if name == "requests_per_s" else 1.0
        most = one(self.load.bounds["output"]) / each
        return drawn(value, getattr(self.load.under_draws, name), self.load.spread("output")).within(
            most=most
        )

    def usd_per_1k_output_tokens(self) -> Estimate | None:
        """What all accelerators cost per 1,000 output tokens at this load; None without a price."""
        price, draws = self.question.machines.machine.price, self.load.replica.draws
        if price is None:
            return None
        listed = price.usd_per_accelerator_h
        in_doubt = np.ravel(draws["price"]) if listed.low < listed.high else np.ones(draws["price"].size)
        usd_per_s = listed.value * self.question.machines.accelerator_count / 3600
        spent = Drawn(usd_per_s, usd_per_s * in_doubt)
        return self.rate("output_tokens_per_s").inverse(spent.times(1e3)).estimate("USD")


def figures_of(replica: Replica, question: ServingQuestion, constants: Constants, draws: Draws) -> Figures:
    """A layout under the question's load, in the middle and under every draw."""
    kind = "open" if question.rate_per_s is not None else "closed"
    own = draw_replica(replica, question.model, constants, draws)
    clients = question.concurrency or np.inf
    return Figures(question, own.load(question.served_by, question.lengths, kind, clients))


@dataclass(frozen=True, slots=True)
class FormatRow:
    """One weight format on the same machines under the same load. Figures are None where nothing fits."""

    weights_format: str
    supported: bool  # by the matrix units; otherwise weights are widened on the fly
    note: str  # what happens instead, or why it does not fit
    weights_bytes: float  # whole model, scales included
    scales_bytes: float
    layout: str
    max_sequences: float | None
    tpot_s: Estimate | None  # median
    output_tokens_per_s: Estimate | None
    usd_per_1k_output_tokens: Estimate | None


@dataclass(frozen=True, slots=True)
class LayoutRow:
    """One split of the same accelerators under the same load. Figures are None where it cannot carry it."""

    tp: int
    pp: int
    ep: int
    dp: int
    fits: bool
    max_sequences: float
    ttft_s: Estimate | None  # p95
    tpot_s: Estimate | None  # median
    output_tokens_per_s: Estimate | None
    communication_bytes_per_token: float  # that one accelerator sends


@dataclass(frozen=True, slots=True)
class SwitchRow:
    """One way to keep the cache, switched on by itself, against the paged cache on the device."""

    name: str
    max_sequences: float
    ratio: float


@dataclass(frozen=True, slots=True)
class ReplicasRow:
    """So many replicas behind one balancer. Efficiency is of their number times one."""

    replica_count: int
    accelerator_count: int
    requests_per_s: Estimate
    output_tokens_per_s: Estimate
    efficiency_fraction: float


def format_rows(
    question: ServingQuestion, constants: Constants, draws: Draws, formats: Sequence[str] = WEIGHT_FORMATS
) -> tuple[FormatRow, ...]:
    """Memory and speed per weight format, each in the layout that suits it best."""
    rows = []
    for fmt in formats:
        own = replace(question, weights_format=fmt)
        replica = make_replica(own, constants)
        device = replica.cluster.device
        native, told = not device.widens(fmt), device.compute_format(fmt, replica.activation_format).reason
        told = told or ("" if native else "weights alone have 4 bits: maths in 16 bits")
        total, scales = one(replica.shape.weights_bytes(fmt).total_bytes), scales_bytes(replica)
        row = FormatRow(fmt, native, told, total, scales, "", None, None, None, None)
        try:
            chosen = choose(own, constants)
        except InfeasibleError as error:
            rows.append(replace(row, note=error.message))
            continue
        figures = figures_of(chosen.replica, own, constants, draws)
        found = replace(
            row,
            layout=layout_text(chosen.replica, "TP 1").split(f" · {fmt}")[0],
            max_sequences=one(own.held_by(chosen.replica)),
            tpot_s=figures.seconds("tpot", "p50"),
            output_tokens_per_s=figures.rate("output_tokens_per_s").estimate("tok/s"),
            usd_per_1k_output_tokens=figures.usd_per_1k_output_tokens(),
        )
        rows.append(found)
    return tuple(rows)


def layout_rows(question: ServingQuestion, constants: Constants, draws: Draws) -> tuple[LayoutRow, ...]:
    """Every split of the accelerators, fastest answer first; those that cannot carry the load last."""
    sizes = candidate_layouts(question, question.machines.accelerator_count)
    base = make_replica(question, constants)
    found = []
    for row, holds in zip(sizes, fitting(base, sizes, question), strict=True):
        chosen = at_layout(base, question, row)
        replica = chosen.replica
        carried = holds and np.isfinite(one(chosen.served.e2e.p95_s))
        answers_s = one(chosen.served.e2e.mean_s) if carried else np.inf  # as the choice is made
        figures = figures_of(replica, question, constants, draws) if np.isfinite(answers_s) else None
        told = LayoutRow(
            **{name: round(one(getattr(replica, name))) for name in SIZES},
            fits=bool(holds),
            max_sequences=one(question.held_by(replica)),
            ttft_s=figures.seconds("ttft", "p95") if figures else None,
            tpot_s=figures.seconds("tpot", "p50") if figures else None,
            output_tokens_per_s=figures.rate("output_tokens_per_s").estimate("tok/s") if figures else None,
            communication_bytes_per_token=one(communication_bytes_per_token(replica)),
        )
        found.append((answers_s, told))
    return tuple(row for _, row in sorted(found, key=lambda pair: (pair[0], pair[1].tp)))


def switch_rows(chosen: Chosen, question: ServingQuestion) -> tuple[SwitchRow, ...]:
    """Requests at once with each way of keeping the cache switched on alone (R-043), as asked first.

    What the question itself says of the cache is never switched.
    """
    replica, cache = chosen.replica, chosen.replica.cache
    contiguous = replace(cache, block_tokens=one(replica.shape.max_context_tokens))
    offloaded = replace(cache, offload_bytes=one(capacity(replica).usable_bytes))
    ways = {
        "paged": replica,
        "contiguous": replace(replica, cache=contiguous),
        "8-bit cache": replace(replica, kv_format="fp8"),
        "half the prompt shared": replace(replica, cache=replace(cache, shared_prefix_fraction=0.5)),
        "offloaded to the host": replace(replica, cache=offloaded),
    }
    said = {
        "8-bit cache": question.kv_stated or bytes_per_weight(question.kv_format) <= 1.0,
        "half the prompt shared": one(cache.shared_prefix_fraction) > 0,
        "offloaded to the host": one(cache.offload_bytes) > 0,
    }
    held = {name: one(question.held_by(way)) for name, way in ways.items() if not said.get(name)}
    base = max(held["paged"], 1e-9)
    return tuple(SwitchRow(name, count, count / base) for name, count in held.items())


def replica_rows(
    chosen: Chosen, question: ServingQuestion, figures: Figures, counts: Sequence[int]
) -> tuple[ReplicasRow, ...]:
    """Throughput against the number of replicas, each loaded as the one of the question is."""
    rate, tokens = figures.rate("requests_per_s"), figures.rate("output_tokens_per_s")
    _, shares = throughput_of(counts, rate.middle, max(one(chosen.served.batch_sequences), 1.0))
    size = question.machines.accelerator_count
    return tuple(
        ReplicasRow(
            replica_count=count,
            accelerator_count=count * size,
            requests_per_s=rate.times(count * float(share)).estimate("1/s"),
            output_tokens_per_s=tokens.times(count * float(share)).estimate("tok/s"),
            efficiency_fraction=float(share),
        )
        for count, share in zip(counts, shares, strict=True)
    )
