"""Which tokens a step trains on, from the seed and the step alone: a resumed run need not remember.

Shards are walked in an order that each epoch draws anew, and documents of a shard likewise. What they hold
is one endless stream, which is cut into sequences without padding: every document of an epoch is read once,
whole, by whoever reads the sequences, however many ranks they are dealt to. A sequence may begin in one
epoch and end in the next. Of every HELD_OUT_EVERY documents of a shard one is never trained on.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.core.errors import ValueRefusedError
from twofold.live.training.token_shard import Shard

Tokens = NDArray[np.int64]
HELD_OUT_EVERY = 50  # one document of so many is for evaluation
PLANS_KEPT = 4  # orders of documents of a shard, in memory


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """One shard in one epoch: its documents in order, and how many tokens are behind each."""

    documents: NDArray[np.int64]
    ends: NDArray[np.int64]  # in the stream of this shard and epoch


@dataclass(slots=True)
class TokenStream:
    """The endless stream. Mutable: it remembers what it walked over, and a few orders.

    `open_shard` may wait until a shard is there; it is asked for shards in the order in which they are read.
    """

    open_shard: Callable[[int], Shard]
    shard_count: int
    seed: int
    _starts: list[int] = field(default_factory=lambda: [0])  # of each (epoch, place) walked over
    _lengths: dict[int, int] = field(default_factory=dict)  # trained tokens of each shard
    _plans: dict[tuple[int, int], ShardPlan] = field(default_factory=dict)
    _orders: dict[int, NDArray[np.int64]] = field(default_factory=dict)

    def sequence(self, number: int, tokens: int) -> Tokens:
        """Sequence `number`, from 0: `tokens` inputs and one more, the last one's target.

        The next one begins with that token: every token but the very first is a target once.
        """
        return self.read(number * tokens, tokens + 1)

    def read(self, position: int, count: int) -> Tokens:
        """`count` tokens of the stream from `position` on."""
        parts: list[Tokens] = []
        while count:
            at = self._place_of(position)
            part = self._read_within(at, position - self._starts[at], count)
            parts.append(part)
            position, count = position + len(part), count - len(part)
        return np.concatenate(parts)

    def shard_at(self, place: int) -> int:
        """The shard that is read as number `place`, from 0."""
        epoch, rest = divmod(place, self.shard_count)
        if epoch not in self._orders:
            _forget(self._orders)
            drawn = np.random.default_rng([self.seed, epoch]).permutation(self.shard_count)
            self._orders[epoch] = drawn
        return int(self._orders[epoch][rest])

    def shards_until(self, position: int) -> list[int]:
        """The shards that positions up to this one lie in, by number."""
        places = min(self._place_of(position) + 1, self.shard_count)  # an epoch reads all of them
        return sorted({self.shard_at(place) for place in range(places)})

    def epoch_at(self, position: int) -> int:
        """The epoch, from 0, that a position of the stream is in."""
        return self._place_of(position) // self.shard_count

    def _place_of(self, position: int) -> int:
        while self._starts[-1] <= position:
            place = len(self._starts) - 1
            self._starts.append(self._starts[-1] + self._length_of(self.shard_at(place)))
            if self.shard_count < len(self._starts) and self._starts[self.shard_count] == 0:
                raise ValueRefusedError("the data holds no text to train on", hint="give files with text")
        return bisect_right(self._starts, position) - 1

    def _length_of(self, number: int) -> int:
        if number not in self._lengths:
            shard = self.open_shard(number)
            kept = trained_documents(len(shard.ends))
            self._lengths[number] = int((shard.ends - shard.starts)[kept].sum())
        return self._lengths[number]

    def _read_within(self, place: int, offset: int, count: int) -> Tokens:
        shard = self.open_shard(self.shard_at(place))
        plan = self._plan_of(place, shard)
        at = int(np.searchsorted(plan.ends, offset, side="right"))
        parts = []
        while count and at < len(plan.ends):
            begin = offset - (int(plan.ends[at - 1]) if at else 0)
            start, end = document_bounds(shard, int(plan.documents[at]))
            part = shard.tokens[start + begin : min(end, start + begin + count)]
            parts.append(part.astype(np.int64))
            offset, count, at = offset + len(part), count - len(part), at + 1
        return np.concatenate(parts)

    def _plan_of(self, place: int, shard: Shard) -> ShardPlan:
        epoch, number = place // self.shard_count, self.shard_at(place)
        if (epoch, number) not in self._plans:
            _forget(self._plans)
            kept = trained_documents(len(shard.ends))
            order = np.random.default_rng([self.seed, epoch, number]).permutation(kept)
            self._plans[epoch, number] = ShardPlan(order, np.cumsum((shard.ends - shard.starts)[order]))
        return self._plans[epoch, number]


def trained_documents(count: int) -> NDArray[np.int64]:
    """The documents of a shard of `count` that are trained on."""
    numbers = np.arange(count)
    kept: Tokens = numbers[numbers % HELD_OUT_EVERY != HELD_OUT_EVERY - 1]
    return kept


def held_out(shard: Shard, tokens: int, most: int) -> Iterator[Tokens]:
    """At most `most` sequences, as `TokenStream.sequence` cuts them, of documents that nothing trains on."""
    left = np.empty(0, np.int64)
    for number in range(HELD_OUT_EVERY - 1, len(shard.ends), HELD_OUT_EVERY):
        start, end = document_bounds(shard, number)
        left = np.concatenate((left, shard.tokens[start:end].astype(np.int64)))
        while len(left) > tokens and most:
            yield left[: tokens + 1]
            left, most = left[tokens:], most - 1
        if not most:
            return


def document_bounds(shard: Shard, number: int) -> tuple[int, int]:
    """Where a document begins and ends in its shard."""
    return int(shard.ends[number - 1]) if number else 0, int(shard.ends[number])


def _forget(kept: dict[Any, Any]) -> None:
    while len(kept) >= PLANS_KEPT:
        kept.pop(next(iter(kept)))
