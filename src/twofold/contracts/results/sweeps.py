"""What a sweep came to, as data, schema `twofold/sweep/1`: one key of a scenario at several values."""

from dataclasses import dataclass

SWEEP_SCHEMA = "twofold/sweep/1"


@dataclass(frozen=True, slots=True)
class Swept:
    """One figure at one value, over the seeds."""

    mean: float  # in the unit that the figure's name ends with
    low: float  # of the 95 % confidence interval of the mean
    high: float  # of the 95 % confidence interval of the mean


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """The scenario with the key at one value."""

    value: str  # as written
    figures: dict[str, Swept]  # by name, such as chat.ttft_p95_s
    slos_met: bool  # every goal of every class, under every seed


@dataclass(frozen=True, slots=True)
class SweepFinding:
    """One thing that the points say together."""

    rule: str  # knee, cheapest, pareto, enough, alarm, imbalance … what kind of thing it is
    text: str  # on one line
    value: float | None = None  # what it names; null: it names none
    low: float | None = None  # of its interval over the seeds
    high: float | None = None  # of its interval over the seeds


@dataclass(frozen=True, slots=True)
class Sweep:
    """Several runs of one scenario that differ in one key."""

    schema: str  # `twofold/sweep/1`
    name: str  # of the plan
    twofold: str  # version
    plan_digest: str  # SHA-256 of the plan
    scenario: str  # its name
    key: str  # what was swept
    seeds: tuple[int, ...]  # each value ran under all of them
    points: tuple[SweepPoint, ...]  # in the order that was asked for
    findings: tuple[SweepFinding, ...]  # what they say together
    notes: tuple[str, ...] = ()  # what to know of the figures
