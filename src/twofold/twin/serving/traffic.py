"""Requests that arrive: made from rates, bursts, days and lengths; one by one, and again from the same seed.

Sources  lengths are lognormal with the mean and 95th percentile that a spec or a trace states; bursts are
         gamma renewals, whose gaps have the stated coefficient of variation (ServeGen finds 1 to 12 per
         client); days are raised cosines, whose busiest moment is the stated ratio over the mean.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import exp, inf, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.twin.serving.fleet_types import Arrival, Turn
from twofold.twin.serving.profiles import HOURS, Profile, hourly_weights

DRAWN_COUNT = 4096  # numbers drawn at once: memory does not grow with the traffic
NORMAL_P95 = 1.6448536
RECENT_COUNT = 1000  # requests that others may repeat: all are equally likely to be
PREFIX_STEP = 1 << 24  # ids of a session's or a prompt's blocks; further ones would be another's


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of one side of the requests."""

    mean_tokens: float
    p95_tokens: float
    max_tokens: int = 1 << 20

    def __post_init__(self) -> None:
        assert 0 < self.mean_tokens < inf and 0 < self.p95_tokens < inf and self.max_tokens >= 1, self

    @property
    def sigma(self) -> float:
        """Of the logarithm: p95/mean = exp(1.645 s − s²/2), its smaller root; 1.645 where there is none."""
        ratio = max(self.p95_tokens / self.mean_tokens, 1.0)
        return NORMAL_P95 - sqrt(max(0.0, NORMAL_P95**2 - 2.0 * log(ratio)))

    def drawn(self, generator: np.random.Generator) -> Iterator[int]:
        """Whole tokens from 1 to the most, without end."""
        sigma = self.sigma
        middle = log(self.mean_tokens) - sigma**2 / 2.0
        while True:
            tokens = np.exp(generator.normal(middle, sigma, DRAWN_COUNT))
            yield from np.clip(np.rint(tokens), 1, self.max_tokens).astype(int).tolist()


@dataclass(frozen=True, slots=True)
class Surge:
    """The rate is `factor` times as high for a while."""

    from_s: float
    until_s: float
    factor: float


@dataclass(frozen=True, slots=True)
class Sessions:
    """Requests come as conversations: each turn holds all that was said before."""

    turns_mean: float = 5.0  # geometric
    think_s_mean: float = 20.0  # exponential, from an answer to the next request


@dataclass(frozen=True, slots=True)
class TrafficModel:
    """One class's traffic."""

    rate_per_s: float  # requests, in the mean over the profile
    input: Lengths = Lengths(1155.0, 4083.0)  # Azure 2023, conversations
    output: Lengths = Lengths(211.0, 451.0)
    class_name: str = ""
    gap_cv: float = 1.0  # of the gaps between arrivals: 1 is Poisson, more comes in clumps
    profile: Profile = Profile.FLAT
    peak_ratio: float = 2.0  # of the profile, over its mean
    day_s: float = 86400.0  # how long a day of it takes
    surges: tuple[Surge, ...] = ()
    tenants: tuple[tuple[str, float], ...] = ()  # names and shares; none: one without a name
    shared_prefix_fraction: float = 0.0  # of the input tokens: a prompt that many requests begin with
    prompt_count: int = 4  # different such prompts
    block_tokens: int = 512
    sessions: Sessions | None = None
    zones: tuple[str, ...] = ()  # where requests come from, evenly
    repeats_fraction: float = 0.0  # that ask what one of the last `RECENT_COUNT` others asked

    def __post_init__(self) -> None:
        assert self.rate_per_s > 0 and self.gap_cv > 0 and self.peak_ratio >= 1 and self.day_s > 0, self
        assert 0 <= self.shared_prefix_fraction < 1 and self.prompt_count >= 1, self

    def shared_blocks(self, tokens: int) -> int:
        """Of a prompt, in proportion, so that this part of all input tokens is shared, as a plan has it: of
        one of fixed length the short ones would lack a part, the long ones share ever less of theirs."""
        if self.sessions is not None:  # what all of them begin with
            return int(self.shared_prefix_fraction * self.input.mean_tokens) // self.block_tokens
        shared = round(self.shared_prefix_fraction * tokens / self.block_tokens)
        return min(shared, tokens // self.block_tokens)

    @property
    def shared_prompts(self) -> list[tuple[int, ...]]:
        """Blocks that requests begin with, as far as the longest ones do: what steady caches hold."""
        blocks = self.shared_blocks(self.input.max_tokens)
        firsts = range(0, self.prompt_count * PREFIX_STEP, PREFIX_STEP)
        return [tuple(range(first, first + blocks)) for first in firsts] if blocks else []


def generate(model: TrafficModel, seed: int, until_s: float, from_s: float = 0.0) -> Iterator[Arrival]:
    """Arrivals of one class in order of time; equal arguments give equal arrivals.

    Each kind of number has a generator of its own, so that another rate leaves the lengths as they are.
    """
    times, inputs, outputs, rest = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(4))
    input_tokens, output_tokens = model.input.drawn(inputs), model.output.drawn(outputs)
    names = [name for name, _ in model.tenants]
    shares = np.array([share for _, share in model.tenants])
    zone_count = max(len(model.zones), 1)
    chances = _endless(lambda: rest.random((DRAWN_COUNT, 3)))
    share = 1.0 / model.sessions.turns_mean if model.sessions is not None else 1.0
    ends = np.cumsum(shares / shares.sum()) if names else shares
    repeated = _Repeats(model, np.random.default_rng((seed, 1))).asked if model.repeats_fraction else None
    for number, at_s in enumerate(arrival_times(model, times, from_s, until_s, share)):
        of_tenant, of_prompt, of_zone = next(chances)
        tenant = names[int(np.searchsorted(ends, of_tenant))] if names else ""
        zone = model.zones[int(of_zone * zone_count)] if model.zones else ""
        first = int(of_prompt * model.prompt_count) * PREFIX_STEP
        tokens = next(input_tokens)
        base = Arrival(at_s, tokens, next(output_tokens), model.class_name, tenant, zone=zone)
        if model.sessions is None:
            drawn = base._replace(prefix_blocks=tuple(range(first, first + model.shared_blocks(tokens))))
            yield drawn if repeated is None else repeated(drawn)
        else:
            yield _conversation(model, base, number, first, seed)


def arrival_times(
    model: TrafficModel, generator: np.random.Generator, from_s: float, until_s: float, share: float = 1.0
) -> Iterator[float]:
    """When they come: gamma gaps of mean 1 on a clock that runs as fast as the rate.

    Why      On such a clock the stream is stationary, so a day's shape changes how many come and not how
             clumped they are; thinning would make a clumped stream Poisson where it is thin.
    """
    shape = 1.0 / model.gap_cv**2
    gaps = _endless(lambda: generator.gamma(shape, 1.0 / shape, DRAWN_COUNT))
    wanted = next(gaps)
    for begin_s, end_s, rate in rate_pieces(model, from_s, until_s):
        ahead = (end_s - begin_s) * rate * share
        while wanted <= ahead:
            yield begin_s + wanted / (rate * share)
            wanted += next(gaps)
        wanted -= ahead


def rate_pieces(model: TrafficModel, from_s: float, until_s: float) -> Iterator[tuple[float, float, float]]:
    """From when, until when, and the rate between: hours of the profile, cut at the surges' edges."""
    hour_s = model.day_s / HOURS
    week = hourly_weights(model.profile, model.peak_ratio)
    edges = sorted(
        {s for surge in model.surges for s in (surge.from_s, surge.until_s) if from_s < s < until_s}
    )
    begin_s = from_s
    while begin_s < until_s:
        hour = int((begin_s + 1e-9 * hour_s) // hour_s)
        end_s = until_s if model.profile is Profile.FLAT else min((hour + 1) * hour_s, until_s)
        for a_s, b_s in pairwise([begin_s, *(s for s in edges if begin_s < s < end_s), end_s]):
            rate = model.rate_per_s * week[hour % len(week)]
            for surge in model.surges:
                if surge.from_s <= a_s < surge.until_s:
                    rate *= surge.factor
            if rate > 0.0:
                yield a_s, b_s, rate
        begin_s = end_s


class _Repeats:
    """Makes a share of requests ask what others of their tenant asked. Mutable: it remembers the last ones.

    It draws from a generator of its own, so that another share leaves the other requests as they are.
    """

    def __init__(self, model: TrafficModel, generator: np.random.Generator) -> None:
        self._fraction, self._generator = model.repeats_fraction, generator
        self._recent: deque[Arrival] = deque(maxlen=RECENT_COUNT)
        self._new_count = 0

    def asked(self, drawn: Arrival) -> Arrival:
        """The request as it is, or at its time what an earlier one asked."""
        repeats, which = self._generator.random(2)
        if self._recent and repeats < self._fraction:
            return self._recent[int(which * len(self._recent))]._replace(arrival_s=drawn.arrival_s)
        self._new_count += 1
        drawn = drawn._replace(answer_key=f"{drawn.class_name} {self._new_count}")
        self._recent.append(drawn)
        return drawn


def _conversation(model: TrafficModel, base: Arrival, number: int, first: int, seed: int) -> Arrival:
    """A session's first request, with the others to come: each holds all that was said before."""
    assert model.sessions is not None
    sessions, generator = model.sessions, np.random.default_rng((seed, number))

    def blocks(tokens: int) -> tuple[int, ...]:
        """Ids of all whole blocks: the shared prompt's, then the session's own."""
        count = min(tokens // model.block_tokens, PREFIX_STEP)
        shared, own = min(model.shared_blocks(tokens), count), (model.prompt_count + number) * PREFIX_STEP
        return (*range(first, first + shared), *range(own, own + count - shared))

    def turns() -> Iterator[Turn]:
        said = base.input_tokens + base.output_tokens
        count = int(generator.geometric(1.0 / sessions.turns_mean))
        outputs, inputs = _some(model.output, generator), _some(model.input, generator)
        for _ in range(count - 1):
            tokens = min(said + next(inputs), model.input.max_tokens)
            if tokens <= said:  # the context is full
                return
            answer = next(outputs)
            yield Turn(generator.exponential(sessions.think_s_mean), tokens, answer, blocks(tokens))
            said = tokens + answer

    name = f"{model.class_name or 'session'}-{number}"
    return base._replace(session_id=name, prefix_blocks=blocks(base.input_tokens), turns=turns())


def _some(lengths: Lengths, generator: np.random.Generator) -> Iterator[int]:
    """As `drawn`, one at a time: a session needs few."""
    sigma = lengths.sigma
    middle = log(lengths.mean_tokens) - sigma**2 / 2.0
    while True:
        yield min(max(round(exp(generator.normal(middle, sigma))), 1), lengths.max_tokens)


def _endless(draw: Callable[[], NDArray[Any]]) -> Iterator[Any]:
    """One number, or row of numbers, after the other of arrays that are drawn anew without end."""
    while True:
        yield from draw().tolist()
