"""The service table: one replica's step time over (prefill, decode, context), for millions of reads."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from twofold.inference.iteration import iteration_s
from twofold.inference.memory import capacity, kv_bytes_per_token
from twofold.inference.types import Replica
from twofold.perf import Floats

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ServiceTable:
    """Step seconds on a grid, axes rising from 0: a belief that calibration may replace."""

    prefill_tokens: Array
    decode_sequences: Array
    context_tokens: Array
    grid_s: Array  # [prefill, decode, context]
    kv_tokens: float  # that the cache holds
    kv_bytes_per_token: float
    max_batch: float
    chunk_tokens: float

    def to_data(self) -> dict[str, object]:
        """Plain lists and numbers, for JSON."""
        return {f.name: np.asarray(getattr(self, f.name)).tolist() for f in fields(self)}


def table_from_data(data: dict[str, object]) -> ServiceTable:
    """The inverse of `to_data`."""
    axes = ("prefill_tokens", "decode_sequences", "context_tokens", "grid_s")
    arrays = {name: np.asarray(data[name], float) for name in axes}
    numbers = {f.name: float(str(data[f.name])) for f in fields(ServiceTable) if f.name not in axes}
    return ServiceTable(**arrays, **numbers)  # type: ignore[arg-type]  # arrays and numbers by field


def service_table(replica: Replica) -> ServiceTable:
    """Price the replica once on a grid: powers of two between nothing and its limits.

    Between grid points `step_s` interpolates in each axis; powers of two keep it within 3 % of `iteration_s`.
    Prefilled tokens are taken as prompts of their own; a prompt longer than a chunk attends to half of what a
    context axis says it holds already, which callers express through `context_tokens`.
    """
    chunk, batch = float(np.max(replica.chunk_tokens)), float(np.max(replica.max_batch))
    context = float(np.max(replica.shape.max_context_tokens))
    prefill, decode, held = (_powers(16.0, chunk), _powers(1.0, batch), _powers(64.0, context))
    p, d, k = np.meshgrid(prefill, decode, held, indexing="ij")
    return ServiceTable(
        prefill_tokens=prefill,
        decode_sequences=decode,
        context_tokens=held,
        grid_s=np.asarray(iteration_s(replica, p, np.maximum(p / 2.0, 1e-9), d, k).total_s, float),
        kv_tokens=float(np.max(capacity(replica).kv_tokens)),
        kv_bytes_per_token=float(np.max(kv_bytes_per_token(replica.shape, replica.kv_format))),
        max_batch=batch,
        chunk_tokens=chunk,
    )


def step_s(
    table: ServiceTable, prefill_tokens: Floats, decode_sequences: Floats, context_tokens: Floats
) -> Floats:
    """Seconds of one step by trilinear interpolation; beyond the grid the last cell goes on straight.

    Arguments broadcast. `context_tokens` is the mean cache of the decoding sequences.
    """
    p, i = _place(table.prefill_tokens, prefill_tokens)
    d, j = _place(table.decode_sequences, decode_sequences)
    k, n = _place(table.context_tokens, context_tokens)
    total: Floats = 0.0
    for a, wa in ((0, 1.0 - p), (1, p)):
        for b, wb in ((0, 1.0 - d), (1, d)):
            for c, wc in ((0, 1.0 - k), (1, k)):
                total = total + wa * wb * wc * table.grid_s[i + a, j + b, n + c]
    return total


def _powers(first: float, last: float) -> Array:
    """0, then powers of two from `first` up to and including `last`."""
    count = max(1, int(np.ceil(np.log2(max(last / first, 2.0)))))
    return np.concatenate([[0.0], np.minimum(first * 2.0 ** np.arange(count + 1), last)])


def _place(axis: Array, value: Floats) -> tuple[Array, NDArray[np.intp]]:
    """How far into which cell of the axis a value lies."""
    at = np.asarray(value, float)
    index = np.clip(np.searchsorted(axis, at, side="right") - 1, 0, len(axis) - 2)
    return (at - axis[index]) / (axis[index + 1] - axis[index]), index
