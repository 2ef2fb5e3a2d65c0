"""A service in the twin as it was measured: step times on their table, starts that slow others, the fit."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.small_service import planned, requests
from twofold.app.proof_scenarios import BURST, KILLED, NAMES, RELEASE, STEADY, Traffic, scenarios_of, scene
from twofold.rehearse.as_measured import FINISHED, Deployed, StepTimes, as_deployed, rehearsed
from twofold.rehearse.step_fit import Measured, fitted, nearest

TIMES = StepTimes(0.006, 0.0005, 0.002, 0.0002, 0.005)
THERE = Deployed(2, 8192, 32, 2048, cold_start_s=10.0)


def traffic(rate_per_s: float = 5.0) -> Traffic:
    return Traffic(requests(), rate_per_s, (1.0, 0.5), 2.0, THERE)


@given(st.integers(1, 64), st.integers(1, 4000), st.floats(0, 900))
def test_a_step_takes_what_its_formula_says(sequences: int, tokens: int, context: float) -> None:
    table = TIMES.table()
    plain = TIMES.base_s + TIMES.sequence_s * sequences
    read = TIMES.prompt_s + TIMES.prompt_token_s * tokens
    assert table.decode_s(sequences, context, 1) == pytest.approx(plain)
    assert table.mixed_s(tokens, tokens / 2, sequences, context) == pytest.approx(plain + read)


def test_the_gate_is_the_planned_one_and_a_lone_request_takes_its_steps() -> None:
    world = as_deployed(planned(), THERE, TIMES)
    assert world.gate == planned().gate.settings and world.beliefs == planned().gate.beliefs
    [alone] = rehearsed(world, scene(STEADY, traffic(), 1, 7, 0).arrivals[:1]).seen
    assert alone.outcome == FINISHED and alone.tpot_s == pytest.approx(
        TIMES.base_s + TIMES.sequence_s, rel=0.01
    )


def test_live_and_twin_are_asked_the_same_and_answers_of_another_run_end_elsewhere() -> None:
    for name in NAMES:
        one = scene(name, traffic(), 100, 7, 0)
        assert one == scene(name, traffic(), 100, 7, 0)
        other = scene(name, traffic(), 100, 7, 1).arrivals
        assert one.arrivals != other
        assert [each._replace(output_tokens=0) for each in one.arrivals] == [
            each._replace(output_tokens=0) for each in other
        ]
        assert one.arrivals != scene(name, traffic(), 100, 8, 0).arrivals
        assert len(one.arrivals) >= 100
        assert {each.output_tokens / (each.output_limit_tokens or 1) <= 1.0 for each in one.arrivals} == {
            True
        }
    assert scenarios_of(400) == NAMES and scenarios_of(399) == (STEADY, KILLED)


def test_a_burst_doubles_the_rate_in_the_middle_third() -> None:
    played = scene(BURST, traffic(), 6000, 7, 0)
    span_s = len(played.arrivals) / 5.0 * 3.0 / 4.0  # at 5, 10, 5 per second
    thirds = [int(3.0 * each.arrival_s / span_s) for each in played.arrivals]
    assert thirds.count(1) == pytest.approx(2 * thirds.count(0), rel=0.1)
    assert thirds.count(1) / (span_s / 3.0) == pytest.approx(10.0, rel=0.05)


def test_a_killed_replica_comes_back_and_a_bad_release_is_rolled_back() -> None:
    killed = scene(KILLED, traffic(), 200, 7, 0)
    ran = rehearsed(as_deployed(planned(), THERE, TIMES, killed.faults), killed.arrivals)
    assert ran.routed_s is not None and ran.routed_s < 1.0
    assert ran.back_s is not None and THERE.cold_start_s <= ran.back_s < THERE.cold_start_s + 5.0
    bad = scene(RELEASE, traffic(20.0), 1500, 7, 0)
    ran = rehearsed(as_deployed(planned(), THERE, TIMES, bad.faults), bad.arrivals)
    assert ran.rolled_back_s is not None and ran.tried_count > 0


def test_one_more_than_the_machine_carries_makes_all_slower_while_it_starts_and_itself() -> None:
    asked, at_s = scene(STEADY, traffic(20.0), 600, 7, 0).arrivals, 5.0
    plain, crowded = (
        rehearsed(
            as_deployed(planned(), THERE, replace(TIMES, crowd_ratio=slow), one_more_s=at_s), asked
        ).seen
        for slow in (1.0, 2.0)
    )
    both = list(zip(plain, crowded, strict=True))
    before = [(one, other) for one, other in both if one.at_s + one.e2e_s < at_s]
    assert all(one == other for one, other in before) and len(before) > 30
    meanwhile = [
        (one.e2e_s, other.e2e_s)
        for one, other in both
        if at_s + 1.0 < one.at_s < at_s + 9.0 and one.outcome == other.outcome == FINISHED
    ]
    assert len(meanwhile) > 30
    assert sum(other for _, other in meanwhile) > 1.5 * sum(one for one, _ in meanwhile)
    first_s, later_s = (
        min(each.at_s for each in seen if each.replica_id == "r2" and each.outcome == FINISHED)
        for seen in (plain, crowded)
    )
    assert at_s + THERE.cold_start_s - 1.0 < first_s < at_s + THERE.cold_start_s + 3.0
    assert later_s > first_s + 2.0  # its start shares the machine too


def test_a_start_in_the_place_of_a_dead_one_is_no_crowd() -> None:
    killed = scene(KILLED, traffic(), 200, 7, 0)
    plain, crowded = (
        rehearsed(
            as_deployed(planned(), THERE, replace(TIMES, crowd_ratio=slow), killed.faults), killed.arrivals
        )
        for slow in (1.0, 3.0)
    )
    assert plain == crowded


def test_the_ratio_of_a_measured_start_slows_steps_while_it_lasts_and_not_the_start() -> None:
    killed = scene(KILLED, traffic(), 200, 7, 0)
    world = as_deployed(planned(), THERE, TIMES, killed.faults)
    plain, slowed = (rehearsed(replace(world, start_slow_ratio=slow), killed.arrivals) for slow in (1.0, 3.0))
    at_s = killed.faults[0].at_s  # type: ignore[union-attr]
    both = list(zip(plain.seen, slowed.seen, strict=True))
    meanwhile = [
        (one, other)
        for one, other in both
        if at_s + 1.0 < one.at_s < at_s + 8.0 and one.outcome == other.outcome == FINISHED
    ]
    assert len(meanwhile) > 5 and all(other.e2e_s > 2.0 * one.e2e_s for one, other in meanwhile)
    before = [(one, other) for one, other in both if one.at_s + one.e2e_s < at_s]
    assert all(one == other for one, other in before) and len(before) > 5
    assert slowed.back_s == pytest.approx(plain.back_s, abs=1.0)


def test_the_fit_finds_times_that_say_the_same() -> None:
    """Not the very parts, which one load hardly tells apart, but what they come to."""
    arrivals = [scene(STEADY, traffic(rate), 50, 7, 0).arrivals for rate in (2.0, 30.0)]
    runs = [Measured(each, rehearsed(as_deployed(planned(), THERE, TIMES), each)) for each in arrivals]
    begin = StepTimes(0.003, 0.002, 0.001, 0.0004, 0.02, 1.5)
    found = fitted(planned(), THERE, runs, begin)
    assert found.off_fraction < 0.1
    other = scene(STEADY, traffic(10.0), 80, 8, 0).arrivals  # that it has not seen
    ours, theirs = (
        sorted(each.e2e_s for each in rehearsed(as_deployed(planned(), THERE, times), other).seen)
        for times in (found.times, TIMES)
    )
    assert ours[40] == pytest.approx(theirs[40], rel=0.08)


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=4))
def test_the_search_finds_the_bottom_of_a_bowl(bottom: list[float]) -> None:
    point, off = nearest(
        lambda at: sum((a - b) ** 2 for a, b in zip(at, bottom, strict=True)), [0.0] * len(bottom)
    )
    assert off < 1e-2 and point == pytest.approx(bottom, abs=0.1)


def test_one_more_beside_all_tells_the_fit_what_a_crowd_takes() -> None:
    crowded = replace(TIMES, crowd_ratio=2.0)
    plain, more = (scene(STEADY, traffic(20.0), count, 7, 0).arrivals for count in (60, 240))
    runs = [Measured(plain, rehearsed(as_deployed(planned(), THERE, crowded), plain))]
    seen = rehearsed(as_deployed(planned(), THERE, crowded, one_more_s=1.0), more)
    runs.append(Measured(more, seen, one_more_s=1.0, until_s=10.0))
    found = fitted(planned(), THERE, runs, replace(TIMES, crowd_ratio=1.3))
    assert found.times.crowd_ratio == pytest.approx(2.0, rel=0.15) and found.off_fraction < 0.1
    alone = fitted(planned(), THERE, runs[:1], replace(TIMES, crowd_ratio=1.3))
    assert alone.times.crowd_ratio == 1.0  # nothing tells of it
