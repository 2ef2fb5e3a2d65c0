"""What an answer's first token came from, and what telling it costs."""

from dataclasses import dataclass
from statistics import median
from typing import Any

from twofold.core.data import from_data

TIMES = ("alone_s", "series_s", "beside_s", "series_core_s", "beside_core_s")


@dataclass(frozen=True, slots=True)
class Attribution:
    """One answer's. Shares are nats of ln p of its first token."""

    request_id: str
    token: str
    tokens: tuple[str, ...]  # of the prompt
    shares_nats: tuple[float, ...]
    value_nats: float  # ln p(token) after the prompt …
    before_nats: float  # … and after paddings alone
    delta_nats: float  # that the shares' sum misses of the difference, as Captum tells it
    step_count: int
    complete: bool  # within a hundredth of the difference

    @property
    def missed_fraction(self) -> float:
        """The delta, of the difference that is explained."""
        explained = abs(self.value_nats - self.before_nats)
        return abs(self.delta_nats) / explained if explained else float(self.delta_nats != 0)


@dataclass(frozen=True, slots=True)
class AttributionCost:
    """What attribution costs a request: medians, in series with its answer and in a process beside."""

    alone_s: float  # of an answer of some tokens, without
    series_s: float  # of the answer and its attribution, one after the other
    beside_s: float  # of the answer while another one is attributed
    series_core_s: float  # processor time of one attribution …
    beside_core_s: float
    core_count: int


@dataclass(frozen=True, slots=True)
class Attributed:
    """All of a call."""

    version: str
    digest: str
    method: str
    found: tuple[Attribution, ...]
    cost: AttributionCost
    same: bool  # in series and beside


def attributed_of(version: str, digest: str, said: dict[str, Any]) -> Attributed:
    """What the worker answered."""
    return Attributed(
        version,
        digest,
        str(said["method"]),
        tuple(from_data(Attribution, each) for each in said["attributed"]),
        AttributionCost(**{name: median(said[name]) for name in TIMES}, core_count=said["core_count"]),
        bool(said["same"]),
    )
