"""Who holds which part of one engine's cache: running requests, prompts that they share, idle prompts."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import ceil

from twofold.twin.serving.engine_types import EngineSettings, EngineWork, Reservation


class KvBlocks:
    """Blocks of one engine: how many there are, are held, and will be by a later token clock. Mutable."""

    __slots__ = ("_due", "block_tokens", "growing_count", "held_count", "idle_count", "total_count")

    def __init__(self, kv_tokens: int, block_tokens: int) -> None:
        assert block_tokens >= 1, block_tokens
        self.block_tokens = block_tokens
        self.total_count = kv_tokens // block_tokens
        self.held_count = 0  # by sequences, and by shared prefixes in use
        self.idle_count = 0  # that hold shared prefixes in nobody's use
        self.growing_count = 0
        # [k]: sequences whose next token needs a block when the clock is at k modulo the block
        self._due = [0] * block_tokens

    def blocks_of(self, tokens: int) -> int:
        """Whole blocks that hold so many tokens."""
        return -(-tokens // self.block_tokens)

    def join(self, base_tokens: int) -> None:
        """A sequence that holds `base_tokens` + clock begins to grow; its blocks so far are held already."""
        self._due[-base_tokens % self.block_tokens] += 1
        self.growing_count += 1

    def leave(self, base_tokens: int) -> None:
        """It grows no more; the caller gives its blocks back."""
        self._due[-base_tokens % self.block_tokens] -= 1
        self.growing_count -= 1

    def growth_count(self, clock_tokens: int, tokens: int) -> int:
        """Blocks that all growing sequences take while the clock goes from `clock_tokens` on by `tokens`."""
        # HOT: once per run of steps; `sum` over slices does not depend on the batch.
        block = self.block_tokens
        turns, rest = divmod(tokens, block)
        start = clock_tokens % block
        count = turns * self.growing_count
        if rest:
            end = start + rest
            if rest == 1:
                count += self._due[start]
            elif end <= block:
                count += sum(self._due[start:end])
            else:
                count += sum(self._due[start:]) + sum(self._due[: end - block])
        return count

    def tokens_until_short(self, clock_tokens: int, free_count: int) -> int:
        """The most tokens by which the clock can go on with `free_count` further blocks."""
        if not self.growing_count:
            return 1 << 60
        turns, left = divmod(free_count, self.growing_count)
        tokens = turns * self.block_tokens
        while True:
            left -= self._due[(clock_tokens + tokens) % self.block_tokens]
            if left < 0:
                return tokens
            tokens += 1


class PrefixCache:
    """Hashes of cached blocks. A block is `block_tokens` long, which may be many of the engine's own."""

    __slots__ = ("_idle", "_users")

    def __init__(self) -> None:
        self._users: dict[int, int] = {}
        # By last use, oldest first. A plain dict finds its first key ever more slowly as others go.
        self._idle: OrderedDict[int, None] = OrderedDict()

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


WAITING, PREFILLING, DECODING, SWAPPED, HANDED, GONE = range(6)  # where a request is


@dataclass(slots=True, eq=False)
class Running:
    """One request in the engine, and what it holds. Mutable."""

    work: EngineWork
    submitted_s: float
    target_tokens: int = field(init=False)  # in the cache when its prefill ends
    left_tokens: int = field(init=False)  # to be generated when that begins to decode
    place: int = WAITING
    first_s: float = -1.0  # when its first token is seen; -1: it is not made yet
    admitted: int = 0  # a rising number, new at every admission
    todo_tokens: int = 0  # of the target, not computed yet
    base_tokens: int = 0  # held, less the token clock: once it decodes
    finish_clock: int = 0
    reserved_blocks: int = 0  # from the start on; 0: it grows
    hashes: tuple[int, ...] = ()  # of shared blocks that it holds

    def __post_init__(self) -> None:
        self.target_tokens, self.left_tokens = self.work.input_tokens, self.work.output_tokens


class EngineMemory:
    """The cache of one engine. Held blocks, and those that lie idle, never exceed what there is."""

    __slots__ = (
        "_cache", "_every_hash", "_growing_limit_tokens", "_hash_tokens", "_idle_limit", "_most_gain",
        "_per_hash", "_settings", "_watermark", "kv", "step_blocks",
    )  # fmt: skip

    def __init__(self, kv_tokens: int, settings: EngineSettings) -> None:
        self.kv = KvBlocks(kv_tokens, settings.block_tokens)
        self._settings = settings
        self._watermark = int(self.kv.total_count * settings.watermark_fraction)
        self._most_gain = ceil(settings.gained_tokens)
        self.step_blocks = -(-self._most_gain // settings.block_tokens)  # of one sequence, at most
        grows = settings.reservation is Reservation.PROMPT
        room_tokens = self.kv.total_count * settings.block_tokens - self._most_gain
        self._growing_limit_tokens = min(room_tokens, settings.context_tokens) if grows else None
        self._cache = PrefixCache() if settings.prefix_cache_tokens else None
        self._idle_limit = settings.prefix_cache_tokens // settings.block_tokens
        self._hash_tokens = 0  # that one hash of a request stands for, once one was seen
        self._every_hash = 1  # which of them are kept
        self._per_hash = 0  # blocks that one that is kept stands for

    @property
    def used_fraction(self) -> float:
        """Of the cache, held by running requests."""
        return self.kv.held_count / max(1, self.kv.total_count)

    def can_ever_hold(self, work: EngineWork) -> bool:
        """Whether the request fits an empty engine, to its last token."""
        whole = work.input_tokens + work.output_tokens
        if self._growing_limit_tokens is not None:
            return whole <= self._growing_limit_tokens
        fits = max(self._reserved_blocks(work), self.kv.blocks_of(whole)) <= self.kv.total_count
        return fits and whole <= self._settings.context_tokens

    def admit(self, running: Running, clock_tokens: int, beside_count: int) -> bool:
        """Give the request room for its prompt, if there is some beside what the others need for a step."""
        kv, work = self.kv, running.work
        reserved = 0 if self._growing_limit_tokens is not None else self._reserved_blocks(work)
        blocks = reserved or -(-running.target_tokens // kv.block_tokens)
        free = kv.total_count - kv.held_count
        if beside_count:
            # Whoever decodes at once may need blocks for its very next step.
            free -= self._watermark + self.step_blocks * (running.place in (SWAPPED, HANDED))
            if free - blocks < kv.growing_count * self.step_blocks:  # rarely: then count exactly
                free -= kv.growth_count(clock_tokens, self._most_gain)
        cache = self._cache
        whole: tuple[int, ...] = ()
        if cache is not None and work.prefix_blocks:
            whole = self._whole_blocks(running)
            # Hits make it smaller. Looking does not touch them: who asks in vain changes nothing.
            if blocks > free and blocks - cache.held_hit_count(whole) * self._per_hash > free:
                return False
        elif blocks > free:
            return False
        kv.held_count += blocks
        running.reserved_blocks = reserved
        running.todo_tokens = running.target_tokens
        if whole and cache is not None:
            self._take_hits(running, whole, cache)
        if kv.idle_count and kv.held_count + kv.idle_count > kv.total_count:
            self.evict()
        return True

    def _take_hits(self, running: Running, whole: tuple[int, ...], cache: PrefixCache) -> None:
        """Hold what is cached of a prompt's blocks; what others held already needs no room again."""
        hits, idle = cache.take_hits(whole)
        if hits:
            running.hashes = whole[:hits]
            hit_tokens = hits * self._hash_tokens * self._every_hash
            running.todo_tokens = max(1, running.target_tokens - hit_tokens)
            self.kv.held_count -= (hits - idle) * self._per_hash
            self.kv.idle_count = cache.idle_count * self._per_hash

    def share(self, running: Running) -> None:
        """The prompt is computed: its whole blocks become others' too; copies of what they have are freed."""
        if self._cache is None or not running.work.prefix_blocks:
            return
        whole = self._whole_blocks(running)
        if len(whole) > len(running.hashes):
            rest = whole[len(running.hashes) :]
            taken = self._cache.take(rest)
            self.kv.held_count += (taken - len(rest)) * self._per_hash
            self.kv.idle_count = self._cache.idle_count * self._per_hash
            running.hashes = whole

    def release(self, running: Running, clock_tokens: int, answered: tuple[int, ...] = ()) -> None:
        """Take back all that a request holds; blocks of its prompt (and of `answered`) stay, idle."""
        kv = self.kv
        if running.reserved_blocks:
            blocks = running.reserved_blocks
        elif running.place == DECODING:
            blocks = -(-(clock_tokens + running.base_tokens) // kv.block_tokens)
            kv.leave(running.base_tokens)
        else:
            blocks = -(-running.target_tokens // kv.block_tokens)
        kv.held_count -= blocks
        hashes = running.hashes
        if self._cache is None or not (hashes or answered):
            return
        kept = hashes
        if answered:
            whole = self._filled(running.work.block_tokens, answered, clock_tokens + running.base_tokens)
            if len(whole) > len(hashes) and whole[: len(hashes)] == hashes:
                kept = whole
                kv.held_count += self._cache.take(kept[len(hashes) :]) * self._per_hash
        # Shared blocks were counted once by the cache, and once more in what was just taken back.
        kv.held_count += (len(hashes) - self._cache.give_back(kept)) * self._per_hash
        running.hashes = ()
        kv.idle_count = self._cache.idle_count * self._per_hash
        if kv.idle_count > min(self._idle_limit, kv.total_count - kv.held_count):
            self.evict()

    def evict(self) -> None:
        """Idle prompts go where memory is needed, and beyond what may lie idle."""
        cache, kv = self._cache, self.kv
        if cache is not None and self._per_hash:
            cache.shrink(min(kv.total_count - kv.held_count, self._idle_limit) // self._per_hash)
            kv.idle_count = cache.idle_count * self._per_hash

    def remember(self, prompts: Sequence[tuple[int, ...]], block_tokens: int) -> None:
        """Prompts that were asked before lie idle; where they do not fit, their ends are lost first."""
        if self._cache is None:
            return
        whole = [self._filled(block_tokens, each, len(each) * block_tokens) for each in prompts]
        even = tuple(each for depth in zip_longest(*whole) for each in depth if each is not None)
        self._cache.take(even)
        self._cache.give_back(even)
        self.evict()

    def _whole_blocks(self, running: Running) -> tuple[int, ...]:
        """The hashes of blocks that the prompt fills to their end."""
        work = running.work
        return self._filled(work.block_tokens, work.prefix_blocks, running.target_tokens)

    def _filled(self, block_tokens: int, hashes: tuple[int, ...], tokens: int) -> tuple[int, ...]:
        """Of hashes from the start on, those that stand for blocks which `tokens` fill to their end."""
        if block_tokens != self._hash_tokens:
            assert not self._hash_tokens, "all requests of one engine have hashes of blocks of one length"
            # A hash may stand for many of the engine's blocks; where a block takes many, the last one counts.
            self._hash_tokens = block_tokens
            self._every_hash = max(1, ceil(self._settings.block_tokens / self._hash_tokens))
            self._per_hash = self._every_hash * self._hash_tokens // self._settings.block_tokens
        every = self._every_hash
        if every == 1:
            return hashes[: tokens // self._hash_tokens]
        return hashes[every - 1 : tokens // self._hash_tokens : every]

    def _reserved_blocks(self, work: EngineWork) -> int:
        """Blocks that the request gets at once and for good; 0 where it grows."""
        settings = self._settings
        if settings.reservation is Reservation.PROMPT:
            return 0
        if settings.reservation is Reservation.CONTEXT:
            return self.kv.blocks_of(settings.context_tokens)
        return self.kv.blocks_of(work.input_tokens + max(work.output_tokens, work.output_limit_tokens))
