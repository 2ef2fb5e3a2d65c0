"""One serving question without a spec: which layout of given machines answers a load soonest."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from twofold.answer import loads
from twofold.answer.question import Given, check_units
from twofold.answer.refusals import machines_text, need_context
from twofold.answer.stacks import engine_on
from twofold.catalog.catalog import Catalog
from twofold.catalog.types import Model, Storage
from twofold.core.display import format_bytes, format_memory, format_si
from twofold.core.errors import InfeasibleError, ValueRefusedError
from twofold.inference.latency import Served
from twofold.inference.replica import CacheOptions, Replica, capacity, chips_needed, max_sequences, replica_of
from twofold.inference.search import splits
from twofold.inference.steady import Lengths
from twofold.perf.constants import Constants, load_constants
from twofold.perf.formats import bytes_per_weight
from twofold.perf.shape import ModelShape, model_kind
from twofold.perf.software import DEFAULT_ENGINE, engine_software

MAX_BATCH = 1024  # what engines admit to decode together unless told otherwise
WIDEST_TENSOR = 64
STAGES = (1, 2, 4, 8, 16)
SIZES = ("tp", "pp", "ep", "dp")
# Devices tried, in order, when the given ones do not hold a model.
DEVICE_COUNTS = tuple(sorted({n * 2**p for n in (1, 3) for p in range(10)}))
NARROWER = ("fp8", "int8", "int4")
SAFE_UTILISATION = 0.8  # of saturation, where queues are still short


@dataclass(frozen=True, slots=True)
class ServingQuestion:
    """What is served where, to `concurrency` clients in a closed loop or to `rate_per_s` arrivals."""

    model: Model
    machines: Given
    input_tokens: float
    output_tokens: float
    concurrency: float | None = None
    rate_per_s: float | None = None
    weights_format: str = "bf16"
    kv_format: str = "bf16"
    engine_name: str = DEFAULT_ENGINE
    engine_version: str | None = None
    stated: Mapping[str, int] = field(default_factory=dict)  # sizes by `SIZES`; what is left out is searched
    chunk_tokens: float = 8192.0
    max_batch: float = MAX_BATCH
    cache: CacheOptions = field(default_factory=CacheOptions)
    kv_stated: bool = False  # whether somebody asked for `kv_format`
    load_bytes_per_s: float | None = None  # into one replica at its start; None: as constants assume

    @property
    def lengths(self) -> Lengths:
        """Of every request."""
        return Lengths(self.input_tokens, self.output_tokens)

    @property
    def context_tokens(self) -> float:
        """Of a request that has just finished: what its cache must hold."""
        return self.input_tokens + self.output_tokens

    def held_by(self, replica: Replica) -> NDArray[np.float64]:
        """Requests of these lengths that the cache of each layout holds at once."""
        return np.asarray(max_sequences(replica, self.context_tokens, self.input_tokens), float)

    def served_by(self, replica: Replica) -> Served:
        """What a replica delivers at this load."""
        if self.rate_per_s is not None:
            return loads.served(replica, self.lengths, loads.OpenLoop(self.rate_per_s))
        # The steady state: a benchmark of a few requests per client also shows the burst that it starts with.
        clients = loads.ClosedLoop(self.concurrency or 1.0, burst_fraction=0.0)
        return loads.served(replica, self.lengths, clients)

    @property
    def engine_text(self) -> str:
        """The software and its release: `vllm 0.15.0`."""
        return f"{self.engine_name} {self.engine_version or ''}".strip()

    @property
    def load_text(self) -> str:
        """How a screen says the load."""
        if self.rate_per_s is not None:
            return f"{self.rate_per_s:g} requests/s arriving at random"
        return f"{self.concurrency or 0:g} clients in a closed loop"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A layout that fits, and what it delivers at the question's load; all numbers, no arrays."""

    replica: Replica
    served: Served


def check_question(question: ServingQuestion) -> None:
    """What cannot be asked, with what to write instead."""
    if (question.concurrency is None) == (question.rate_per_s is None):
        raise ValueRefusedError(
            "a load is `--concurrency` or `--rate`, one of them", hint="write for example `--concurrency 64`"
        )
    need_context([question.model], question.context_tokens, flag="--")
    check_units(question.machines.cluster.device, question.weights_format)
    bytes_per_weight(question.kv_format)


def make_replica(question: ServingQuestion, constants: Constants) -> Replica:
    """The replica of a question before its layout is known."""
    named = question.engine_name, constants, question.engine_version, model_kind(question.model)
    system = engine_on(question.machines.cluster, *named)
    formats = question.weights_format, question.kv_format
    return replace(
        replica_of(ModelShape.of(question.model), *system, *formats),
        rank_batch=question.max_batch,
        chunk_tokens=question.chunk_tokens,
        cache=question.cache,
        halved_fraction=float(engine_software(question.engine_name).halves_in(question.engine_version)),
    )


def candidate_layouts(question: ServingQuestion, count: int) -> NDArray[np.float64]:
    """Rows (tp, pp, ep, dp) on up to `count` accelerators that divide the model, as far as stated.

    Copies fill what tp · pp leaves; accelerators that no copy fits into stay idle. Each slice holds a copy.
    """
    model, network = question.model, question.machines.cluster.network
    alone = question.machines.accelerator.works_alone
    widest = min(count, WIDEST_TENSOR, max(network.domain_size, network.node_size))
    rows = []
    widths, stages = ((1,), (1,)) if alone else (range(1, widest + 1), STAGES)
    for tp, pp in splits(model.heads, model.layers, count, widths, stages):
        most = count // (tp * pp)
        stated_dp = question.stated.get("dp", most)
        dp = stated_dp if 0 < stated_dp <= most else most
        spread = {1, tp, tp * dp} if model.experts and not alone else {1}
        rows += [(tp, pp, ep, dp) for ep in sorted(spread)]
    stated = [(SIZES.index(name), size) for name, size in question.stated.items()]
    agreeing = [row for row in rows if all(row[at] == size for at, size in stated)]
    return np.array(agreeing, float).reshape(-1, len(SIZES))


def fitting(replica: Replica, rows: NDArray[np.float64], question: ServingQuestion) -> NDArray[np.bool_]:
    """Which layouts hold the weights and the cache of one whole request."""
    swept = laid_out(replica, rows)
    result: NDArray[np.bool_] = (question.held_by(swept) >= 1.0) & (np.asarray(capacity(swept).kv_bytes) > 0)
    return result


def laid_out(replica: Replica, sizes: NDArray[np.float64]) -> Replica:
    """The replica with one layout (tp, pp, ep, dp), or with an array of rows of them."""
    tp, pp, ep, dp = sizes.T if sizes.ndim > 1 else map(float, sizes)
    return replace(replica, tp=tp, pp=pp, ep=ep, dp=dp)


def choose(question: ServingQuestion, constants: Constants) -> Chosen:
    """The layout that answers soonest at the load.

    Raises InfeasibleError where nothing fits or the rate saturates every layout; ValueRefusedError for
    stated sizes that no layout has.
    """
    check_question(question)
    count = question.machines.accelerator_count
    rows, replica = candidate_layouts(question, count), make_replica(question, constants)
    if not len(rows):
        raise ValueRefusedError(
            f"no layout of {count} accelerators agrees with what is stated",
            hint=f"a slice holds the model alone: tp and pp are 1, dp at most {count}"
            if question.machines.accelerator.works_alone
            else f"tp × pp × dp must be at most {count}, tp divide {question.model.heads} heads, "
            f"pp {question.model.layers} layers, and tp stay inside one node",
        )
    rows = rows[fitting(replica, rows, question)]
    if not len(rows):
        raise nothing_serves(question, replica)
    swept = laid_out(replica, rows)
    whole = question.served_by(swept).e2e
    late_s, mean_s = (np.broadcast_to(np.asarray(s, float), len(rows)) for s in (whole.p95_s, whole.mean_s))
    if not np.isfinite(late_s).any():
        raise rate_too_high(question, swept)
    best = int(np.argmin(np.where(np.isfinite(late_s), mean_s, np.inf)))
    return at_layout(replica, question, rows[best])


def at_layout(replica: Replica, question: ServingQuestion, row: NDArray[np.float64]) -> Chosen:
    """One layout, as plain numbers, under the question's load."""
    alone = laid_out(replica, row)
    return Chosen(alone, question.served_by(alone))


def read_rate_bytes_per_s(catalog: Catalog) -> float:
    """What a replica reads its weights at unless told otherwise, no faster than the catalogue's local drives.

    Engines read slower than a drive can: they place and convert as they go.
    """
    drives = [row for row in catalog.rows(Storage) if row.kind == "nvme" and row.unit == "drive"]
    rates = [row.read_bytes_per_s_per_unit for row in drives if row.read_bytes_per_s_per_unit]
    return min(load_constants().get("weights_load_bytes_per_s"), *rates)


def nothing_serves(question: ServingQuestion, replica: Replica) -> InfeasibleError:
    """No layout holds the weights and one request: what they take, and how many devices would do."""
    machines, fmt = question.machines, question.weights_format
    weights = float(np.max(replica.shape.weights_bytes(fmt).total_bytes))
    one_request = float(np.max(replica.shape.kv_bytes(question.kv_format, question.context_tokens)))
    usable = float(np.max(capacity(replica).usable_bytes))
    parts = f"weights {format_bytes(weights)} ({fmt}), cache of one request {format_bytes(one_request)}"
    name, anyhow = machines.accelerator.name, replace(question, stated={})

    def holds(way: Replica, count: int) -> bool:
        rows = candidate_layouts(anyhow, count)
        return len(rows) > 0 and bool(fitting(way, rows, anyhow).any())

    more = next((count for count in DEVICE_COUNTS if holds(replica, count)), None)
    chips = chips_needed(replica.shape, fmt, replica.cluster.device.memory_bytes)
    words = [f"{more:,} × {name}" if more else f"at least {chips:,} × {name} for the weights alone"]
    if machines.accelerator.works_alone:  # more slices hold no more of one copy
        words = [f"a larger slice than {name}, or a whole device"]
    smaller = (each for each in NARROWER if bytes_per_weight(each) < bytes_per_weight(fmt))
    ways = ((each, replace(replica, weights_format=each)) for each in smaller)
    narrow = next((each for each, way in ways if holds(way, machines.accelerator_count)), None)
    words += [f"{narrow} weights on these"] if narrow else []
    lines = (
        ("needs", f"{parts}, and buffers on each device"),
        ("has", f"{machines.accelerator_count:,} × {format_memory(usable)} that the engine may use"),
        ("would fit", " · ".join(words)),
    )
    message = f"{question.model.name} in {fmt} does not fit {machines_text(machines)}"
    return InfeasibleError(message, lines=lines)


def rate_too_high(question: ServingQuestion, replicas: Replica) -> InfeasibleError:
    """Every layout saturates below the rate: what the best one carries, and how many copies would do."""
    most = float(np.max(loads.served(replicas, question.lengths, loads.Saturation()).requests_per_s))
    wanted = question.rate_per_s or 0.0
    copies = int(np.ceil(wanted / (most * SAFE_UTILISATION)))
    size, name = question.machines.accelerator_count, question.machines.accelerator.name
    lines = (
        ("asked", format_si(wanted, "1/s")),
        ("carries", f"{format_si(most, '1/s')} when every slot is taken, in the best of all layouts"),
        ("would fit", f"{copies:,} copies of {size} × {name}, {copies * size:,} devices"),
    )
    late = f"saturates before it serves {wanted:g} requests/s of {question.model.name}"
    return InfeasibleError(f"{machines_text(question.machines)} {late}", lines=lines)
