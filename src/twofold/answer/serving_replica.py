"""One replica that serves, in the middle and under every draw: layout, memory, start, steps and latencies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from twofold.answer.calibrated import service_scope
from twofold.answer.ranges import Drawn, drawn, serving_spread, under_draws
from twofold.answer.uncertainty import Draws, Spread, factor_ends
from twofold.catalog.types import Model
from twofold.contracts.goals import METRICS, QUANTILES
from twofold.contracts.results import serving
from twofold.contracts.results.parts import Part
from twofold.core import record
from twofold.core.estimate import Estimate, Source, exact
from twofold.inference.fleet import cold_start_s, warm_up
from twofold.inference.latency import Served
from twofold.inference.replica import Replica, capacity
from twofold.inference.steady import Lengths
from twofold.perf.constants import Constants
from twofold.perf.formats import bytes_per_weight
from twofold.perf.software import TWO_HALVES, engine_software
from twofold.perf.types import Floats, one

WORST_FACTOR = 20.0  # times the middle: what is shown of a draw in which a replica saturates
READING, WARMING = "read weights", "warm up"  # as plans and estimates name the two parts
LAYOUT = ("tp", "pp", "ep", "dp")
# Bytes of a narrow weight's own digits: what a format takes over them are its scales.
BARE_BYTES = {"fp8_block": 1.0, "mxfp8": 1.0, "int4": 0.5, "nvfp4": 0.5, "fp4": 0.5, "mxfp4": 0.5}


@dataclass(frozen=True, slots=True)
class DrawnReplica:
    """A replica, the same under every draw, and what its ranges are read from."""

    model: Model
    middle: Replica
    under_draws: Replica
    constants: Constants
    draws: Draws

    def spread(self, metric: str, load: str = "open") -> Spread | None:
        """How far left-out measurements lay; end to end is mostly decoding, so that TPOT's holds there."""
        asked = "tpot" if metric == "e2e" else metric
        replica = self.middle
        return serving_spread(self.constants, self.model, asked, load, replica.cluster.device, replica.engine)

    def load(
        self,
        serve: Callable[[Replica], Served],
        lengths: Lengths,
        kind: str = "open",
        clients: float = np.inf,
    ) -> "DrawnLoad":
        """What it delivers to requests of these lengths, in the middle and under every draw."""
        middle = serve(self.middle)
        bounds = middle.bounds(self.middle, lengths, clients)
        return DrawnLoad(self, middle, serve(self.under_draws), kind, bounds)


@dataclass(frozen=True, slots=True)
class DrawnLoad:
    """What a replica delivers under one load, with ranges."""

    replica: DrawnReplica
    middle: Served
    under_draws: Served
    kind: str  # open or closed: which measurements its ranges are read from
    bounds: Mapping[str, Floats]  # least seconds of each metric, most `output` tokens/s

    def latency(self, metric: str, which: str) -> Drawn:
        """One quantile, or `mean`, of one metric; infinite samples of draws that saturate are cut."""
        middle, samples = (
            getattr(getattr(served, metric), f"{which}_s") for served in (self.middle, self.under_draws)
        )
        value = float(np.max(np.asarray(middle, float)))
        worst = value * WORST_FACTOR
        count = np.shape(self.replica.draws["host"])
        raw = np.ravel(np.broadcast_to(np.asarray(samples, float), count))
        held = np.minimum(np.nan_to_num(raw, nan=worst, posinf=worst), worst)
        return drawn(value, held, self.spread(metric)).within(self.bounds[metric])

    def spread(self, metric: str) -> Spread | None:
        """How far measurements of such a load lay."""
        return self.replica.spread(metric, self.kind)

    def percentiles(self) -> dict[str, Estimate]:
        """`ttft_p50` … `e2e_p99`, in seconds."""
        return {f"{m}_{q}": self.latency(m, q).estimate("s") for m in METRICS for q in QUANTILES}


def draw_replica(replica: Replica, model: Model, constants: Constants, draws: Draws) -> DrawnReplica:
    """The replica with a leading axis of draws on hardware and software."""
    scope = service_scope(replica.cluster.device, replica.engine)
    cluster, engine = under_draws(replica.cluster, replica.engine, scope, draws)
    return DrawnReplica(model, replica, replace(replica, cluster=cluster, engine=engine), constants, draws)


def layout_text(replica: Replica, alone: str, *more: str) -> str:
    """A replica on one line: `TP 4 · fp8 weights · bf16 KV`; `alone` says that it is not split."""
    sizes = {name.upper(): round(one(getattr(replica, name))) for name in LAYOUT}
    shown = [f"{name} {size}" for name, size in sizes.items() if size > 1] or [alone]
    shown += [TWO_HALVES.replace("-", " ")] if one(replica.halved_fraction) else []
    return " · ".join([*shown, f"{replica.weights_format} weights", f"{replica.kv_format} KV", *more])


def replica_plan(replica: Replica, engine: str, max_batch: int, text: str) -> serving.Replica:
    """The replica as the plan's schema writes it; the engine's words say whether its steps run as halves."""
    told = one(replica.halved_fraction) and not engine_software(replica.engine.name).halves_in(engine)
    return serving.Replica(
        accelerator_count=round(one(replica.accelerator_count)),
        **{name: round(one(getattr(replica, name))) for name in LAYOUT},
        weights_format=replica.weights_format,
        kv_format=replica.kv_format,
        engine=f"{engine} {TWO_HALVES}" if told else engine,
        max_batch=max_batch,
        chunk_tokens=round(one(replica.chunk_tokens)),
        text=text,
    )


def taken_bytes(replica: Replica, constants: Constants) -> Estimate:
    """What the engine takes of one accelerator's memory; as told, or as far as engines' defaults range."""
    usable = one(capacity(replica).usable_bytes)
    if replica.memory_fraction is not None:
        return exact(usable, "B")
    row = constants.estimate("serving_memory_fraction", engine=replica.engine.name)
    return Estimate(usable, usable * row.low / row.value, usable * row.high / row.value, "B", row.source)


def memory_by_part(replica: Replica, constants: Constants) -> dict[str, Estimate]:
    """One accelerator's memory: weights, buffers, adapters, and the cache, which gets what the others leave.

    The cache gets what the engine takes more, and lacks what buffers take more.
    """
    held, taken = capacity(replica), taken_bytes(replica, constants)
    buffers = one(held.buffers_bytes)
    low, high = (buffers * end for end in factor_ends(constants, "memory_use"))
    cache = max(one(held.kv_bytes), 0.0)
    least = cache - (taken.value - taken.low) - (high - buffers)
    most = cache + (taken.high - taken.value) + (buffers - low)
    return {
        "weights": exact(one(held.weights_bytes), "B", Source.VENDOR),
        "buffers": Estimate(buffers, low, high, "B"),
        "adapters": exact(one(held.adapter_bytes), "B", Source.VENDOR),
        "KV cache": Estimate(cache, min(max(least, 0.0), cache), most, "B"),
    }


def parts_of(named: dict[str, Estimate], total: float) -> tuple[Part, ...]:
    """The parts that are there, with their shares of the total."""
    return tuple(Part(name, each, each.value / total) for name, each in named.items() if each.value > 0)


def scales_bytes(replica: Replica) -> float:
    """Bytes of the scales of narrow weights, whole model: what a format takes over its bare digits."""
    fmt = replica.weights_format
    if fmt not in BARE_BYTES:
        return 0.0
    parts = replica.shape.weights_bytes(fmt)
    quantised = one(parts.experts_bytes)
    if one(replica.shape.experts) == 0 or bytes_per_weight(fmt) >= 1.0:
        quantised += one(parts.attention_bytes) + one(parts.ffn_bytes) + one(parts.other_bytes)
    return quantised * (1 - BARE_BYTES[fmt] / bytes_per_weight(fmt))


def cold_start(
    replica: Replica, load_bytes_per_s: float, draws: Draws, constants: Constants
) -> tuple[Estimate, tuple[Part, Part]]:
    """Seconds from a granted machine to the first answer: reading, by bytes over bandwidth, and warming up.

    Draw by draw their sum spreads less than the sum of their ends. A warm-up that was measured on these
    machines holds their processors.
    """
    told = warm_up(constants, replica.cluster.device.name, replica.engine.name)
    warm_s, is_measured = told.value, told.source is Source.MEASURED
    rates = load_bytes_per_s * np.ravel(draws["storage"])
    read_s = one(cold_start_s(replica, load_bytes_per_s, warm_s)) - warm_s
    read = drawn(read_s, np.asarray(cold_start_s(replica, rates, warm_s), float) - warm_s)
    seen = "measured starts" if is_measured else "engines' start-up logs"
    hosts = np.ravel(draws["host"])
    spread = Spread(told.low / warm_s, told.high / warm_s, seen)
    warming = drawn(warm_s, warm_s / (np.ones_like(hosts) if is_measured else hosts), spread)
    whole = Drawn(read.middle + warming.middle, read.samples + warming.samples)
    first, then = (
        Part(name, part.estimate("s", source), part.middle / whole.middle)
        for name, part, source in ((READING, read, Source.ASSUMED), (WARMING, warming, told.source))
    )
    paths = [f"cold_start_parts.{part.name}.value" for part in (first, then)]
    record.note(paths[0], first.value, "weights / load bandwidth", "parameters", "load_rate")
    record.note(paths[1], then.value, "process start and graph capture", "warm")
    return record.note("cold_start_s", whole.estimate("s", Source.ASSUMED), "", *paths), (first, then)


def exchanged_bytes(replica: Replica) -> Floats:
    """Bytes that one token sends and gets between expert ranks, over all expert layers."""
    sent = bytes_per_weight(replica.activation_format)
    return replica.shape.moe_layers * replica.shape.exchange_bytes_per_token(replica.ep, sent)
