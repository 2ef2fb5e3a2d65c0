from dataclasses import replace

import pytest

from bench.fleet_sizes import CASES, fewest, of_size
from twofold.contracts.spec.scenario import Scenario
from twofold.inference.regimes import open_loop
from twofold.rehearse.peak import PLAIN, on_twin, tables_of
from twofold.rehearse.run import RehearsalSettings, pool_tasks, tallied_run


def test_a_small_fleet_is_of_the_size_asked_for_and_holds_on_the_twin_with_as_many_or_one_fewer():
    choice, plan, context = of_size(CASES[0], 3)
    assert choice.fleet.pools[0].count.needed == 3
    assert 2 <= fewest(choice, plan, context) <= 3


@pytest.mark.parametrize("size", [2, 12])
def test_fleets_whose_time_per_token_binds_hold_on_the_twin_with_as_many_or_one_more_or_fewer(size):
    choice, plan, context = of_size(CASES[2], size)
    assert abs(fewest(choice, plan, context) - choice.fleet.pools[0].count.needed) <= 1


@pytest.mark.parametrize("case", [CASES[2], CASES[3]])
def test_time_per_token_of_many_behind_a_gate_is_that_of_the_twin(case):
    choice, plan, context = of_size(case, 20)
    pool, traffic = choice.fleet.pools[0], choice.loads[0].traffic
    fleet = tuple(replace(each, replica_count=20, spare_count=0) for each in plan.pools)
    seen = on_twin(replace(plan, pools=fleet), tables_of(choice, context))[0].tpot_s
    assert seen is not None
    found = open_loop(
        traffic.on(pool.replica), traffic.lengths, pool.peak_per_s / 20, fleet_per_s=pool.peak_per_s
    )
    assert float(found.tpot.mean_s) == pytest.approx(seen.mean, rel=0.06)
    assert float(found.tpot.p95_s) == pytest.approx(seen.p95, rel=0.1)


def test_of_prompts_the_stated_part_is_cached_however_short_the_run():
    """Long prompts share what only long ones asked before: caches that fill within a run lack it."""
    choice, plan, context = of_size(next(each for each in CASES if each.name == "32k, cached"), 5)
    peak = Scenario.model_validate(PLAIN)
    (task,) = pool_tasks(plan, RehearsalSettings(peak, finished_count=500), tables_of(choice, context))
    result, *_ = tallied_run(task.world, task.traffic, 1.0)
    assert result.figures.prefix_hit_fraction == pytest.approx(0.9, abs=0.005)
