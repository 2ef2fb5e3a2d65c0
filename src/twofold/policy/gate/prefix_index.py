"""Which replica probably holds which blocks of prompts in its prefix cache. Mutable, bounded, a guess.

A replica is taken to hold what was sent to it, least recently used first out, tails before heads, as engines
evict. Engines say nothing of their cache, so the guess is wrong at its edges: a hit too many costs a prefill.
"""

from collections import OrderedDict
from collections.abc import Sequence

_NO_HITS: dict[str, int] = {}
SETS_MAX = 1024  # sets of replicas that are remembered


class PrefixIndex:
    """Block hash -> replicas, as one bit each of a whole number: matching a prompt is one `&` per block."""

    def __init__(self, blocks_per_replica_count: int) -> None:
        self._limit_count = blocks_per_replica_count
        self._holders: dict[int, int] = {}
        self._places: dict[str, int] = {}  # replica -> its bit's place
        self._names: dict[int, str] = {}
        self._recent: dict[str, OrderedDict[int, None]] = {}  # oldest first
        self._sets: dict[int, tuple[str, ...]] = {}  # who some bits are, lowest first; while nobody goes

    def hits(self, blocks: Sequence[int]) -> dict[str, int]:
        """Leading blocks of the prompt that each replica holds; those that hold none are left out."""
        # HOT: per arrival with prefix routing: bench/routing.py
        holders = self._holders
        alive = holders.get(blocks[0], 0) if blocks else 0
        if not alive:
            return _NO_HITS
        found: dict[str, int] = {}
        depth = 0
        for block in blocks:
            still = holders.get(block, 0) & alive
            if still != alive:
                self._note(found, alive ^ still, depth)
                if not still:
                    return found
                alive = still
            depth += 1
        self._note(found, alive, depth)
        return found

    def insert(self, replica_id: str, blocks: Sequence[int]) -> None:
        """The replica was sent a prompt of these blocks."""
        recent = self._recent.get(replica_id)
        if recent is None:
            recent = self._recent[replica_id] = OrderedDict()
            taken = self._names
            place = next(number for number in range(len(taken) + 1) if number not in taken)
            self._places[replica_id], self._names[place] = place, replica_id
        bit = 1 << self._places[replica_id]
        holders = self._holders
        # From the tail on, so that the head is the most recent: engines free the leaves first.
        for block in reversed(blocks[: self._limit_count]):
            if block in recent:
                recent.move_to_end(block)
            else:
                recent[block] = None
                holders[block] = holders.get(block, 0) | bit
        while len(recent) > self._limit_count:
            self._drop(recent.popitem(last=False)[0], bit)

    def forget(self, replica_id: str) -> None:
        """The replica is gone, or has started anew: its cache is empty."""
        for block in self._recent.pop(replica_id, ()):
            self._drop(block, 1 << self._places[replica_id])
        place = self._places.pop(replica_id, None)
        if place is not None:
            del self._names[place]
            self._sets.clear()

    def _drop(self, block: int, bit: int) -> None:
        left = self._holders[block] & ~bit
        if left:
            self._holders[block] = left
        else:
            del self._holders[block]

    def _note(self, found: dict[str, int], bits: int, depth: int) -> None:
        holders = self._sets.get(bits)
        if holders is None:
            if len(self._sets) >= SETS_MAX:
                self._sets.clear()
            holders = self._sets[bits] = tuple(
                [self._names[place] for place in range(bits.bit_length()) if bits >> place & 1]
            )
        for replica_id in holders:
            found[replica_id] = depth
