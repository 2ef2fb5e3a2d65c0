"""What is in a serving world at a moment: replicas, the clients' visits, and their attempts. All mutable.

And chance that belongs to a request and not to the order of events: the same one in every run of a seed. So
two policies that are compared meet the same failing requests and the same waits, whatever they do.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from math import inf
from typing import Final

from twofold.policy.gate import events
from twofold.policy.gate.chance import GOLDEN, scrambled
from twofold.twin.serving.engine_types import Output
from twofold.twin.serving.fleet_types import Arrival, ReplicaModel, ServingEngine, Turn


class Kind:
    """What a due entry of the world's heap is, by what its subject is. Plain numbers: they index a list."""

    ENGINE: Final = 0  # a replica's engine may have something
    TURN: Final = 1  # a session asks on
    RETRY: Final = 2  # a visit asks again
    PATIENCE: Final = 3  # a visit may leave
    FAIL: Final = 4  # an attempt, with its cause
    STALLED: Final = 5  # an attempt that had begun; fails if nothing came since
    SILENT: Final = 6  # the oldest attempts without a first token are due
    SCRAPE: Final = 7
    EVENTS: Final = 8  # that reach the gate
    FAULT_BEGINS: Final = 9
    FAULT_ENDS: Final = 10
    CRASH: Final = 11  # by chance, of a replica in a life of its
    RESTART: Final = 12
    LOST: Final = 13  # a replica that does not come back is announced as removed
    READ: Final = 14  # the store has finished a transfer
    READY: Final = 15  # a replica, in a life of its
    TIMEOUT: Final = 16  # a client breaks off one of its requests
    TIER: Final = 17  # a CPU tier's server may be done with somebody
    COUNT: Final = 18


class Life(IntEnum):
    """Where a replica stands."""

    STARTING = 0
    READY = 1
    DRAINING = 2
    DOWN = 3
    GONE = 4


@dataclass(slots=True, eq=False)
class Replica:
    """One replica, from its grant to its end. It may live several times: each start is a new life."""

    order: events.StartReplica
    number: int
    model: ReplicaModel
    granted_s: float
    replica_id: str = field(init=False)
    zone: str = field(init=False)
    asked_s: float = field(init=False)
    up_s: float = field(init=False)
    life: Life = Life.STARTING
    lives: int = 0
    engine: ServingEngine | None = None  # None: it is not up
    attempts: "dict[int, Attempt]" = field(default_factory=dict)  # that its engine has, by key
    timer: int = 0  # the heap's number for its engine; 0: none
    timer_s: float = inf  # what its engine named then, on the engine's clock
    factors: dict[int, float] = field(default_factory=dict)  # of its step time, by what slows it
    cut: int = 0  # partitions that keep the gateway from it
    stamp: int = 0  # how often it was cut off
    held: "list[tuple[Output, Attempt]]" = field(default_factory=list)  # what it said meanwhile
    seeds: bool = False  # it has the weights, and its peers may read them
    reads: bool = False  # down, and its next start has to read the weights again
    silent: bool = False  # down, and nobody answers for it: connections time out
    warms_s: float = inf  # when its warm-up begins …
    ready_s: float = inf  # … and ends, as it goes now
    ready_timer: int = 0  # the heap's number for that; 0: it does not warm up

    def __post_init__(self) -> None:
        self.replica_id, self.zone = self.order.replica_id, self.order.zone
        self.asked_s = self.up_s = self.granted_s


@dataclass(slots=True, eq=False)
class Visit:
    """One thing that a client wants, over all its requests for it. Mutable."""

    number: int
    arrival: Arrival
    class_number: int
    output_limit_tokens: int
    turns: Iterator[Turn] | None
    arrival_s: float = field(init=False)
    patient_from_s: float = field(init=False)
    next_turn: Turn | None = None
    tries: int = 0  # requests so far
    request_id: int = 0  # of the latest; 0: none is open
    begun_s: float | None = None  # when the first token of the answer came
    attempts: "list[Attempt]" = field(default_factory=list)  # in flight
    replica_id: str = ""  # of the latest attempt
    waits: bool = True  # the client is still there

    def __post_init__(self) -> None:
        self.arrival_s = self.patient_from_s = self.arrival.arrival_s
        if self.turns is not None:
            self.next_turn = next(self.turns, None)


@dataclass(slots=True, eq=False)
class Attempt:
    """One request at one replica. Mutable."""

    key: int
    visit: Visit
    number: int
    replica: Replica
    output_tokens: int
    live: bool = True  # the gateway waits for it
    begun: bool = False


class Purpose(IntEnum):
    """What a draw is for; draws of different purposes are independent."""

    ERROR = 1
    QUALITY = 2
    BACKOFF = 3
    CRASH = 4
    TIER = 5


def unit(seed: int, purpose: Purpose, number: int, turn: int = 0) -> float:
    """A number in (0, 1) that depends on nothing but its arguments."""
    state = scrambled(seed + GOLDEN * purpose)
    state = scrambled(state + GOLDEN * (number + 1))
    state = scrambled(state + GOLDEN * (turn + 1))
    return ((state >> 11) + 0.5) / (1 << 53)


def score(seed: int, number: int, mean: float, spread: float) -> float:
    """What an answer is worth, from 0 to 1: of exactly this mean, and this spread if 0 and 1 allow it.

    Some answers are right or wrong, the others all worth the mean: a normal number that is cut off at 1 would
    hide a third of a drop.
    """
    widest = mean * (1.0 - mean)
    if not widest or unit(seed, Purpose.QUALITY, number) >= spread**2 / widest:
        return mean
    return float(unit(seed, Purpose.QUALITY, number, 1) < mean)
