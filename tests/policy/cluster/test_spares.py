import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.cluster import FaultSettings
from twofold.policy.cluster.placement import FreeNodes, Node, NodeUse
from twofold.policy.cluster.spares import (
    is_lemon,
    poisson_tail_fraction,
    recommended_spare_count,
    replacement_for,
    spare_to_keep,
)


def test_a_fleet_as_llama_3_had_wants_a_few_spares() -> None:
    rate = FaultSettings().prior_failures_per_node_s
    counts = [
        recommended_spare_count(2048, rate, repair_s, 0.95) for repair_s in (0.0, 3600.0, 14_400.0, 86_400.0)
    ]
    assert counts == sorted(counts) and counts[0] == 0 and 1 <= counts[2] <= 8 < counts[3] < 24


@given(st.integers(1, 3000), st.floats(1e-9, 1e-4), st.floats(0.0, 1e5), st.floats(0.5, 0.999))
def test_the_recommended_spares_are_enough_and_one_less_is_not(
    node_count: int, rate: float, repair_s: float, confidence: float
) -> None:
    count = recommended_spare_count(node_count, rate, repair_s, confidence)
    mean = node_count * rate * repair_s
    assert 0 <= count <= node_count
    if count < node_count:
        assert 1 - poisson_tail_fraction(mean, count + 1) >= confidence - 1e-9
    if count:
        assert 1 - poisson_tail_fraction(mean, count) < confidence + 1e-9


@given(st.floats(0.001, 50.0), st.integers(0, 120))
def test_a_tail_and_its_rest_are_one(mean: float, least: int) -> None:
    rest = math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(least))
    assert poisson_tail_fraction(mean, least) + rest == pytest.approx(1.0, abs=1e-9)


def test_a_lemon_fails_beyond_chance_and_not_because_the_fleet_is_bad() -> None:
    settings = FaultSettings()
    good, bad = 0.05 / settings.lemon_window_s, 3.0 / settings.lemon_window_s  # failures in a window
    assert is_lemon(4, good, 1000, settings)
    assert not is_lemon(4, bad, 1000, settings)
    assert not is_lemon(settings.lemon_failure_count - 1, 1e-15, 1000, settings)
    # What is too much for one node is chance for the worst of many.
    assert is_lemon(3, good, 10, settings) and not is_lemon(3, good, 10_000, settings)


def test_the_nearest_sound_node_takes_over() -> None:
    failed = Node("failed", 8, ("zone-a", "rail-1"), 0)
    free, held = FreeNodes(), FreeNodes()
    assert replacement_for(failed, 8, {}, free, held) is None
    far = Node("far", 8, ("zone-b", "rail-1"), 8, NodeUse.SPARE)
    zone = Node("zone", 8, ("zone-a", "rail-2"), 8)
    near = Node("near", 8, ("zone-a", "rail-1"), 8, NodeUse.SPARE)
    free.add(zone)
    assert replacement_for(failed, 8, {"far": far}, FreeNodes(), held) is far
    assert replacement_for(failed, 8, {"far": far}, free, held) is zone
    assert replacement_for(failed, 8, {"far": far, "near": near}, free, held) is near
    beside = Node("beside", 8, ("zone-a", "rail-1"), 4)
    free.add(beside)
    assert replacement_for(failed, 4, {"near": near}, free, held) is beside
    held.add(kept := Node("kept", 8, ("zone-a", "rail-1"), 8))
    assert replacement_for(failed, 8, {}, free, held) is kept


def test_spares_are_spread_over_domains() -> None:
    free, spares = FreeNodes(), {}
    for index in range(9):
        free.add(Node(f"n{index}", 8, (f"rail-{index % 3}",), 8))
    for _ in range(3):
        node = spare_to_keep(free, spares)
        assert node is not None
        free.take(node)
        spares[node.node_id] = node
    assert {node.domain for node in spares.values()} == {("rail-0",), ("rail-1",), ("rail-2",)}
