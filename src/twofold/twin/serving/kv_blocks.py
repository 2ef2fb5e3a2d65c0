"""KV blocks of the decoding sequences, counted together: all grow by a token per step, few need a block.

A sequence that holds b tokens when the engine's token clock stands at 0 holds b + x when it stands at x, and
needs a new block where that crosses a multiple of the block. So sequences are counted by b modulo the block,
and what a run of steps takes is a sum over that ring, whatever the batch.
"""


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
