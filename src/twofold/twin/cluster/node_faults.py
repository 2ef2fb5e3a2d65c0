"""How often nodes fail, of what, and how long they are away: published figures, read from the catalogue."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from twofold.catalog import Observation
from twofold.policy.cluster import events
from twofold.training import Reliability

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


@dataclass(frozen=True, slots=True)
class CauseRate:
    """One cause: how often it strikes, and what becomes of the node."""

    cause: events.FaultCause
    failures_per_accelerator_h: float
    repair_s: float  # on average; 0: the node stays, only the job ends
    repair: events.RepairKind


@dataclass(frozen=True, slots=True)
class FaultRates:
    """All causes of a cluster, and its lemons: few nodes that cause many of its failures."""

    causes: tuple[CauseRate, ...] = ()
    detection_s: float = Reliability().detection_s  # from a failure until the brain knows
    lemon_fraction: float = 0.0  # of the nodes
    lemon_failure_share: float = 0.0  # of all failures, that lemons cause
    inspection_s: float = 8 * 3600.0  # a quarantined node is looked after within this, and sound again
    drift: tuple[tuple[float, float], ...] = ()  # from this second on, so many times the rates

    def __post_init__(self) -> None:
        assert 0 <= self.lemon_fraction < 1 and 0 <= self.lemon_failure_share < 1, self
        assert list(self.drift) == sorted(self.drift) and all(factor >= 0 for _, factor in self.drift), self

    @property
    def failures_per_accelerator_h(self) -> float:
        """Of all causes together, over all nodes."""
        return sum(one.failures_per_accelerator_h for one in self.causes)

    def scaled(self, factor: float) -> "FaultRates":
        """The same causes and repairs, each `factor` times as often."""
        causes = tuple(
            replace(one, failures_per_accelerator_h=one.failures_per_accelerator_h * factor)
            for one in self.causes
        )
        return replace(self, causes=causes)


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
    causes = tuple(
        CauseRate(cause, rate, repair_s(rows, cause), events.RepairKind.REBOOTED)
        for cause, rate in sorted(per_h.items(), key=lambda item: -item[1])
    )
    lemons = next(row.value for row in rows if row.metric == "lemon node share")
    inspection_s = _mean_repair_s(rows, "on-site part swap")
    return FaultRates(
        causes,
        lemon_fraction=lemons,
        lemon_failure_share=LEMON_FAILURE_SHARE,
        inspection_s=inspection_s,
    )


def fleet_rates(observations: Iterable[Observation], system: str, node_accelerator_count: int) -> FaultRates:
    """The causes of `published_rates`, as often as all of them together struck `system`.

    `system` has a row in failures per 1,000 node-days, such as Meta-RSC-1 with 6.5 and Meta-RSC-2 with 2.34.
    """
    rows = list(observations)
    per_1000 = next(row.value for row in rows if row.system == system and row.unit == "per_1000_node_days")
    per_accelerator_h = per_1000 / 1000 / 24 / node_accelerator_count
    rates = published_rates(rows)
    return rates.scaled(per_accelerator_h / rates.failures_per_accelerator_h)


def repair_s(observations: Iterable[Observation], cause: events.FaultCause) -> float:
    """How long a node is away for this cause on average; 0 where it stays up, as after a software fault."""
    return _mean_repair_s(observations, REPAIRS[cause]) if cause in REPAIRS else 0.0


def _mean_repair_s(observations: Iterable[Observation], repair: str) -> float:
    row = next(row for row in observations if row.system == "mttr" and row.metric == repair)
    return row.value * HOURS[row.unit] * 3600
