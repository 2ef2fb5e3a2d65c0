"""What is in a serving world at a moment: replicas, the clients' visits, and their attempts. All mutable.

And chance that belongs to a request and not to the order of events: the same one in every run of a seed. So
two policies that are compared meet the same failing requests and the same waits, whatever they do.
"""

from collections.abc import Iterator
from enum import IntEnum
from math import inf
from typing import Final

from twofold.policy.gate import GOLDEN, events, scrambled
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
    COUNT: Final = 17


class Life(IntEnum):
    """Where a replica stands."""

    STARTING = 0
    READY = 1
    DRAINING = 2
    DOWN = 3
    GONE = 4


class Replica:
    """One replica, from its grant to its end. It may live several times: each start is a new life."""

    __slots__ = (
        "asked_s", "attempts", "cut", "engine", "factors", "granted_s", "held", "life", "lives", "model",
        "number", "order", "reads", "replica_id", "seeds", "silent", "stamp", "timer", "timer_s", "up_s",
        "zone",
    )  # fmt: skip

    def __init__(self, order: events.StartReplica, number: int, model: ReplicaModel, now_s: float) -> None:
        self.replica_id = order.replica_id
        self.number = number
        self.model = model
        self.order = order
        self.zone = order.zone
        self.granted_s = self.asked_s = self.up_s = now_s
        self.life = Life.STARTING
        self.lives = 0
        self.engine: ServingEngine | None = None  # None: it is not up
        self.attempts: dict[int, Attempt] = {}  # that its engine has, by key
        self.timer = 0  # the heap's number for its engine; 0: none
        self.timer_s = inf  # what its engine named then, on the engine's clock
        self.factors: dict[int, float] = {}  # of its step time, by what slows it
        self.cut = 0  # partitions that keep the gateway from it
        self.stamp = 0  # how often it was cut off
        self.held: list[tuple[Output, Attempt]] = []  # what it said meanwhile
        self.seeds = False  # it has the weights, and its peers may read them
        self.reads = False  # down, and its next start has to read the weights again
        self.silent = False  # down, and nobody answers for it: connections time out


class Visit:
    """One thing that a client wants, over all its requests for it. Mutable."""

    __slots__ = (
        "arrival", "arrival_s", "attempts", "begun_s", "class_number", "next_turn", "number",
        "output_limit_tokens", "patient_from_s", "replica_id", "request_id", "tries", "turns", "waits",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        arrival: Arrival,
        class_number: int,
        output_limit_tokens: int,
        turns: Iterator[Turn] | None,
    ) -> None:
        self.number = number
        self.arrival = arrival
        self.arrival_s = self.patient_from_s = arrival.arrival_s
        self.class_number = class_number
        self.output_limit_tokens = output_limit_tokens
        self.turns = turns
        self.next_turn: Turn | None = next(turns, None) if turns is not None else None
        self.tries = 0  # requests so far
        self.request_id = 0  # of the latest; 0: none is open
        self.begun_s: float | None = None  # when the first token of the answer came
        self.attempts: list[Attempt] = []  # in flight
        self.replica_id = ""  # of the latest attempt
        self.waits = True  # the client is still there


class Attempt:
    """One request at one replica. Mutable."""

    __slots__ = ("begun", "key", "live", "number", "output_tokens", "replica", "visit")

    def __init__(self, key: int, visit: Visit, number: int, replica: Replica, output_tokens: int) -> None:
        self.key = key
        self.visit = visit
        self.number = number
        self.replica = replica
        self.output_tokens = output_tokens
        self.live = True  # the gateway waits for it
        self.begun = False


class Purpose(IntEnum):
    """What a draw is for; draws of different purposes are independent."""

    ERROR = 1
    QUALITY = 2
    BACKOFF = 3
    CRASH = 4


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
