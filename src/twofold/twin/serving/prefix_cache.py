"""Shared prompt blocks of one engine: in use with a count, or idle in the order of their last use.

Idle blocks lie in memory that nobody else needs at the time; they go, oldest first, as soon as somebody does.
"""

from collections import OrderedDict


class PrefixCache:
    """Hashes of cached blocks. A block is `block_tokens` long, which may be many of the engine's own."""

    __slots__ = ("_idle", "_users")

    def __init__(self) -> None:
        self._users: dict[int, int] = {}
        # By last use, oldest first. A plain dict finds its first key ever more slowly as others go.
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def used_count(self) -> int:
        """Blocks that sequences hold."""
        return len(self._users)

    @property
    def idle_count(self) -> int:
        """Blocks that nobody holds."""
        return len(self._idle)

    def held_hit_count(self, hashes: tuple[int, ...]) -> int:
        """How many leading blocks are cached and held by somebody; nothing changes."""
        users, idle, held = self._users, self._idle, 0
        for each in hashes:
            if each in users:
                held += 1
            elif each not in idle:
                break
        return held

    def take_hits(self, hashes: tuple[int, ...]) -> tuple[int, int]:
        """Hold the leading blocks that are cached: how many, and how many of them lay idle."""
        users, idle, hits, from_idle = self._users, self._idle, 0, 0
        for each in hashes:
            count = users.get(each)
            if count is not None:
                users[each] = count + 1
            elif each in idle:
                del idle[each]
                users[each] = 1
                from_idle += 1
            else:
                break
            hits += 1
        return hits, from_idle

    def take(self, hashes: tuple[int, ...]) -> int:
        """Hold these blocks, cached or new; how many were in nobody's use before."""
        users, idle, taken = self._users, self._idle, 0
        for each in hashes:
            count = users.get(each)
            if count is None:
                idle.pop(each, None)
                users[each] = 1
                taken += 1
            else:
                users[each] = count + 1
        return taken

    def give_back(self, hashes: tuple[int, ...]) -> int:
        """Let go of these; how many nobody holds any more. A prompt's last block is the first to be lost."""
        users, idle, left = self._users, self._idle, 0
        for each in reversed(hashes):
            count = users[each] - 1
            if count:
                users[each] = count
            else:
                del users[each]
                idle[each] = None
                left += 1
        return left

    def shrink(self, idle_count: int) -> None:
        """Drop the oldest idle blocks until at most so many are left."""
        idle = self._idle
        while len(idle) > idle_count:
            idle.popitem(last=False)

    def clear(self) -> None:
        """Forget everything: the engine ended."""
        self._users.clear()
        self._idle.clear()
