import numpy as np
import pytest

from bench.worlds.batching import BatchingPoint, chosen_batching, sweep_batching
from tests.step_tables import linear
from twofold.twin.serving.engine import Engine
from twofold.twin.serving.engine_types import EngineSettings

TABLE = linear(0.02, 2e-5, 1e-4)


@pytest.fixture(scope="module")
def points() -> tuple[BatchingPoint, ...]:
    random = np.random.default_rng(1)
    arrivals_s = np.cumsum(random.exponential(0.1, 200)).tolist()
    lengths = [(int(prompt), int(answer)) for prompt, answer in random.integers(10, 60, (200, 2))]
    return sweep_batching(
        lambda settings: Engine(TABLE, settings),
        EngineSettings(),
        lengths,
        arrivals_s,
        (4, 16, 64),
        (None, 0.0, 0.5, 2.0),
    )


def of(points: tuple[BatchingPoint, ...], max_batch: int, wait_s: float | None) -> BatchingPoint:
    return next(each for each in points if (each.max_batch, each.wait_s) == (max_batch, wait_s))


def test_every_setting_serves_every_request(points):
    assert len(points) == 12
    assert all(each.figures.finished_count == 200 for each in points)


def test_longer_waits_fill_batches(points):
    busy_s = [of(points, 64, wait_s).busy_s_per_request for wait_s in (0.0, 0.5, 2.0)]
    assert busy_s[0] >= busy_s[1] >= busy_s[2]


def test_continuous_batches_answer_sooner_than_static_ones_of_the_same_size(points):
    for max_batch in (4, 16, 64):
        continuous = of(points, max_batch, None)
        for wait_s in (0.0, 0.5, 2.0):
            static = of(points, max_batch, wait_s)
            assert continuous.latency_s_p95 < static.latency_s_p95
            assert continuous.figures.output_tokens_per_s >= 0.99 * static.figures.output_tokens_per_s


def test_the_front_holds_the_earliest_and_the_cheapest_and_no_beaten_point(points):
    front = sorted((each for each in points if each.on_front), key=lambda each: each.latency_s_p95)
    assert front[0].latency_s_p95 == min(each.latency_s_p95 for each in points)
    assert front[-1].busy_s_per_request == min(each.busy_s_per_request for each in points)
    costs = [each.busy_s_per_request for each in front]
    assert costs == sorted(costs, reverse=True)


def test_the_chosen_point_keeps_its_limits_and_is_the_cheapest_that_does(points):
    limit_s = sorted(each.latency_s_p95 for each in points)[6]
    chosen = chosen_batching(points, e2e_s_p95=limit_s)
    assert chosen is not None and chosen.on_front and chosen.latency_s_p95 <= limit_s
    cheaper = [each for each in points if each.busy_s_per_request < chosen.busy_s_per_request]
    assert all(each.latency_s_p95 > limit_s for each in cheaper)
    tighter = chosen_batching(points, ttft_s_p95=0.2, tpot_s_p95=0.05)
    assert tighter is None or tighter.figures.ttft.p95_s <= 0.2


def test_limits_that_no_setting_keeps_choose_none(points):
    assert chosen_batching(points, ttft_s_p95=1e-6) is None
