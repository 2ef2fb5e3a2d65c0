"""Settings of a request's way through the gate: classes, limits, queue, degradation, retries, hedges."""

from dataclasses import dataclass
from enum import StrEnum


class ClassKind(StrEnum):
    """What a class is for."""

    LATENCY = "latency"
    BULK = "bulk"  # the first to be shed under pressure


@dataclass(frozen=True, slots=True)
class ClassSettings:
    """One class of requests. A request of a class that is not set is of `GateSettings.classes`' first."""

    name: str = ""
    kind: ClassKind = ClassKind.LATENCY
    priority: int = 0  # lower ones are served first; higher ones keep `QueueSettings.lower_share`
    weight: int = 1  # against the other classes of the same priority
    ttft_slo_s: float | None = None  # from the arrival to the first token
    e2e_slo_s: float | None = (
        None  # from the arrival to the last token: the deadline of a request without one
    )
    tpot_slo_s: float | None = None  # mean time of one token after the first
    wait_s_max: float = 30.0  # that a request is held at most
    queue_limit_count: int = 1000  # requests that are held at most
    output_fraction_min: float = 1.0  # of its output limit that an answer keeps; 1: never made shorter
    smaller_model: str = ""  # that may answer in need; "": none

    def __post_init__(self) -> None:
        assert self.weight >= 1 and self.wait_s_max > 0 and self.queue_limit_count >= 0, self
        assert 0 < self.output_fraction_min <= 1, self
        slos_s = (self.ttft_slo_s, self.e2e_slo_s, self.tpot_slo_s)
        assert all(slo_s is None or slo_s > 0 for slo_s in slos_s), self


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests and tokens (input and output limit, settled to the true output) per second; None: any."""

    requests_per_s: float | None = None
    tokens_per_s: float | None = None
    burst_s: float = 10.0  # of the rates that may come at once, after as long a silence

    def __post_init__(self) -> None:
        rates = (self.requests_per_s, self.tokens_per_s)
        assert self.burst_s > 0 and all(rate is None or rate > 0 for rate in rates), self


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """How much tenants and classes may ask for."""

    tenant: Rate | None = None  # of each tenant that is not named
    tenants: tuple[tuple[str, Rate], ...] = ()
    classes: tuple[tuple[str, Rate], ...] = ()
    tenant_count_max: int = 10_000  # told apart at once; those beyond share one limit

    def __post_init__(self) -> None:
        assert self.tenant_count_max >= 1, self


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """Refuse at once what would miss its class's limits or its own deadline."""

    attained_fraction: float = 0.95  # of held requests that are to be within what was predicted

    def __post_init__(self) -> None:
        assert 0.5 <= self.attained_fraction < 1, self


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Hold requests in the gate while no replica has room."""

    lower_share: float = 0.1  # of the tokens served, that each lower priority gets while higher ones wait
    tenant_count_max: int = 10_000  # per class whose use is remembered while others wait
    kept_fraction: float = 0.03  # of the places, for tenants who had less than their share; 0: for nobody

    def __post_init__(self) -> None:
        assert 0 <= self.lower_share < 1 and self.tenant_count_max >= 1, self
        assert 0 <= self.kept_fraction <= 1, self


@dataclass(frozen=True, slots=True)
class DegradationSettings:
    """One level up after `raise_after_s` of pressure, one down after `lower_after_s` of calm.

    Pressure: more than `pressure_fraction` of the requests that arrive must wait or are refused.
    Calm: nothing waits, and less than `calm_fraction` of the fleet's places is taken.
    Level 1 sheds bulk classes, 2 shortens answers, 3 takes smaller models; each where its class permits it.
    """

    pressure_fraction: float = 0.5
    calm_fraction: float = 0.7
    raise_after_s: float = 5.0
    lower_after_s: float = 30.0
    level_max: int = 3

    def __post_init__(self) -> None:
        assert 0 < self.pressure_fraction < 1 and 0 < self.calm_fraction <= 1, self
        assert self.raise_after_s > 0 and self.lower_after_s > 0 and 1 <= self.level_max <= 3, self


@dataclass(frozen=True, slots=True)
class RetryBudgetSettings:
    """What the gate repeats and hedges, and apart from it what clients repeat: shares of what is new."""

    attempts_fraction: float = 0.1
    least_per_s: float = 0.1  # however few arrive
    burst_count: int = 10  # kept from calmer times

    def __post_init__(self) -> None:
        assert self.attempts_fraction >= 0 and self.least_per_s >= 0 and self.burst_count >= 1, self


@dataclass(frozen=True, slots=True)
class HedgeSettings:
    """Ask a second replica when the first token takes longer than at most others; the loser is cancelled."""

    after_fraction: float = 0.95  # of attempts begin sooner than the wait before a hedge …
    wait_s_min: float = 0.05  # … which is never shorter than this
    attempts_fraction: float = 0.05  # hedges at most, as a share of the requests that arrive

    def __post_init__(self) -> None:
        assert 0.5 <= self.after_fraction < 1 and self.wait_s_min > 0, self
        assert 0 <= self.attempts_fraction < 1, self
