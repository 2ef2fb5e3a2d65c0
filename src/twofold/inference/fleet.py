"""From one replica to a fleet: how many, how many spare and where, how fast they start, what they cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import ceil, sqrt
from statistics import NormalDist
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from twofold.core.estimate import Estimate, Source
from twofold.inference.latency import NORMAL_P95, Served
from twofold.inference.replica import Replica
from twofold.perf.constants import Constants
from twofold.perf.types import Floats

WARM_UP_S, WARM_UP_RANGE_S = 45.0, (20.0, 90.0)  # process start, graph capture, first requests, as logged
MEASURED_WARM_UP = "replica_warm_up_s"  # the constant, where starts were measured here; none ships
MOST_SPARES = 64  # for failures, beside as many as are needed
REPLICA_AVAILABILITY = 0.995  # of the hours, of one server: restarts, host failures, driver resets
COUNTED_ONE_BY_ONE = 1000  # replicas up to which failures are counted exactly
TARGET_UTILISATION = 0.9  # of the rate at which the promise is just held: what a plan fills at least


@dataclass(frozen=True, slots=True)
class ReplicaCount:
    """Replicas of one pool: those that carry the peak, and spares for zones and failures."""

    FILLED_FRACTION: ClassVar[float] = TARGET_UTILISATION  # where nobody knows how many are asked at once

    needed: int
    spare: int
    zones: int  # of which one may fail

    @classmethod
    def of(
        cls,
        peak_per_s: float,
        limit_per_s: float,
        servers: int = 1,
        *,
        zones: int = 1,
        availability_fraction: float = 0.999,
        at_once_count: float = 0.0,
    ) -> Self:
        """Replicas for a peak rate, with spares so that the promise holds through failures.

        Formula  needed = ⌈peak / (u·limit)⌉, u = `target_utilisation`; spare = the larger of what the loss of
                 one zone takes and the smallest k with P(at least `needed` of needed+k are up) ≥ availability
        Why      Zones fail whole; replicas fail one by one, independently. The two are not added: a zone's
                 loss is rare enough that single failures meanwhile are borne.
                 With one zone none is outlasted: so are counted the replicas of classes that may degrade.
                 A replica over several servers is down where any of them is.
        Units    requests/s; `at_once_count` requests in flight in the pool at its peak, 0 where unknown.
        Source   N+k sizing by the binomial distribution.
        Limits   no peak: no replicas; a limit of 0 cannot be met by any number (raises ValueError).
        """
        if peak_per_s <= 0:
            return cls(0, 0, max(1, zones))
        if limit_per_s <= 0:
            raise ValueError("a replica that carries nothing cannot be multiplied")
        needed = max(
            1, int(np.ceil(peak_per_s / (limit_per_s * float(target_utilisation(at_once_count))) - 1e-9))
        )
        return cls.with_spares(needed, servers, zones=zones, availability_fraction=availability_fraction)

    @classmethod
    def with_spares(
        cls, needed: int, servers: int = 1, *, zones: int = 1, availability_fraction: float = 0.999
    ) -> Self:
        """So many replicas, with spares as `of` counts them."""
        if not needed:
            return cls(0, 0, max(1, zones))
        zone_spare = int(np.ceil(needed / (zones - 1))) if zones > 1 else 0
        spare = _failure_spares(needed, availability_fraction, REPLICA_AVAILABILITY**servers)
        return cls(needed, max(zone_spare, spare), max(1, zones))

    @staticmethod
    def availability_worth(
        needed: int, replica_usd_per_h: float, outage_usd_per_h: float, servers: int = 1
    ) -> float:
        """The share of the hours with enough replicas at which spares and outages together cost least.

        Formula  P(Binomial(needed + k, a) ≥ needed) of the k with the least
                 k · price of a replica + (1 − P) · cost of an hour down
        Why      A spare saves the more the nearer it brings the fleet to enough: of many replicas some are
                 always down, so that the first spares save less than those after them.
        Limits   single failures: what a zone's loss takes is the goal's to ask for.
        """
        up = REPLICA_AVAILABILITY**servers
        enough = [_enough_fraction(needed, needed + spare, up) for spare in range(MOST_SPARES + 1)]
        costs = [
            spare * replica_usd_per_h + (1.0 - share) * outage_usd_per_h for spare, share in enumerate(enough)
        ]
        return enough[costs.index(min(costs))]

    @property
    def total(self) -> int:
        """All replicas."""
        return self.needed + self.spare

    @property
    def by_zone(self) -> tuple[int, ...]:
        """As even as whole numbers allow, fullest first."""
        each, more = divmod(self.total, self.zones)
        return tuple(each + (1 if zone < more else 0) for zone in range(self.zones))


def target_utilisation(at_once_count: Floats) -> Floats:
    """Of the rate at which replicas just hold their promise, what a plan fills.

    Formula  max(0.9, 1/(1 + 1.645/√N)), N = `at_once_count`
    Why      Requests at once vary by √N. With room for 1.645·√N more, 19 of 20 moments have no more than fit:
             the more there are, the less of them that is, and the hotter a fleet can run. Chance on each
             replica is in its limit already, so that none leaves more than a tenth.
    Source   square-root staffing, Halfin & Whitt 1981.
    Limits   up to 219 requests at once, or where they are not known: 0.9.
    """
    at_least_one = np.maximum(at_once_count, 1.0)
    return np.maximum(TARGET_UTILISATION, 1.0 / (1.0 + NORMAL_P95 / np.sqrt(at_least_one)))


OUTSIDE, TIER = ("edge", "gateway"), "tier"  # parts that are on no replica


def is_on_replica(part: str) -> bool:
    """Whether a part of a request's time passes on its replica.

    >>> is_on_replica("prefill"), is_on_replica("tier retrieval"), is_on_replica("edge")
    (True, False, False)
    """
    return part not in OUTSIDE and not part.startswith(f"{TIER} ")


@dataclass(frozen=True, slots=True)
class LatencyBudget:
    """Where a request's time goes on its way; the parts sum to `total_s`."""

    edge_s: float
    gateway_s: float
    queue_s: float
    prefill_s: float
    decode_s: float
    tiers: tuple[tuple[str, float], ...] = ()  # CPU servers before the replica, each with its mean seconds

    @classmethod
    def of(
        cls,
        served: Served,
        output_tokens: float,
        *,
        edge_rtt_s: float = 0.03,
        gateway_s: float = 0.005,
        tiers: tuple[tuple[str, float], ...] = (),
    ) -> Self:
        """A mean request's time from the client and back: network, gateway, queue, prefill, decode.

        What `tiers` take is in the first tokens of `served` already.
        """
        prefill = float(np.max(served.prefill_step_s))
        ttft = float(np.max(served.ttft.mean_s)) - sum(seconds for _, seconds in tiers)
        return cls(
            edge_s=edge_rtt_s,
            gateway_s=gateway_s,
            queue_s=max(0.0, ttft - prefill),
            prefill_s=min(prefill, ttft),
            decode_s=max(0.0, output_tokens - 1.0) * float(np.max(served.tpot.mean_s)),
            tiers=tiers,
        )

    def by_name(self) -> dict[str, float]:
        """The parts without their unit, in order."""
        found = {
            part.name.removesuffix("_s"): getattr(self, part.name)
            for part in fields(self)
            if part.name != "tiers"
        }
        outside = {name: found.pop(name) for name in OUTSIDE}
        return {**outside, **{f"{TIER} {name}": seconds for name, seconds in self.tiers}, **found}

    @property
    def total_s(self) -> float:
        """All parts."""
        return sum(self.by_name().values())


OF_TIER = "the mean wait for one of its places, and the work"
# Of `LatencyBudget`: how a part follows, and the names of what it follows from.
BUDGET: Mapping[str, tuple[str, ...]] = {
    "edge": ("a usual round trip to the region", "edge"),
    "gateway": ("what a usual gateway adds", "gateway"),
    "queue": ("mean TTFT − the step with prefill", "prefill_step_s", "rate"),
    "prefill": ("the step with prefill", "prefill_step_s"),
    "decode": ("(output − 1) × mean TPOT", "decode_step_s", "lengths"),
}


def _failure_spares(needed: int, availability: float, up: float) -> int:
    """The smallest k with P(Binomial(needed + k, a) ≥ needed) ≥ availability; at most `needed` + 64.

    Many are counted by the normal limit: total·a − z·√(total·a·(1−a)) = needed, solved for the total.
    """
    if availability <= 0.0:  # nothing is promised
        return 0
    down = 1.0 - up
    if needed > COUNTED_ONE_BY_ONE:
        spread = NormalDist().inv_cdf(availability) * sqrt(up * down)
        root = (spread + sqrt(spread**2 + 4 * up * needed)) / (2 * up)
        return max(0, ceil(root**2) - needed)
    for spare in range(needed + MOST_SPARES + 1):
        if _enough_fraction(needed, needed + spare, up) >= availability:
            return spare
    return needed + MOST_SPARES


def _enough_fraction(needed: int, total: int, up: float) -> float:
    """P(Binomial(total, up) ≥ needed)."""
    probability, term = 0.0, up**total
    for failed in range(total - needed + 1):
        probability += term
        term *= (total - failed) / (failed + 1) * (1.0 - up) / up
    return probability


def warm_up(constants: Constants, accelerator: str, engine: str) -> Estimate:
    """Seconds of a start beyond the reading of weights: as measured beside the spec, else as engines log."""
    scope = {"accelerator": accelerator, "engine": engine}
    if constants.has(MEASURED_WARM_UP, **scope):
        return constants.estimate(MEASURED_WARM_UP, **scope)
    return Estimate(WARM_UP_S, *WARM_UP_RANGE_S, "s", Source.ASSUMED)


def cold_start_s(replica: Replica, load_bytes_per_s: Floats, warm_up_s: Floats = WARM_UP_S) -> Floats:
    """Seconds from a granted machine to the first answer.

    Formula  weights / bandwidth + warm-up
    Why      A replica reads its weights once; capture and warm-up follow.
    Units    bandwidth B/s into the whole replica, from wherever the weights lie.
    Source   R-061; warm-up from engines' start-up logs.
    """
    return replica.shape.weights_bytes(replica.weights_format).total_bytes / load_bytes_per_s + warm_up_s


def warm_pool(start_s: float, growth_per_s2: float, limit_per_s: float) -> int:
    """Warm replicas that carry what traffic grows by while a cold one starts (growth in requests/s per s)."""
    return int(np.ceil(max(0.0, growth_per_s2) * start_s / max(limit_per_s, 1e-12) - 1e-9))


def throughput_of(
    replica_counts: Sequence[int], limit_per_s: float, met_sequences: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rate that n replicas carry together, and the efficiency against n times one.

    Formula  n·limit / (1 + √(2 ln n) / B)
    Why      Least-loaded routing leaves the fullest of n replicas about √(2 ln n) requests above the mean of
             B, and the fullest one's promise is the one that breaks.
    Source   expected maximum of n deviations of about one request (PHYSICS, Collectives; balls into bins with
             least-loaded choice).
    """
    counts = np.asarray(replica_counts, float)
    efficiency = 1.0 / (1.0 + np.sqrt(2.0 * np.log(np.maximum(counts, 1.0))) / max(met_sequences, 1.0))
    return counts * limit_per_s * efficiency, efficiency


def replicas_power_w(replica: Replica, batch_sequences: Floats, replica_count: int) -> float:
    """Watts of all accelerators of so many replicas, each of which serves `batch_sequences` on average.

    Formula  power at (1 − exp(−batch)) × the share of the range above idle that serving draws
    Why      A device is at work while any request is in, which Poisson arrivals leave undone exp(−batch) of
             the time; at work its memory is read all the time, and what more the batch adds is within the
             share's range (0.6 at 8 sequences to 0.9 at 500 on H100).
    Units    W; the batch is the replica's.
    Source   Share fitted on published power of serving devices (`serving_power_fraction`).
    Limits   no request: idle; many: idle + share·(tdp − idle).
    """
    accelerators, device = replica_count * float(np.max(replica.accelerator_count)), replica.cluster.device
    busy = 1.0 - np.exp(-np.asarray(batch_sequences, float))
    return accelerators * float(np.max(device.power_w(busy * device.serving_power_fraction)))
