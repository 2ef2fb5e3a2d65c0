"""Engines set up as queues of the textbooks give the textbooks' means, within an interval that is narrow."""

from collections import deque
from math import factorial, sqrt

import numpy as np
import pytest

from tests.step_tables import linear
from twofold.twin.serving.engine import Engine
from twofold.twin.serving.engine_types import EngineSettings, EngineWork, Finished, FirstToken
from twofold.twin.serving.step_table import StepTable

TOKEN_S = 1e-6  # fine enough for lengths to stand for continuous service times
ONE = EngineSettings(max_batch=1, chunk_tokens=1 << 40)


def served_by(engine_count: int, table: StepTable, at_s: list[float], prompts: list[int]) -> list[float]:
    """Sojourn of each request at engines that take one at a time, out of one queue before them all."""
    engines = [Engine(table, ONE) for _ in range(engine_count)]
    waiting: deque[int] = deque()
    idle, ends_s, upcoming = list(range(engine_count)), [0.0] * len(at_s), 0
    while True:
        due = [
            (next_s, number)
            for number, each in enumerate(engines)
            if (next_s := each.next_at_s()) is not None
        ]
        next_s, number = min(due, default=(float("inf"), -1))
        now_s = at_s[upcoming] if upcoming < len(at_s) else float("inf")
        if now_s < next_s:
            waiting.append(upcoming)
            upcoming += 1
        elif due:
            now_s = next_s
            ends = [each for each in engines[number].advance(now_s) if isinstance(each, Finished)]
            for each in ends:
                ends_s[each.key] = each.at_s
                idle.append(number)
        else:
            return [end_s - begin_s for end_s, begin_s in zip(ends_s, at_s, strict=True)]
        while idle and waiting:
            key = waiting.popleft()
            engines[idle.pop()].submit(EngineWork(key, prompts[key], 1), now_s)


def mean_and_error(values: list[float], batch_count: int = 20) -> tuple[float, float]:
    """Mean after a tenth of warm-up, and its standard error by batch means: neighbours are alike."""
    kept = np.array(values[len(values) // 10 :])
    means = [float(np.mean(batch)) for batch in np.array_split(kept, batch_count)]
    return float(np.mean(kept)), float(np.std(means, ddof=1)) / sqrt(batch_count)


def assert_agrees(values: list[float], theory: float, most_error_fraction: float = 0.06) -> None:
    mean, error = mean_and_error(values)
    assert error < most_error_fraction * theory, "too short a run to tell"
    assert abs(mean - theory) < 3.5 * error, (mean, theory, error)


def erlang_wait_s(servers: int, rate_per_s: float, service_s: float) -> float:
    """Mean wait of M/M/c (Erlang C)."""
    load = rate_per_s * service_s
    busy = load / servers
    last = load**servers / factorial(servers) / (1 - busy)
    queued = last / (sum(load**k / factorial(k) for k in range(servers)) + last)
    return queued * service_s / (servers - load)


def poisson(random: np.random.Generator, rate_per_s: float, count: int) -> list[float]:
    return np.cumsum(random.exponential(1.0 / rate_per_s, count)).tolist()


@pytest.mark.parametrize("servers", [1, 3])
def test_exponential_servers_with_one_queue_wait_as_erlang_says(servers: int) -> None:
    random, rate_per_s = np.random.default_rng(4), 0.7 * servers
    prompts = np.maximum(1, random.exponential(1 / TOKEN_S, 12_000)).astype(int).tolist()
    table = linear(prefill_token_s=TOKEN_S)
    sojourn_s = served_by(servers, table, poisson(random, rate_per_s, len(prompts)), prompts)
    assert_agrees(sojourn_s, 1.0 + erlang_wait_s(servers, rate_per_s, 1.0))


@pytest.mark.parametrize("busy", [0.4, 0.7])
def test_a_constant_server_waits_half_as_long(busy: float) -> None:
    at_s = poisson(np.random.default_rng(5), busy, 12_000)
    sojourn_s = served_by(1, linear(step_s=1.0), at_s, [1] * len(at_s))
    assert_agrees(sojourn_s, 1.0 + busy / (2 * (1 - busy)))


def test_an_engine_s_own_queue_is_first_come_first_served() -> None:
    """The same M/D/1 with the queue inside."""
    engine, busy = Engine(linear(step_s=1.0), ONE), 0.7
    at_s = poisson(np.random.default_rng(6), busy, 12_000)
    out = []
    for key, now_s in enumerate(at_s):
        out += engine.advance(now_s)
        engine.submit(EngineWork(key, 1, 1), now_s)
    out += engine.advance(1e9)
    ends = [each for each in out if isinstance(each, Finished)]
    assert [each.key for each in ends] == list(range(len(at_s)))
    assert_agrees([each.at_s - at_s[each.key] for each in ends], 1.0 + busy / (2 * (1 - busy)))


def shared_processor(busy: float, count: int, seed: int) -> tuple[list[int], list[float], list[int]]:
    """An engine whose steps take as long as sequences decode: answer lengths, sojourns, and what each met."""
    random, token_s = np.random.default_rng(seed), 0.002
    # Two in ten are long: lengths vary more than exponential ones.
    answers = np.where(random.random(count) < 0.2, 1500, 125)
    answers = np.maximum(1, answers * random.uniform(0.5, 1.5, count)).astype(int)
    at_s = poisson(random, busy / (400 * token_s), count)
    engine = Engine(linear(sequence_s=token_s), EngineSettings(max_batch=1 << 20, chunk_tokens=1 << 30))
    sojourn_s, met = [0.0] * count, []
    out = []
    for key, now_s in enumerate(at_s):
        out += engine.advance(now_s)
        running, waiting, _ = engine.report()
        met.append(running + waiting)
        engine.submit(EngineWork(key, 1, int(answers[key]) + 1), now_s)
    out += engine.advance(1e9)
    for each in out:
        if isinstance(each, Finished):
            sojourn_s[each.key] = each.at_s - at_s[each.key]
    return answers.tolist(), sojourn_s, met


def test_a_shared_processor_slows_all_lengths_alike() -> None:
    """M/G/1-PS: x/(1−ρ) for a request of x, whatever the lengths of all."""
    busy = 0.6
    answers, sojourn_s, _ = shared_processor(busy, 12_000, 7)
    for low, high in ((0, 250), (250, 10_000)):
        stretched = [
            sojourn / (0.002 * answer)
            for answer, sojourn in zip(answers, sojourn_s, strict=True)
            if low <= answer < high
        ]
        assert_agrees(stretched, 1 / (1 - busy))


def test_arrivals_meet_what_little_s_law_says() -> None:
    """Poisson arrivals see averages over time, and these are rate times sojourn."""
    busy = 0.6
    answers, sojourn_s, met = shared_processor(busy, 12_000, 8)
    rate_per_s = busy / (400 * 0.002)
    assert len(answers) == len(met)
    assert_agrees([float(each) for each in met], rate_per_s * mean_and_error(sojourn_s)[0], 0.08)


def test_first_tokens_of_a_lone_engine_come_within_its_step() -> None:
    engine = Engine(linear(step_s=0.5), ONE)
    engine.submit(EngineWork(1, 10, 3), 2.0)
    assert engine.advance(10.0) == [FirstToken(1, 2.5), Finished(1, 3.5, 3)]
