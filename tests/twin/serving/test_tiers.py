"""CPU tiers in the twin: cores that are shared, places that bind, and a line that is named."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.core.errors import ValueRefusedError
from twofold.inference.spreads import LONGEST_RATIO, sigma_of
from twofold.inference.stations import station_latency
from twofold.perf.types import one
from twofold.policy.gate.settings import GateSettings, TierSettings
from twofold.policy.gate.tiers import replica_ids
from twofold.twin.serving.fault_types import SlowTier
from twofold.twin.serving.fleet import simulate_fleet
from twofold.twin.serving.fleet_types import Arrival, ClassModel, FleetResult, FleetWorld, TierModel
from twofold.twin.serving.tiers import TierServer, work_s

WORK_S = 0.1


def behind(
    world: FleetWorld, count: int = 1, limit: int = 1, cores: int = 1, sigma: float = 0.0, line: int = 1000
) -> FleetWorld:
    """The same world behind a tier of so many servers."""
    told = TierSettings("lookup", replica_ids("lookup", count), limit, line, p95_slo_s=1.0)
    longest_s = LONGEST_RATIO * 3.0 * WORK_S
    model = TierModel("lookup", WORK_S, sigma, longest_s, cores)
    return replace(world, gate=replace(world.gate, tiers=(told,)), tiers=(model,))


def poisson(rate_per_s: float, count: int, seed: int = 3) -> list[Arrival]:
    at = np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate_per_s, count))
    return [Arrival(each, 100, 2) for each in at.tolist()]


def run(world: FleetWorld, arrivals: Sequence[Arrival]) -> FleetResult:
    return simulate_fleet(world, arrivals)


def test_what_passes_a_tier_begins_later_by_its_work(fixed_world: Callable[..., FleetWorld]) -> None:
    plain = fixed_world()
    arrivals = [Arrival(1.0 + number, 100, 11) for number in range(5)]
    without, [tier] = run(plain, arrivals), (found := run(behind(plain), arrivals)).figures.tiers
    [ours], [theirs] = found.classes, without.classes
    assert ours.ttft_s is not None and theirs.ttft_s is not None
    assert ours.ttft_s.mean - theirs.ttft_s.mean == pytest.approx(WORK_S + 2 * plain.network_s, abs=1e-3)
    assert (tier.passed_count, tier.wait_s_mean) == (5, 0.0) and not tier.is_bottleneck
    assert tier.busy_fraction == pytest.approx(5 * WORK_S / (5.0 + WORK_S + 2 * plain.network_s))
    assert without.figures.tiers == ()


@pytest.mark.parametrize(("count", "limit", "cores"), [(2, 1, 1), (1, 4, 4), (3, 2, 2)])
def test_latencies_are_those_of_the_closed_form(
    count: int, limit: int, cores: int, fixed_world: Callable[..., FleetWorld]
) -> None:
    places = count * cores
    rate = 0.8 * places / WORK_S
    world = behind(fixed_world(in_flight_limit=1000, places=1000), count, limit, cores, sigma_of(3.0))
    world = replace(world, network_s=1e-5)  # a place is taken until the gateway hears of its end
    [tier] = run(world, poisson(rate, 20_000)).figures.tiers
    told = station_latency(rate, WORK_S, 3.0 * WORK_S, places)
    assert tier.wait_s_mean + tier.work_s_mean == pytest.approx(one(told.mean_s), rel=0.1)
    assert tier.p95_s == pytest.approx(one(told.p95_s), rel=0.15)
    assert tier.busy_fraction == pytest.approx(0.8, rel=0.05)


def test_a_saturated_tier_shows_as_the_tail_and_is_named(fixed_world: Callable[..., FleetWorld]) -> None:
    plain = replace(fixed_world(in_flight_limit=1000, places=1000), classes=(ClassModel("", ttft_s=1.0),))
    arrivals = poisson(15.0, 1500)
    full, ample = (run(behind(plain, count, sigma=0.5), arrivals) for count in (1, 4))
    [named], [at_ease] = full.figures.tiers, ample.figures.tiers
    assert named.is_bottleneck and named.met is False and named.waiting_mean > 10
    assert not at_ease.is_bottleneck and at_ease.met is True
    broke = full.figures.broke_first
    assert broke is not None and broke.signal == "tier lookup" and "CPU tier lookup" in broke.text
    assert ample.figures.broke_first is None
    [late], [early] = full.classes, ample.classes
    assert late.ttft_s is not None and early.ttft_s is not None and late.ttft_s.p95 > 5 * early.ttft_s.p95


def test_servers_that_become_slow_are_named_and_forgotten_when_they_are_not(
    fixed_world: Callable[..., FleetWorld],
) -> None:
    plain = replace(fixed_world(in_flight_limit=1000, places=1000), classes=(ClassModel("", ttft_s=1.0),))
    world = replace(behind(plain, 2), faults=(SlowTier(30.0, 60.0, "lookup", 4.0),))
    slowed, usual = run(world, poisson(10.0, 1200)), run(behind(plain, 2), poisson(10.0, 1200))
    broke = slowed.figures.broke_first
    assert broke is not None and broke.signal == "tier lookup" and 30.0 <= broke.at_s <= 60.0
    assert "CPU tier lookup became 4 times slower at 30 s" in broke.text
    assert usual.figures.broke_first is None
    [late], [early] = slowed.figures.tiers, usual.figures.tiers
    assert late.p95_s > 3 * early.p95_s
    with pytest.raises(ValueRefusedError, match="there is no tier `other`"):
        run(replace(world, faults=(SlowTier(1.0, 2.0, "other", 4.0),)), [])


def test_replicas_that_are_too_few_are_not_put_down_to_a_tier(fixed_world: Callable[..., FleetWorld]) -> None:
    world = replace(fixed_world(count=1, in_flight_limit=1000, places=1, first_s=0.5))
    world = replace(world, classes=(ClassModel("", ttft_s=1.0),))
    result = run(behind(world, count=8), poisson(6.0, 600))
    assert result.figures.broke_first is not None
    assert not result.figures.broke_first.signal.startswith("tier")
    assert not result.figures.tiers[0].is_bottleneck


def test_a_full_line_refuses_and_more_servers_let_more_in(fixed_world: Callable[..., FleetWorld]) -> None:
    arrivals = [Arrival(1.0 + 0.001 * number, 100, 2) for number in range(40)]
    plain = fixed_world(in_flight_limit=1000, places=1000)
    few, more = (run(behind(plain, count, line=5), arrivals).figures for count in (1, 4))
    assert few.outcomes["refused: tier-full"] == 34 and few.tiers[0].refused_count == 34
    assert more.outcomes["refused: tier-full"] < 34


def test_the_same_requests_need_the_same_work_whatever_is_decided() -> None:
    model = TierModel("lookup", WORK_S, sigma_of(3.0))
    drawn = [work_s(model, 1, number, 0) for number in range(4000)]
    assert drawn == [work_s(model, 1, number, 0) for number in range(4000)]
    assert np.mean(drawn) == pytest.approx(WORK_S, rel=0.05)
    assert np.quantile(drawn, 0.95) == pytest.approx(3.0 * WORK_S, rel=0.08)


def test_a_world_and_its_gate_know_the_same_tiers(fixed_world: Callable[..., FleetWorld]) -> None:
    world = fixed_world(gate=GateSettings(tiers=(TierSettings("a", ("a-0",)),)))
    with pytest.raises(ValueRefusedError, match="the gate knows the tiers"):
        run(world, [])


@given(
    cores=st.integers(1, 4),
    works=st.lists(st.tuples(st.floats(0.0, 2.0), st.floats(0.01, 3.0)), min_size=1, max_size=12),
)
def test_cores_lose_no_work_and_nobody_is_faster_than_alone(
    cores: int, works: list[tuple[float, float]]
) -> None:
    server, now_s, came, ended = TierServer(cores), 0.0, {}, {}
    todo = [(sum(gap for gap, _ in works[: number + 1]), own) for number, (_, own) in enumerate(works)]
    while todo or server.next_at_s() is not None:
        at_s = server.next_at_s()
        if todo and (at_s is None or todo[0][0] <= at_s):
            now_s, own = todo.pop(0)
            key = len(came)
            came[key] = now_s, own
            server.start(key, own, now_s)
        else:
            assert at_s is not None
            now_s = at_s
            for key in server.finished(now_s):
                ended[key] = now_s
    assert ended.keys() == came.keys()
    assert server.worked_s == pytest.approx(sum(own for _, own in came.values()))
    for key, (came_s, own) in came.items():
        assert ended[key] - came_s >= own - 1e-6
    busiest_s = max(ended.values()) - came[0][0]
    assert busiest_s * cores >= server.worked_s - 1e-6
