"""How requests find replicas: the rule, and its limits."""

from dataclasses import dataclass
from enum import StrEnum

from twofold.policy.gate.pools import PoolRules


class Routing(StrEnum):
    """How one of several fit replicas is chosen."""

    LEAST_WORK = "least-work"
    ROUND_ROBIN = "round-robin"
    RANDOM = "random"
    POWER_OF_TWO = "power-of-two"  # the less loaded of two drawn ones
    PREFIX = "prefix"  # least work, where what the replica has cached of the prompt is no work
    SESSION = "session"  # a session stays where it is, unless that is overloaded


@dataclass(frozen=True, slots=True)
class RoutingSettings:
    """Limits of the rules; each matters only to the rule it names."""

    seed: int = 0  # RANDOM and POWER_OF_TWO draw by a hash of this and the request's id
    zone_spill_fraction: float = (
        0.8  # in flight over limit of the zone's best from which others are looked at
    )
    prefix_block_tokens: int = 512  # of one hash in `prefix_blocks`
    prefix_blocks_per_replica_count: int = 8192
    session_limit_count: int = 65_536  # sessions remembered; the longest unseen is forgotten
    session_spill_ratio: float = (
        1.25  # a home with more than this times the mean in flight, plus 1, is spared
    )
    pools: PoolRules | None = None

    def __post_init__(self) -> None:
        assert 0 < self.zone_spill_fraction <= 1 and self.session_spill_ratio >= 1, self
        assert self.prefix_block_tokens >= 1 and self.prefix_blocks_per_replica_count >= 1, self
        assert self.session_limit_count >= 1, self
