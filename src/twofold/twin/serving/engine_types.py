"""What a serving engine is told, what it is set to, and what comes out of it."""

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import NamedTuple

from twofold.twin.histogram import Histogram


class PrefillMode(Enum):
    """What a step that prefills does with sequences that decode."""

    MIXED = "mixed"  # one token each, out of the step's budget; prompts get the rest
    EXCLUSIVE = "exclusive"  # nothing: prompts first, alone


class Preemption(Enum):
    """What happens to the youngest sequence when the cache is full."""

    RECOMPUTE = "recompute"
    SWAP = "swap"  # to host memory and back; recomputed where that is full


class Reservation(Enum):
    """What cache a sequence holds from its admission on."""

    PROMPT = "prompt"  # it grows block by block, and may run short
    ANSWER = "answer"  # room for the longest answer that was asked for: nothing is preempted
    CONTEXT = "context"  # one contiguous piece as long as the longest context


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """One engine's scheduler and cache."""

    max_batch: int = 256  # sequences that run at once, in prefill or decode
    chunk_tokens: int = 8192  # that one step may compute
    kv_tokens: int = 1 << 40
    block_tokens: int = 16
    watermark_fraction: float = 0.01  # of the cache that admission leaves free, for those that grow
    prefill_mode: PrefillMode = PrefillMode.MIXED
    preemption: Preemption = Preemption.RECOMPUTE
    host_kv_tokens: int = 0
    swap_token_s: float = 0.0  # to move one token's cache to the host, or back
    reservation: Reservation = Reservation.PROMPT
    context_tokens: int = 1 << 40  # the longest prompt and answer together
    prefix_cache_tokens: int = 0  # of prompts that nobody uses any more and are kept all the same; 0: none
    draft_tokens: int = 0  # speculative decoding: proposed per step
    draft_accept_fraction: float = 0.0
    first_token_s: float = 0.0  # tokenising, HTTP, streaming: all that a client sees is late by it
    first_token_steps: float = 0.0  # further steps before a first token leaves
    static_wait_s: float | None = None  # static batches, begun when full or after so long; None: continuous
    longest_run_steps: int = 1 << 60  # advanced as one; 1 goes step by step, to the same result

    def __post_init__(self) -> None:
        assert min(self.max_batch, self.chunk_tokens, self.block_tokens, self.longest_run_steps) >= 1, self
        assert 0.0 <= self.draft_accept_fraction < 1.0 and self.draft_tokens >= 0, self

    @property
    def gained_tokens(self) -> float:
        """Tokens per step and sequence: (1 − a^(γ+1)) / (1 − a), Leviathan, Kalman & Matias 2023."""
        if not self.draft_tokens:
            return 1.0
        accept = self.draft_accept_fraction
        return (1.0 - accept ** (self.draft_tokens + 1)) / (1.0 - accept)


class EngineWork(NamedTuple):
    """One request, as the world knows it. Blocks are hashes of `block_tokens` tokens each, from the start."""

    key: int
    input_tokens: int
    output_tokens: int  # that it will come to; no scheduler reads it
    prefix_blocks: tuple[int, ...] = ()
    block_tokens: int = 512
    output_limit_tokens: int = 0  # that was asked for, where room is kept for it; 0: the true length
    answered_blocks: tuple[int, ...] = ()  # of prompt and answer together: cached for the session's next turn


class FirstToken(NamedTuple):
    """The first token of a request left the engine."""

    key: int
    at_s: float


class Finished(NamedTuple):
    """The last token left. No tokens: the request can never fit this engine and was turned away."""

    key: int
    at_s: float
    output_tokens: int


Output = FirstToken | Finished


@dataclass(slots=True)
class EngineSpent:
    """What engines came to. Mutable: adds up."""

    busy_s: float = 0.0
    prefill_tokens: float = 0.0
    decode_tokens: float = 0.0
    hit_tokens: float = 0.0  # of prompts, found in caches
    preempted_count: int = 0
    saved_s: float = 0.0  # by cached prompts
    held_token_s: float = 0.0  # of caches, by running requests …
    used_token_s: float = 0.0  # … and of that, filled
    gaps: Histogram = field(default_factory=Histogram)  # seconds between the tokens of an answer

    def add(self, other: "EngineSpent") -> None:
        """Another engine's."""
        self.gaps.merge(other.gaps)
        for each in fields(self):
            if each.name != "gaps":
                setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
