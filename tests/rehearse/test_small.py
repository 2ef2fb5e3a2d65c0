"""Rehearsals of seconds keep the laws of queues and caches, and repeat."""

from dataclasses import replace
from functools import cache

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.perf.constants import load_constants
from twofold.rehearse.small import SmallFigures, SmallReplica, SmallWorld
from twofold.verdicts.quantities_serving import replica
from twofold.verdicts.world import World

PLAIN = SmallWorld(rate_per_s=2.0, horizon_s=40.0)


@cache
def card() -> SmallReplica:
    return SmallReplica.of(replica(World(load_catalog(), load_constants()), "llama-3.1-8b", "1xL40S"))


@cache
def figures(asked: SmallWorld = PLAIN) -> SmallFigures:
    return card().rehearsed(asked)


def p95(asked: SmallWorld) -> float:
    found = figures(asked).ttft_s_p95
    assert found is not None
    return found


def test_equal_arguments_give_equal_figures_and_another_seed_others() -> None:
    assert card().rehearsed(PLAIN) == figures()
    assert card().rehearsed(PLAIN, seed=19) != figures()


def test_a_light_load_is_answered_in_time_and_whole() -> None:
    assert figures().late_fraction == figures().refused_fraction == 0.0
    assert figures().answered_per_s == pytest.approx(2.0, rel=0.3)
    assert 0 < figures().busy_fraction <= 1.0


@pytest.mark.parametrize(
    "worse",
    [
        replace(PLAIN, rate_per_s=12.0),
        replace(PLAIN, surge_ratio=6.0),
        replace(PLAIN, batching="static"),
        replace(PLAIN, reserve="context"),
        replace(PLAIN, bulk_per_s=0.5),
    ],
)
def test_more_load_and_coarser_engines_make_first_tokens_later(worse: SmallWorld) -> None:
    assert p95(worse) > p95(PLAIN)


def test_long_requests_apart_leave_short_ones_as_they_are() -> None:
    beside = replace(PLAIN, replica_count=2, bulk_per_s=0.5)
    assert p95(replace(beside, apart=1)) == pytest.approx(p95(PLAIN), rel=0.01)


def test_conversations_find_more_where_their_cache_lies() -> None:
    talk = SmallWorld(replica_count=4, rate_per_s=1.0, horizon_s=60.0, turns_count=6.0)
    spread = replace(talk, routing="round-robin")
    homed = replace(talk, routing="session")
    assert figures(homed).cached_fraction > figures(spread).cached_fraction > 0.0
    assert figures().cached_fraction == 0.0


def test_a_lost_zone_slows_answers_unless_spares_are_left() -> None:
    whole = SmallWorld(replica_count=2, rate_per_s=7.0, horizon_s=40.0, zone_count=2)
    lost = replace(whole, zone_lost=True)
    assert (figures(lost).e2e_s_p95 or 0) > 1.5 * (figures(whole).e2e_s_p95 or 0)
    spared = replace(lost, replica_count=4)
    assert (figures(spared).e2e_s_p95 or 0) < 1.2 * (figures(whole).e2e_s_p95 or 0)
    assert figures(lost).late_fraction > figures(spared).late_fraction


def test_a_scaled_fleet_pays_for_fewer_hours() -> None:
    fixed = SmallWorld(replica_count=3, rate_per_s=1.0, horizon_s=200.0)
    assert figures(replace(fixed, least_count=1)).replica_h < 0.9 * figures(fixed).replica_h
