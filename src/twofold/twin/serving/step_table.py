"""Step times in plain floats, for loops that ask millions of times: an interpolation that knows its lines.

Between two points of the context axis a step's time is straight in the mean context, and every decode step
lengthens that by the same number of tokens. So many steps in a row are an arithmetic series, summed at once.
"""

from bisect import bisect_right
from collections.abc import Sequence
from math import ceil, floor, sqrt
from typing import Any

from twofold.inference.table import ServiceTable

Line = tuple[list[float], list[float]]  # by cell of the context axis: seconds at context 0, and per token
ONES = (0.0, 1.0)


class StepTable:
    """Seconds of one step by what it carries; shared by all engines of a kind. Holds a cache, so mutable.

    Axes rise from 0 and have at least two points; beyond them the last cell goes on straight. `further_s` is
    what prefilled tokens cost beyond those of one prompt, by what they attend to on average.
    """

    __slots__ = (
        "_attended", "_attended_inner", "_context_inner", "_decode", "_decode_inner", "_further", "_given",
        "_grid", "_lines", "_plain", "_prefill", "_prefill_inner", "kv_tokens",
    )  # fmt: skip

    def __init__(
        self,
        prefill_tokens: Sequence[float],
        decode_sequences: Sequence[float],
        context_tokens: Sequence[float],
        grid_s: Sequence[Sequence[Sequence[float]]],
        attended_tokens: Sequence[float] = ONES,
        further_s: Sequence[Sequence[float]] | None = None,
        kv_tokens: int = 1 << 40,
    ) -> None:
        self._given = (
            prefill_tokens, decode_sequences, context_tokens, grid_s, attended_tokens, further_s, kv_tokens,
        )  # fmt: skip
        self._prefill, self._decode = list(prefill_tokens), list(decode_sequences)
        self._attended = list(attended_tokens)
        self._prefill_inner, self._decode_inner = self._prefill[1:-1], self._decode[1:-1]
        self._context_inner, self._attended_inner = list(context_tokens)[1:-1], self._attended[1:-1]
        self._further = further_s
        self._grid = [[_line(context_tokens, row) for row in plane] for plane in grid_s]
        self._lines: dict[tuple[int, int], Line] = {}
        self._plain: dict[int, Line] = {}
        self.kv_tokens = kv_tokens  # that the cache of one engine holds

    def __reduce__(self) -> tuple[type["StepTable"], tuple[Any, ...]]:
        """For other processes: made anew from what this one was made of."""
        return StepTable, self._given

    @classmethod
    def from_service_table(cls, table: ServiceTable) -> "StepTable":
        """The same numbers as plain floats."""
        return cls(
            table.prefill_tokens.tolist(),
            table.decode_sequences.tolist(),
            table.context_tokens.tolist(),
            table.grid_s.tolist(),
            table.attended_tokens.tolist(),
            table.further_s.tolist(),
            int(table.kv_tokens),
        )

    def mixed_s(
        self, prefill_tokens: float, attended_tokens: float, decode_sequences: int, context_tokens: float
    ) -> float:
        """Seconds of one step that prefills, beside sequences that hold `context_tokens` on average."""
        # HOT: once per step that prefills; see bench/twin_engine.py.
        place = bisect_right(self._prefill_inner, prefill_tokens)
        prefill = self._prefill
        share = (prefill_tokens - prefill[place]) / (prefill[place + 1] - prefill[place])
        cell = bisect_right(self._context_inner, context_tokens)
        low, high = self._line(place, decode_sequences), self._line(place + 1, decode_sequences)
        seconds = (1.0 - share) * (low[0][cell] + low[1][cell] * context_tokens) + share * (
            high[0][cell] + high[1][cell] * context_tokens
        )
        further = self._further
        if further is None:
            return seconds
        cell = bisect_right(self._attended_inner, attended_tokens)
        from_tokens = self._attended[cell]
        along = (attended_tokens - from_tokens) / (self._attended[cell + 1] - from_tokens)
        near, far = further[place], further[place + 1]
        return (
            seconds
            + (1.0 - share) * (near[cell] + along * (near[cell + 1] - near[cell]))
            + share * (far[cell] + along * (far[cell + 1] - far[cell]))
        )

    def decode_s(
        self, sequences: int, context_tokens: float, step_count: int, gained_tokens: float = 1.0
    ) -> float:
        """Seconds of `step_count` steps that only decode, each after the first over more held tokens.

        Formula  Σ_cells n·t(c) + slope·g·n(n−1)/2 for n steps within a cell of the context axis, from c on
        Why      Each sequence gains g tokens per step, so that its context does, and so does the mean.
        Units    tokens; `gained_tokens` per step and sequence.
        Limits   1 step: the table's. Equal to a sum of single steps but for rounding.
        """
        # HOT: once per run of steps.
        line = self._plain.get(sequences)
        if line is None:
            line = self._plain[sequences] = self._line(0, sequences)
        inner, (starts, slopes) = self._context_inner, line
        cell, seconds = bisect_right(inner, context_tokens), 0.0
        while True:
            slope = slopes[cell]
            first_s = starts[cell] + slope * context_tokens
            count = step_count
            if cell < len(inner):
                within = int((inner[cell] - context_tokens) / gained_tokens) + 1
                if within < count:
                    count = within
            seconds += count * (first_s + slope * gained_tokens * 0.5 * (count - 1))
            step_count -= count
            if not step_count:
                return seconds
            context_tokens += count * gained_tokens
            cell = bisect_right(inner, context_tokens)

    def cut(
        self,
        sequences: int,
        context_tokens: float,
        budget_s: float,
        most_count: int,
        gained_tokens: float = 1.0,
    ) -> tuple[int, float, float]:
        """Where a run of decode steps stands after `budget_s`: steps that ended, their seconds, the next's.

        Formula  the largest n ≤ `most_count` whose `decode_s` is within the budget, by its inverse
        Units    seconds; `gained_tokens` per step and sequence.
        """
        line = self._plain.get(sequences)
        if line is None:
            line = self._plain[sequences] = self._line(0, sequences)
        inner, (starts, slopes) = self._context_inner, line
        done, spent_s = 0, 0.0
        while True:
            cell = bisect_right(inner, context_tokens)
            first_s = starts[cell] + slopes[cell] * context_tokens
            bend_s = slopes[cell] * gained_tokens * 0.5
            count = most_count - done
            if cell < len(inner):
                count = min(count, int((inner[cell] - context_tokens) / gained_tokens) + 1)
            seconds = count * (first_s + bend_s * (count - 1))
            if spent_s + seconds > budget_s:
                count = _steps_within(first_s, bend_s, budget_s - spent_s, count)
                spent_s += count * (first_s + bend_s * (count - 1))
                return done + count, spent_s, first_s + 2.0 * bend_s * count
            spent_s += seconds
            done += count
            context_tokens += count * gained_tokens
            if done == most_count:
                return done, spent_s, self.decode_s(sequences, context_tokens, 1)

    def _line(self, place: int, sequences: int) -> Line:
        """Seconds over context at one point of the prefill axis, for a number of sequences; kept."""
        line = self._lines.get((place, sequences))
        if line is None:
            cell = bisect_right(self._decode_inner, sequences)
            low, high = self._decode[cell], self._decode[cell + 1]
            share = (sequences - low) / (high - low)
            below, above = self._grid[place][cell], self._grid[place][cell + 1]
            starts, slopes = (
                [(1.0 - share) * b + share * a for b, a in zip(below[side], above[side], strict=True)]
                for side in (0, 1)
            )
            line = self._lines[place, sequences] = (starts, slopes)
        return line


def _line(axis: Sequence[float], seconds: Sequence[float]) -> Line:
    """Per cell: the value that its straight line has at 0, and its slope."""
    slopes = [
        (seconds[cell + 1] - seconds[cell]) / (axis[cell + 1] - axis[cell]) for cell in range(len(axis) - 1)
    ]
    return [seconds[cell] - slopes[cell] * axis[cell] for cell in range(len(slopes))], slopes


def _steps_within(first_s: float, bend_s: float, budget_s: float, count: int) -> int:
    """The largest n < count with n·(first + bend·(n−1)) ≤ budget: the root of a square, put right by hand."""
    linear_s = first_s - bend_s
    root = sqrt(linear_s * linear_s + 4.0 * bend_s * budget_s) if bend_s > 0.0 else 0.0
    # The usual form loses all digits where the bend is small; this one does not.
    n = floor(2.0 * budget_s / (linear_s + root)) if bend_s > 0.0 else floor(budget_s / first_s)
    n = max(0, min(count - 1, n))
    while n + 1 < count and (n + 1) * (first_s + bend_s * n) <= budget_s:
        n += 1
    while n > 0 and n * (first_s + bend_s * (n - 1)) > budget_s:
        n -= 1
    return n


def steps_to_gain(tokens: int, gained_tokens: float) -> int:
    """Steps until each sequence, gaining ⌊steps·g⌋ tokens in all, has `tokens` more from a fresh start."""
    steps = ceil(tokens / gained_tokens)
    while floor(steps * gained_tokens) < tokens:
        steps += 1
    return steps
