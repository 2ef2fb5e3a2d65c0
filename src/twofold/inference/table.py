"""The service table: one replica's step time over (prefill, decode, context), for millions of reads."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from twofold.inference.iteration import iteration_s
from twofold.inference.replica import Replica, capacity
from twofold.inference.steady import chunk_tokens
from twofold.perf.types import Floats

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ServiceTable:
    """Step seconds on a grid, axes rising from 0: a belief that calibration may replace.

    `grid_s` takes the prefilled tokens of a step as one prompt, whose tokens attend to half of it on average;
    `further_s` is what other prompts add: several short ones (less), chunks late in a long one (more).
    """

    prefill_tokens: Array
    decode_sequences: Array
    context_tokens: Array
    grid_s: Array  # [prefill, decode, context]
    attended_tokens: Array  # what a prefilled token attends to, on average
    further_s: Array  # [prefill, attended]
    kv_tokens: float  # that the cache holds
    kv_bytes_per_token: float
    max_batch: float
    chunk_tokens: float  # prefill tokens that one step may carry, all data-parallel ranks together

    def slowed(self, ratio: float) -> Self:
        """The same with every step so many times as long."""
        return replace(self, grid_s=self.grid_s * ratio, further_s=self.further_s * ratio)

    @classmethod
    def of(cls, replica: Replica) -> Self:
        """Price the replica once on a grid: half powers of two between nothing and its limits.

        Between grid points `step_s` interpolates in each axis, within 3 % of `iteration_s`.
        """
        chunk, batch = float(np.max(chunk_tokens(replica))), float(np.max(replica.max_batch))
        context = float(np.max(replica.shape.max_context_tokens))
        # The first prefilled token makes a step an eager one: no straight line leads from none to the next.
        prefill = np.concatenate([[0.0, 1.0], _powers(16.0, chunk)[1:]])
        decode, held = _powers(1.0, batch, 2.0**0.5), _powers(64.0, context)
        p, d, k = np.meshgrid(prefill, decode, held, indexing="ij")
        attended = _powers(8.0, context)
        # A data-parallel rank carries no more than its own chunk of a prompt: others carry what comes beside.
        own = np.minimum(p, np.max(replica.chunk_tokens))
        return cls(
            prefill_tokens=prefill,
            decode_sequences=decode,
            context_tokens=held,
            grid_s=np.asarray(iteration_s(replica, p, np.maximum(own / 2.0, 1e-9), d, k).total_s, float),
            attended_tokens=attended,
            further_s=_further_s(replica, prefill, attended),
            kv_tokens=float(np.max(capacity(replica).kv_tokens)),
            kv_bytes_per_token=float(np.max(replica.shape.kv_bytes_per_token(replica.kv_format))),
            max_batch=batch,
            chunk_tokens=chunk,
        )

    def step_s(
        self,
        prefill_tokens: Floats,
        decode_sequences: Floats,
        context_tokens: Floats,
        attended_tokens: Floats | None = None,
    ) -> Floats:
        """Seconds of one step by trilinear interpolation; beyond the grid the last cell goes on straight.

        Arguments broadcast. `context_tokens` is the mean cache of the decoding sequences, `attended_tokens`
        what a prefilled token attends to on average, half of `prefill_tokens`, unless it is given.
        """
        p, i = _place(self.prefill_tokens, prefill_tokens)
        d, j = _place(self.decode_sequences, decode_sequences)
        k, n = _place(self.context_tokens, context_tokens)
        total: Floats = 0.0
        for a, wa in ((0, 1.0 - p), (1, p)):
            for b, wb in ((0, 1.0 - d), (1, d)):
                for c, wc in ((0, 1.0 - k), (1, k)):
                    total = total + wa * wb * wc * self.grid_s[i + a, j + b, n + c]
        if attended_tokens is None:
            return total
        k, n = _place(self.attended_tokens, attended_tokens)
        for a, wa in ((0, 1.0 - p), (1, p)):
            for c, wc in ((0, 1.0 - k), (1, k)):
                total = total + wa * wc * self.further_s[i + a, n + c]
        return total


def _further_s(replica: Replica, prefill: Array, attended: Array) -> Array:
    """What prefilled tokens cost beyond those of one prompt, by how much they attend to on average.

    Why      Attention alone depends on it, and adds to a step. A few sequences decode beside it: in a step
             that hides behind its launches nothing further would show.
    """
    p, a = np.meshgrid(np.minimum(prefill, np.max(replica.chunk_tokens)), attended, indexing="ij")
    beside, held, rank = 16.0, 1024.0, replace(replica, dp=1.0)
    asked = iteration_s(rank, p, np.maximum(a, 0.5), beside, held).attention_s
    alone = iteration_s(rank, p, np.maximum(p / 2.0, 0.5), beside, held).attention_s
    return np.where(p > 0, np.asarray(asked - alone, float), 0.0)


def _powers(first: float, last: float, ratio: float = 2.0) -> Array:
    """0, then powers of `ratio` from `first` up to and including `last`, each once: a cell has a width."""
    count = max(1, int(np.ceil(np.log(max(last / first, ratio)) / np.log(ratio) - 1e-9)))
    powers = np.minimum(first * ratio ** np.arange(count + 1), last)
    return np.asarray(np.unique(np.concatenate([[0.0], powers])), float)


def _place(axis: Array, value: Floats) -> tuple[Array, NDArray[np.intp]]:
    """How far into which cell of the axis a value lies."""
    at = np.asarray(value, float)
    index = np.clip(np.searchsorted(axis, at, side="right") - 1, 0, len(axis) - 2)
    return (at - axis[index]) / (axis[index + 1] - axis[index]), index
