"""What a scenario says about traffic, clients, the fleet and what goes wrong."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from twofold.contracts.names import did_you_mean
from twofold.contracts.spec import fields
from twofold.contracts.spec.fields import Listed, Part, Quantity, refusal
from twofold.core.errors import UnknownNameError
from twofold.core.quantity import DAY_S, Dimension

ATTEMPTS_MAX = 1000  # of one intent: all of them may come at one moment
Moment = Annotated[float, Quantity(Dimension.TIME, "min")]  # since the run began; may be 0
Spread = Annotated[
    float, Quantity(Dimension.MULTIPLIER, "x", highest=100.0, zero="write `1x` for independent arrivals")
]
Slowdown = Annotated[float, Quantity(Dimension.MULTIPLIER, "x", lowest=1.0, highest=1000.0)]
Bandwidth = Annotated[
    float, Quantity(Dimension.BANDWIDTH, "GB/s", zero="nothing would ever be read: write more than zero")
]

Power = Annotated[
    float, Quantity(Dimension.POWER, "kW", zero="nothing could ever change: write more than zero")
]


def _known_class(value: object, info: ValidationInfo) -> str:
    """A latency class that the service has, where the reader was told which there are."""
    name = str(value)
    known = info.context.get("classes") if isinstance(info.context, dict) else None
    if known and name not in known:
        hint = did_you_mean(name, known, f"classes: {', '.join(sorted(known))}")
        raise refusal(f"`{name[:64]}` is not a class of the service", hint, kind=UnknownNameError)
    return name


ClassName = Annotated[str, BeforeValidator(_known_class)]


class Burst(Part):
    """More requests for a while, or fewer."""

    at_s: Moment = Field(description="when it begins")
    for_s: fields.Seconds = Field(description="how long it lasts")
    rate_ratio: fields.Multiplier = Field(description="factor on the rate meanwhile")
    class_name: ClassName | None = Field(
        default=None, alias="class", description="of one class; none: of all"
    )
    tenant: fields.Text | None = Field(default=None, description="of one tenant; none: of all")


class Tenant(Part):
    """Who sends a share of the requests."""

    name: fields.Text = Field(description="as limits and fair queues know it")
    share_fraction: fields.Fraction = Field(description="of all requests")


class TrafficChange(Part):
    """How requests arrive, where it is not as the plan assumes."""

    arrivals: Literal["poisson", "gamma", "diurnal", "sessions"] = Field(
        default="poisson", description="independent, in clumps, by the profile of a day, or turn after turn"
    )
    level: Literal["peak", "mean"] = Field(default="peak", description="which rate of the plan")
    scale_ratio: fields.Multiplier = Field(default=1.0, description="factor on every rate")
    burstiness_ratio: Spread = Field(default=1.0, description="gamma: deviation of gaps over their mean")
    day_s: fields.Seconds = Field(default=DAY_S, description="diurnal: how long a day of the profile takes")
    turns: fields.PositiveCount = Field(default=5, description="sessions: requests of one, in the mean")
    think_s: Moment = Field(
        default=20.0, description="sessions: from an answer to the next request, in the mean"
    )
    repeats_fraction: fields.Fraction = Field(
        default=0.0,
        description="of requests that ask exactly what one of the last thousand asked, at temperature 0",
    )
    bursts: Annotated[tuple[Burst, ...], Listed] = Field(default=(), description="more for a while")
    tenants: Annotated[tuple[Tenant, ...], Listed] = Field(
        default=(), description="who sends; those not named share the rest as one"
    )

    def idle_fields(self) -> dict[str, str]:
        kinds = {"burstiness_ratio": "gamma", "day_s": "diurnal"}
        kinds |= dict.fromkeys(("turns", "think_s"), "sessions")
        idle = {
            name: f"belongs to arrivals `{kind}`, not `{self.arrivals}`"
            for name, kind in kinds.items()
            if kind != self.arrivals
        }
        if self.arrivals == "sessions":
            idle["repeats_fraction"] = "is of single requests: a session's turns hold what it said before"
        return idle

    @model_validator(mode="after")
    def _shares(self) -> "TrafficChange":
        total = sum(tenant.share_fraction for tenant in self.tenants)
        if total > 1 + 1e-9:
            raise refusal(f"tenants send {100 * total:g} % of the requests together")
        known = {tenant.name for tenant in self.tenants}
        if len(known) < len(self.tenants):
            raise refusal("two tenants have the same name", "write their shares as one")
        for burst in self.bursts:
            if burst.tenant is not None and burst.tenant not in known:
                hint = "name it under `tenants`, with its share"
                raise refusal(f"the burst of `{burst.tenant}` is of no tenant", hint)
        return self


class Clients(Part):
    """What clients do when they are refused, fail, or wait."""

    retry: Literal["never", "immediate", "backoff"] = Field(
        default="never", description="after a refusal or a failure"
    )
    attempts: fields.PositiveCount = Field(
        default_factory=lambda data: 1 if data.get("retry") == "never" else 4,
        description="requests of one intent, the first one counted",
    )
    backoff_s: fields.Seconds = Field(default=0.5, description="before the second request; doubles")
    timeout_s: fields.Seconds | None = Field(
        default=None, description="breaks off one request without its whole answer by then: it failed"
    )
    patience_s: fields.Seconds | None = Field(
        default=None, description="leaves without a first token by then"
    )
    answer_patience_s: fields.Seconds | None = Field(
        default=None, description="leaves without the whole answer by then"
    )

    @model_validator(mode="after")
    def _bounded(self) -> "Clients":
        if self.attempts > ATTEMPTS_MAX:
            what = f"nobody asks {self.attempts:,} times for one thing"
            raise refusal(what, f"write {ATTEMPTS_MAX:,} `attempts` or fewer")
        return self

    def idle_fields(self) -> dict[str, str]:
        never = dict.fromkeys(("attempts", "backoff_s"), "means nothing where `retry` is `never`")
        immediate = {"backoff_s": "means nothing where `retry` is `immediate`"}
        return {"never": never, "immediate": immediate}.get(self.retry, {})


class FleetChange(Part):
    """The fleet, where it is not as planned."""

    replicas: fields.Count | None = Field(
        default=None, description="of every pool, spares included; else as planned"
    )
    spares: fields.Count | None = Field(
        default=None, description="of every pool, on top of what carries the peak"
    )
    zones: fields.ZoneCount | None = Field(
        default=None, description="over which replicas are spread; else as planned"
    )
    ramp_w_per_min: Power | None = Field(
        default=None,
        description="by which the site's power may change in a minute; else what utilities usually allow of "
        "its load",
    )
    start: Literal["ready", "cold"] = Field(default="ready", description="how the run finds its replicas")
    storage_bytes_per_s: Bandwidth | None = Field(
        default=None, description="what the store of weights gives to all starts together"
    )
    peer_bytes_per_s: Bandwidth | None = Field(
        default=None, alias="peers", description="what a ready replica gives to others that start"
    )

    @model_validator(mode="after")
    def _some(self) -> "FleetChange":
        if self.replicas == 0:
            raise refusal("`replicas: 0` serves nobody", "write 1 or more, or leave it as planned")
        if self.replicas is not None and self.spares is not None:
            raise refusal("`replicas` counts the spares in: `spares` contradicts it", "write one of them")
        return self


FaultKind = Literal[
    "replica-crash",
    "random-crashes",
    "slow-replica",
    "slow-tier",
    "thermal-throttle",
    "zone-loss",
    "partition",
    "drain",
    "storage-brownout",
    "release",
    "node-failure",
    "node-hang",
]
# What each kind needs, then what it may have besides.
FAULT_KEYS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        "replica-crash": (("at",), ("replicas", "cause", "back_after", "pool")),
        "random-crashes": (("rate",), ("at", "for", "cause", "back_after", "pool")),
        "slow-replica": (("at", "slowdown"), ("for", "replicas", "pool")),
        "slow-tier": (("at", "tier", "slowdown"), ("for",)),
        "thermal-throttle": (("at", "slowdown"), ("for", "zone")),
        "zone-loss": (("at",), ("zone", "back_after")),
        "partition": (("at", "for"), ("zone",)),
        "drain": (("at",), ("zone", "back_after")),
        "storage-brownout": (("at", "bandwidth"), ("for",)),
        "release": (("at",), ("version", "slowdown", "errors", "quality_drop", "pool")),
        "node-failure": (("at",), ("nodes", "cause", "back_after")),
        "node-hang": (("at",), ("nodes",)),
    }
)


class FaultEvent(Part):
    """Something that goes wrong, or a release that may be."""

    kind: FaultKind = Field(description="what happens")
    at_s: Moment = Field(default=0.0, description="when")
    for_s: fields.Seconds | None = Field(default=None, description="how long; else to the end")
    back_after_s: fields.Seconds | None = Field(
        default=None, description="when what was lost starts again; else never"
    )
    replicas: fields.PositiveCount = Field(default=1, description="how many replicas, the first ones")
    nodes: fields.PositiveCount = Field(
        default=1, description="how many nodes of the cluster, the first ones"
    )
    zone: fields.PositiveCount = Field(default=1, description="which zone, counted from 1")
    tier: fields.Name | None = Field(default=None, description="of CPU servers before the replicas")
    slowdown_ratio: Slowdown = Field(default=1.0, description="times as long for every step, or lookup")
    bandwidth_fraction: fields.Fraction = Field(
        default=1.0, description="what the store of weights still gives"
    )
    pool: ClassName | None = Field(
        default=None, description="of the pool that serves this class; else of every pool"
    )
    rate_per_s: fields.Rate = Field(default=1.0, description="crashes of one replica")
    cause: fields.Text = Field(default="process", description="in words; of a node, a known one, else host")
    version: fields.Name = Field(default="next", description="of the release")
    errors_fraction: fields.Fraction = Field(default=0.0, description="of the release's requests that fail")
    quality_drop_fraction: fields.Fraction = Field(default=0.0, description="that its answers lose")

    @property
    def may_say(self) -> frozenset[str]:
        """The keys that a fault of this kind needs or may have."""
        needed, allowed = FAULT_KEYS[self.kind]
        return frozenset((*needed, *allowed))

    def idle_fields(self) -> dict[str, str]:
        used = {"kind", *self.may_say}
        keys = {name: field.alias or name for name, field in type(self).model_fields.items()}
        return {name: f"means nothing for `{self.kind}`" for name, key in keys.items() if key not in used}

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        kind = str(value.get("kind")) if isinstance(value, dict) else ""
        for key in FAULT_KEYS[kind][0] if kind in FAULT_KEYS else ():
            if key not in value:
                raise refusal(f"a `{kind}` needs `{key}`", f"write `{key}:` beside it")
        return value

    @property
    def until_s(self) -> float:
        """When it is over; infinite where it lasts."""
        return float("inf") if self.for_s is None else self.at_s + self.for_s
