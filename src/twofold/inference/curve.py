"""The load curve of a replica under open arrivals, from a lone request to saturation.

It is priced at a few batches that depend on nothing but their number, and is straight between them. So more
of a resource moves each of its points the same way, and nothing that is read off it can move the other way
(INV-2): with batches spread up to what the cache holds, more memory would move the points themselves.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from twofold.inference import steady
from twofold.inference.arrivals import Ends, arrivals_ttft
from twofold.inference.iteration import iteration_s, tokens_per_step
from twofold.inference.latency import NORMAL_P99, Latency, Prompt, Served, answer_latency, served, slot_wait_s
from twofold.inference.replica import Replica
from twofold.inference.sharing import (
    arrivals_tpot,
    heavy_context_tokens,
    met_deviation,
    mix_of,
    token_s,
)
from twofold.perf.types import Floats

Array = NDArray[np.float64]
T = TypeVar("T")
# Neighbouring batches lie this factor apart. Weights hide small batches; in large ones compute overtakes
# them, which bends the curve. Twice as many batches move no limit by 1 %.
SMALL_RATIO, LARGE_RATIO = 2.0 ** (1 / 2), 2.0 ** (1 / 3)
SMALL_COUNT = 10  # steps of the first kind: up to 32
OWN_ROUNDS = 6  # until the batch that is met is known to a millionth


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """A replica priced along batches that arrivals meet. All but `met_sequences` end in an axis of length 1.

    `lengths` are those of all requests, `own` those of the class that looks at the curve.
    """

    replica: Replica
    lengths: steady.Lengths
    own: steady.Lengths
    own_tokens: Floats  # of a prompt of that class, to be computed
    met_sequences: Array  # rising, from 1
    rows: Array  # [quantity, …, batch]: the fields of `_Point` in order, each rising along the batches
    limit_sequences: Floats
    slot_count: Floats  # see `cache_slots`
    most_per_s: Floats  # sustained: the best of all batches up to the limit
    fleet_per_s: Floats = 0.0  # of all replicas behind one gate; no more than one's own rate: it is alone


@dataclass(frozen=True, slots=True)
class _Point(steady.Steps):
    """What is read off the curve at a batch: the steps, and further ones that quantiles look at."""

    launch_s: Floats  # a step that carries next to no prefill
    late_s: Floats  # a step that carries a whole chunk late in a long prompt
    sole_s: Floats  # and one that carries a whole chunk of one prompt
    own_carrying_s: Floats
    own_carried_tokens: Floats
    heavy_s: Floats  # a step without prefill beside longer caches than usual, see `heavy_context_tokens`
    heavy_carrying_s: Floats  # and one with


ROWS = {f.name: row for row, f in enumerate(fields(_Point))}
SHARED = [ROWS[name] for name in ("plain_s", "carrying_s", "heavy_s", "heavy_carrying_s")]


def load_axis(value: T) -> T:
    """A replica, or its lengths, with a last axis of length 1 on every array, ready for a load curve."""
    return with_arrays(value, lambda each: each[..., None])


def with_arrays(value: T, change: Callable[[Array], Array]) -> T:
    """A dataclass, a mapping or an array, with every array in it changed; as it came where it has none."""
    if isinstance(value, int | float | str):  # HOT: most of what a replica holds
        return value
    if isinstance(value, np.ndarray):
        return change(value) if value.ndim else value  # type: ignore[return-value]  # an array again
    if isinstance(value, Mapping):
        keyed = {key: with_arrays(each, change) for key, each in value.items()}
        changed_keys = any(keyed[key] is not value[key] for key in keyed)
        return keyed if changed_keys else value  # type: ignore[return-value]  # a mapping, as it came
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed = {f.name: with_arrays(getattr(value, f.name), change) for f in fields(value)}
    same = all(changed[f.name] is getattr(value, f.name) for f in fields(value))
    return value if same else replace(value, **changed)


def side_by_side(values: Sequence[T], counts: Sequence[int]) -> T:
    """Dataclasses of one kind as one, with so many candidates of each along the last axis but one.

    Numbers that are the same for all stay as they are; words, and numbers by format, are those of the first:
    for what reads curves that are priced already.
    """
    first = values[0]
    if isinstance(first, tuple):
        return tuple(side_by_side(each, counts) for each in zip(*values, strict=True))  # type: ignore[return-value]
    if is_dataclass(first) and not isinstance(first, type):
        parts = {f.name: [getattr(each, f.name) for each in values] for f in fields(first)}
        return replace(first, **{name: side_by_side(each, counts) for name, each in parts.items()})
    if not isinstance(first, int | float | np.ndarray):
        return first
    if not isinstance(first, np.ndarray) and all(
        type(each) is type(first) and each == first for each in values
    ):
        return first  # HOT: as most are
    columns = [np.atleast_2d(np.asarray(each)) for each in values]
    if np.ndim(first) < 2 and all(np.array_equal(columns[0], each) for each in columns):
        return first
    spread = (
        np.broadcast_to(each, (*each.shape[:-2], count, each.shape[-1]))
        for each, count in zip(columns, counts, strict=True)
    )
    return np.concatenate(list(spread), axis=-2)  # type: ignore[return-value]  # an array for numbers


def price_curve(
    replica: Replica, lengths: steady.Lengths, largest_sequences: float, fleet_per_s: Floats = 0.0
) -> LoadCurve:
    """Price the curve up to `largest_sequences`, and as far beyond as its quantiles look.

    Formula  λ(B) = (B−1)/(output·TPOT(B)); what an arrival meets is the smallest batch with that rate
    Why      In a steady state B depends on the rate only through how long a request decodes. Where TPOT grows
             faster than the batch, more in flight carry no more: the rate stays at the best so far.
    Shapes   array fields end in an axis of length 1, which becomes the batches.
    Units    sequences of the whole replica.
    """
    met = _grid(largest_sequences)
    # A whole chunk hides much of what decodes beside it, so that every other batch will do for it.
    half = met[::2]
    steps = steady.steady_steps(replica, lengths, met, 0.0)
    heavy_tokens, attended = heavy_context_tokens(lengths, half), steady.attended_tokens(replica, lengths)
    asked = [
        each(replica, lengths)
        for each in (steady.full_step, steady.sole_step, steady.late_step, steady.launch_step)
    ]
    heavy = (0.0, 0.0, heavy_tokens), (np.asarray(steps.carried_tokens)[..., ::2], attended, heavy_tokens)
    priced = steady.steps_s(replica, half, (*asked, *heavy), np.ndim(steps.plain_s))
    full_s, sole_s, late_s, launch_s, heavy_s, heavy_carrying_s = _straight(half, priced, met)
    gained, output = tokens_per_step(replica), np.maximum(lengths.output_tokens, 1.0)
    plain = np.maximum.accumulate(steps.plain_s, axis=-1)
    launch = np.maximum.accumulate(np.maximum(launch_s, plain), axis=-1)
    carrying = np.maximum.accumulate(np.maximum(steps.carrying_s, launch), axis=-1)
    full = np.maximum.accumulate(np.maximum(full_s, carrying), axis=-1)
    sole = np.maximum.accumulate(np.maximum(sole_s, carrying), axis=-1)
    late = np.maximum.accumulate(np.maximum(late_s, full), axis=-1)
    heavy_s = np.maximum.accumulate(np.maximum(heavy_s, plain), axis=-1)
    share = steps.share_fraction
    mean = np.asarray(((1.0 - share) * plain + share * carrying) / gained, float)
    best = np.maximum.accumulate((met - 1.0) / (output * mean), axis=-1)
    tpot = np.concatenate([mean[..., :1], (met[1:] - 1.0) / (output * best[..., 1:])], axis=-1)
    point = _Point(
        plain, carrying, steps.carried_tokens, share, tpot, full,
        launch, late, sole, carrying, steps.carried_tokens,
        heavy_s, np.maximum.accumulate(np.maximum(heavy_s, np.maximum(carrying, heavy_carrying_s)), axis=-1),
    )  # fmt: skip
    limit = steady.batch_limit(replica, lengths)
    return LoadCurve(
        replica=replica,
        lengths=lengths,
        own=lengths,
        own_tokens=steady.own_input_tokens(replica, lengths),
        met_sequences=met,
        rows=np.stack(np.broadcast_arrays(*(getattr(point, name) for name in ROWS))),
        limit_sequences=steady.sustained_batch(replica, lengths, limit),
        slot_count=steady.cache_slots(replica, lengths),
        most_per_s=_most_per_s(replica, lengths, met, output * mean),
        fleet_per_s=fleet_per_s,
    )


def seen_by(curve: LoadCurve, replica: Replica, own: steady.Lengths) -> LoadCurve:
    """A shared curve as one class sees it: its own prompts, with its own cached prefix, and its own answers.

    `replica` holds that prefix. What it meets, the queue and the steps of the others are those of all.
    """
    met, tokens = curve.met_sequences, steady.own_input_tokens(replica, own)
    per_step = steady.prefill_per_step_tokens(curve.replica, curve.lengths, met)
    carried = steady.carried_tokens(replica, tokens, per_step, met)
    context = curve.lengths.mean_context_tokens
    carrying = iteration_s(replica, carried, steady.attended_tokens(replica, own), met, context).total_s
    rows = curve.rows.copy()
    plain = rows[ROWS["plain_s"]]
    rows[ROWS["own_carrying_s"]] = np.maximum.accumulate(np.maximum(carrying, plain), axis=-1)
    rows[ROWS["own_carried_tokens"]] = carried
    return replace(curve, own=own, own_tokens=tokens, rows=rows)


def served_at(curve: LoadCurve, met_sequences: Floats, rate_per_s: Floats | None = None) -> Served:
    """What an arrival gets that meets `met_sequences`, itself included: at their rate unless one is given.

    Above the sustained rate first tokens never come; what decodes then is a full replica.
    """
    point = _read(curve, met_sequences)
    rate = rate_at(curve, met_sequences, point) if rate_per_s is None else np.asarray(rate_per_s, float)
    utilisation = _utilisation(curve, rate)
    ttft, tpot = _ttft(curve, point, rate, utilisation), _tpot(curve, point, rate)
    batch = np.minimum(met_sequences, np.maximum(curve.limit_sequences, 1.0))
    return served(curve.replica, curve.lengths, point, batch, rate, ttft, tpot, utilisation, curve.own)


def latencies_at(curve: LoadCurve, met_sequences: Floats, metrics: Collection[str]) -> dict[str, Latency]:
    """The latencies of `served_at` that are named, and what they need: for a search that asks many times."""
    point = _read(curve, met_sequences)
    rate, found = rate_at(curve, met_sequences, point), {}
    whole = "e2e" in metrics
    if whole or "ttft" in metrics:
        found["ttft"] = _ttft(curve, point, rate, _utilisation(curve, rate))
    if whole or "tpot" in metrics:
        found["tpot"] = _tpot(curve, point, rate)
    if whole:
        found["e2e"] = answer_latency(curve.own, found["ttft"], found["tpot"])
    return found


def _replica_count(curve: LoadCurve, rate: Floats) -> Floats:
    """Replicas that carry the fleet's requests at so many each. It depends on the load alone (INV-2), and
    the fuller each is, the fewer are left to choose from."""
    return np.maximum(1.0, curve.fleet_per_s / np.maximum(rate, 1e-12))


def _utilisation(curve: LoadCurve, rate: Floats) -> Floats:
    """Of the sustained rate."""
    most = np.asarray(curve.most_per_s)
    return np.where(most > 0, rate / np.where(most > 0, most, 1.0), np.inf)


def _ttft(curve: LoadCurve, point: _Point, rate: Floats, utilisation: Floats) -> Latency:
    """First token with its wait for a slot; above the sustained rate it never comes.

    Why      A gate's least work is largely answers to be given yet, which evens out batches and slots. Among
             those that have as few, it takes one with the fewest prompts (`meeting_fraction`).
    """
    lengths = curve.lengths
    ends = Ends(point.launch_s, point.late_s, steady.longest_ratio(curve.replica, lengths), point.sole_s)
    prompt = None
    if curve.own is not lengths:
        spread = curve.own.input_spread
        prompt = Prompt(curve.own_tokens, spread, point.own_carrying_s, point.own_carried_tokens)
    count = _replica_count(curve, rate)
    first = arrivals_ttft(curve.replica, lengths, point, ends, rate, prompt, count)
    slots = count * np.maximum(np.minimum(curve.limit_sequences, curve.slot_count), 1.0)
    slot_s = slot_wait_s(slots, lengths.output_tokens * point.tpot_s, utilisation, lengths)
    never = np.where(utilisation > 1.0, np.inf, 0.0)
    return Latency(
        first.mean_s + slot_s + never,
        first.p50_s + never,
        first.p95_s + 3.0 * slot_s + never,
        first.p99_s + 4.6 * slot_s + never,
    )


def _tpot(curve: LoadCurve, point: _Point, rate: Floats) -> Latency:
    """Further tokens at a rate, with the batch that one arrival in a hundred meets.

    Formula  B₉₉ = 1 + λ·output·T(B₁) + d, B₁ = 1 + λ·output·T + d, d = `met_deviation`
    Why      A fuller batch takes longer to empty. With x = d ln T / d ln B the variance of a birth-death
             process near its mean is 1/(1 − x) times that of its arrivals, the deviation (1 − x)^−½ ≈ 1 + x.
    """
    mix = mix_of(curve.replica, curve.lengths, point, rate, _replica_count(curve, rate))
    sent, deviation = mix.rate_per_s * mix.output_tokens, met_deviation(mix, point.tpot_s)
    above = deviation + _own_sequences(sent * point.tpot_s, mix.replica_count)
    plain, carrying = _between_batches(
        curve.rows[SHARED[:2]], curve.met_sequences, sent * point.tpot_s + above
    )
    alone = replace(mix, plain_s=plain, carrying_s=np.maximum(carrying, plain), replica_count=1.0)
    slower = token_s(alone, point.tpot_s, 0.0)
    fuller = _between_batches(curve.rows[SHARED], curve.met_sequences, sent * slower + above)
    usual = mix.plain_s, mix.carrying_s, point.heavy_s, point.heavy_carrying_s
    return arrivals_tpot(mix, point.tpot_s, usual, tuple(fuller), slower)


def rate_at(curve: LoadCurve, met_sequences: Floats, point: _Point | None = None) -> Array:
    """Requests/s at which an arrival meets that many: the inverse of `met_at`."""
    return _rate(curve, np.asarray(met_sequences), (point or _read(curve, met_sequences)).tpot_s)


def _rate(curve: LoadCurve, met: Array, tpot_s: Floats) -> Array:
    """Formula  λ = L/(output·TPOT), L the larger of B − 1 and what solves B = L + `_own_sequences`(L)."""
    decode_s, others = curve.lengths.output_tokens * tpot_s, met - 1.0
    scale = 1.0 + 1.0 / np.maximum(curve.fleet_per_s * decode_s, 1e-12)
    among_many = (others + np.sqrt(np.square(others) + 4.0 * scale * others)) / (2.0 * scale)
    return np.maximum(others, among_many) / decode_s


def _own_sequences(in_flight: Floats, replica_count: Floats) -> Floats:
    """By how much the batch that an arrival meets, itself included, is above the mean.

    Formula  1 − (1 − 1/n)·L/(L + 1)
    Why      On one replica who comes at random meets the mean, and is one more. A gate sends it to one of n
             that has fewer than the others, where it is one of the mean; a batch holds one at least.
    """
    return 1.0 - (1.0 - 1.0 / np.asarray(replica_count)) * in_flight / (np.asarray(in_flight) + 1.0)


def met_at(curve: LoadCurve, rate_per_s: Floats) -> Array:
    """The batch that arrivals at a rate meet, itself included: up to the end of the curve.

    Formula  B = (u + λ′·a)/(1 − λ′·b) on the piece where TPOT = a + b·B, λ′ = λ·output, u = `_own_sequences`
    """
    met, tpot = curve.met_sequences, curve.rows[ROWS["tpot_s"]]
    asked = np.asarray(rate_per_s, float)
    shape = np.broadcast_shapes(tpot.shape[:-1], asked.shape[:-1])
    tpot = np.broadcast_to(tpot, (*shape, met.size))
    rates = _rate(curve, met, tpot)
    wanted = np.broadcast_to(np.minimum(asked, rates[..., -1:]), (*shape, 1))
    # Where rounding lets flat rates fall, the first batch that reaches the rate is meant.
    reached = np.maximum.accumulate(rates, axis=-1) >= wanted
    above = np.clip(np.argmax(reached, axis=-1)[..., None], 1, met.size - 1)
    low, high = met[above - 1], met[above]
    slope = (_take(tpot, above) - _take(tpot, above - 1)) / (high - low)
    count, wanted = _replica_count(curve, wanted), wanted * curve.lengths.output_tokens
    start, batch = _take(tpot, above - 1) - slope * low, high
    for _ in range(OWN_ROUNDS):
        own = _own_sequences(wanted * (start + slope * batch), count)
        batch = (own + wanted * start) / np.maximum(1.0 - wanted * slope, 1e-12)
    inside: Array = np.clip(batch, low, high)
    return inside


def _grid(largest_sequences: float) -> Array:
    """Batches from 1 until the quantiles at the first one past the last needed are inside; an odd number."""
    end = LARGE_RATIO * SMALL_RATIO * max(largest_sequences, 1.0)
    # Deviations of a batch that long prompts hold up, and of what that makes of the next.
    end += 5.0 * NORMAL_P99 * np.sqrt(end)
    count = int(np.ceil(np.log(end) / np.log(LARGE_RATIO)))
    small = SMALL_RATIO ** np.arange(SMALL_COUNT)
    large = SMALL_RATIO**SMALL_COUNT * LARGE_RATIO ** np.arange(count)
    grid = np.concatenate([small, large])
    needed = int(np.searchsorted(grid, end)) + 1
    return grid[: needed + 1 - needed % 2]


def _straight(met: Array, values: Array, at: Array) -> Array:
    """`values` at other batches that are the same for all candidates; the last one beyond the end."""
    index, share = _place(met, at)
    return (1.0 - share) * values[..., index] + share * values[..., index + 1]


def _most_per_s(replica: Replica, lengths: steady.Lengths, met: Array, decode_s: Array) -> Floats:
    """The best rate of all batches up to the limit: B/(output·TPOT(B)), on the same straight pieces."""
    limit = np.asarray(steady.sustained_batch(replica, lengths, steady.batch_limit(replica, lengths)))
    best = np.maximum.accumulate(met / decode_s, axis=-1)
    held = np.maximum(limit, 1.0)
    shape = np.broadcast_shapes(best.shape[:-1], held.shape[:-1])
    longest = np.broadcast_to(met / best, (*shape, met.size))
    longest_s = _between(longest, *_place(met, np.broadcast_to(held, (*shape, 1))))
    return np.where(limit > 0, held / longest_s, 0.0)


def _read(curve: LoadCurve, met_sequences: Floats) -> _Point:
    return _Point(*_between_batches(curve.rows, curve.met_sequences, met_sequences))


def _between_batches(rows: Array, grid: Array, met_sequences: Floats) -> Array:
    """Rows of a curve at other batches."""
    met = np.asarray(met_sequences, float)
    shape = np.broadcast_shapes(rows.shape[1:-1], met.shape[:-1])
    rows = np.broadcast_to(rows, (rows.shape[0], *shape, rows.shape[-1]))
    index, share = _place(grid, np.broadcast_to(met, (*shape, met.shape[-1] if met.ndim else 1)))
    return _between(rows, np.broadcast_to(index, (rows.shape[0], *index.shape)), share)


def _place(met: Array, at: Array) -> tuple[NDArray[np.intp], Array]:
    """Which cell of the grid a batch lies in, and how far."""
    cell = np.searchsorted(met, at, side="right") - 1
    index = np.clip(cell, 0, met.size - 2)
    return index, np.clip((at - met[index]) / (met[index + 1] - met[index]), 0.0, 1.0)


def _between(values: Array, index: NDArray[np.intp], share: Array) -> Array:
    return (1.0 - share) * _take(values, index) + share * _take(values, index + 1)


def _take(values: Array, index: NDArray[np.intp]) -> Array:
    return np.take_along_axis(values, index, axis=-1)
