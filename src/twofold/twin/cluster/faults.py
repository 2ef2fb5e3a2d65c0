"""How often nodes fail as published, and when which of them does, whatever the brain does.

Every node has its own stream of random numbers, by its name and drawn in its own order, so that two runs with
one seed see the same failures, also when one of them has more nodes, another brain, or half of the cluster.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from zlib import crc32

import numpy as np

from twofold.catalog.types import Observation
from twofold.policy.cluster import events
from twofold.twin.cluster.cluster_types import CauseRate, FaultRates
from twofold.twin.cluster.nodes import Node, Nodes

SPLIT_BY_CAUSE = "Llama-3-405B"  # the one run that published its interruptions cause by cause
HOURS = {"minutes": 1 / 60, "hours": 1.0, "days": 24.0}
# Kokolis et al. (HPCA 2025): of large jobs 14 % failed before the worst nodes were removed, 4 % after.
LEMON_FAILURE_SHARE = 1 - 4 / 14

# What each published cause is to a cluster's operator. Memory of the host is the host's.
CAUSES = {
    "faulty GPU": events.FaultCause.ACCELERATOR,
    "GPU HBM3 memory": events.FaultCause.MEMORY,
    "software bug": events.FaultCause.SOFTWARE,
    "network switch/cable": events.FaultCause.NETWORK,
    "unplanned host maintenance": events.FaultCause.HOST,
    "GPU SRAM memory": events.FaultCause.ACCELERATOR,
    "GPU system processor": events.FaultCause.ACCELERATOR,
    "NIC": events.FaultCause.NETWORK,
    "NCCL watchdog timeout": events.FaultCause.SOFTWARE,
    "silent data corruption": events.FaultCause.ACCELERATOR,
    "GPU thermal interface and sensor": events.FaultCause.THERMAL,
    "SSD": events.FaultCause.STORAGE,
    "power supply": events.FaultCause.POWER,
    "server chassis": events.FaultCause.HOST,
    "IO expansion board": events.FaultCause.HOST,
    "dependency": events.FaultCause.SOFTWARE,
    "CPU": events.FaultCause.HOST,
    "system memory": events.FaultCause.HOST,
    "maintenance": events.FaultCause.MAINTENANCE,
}
# Which published time to repair a cause takes; parts are swapped on site where one broke, the rest reboots.
REPAIRS = {
    events.FaultCause.ACCELERATOR: "on-site part swap",
    events.FaultCause.MEMORY: "on-site part swap",
    events.FaultCause.NETWORK: "optic or cable replacement",
    events.FaultCause.HOST: "cordon and reboot",
    events.FaultCause.STORAGE: "on-site part swap",
    events.FaultCause.POWER: "on-site part swap",
    events.FaultCause.THERMAL: "on-site part swap",
    events.FaultCause.MAINTENANCE: "cordon and reboot",
}
DRAWN_AT_ONCE = 8  # failures of a node; few nodes need more in a month


def published_rates(observations: Iterable[Observation]) -> FaultRates:
    """Unexpected interruptions of the largest published run, split by cause, with usual repair times.

    Formula  rate = count / (accelerators · days · 24), summed over the published causes of one kind
    Source   the catalogue's table `reliability`: Llama 3 herd of models, table 5; times to repair.
    Why      A lemon comes back from a swap of one part and fails again: only a look at the whole node, after
             its quarantine, makes its past say nothing. So no repair counts as a replacement here.
    Limits   All causes together are `training.Reliability`'s default: one per about 50.7 k accelerator-hours.
    """
    rows = list(observations)
    per_h: dict[events.FaultCause, float] = {}
    for row in rows:
        if row.system == SPLIT_BY_CAUSE and row.metric == "unexpected interruptions" and row.cause in CAUSES:
            exposed_h = (row.accelerator_count or 0) * (row.period_days or 0.0) * 24
            cause = CAUSES[row.cause]
            per_h[cause] = per_h.get(cause, 0.0) + row.value / exposed_h
    causes = []
    for cause, rate in sorted(per_h.items(), key=lambda item: -item[1]):
        repair_s = _mean_repair_s(rows, REPAIRS[cause]) if cause in REPAIRS else 0.0
        causes.append(CauseRate(cause, rate, repair_s, events.RepairKind.REBOOTED))
    lemons = next(row.value for row in rows if row.metric == "lemon node share")
    return FaultRates(
        tuple(causes),
        lemon_fraction=lemons,
        lemon_failure_share=LEMON_FAILURE_SHARE,
        inspection_s=_mean_repair_s(rows, "on-site part swap"),
    )


def _mean_repair_s(observations: Iterable[Observation], repair: str) -> float:
    """How long a node is away for it on average."""
    row = next(row for row in observations if row.system == "mttr" and row.metric == repair)
    return row.value * HOURS[row.unit] * 3600


class Drift:
    """Exposure under rates that change in steps: time in which a second counts as often as its factor."""

    def __init__(self, steps: Sequence[tuple[float, float]]) -> None:
        self._from_s = [0.0, *(at_s for at_s, _ in steps if at_s > 0)]
        first = [factor for at_s, factor in steps if at_s <= 0]
        self._factors = [first[-1] if first else 1.0, *(factor for at_s, factor in steps if at_s > 0)]
        self._exposure_s = [0.0]
        for number, factor in enumerate(self._factors[:-1]):
            passed_s = self._from_s[number + 1] - self._from_s[number]
            self._exposure_s.append(self._exposure_s[-1] + factor * passed_s)

    def when_s(self, exposure_s: float) -> float:
        """When so much exposure is reached; infinity: never."""
        place = bisect_right(self._exposure_s, exposure_s) - 1
        if self._factors[place] <= 0:
            return inf
        return self._from_s[place] + (exposure_s - self._exposure_s[place]) / self._factors[place]

    def until(self, now_s: float) -> float:
        """Exposure so far."""
        place = bisect_right(self._from_s, now_s) - 1
        return self._exposure_s[place] + (now_s - self._from_s[place]) * self._factors[place]


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """What happens to a node next."""

    at_s: float
    cause: events.FaultCause
    repair_s: float  # 0: the node stays up
    repair: events.RepairKind
    slot: int  # which of its accelerators, where only that one's job is hit


class FaultClocks:
    """The next failure of every node. Mutable."""

    def __init__(self, rates: FaultRates, nodes: Nodes, seed: int) -> None:
        self._causes, self._drift, self._seed = rates.causes, Drift(rates.drift), seed
        total = rates.failures_per_accelerator_h
        self._ends_at = np.cumsum([one.failures_per_accelerator_h for one in rates.causes])
        self._ends_at = self._ends_at / total if total else self._ends_at
        share, fraction = rates.lemon_failure_share, rates.lemon_fraction
        few = fraction > 0 and share > 0
        # Lemons and the others together fail as often as the rates say.
        self._lemon_per_s = total * share / fraction / 3600 if few else total / 3600
        self._sound_per_s = total * (1 - share) / (1 - fraction) / 3600 if few else total / 3600
        self._exposure_s = [0.0] * len(nodes)
        self._drawn: list[list[tuple[float, float, float, float]]] = [[] for _ in range(len(nodes))]
        self._streams: list[np.random.Generator | None] = [None] * len(nodes)
        for node in nodes:
            node.is_lemon = few and bool(self._stream(node).random() < fraction)

    def next(self, node: Node) -> NodeFailure | None:
        """The node's failure after the last one that was taken; None: it never fails."""
        rate_per_s = (self._lemon_per_s if node.is_lemon else self._sound_per_s) * node.accelerator_count
        if rate_per_s <= 0:
            return None
        drawn = self._drawn[node.index]
        if not drawn:
            stream = self._stream(node)
            gaps, repairs = stream.standard_exponential((2, DRAWN_AT_ONCE)).tolist()
            which, slots = stream.random((2, DRAWN_AT_ONCE)).tolist()
            drawn += zip(gaps, repairs, which, slots, strict=True)
        gap, repair, which_one, slot = drawn.pop(0)
        self._exposure_s[node.index] += gap / rate_per_s
        one = self._causes[int(np.searchsorted(self._ends_at, which_one))]
        return NodeFailure(
            self._drift.when_s(self._exposure_s[node.index]),
            one.cause,
            one.repair_s * repair,
            one.repair,
            int(slot * node.accelerator_count),
        )

    def heal(self, node: Node, now_s: float) -> NodeFailure | None:
        """A lemon has been put right: its next failure is that of a sound node, from now on."""
        node.is_lemon = False
        self._exposure_s[node.index] = self._drift.until(now_s)
        return self.next(node)

    def _stream(self, node: Node) -> np.random.Generator:
        stream = self._streams[node.index]
        if stream is None:
            name = crc32(node.node_id.encode())
            stream = self._streams[node.index] = np.random.default_rng([self._seed, 11, name])
        return stream
