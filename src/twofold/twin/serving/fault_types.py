"""What can go wrong in a serving world."""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class ReplicaCrash:
    """A replica's process, accelerator or node ends, and all that it had is lost."""

    at_s: float
    replica_id: str
    cause: str = "process"
    back_after_s: float | None = None  # then it starts cold; None: never


@dataclass(frozen=True, slots=True)
class RandomCrashes:
    """Each running replica crashes by itself at a constant rate."""

    rate_per_replica_h: float
    cause: str = "process"
    back_after_s: float | None = 60.0
    from_s: float = 0.0
    until_s: float = inf
    pool: str = ""  # of its replicas alone; "": of every pool


@dataclass(frozen=True, slots=True)
class SlowReplica:
    """A replica takes `factor` times as long for every step."""

    from_s: float
    until_s: float
    replica_id: str
    factor: float


@dataclass(frozen=True, slots=True)
class ThermalThrottle:
    """All replicas of a zone ("": everywhere) take `factor` times as long."""

    from_s: float
    until_s: float
    factor: float
    zone: str = ""


@dataclass(frozen=True, slots=True)
class ZoneLoss:
    """All replicas of a zone end; they start cold when it is back."""

    at_s: float
    zone: str
    back_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class ColdStart:
    """All replicas start as the run begins, and are not there before."""

    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Partition:
    """The gateway cannot reach a zone; its replicas work on, and their answers are lost."""

    from_s: float
    until_s: float
    zone: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Maintenance of a zone: it is sent nothing new, finishes what it has, and later starts cold again."""

    at_s: float
    zone: str
    back_after_s: float | None = None  # None: never


@dataclass(frozen=True, slots=True)
class StorageBrownout:
    """The store gives `factor` (below 1) of its bandwidth."""

    from_s: float
    until_s: float
    factor: float


@dataclass(frozen=True, slots=True)
class SlowTier:
    """The servers of a CPU tier take `factor` times as long for their work."""

    from_s: float
    until_s: float
    tier: str
    factor: float


@dataclass(frozen=True, slots=True)
class Release:
    """A version is offered to the gate; what it truly does differently. Not every release is bad."""

    at_s: float
    version: str
    pool: str = ""
    step_factor: float = 1.0  # above 1: slower
    error_fraction: float = 0.0  # of its requests that fail, besides the base's
    quality_drop: float = 0.0
    withdrawn_s: float | None = None


OfReplicas = ReplicaCrash | RandomCrashes | SlowReplica | ColdStart
OfZones = ThermalThrottle | ZoneLoss | Partition | Drain
Fault = OfReplicas | OfZones | StorageBrownout | SlowTier | Release
