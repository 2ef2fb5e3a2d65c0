"""What serving should have of a pool, and how it is cut."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.catalog.catalog import load_catalog
from twofold.catalog.partitions import PartitionRefused, place_parts
from twofold.policy.cluster.settings import SharingSettings
from twofold.policy.cluster.sharing import DayProfile, ServingPlan, planned_cuts

HOUR_S, DAY_S = 3600.0, 86_400.0
DEVICES = ["A100-SXM4-40GB", "H100-SXM5-80GB", "H200", "B200", "MI300X"]


def by_day(at_s: float) -> int:
    return round(50 - 40 * math.cos(at_s / DAY_S * math.tau))


def after_days(plan: ServingPlan, days: int) -> None:
    for hour in range(24 * days):
        plan.observe(by_day(hour * HOUR_S), hour * HOUR_S)


def test_a_day_that_repeats_is_forecast() -> None:
    plan = ServingPlan(SharingSettings(headroom_fraction=0.0))
    after_days(plan, 3)
    now_s = 3 * DAY_S
    for hour in range(24):
        from_s = now_s + hour * HOUR_S
        assert plan.profile.forecast_count(from_s, from_s + 1.0) == by_day(from_s)


def test_serving_has_its_nodes_before_it_needs_them() -> None:
    settings = SharingSettings(headroom_fraction=0.0, lead_s=2 * HOUR_S)
    plan = ServingPlan(settings)
    after_days(plan, 2)
    now_s = 2 * DAY_S + 6 * HOUR_S
    plan.observe(by_day(now_s), now_s)
    assert plan.wanted_count(0, now_s) == by_day(now_s + settings.lead_s)


def test_a_dip_gives_nothing_back_and_a_night_does() -> None:
    plan = ServingPlan(SharingSettings(headroom_fraction=0.0, release_hold_s=1000.0))
    plan.observe(40, 0.0)
    assert plan.wanted_count(0, 0.0) == 40
    plan.observe(10, 100.0)
    assert plan.wanted_count(40, 100.0) == 40
    plan.observe(40, 600.0)
    assert plan.wanted_count(40, 600.0) == 40
    plan.observe(10, 700.0)
    assert plan.wanted_count(40, 700.0) == 40
    plan.observe(20, 900.0)
    assert plan.wanted_count(40, 900.0) == 40
    plan.observe(10, 1000.0)
    assert plan.wanted_count(40, 1699.0) == 40
    # To the highest of that time, not to what it is just now.
    assert plan.wanted_count(40, 1700.0) == 20


@given(
    st.lists(st.tuples(st.floats(0.0, 3 * DAY_S), st.integers(0, 100)), max_size=30),
    st.sampled_from([700.0, 900.0, 86_400.0, 333.3]),
)
def test_a_plan_never_wants_less_than_is_needed_and_looks_again_later(
    steps: list[tuple[float, int]], bin_s: float
) -> None:
    plan, now_s, granted = ServingPlan(SharingSettings(bin_s=bin_s)), 0.0, 0
    for past_s, count in steps:
        now_s += past_s
        plan.observe(count, now_s)
        granted = plan.wanted_count(granted, now_s)
        assert granted >= math.ceil(count * 1.05 - 1e-6)
        look_s = plan.next_look_at_s(now_s)
        assert look_s is not None and look_s > now_s
    assert len(plan.profile.peak_counts) == math.ceil(DAY_S / bin_s)


def test_a_gap_of_years_is_stepped_over() -> None:
    profile = DayProfile(900.0, 3.0)
    profile.observe(10, 0.0)
    profile.observe(20, 3650 * DAY_S)
    assert profile.forecast_count(3650 * DAY_S + HOUR_S, 3650 * DAY_S + 2 * HOUR_S) == 10


def test_serving_never_gets_more_than_its_limit() -> None:
    plan = ServingPlan(SharingSettings(serving_count_max=30))
    plan.observe(100, 0.0)
    assert plan.wanted_count(0, 0.0) == 30


def rows_of(name: str) -> dict[str, object]:
    catalog = load_catalog()
    return {row.profile: row for row in catalog.partitions(catalog.accelerator(name).name)}


A100 = rows_of("A100-SXM4-40GB")
WANTED = st.dictionaries(st.sampled_from(sorted(A100)), st.integers(0, 4), max_size=4)


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_every_planned_cut_is_legal_and_nothing_is_lost(device: str, data: st.DataObject) -> None:
    rows = rows_of(device)
    wanted = data.draw(st.dictionaries(st.sampled_from(sorted(rows)), st.integers(0, 3), max_size=3))
    planned, refused = planned_cuts(list(rows.values()), wanted, [()] * 3)
    for cut in planned:
        if cut:
            assert not isinstance(place_parts([rows[name] for name in cut]), PartitionRefused)
    made = Counter(name for cut in planned for name in cut)
    short = {name for name, count in wanted.items() if made[name] < count}
    assert short == {name for name, _ in refused}


def test_seven_and_one_do_not_go_on_one_device() -> None:
    planned, refused = planned_cuts(list(A100.values()), {"7g.40gb": 1, "1g.5gb": 1}, [()])
    assert planned == (("7g.40gb",),)
    [(profile, reason)] = refused
    assert profile == "1g.5gb" and "A100-SXM4-40GB has 7" in reason and "8 compute slices" in reason
    assert planned_cuts(list(A100.values()), {"7g.40gb": 1, "1g.5gb": 1}, [(), ()])[1] == ()


@settings(max_examples=40, deadline=None)
@given(WANTED)
def test_a_demand_that_is_met_changes_nothing(wanted: dict[str, int]) -> None:
    rows = list(A100.values())
    planned, _ = planned_cuts(rows, wanted, [()] * 16)
    assert planned_cuts(rows, wanted, planned)[0] == planned
    less = {name: count - 1 for name, count in wanted.items() if count}
    assert planned_cuts(rows, less, planned)[0] == planned


def test_a_new_part_is_cut_where_least_is_in_use() -> None:
    rows = list(A100.values())
    cuts = (("3g.20gb", "3g.20gb"), ("7g.40gb",), ())
    assert planned_cuts(rows, {"3g.20gb": 2, "7g.40gb": 1, "1g.5gb": 1}, cuts)[0] == (*cuts[:2], ("1g.5gb",))
    # No room left beside what is wanted: the cut that nobody wants any more goes.
    assert planned_cuts(rows, {"3g.20gb": 2, "1g.5gb": 1}, cuts[:2])[0] == (cuts[0], ("1g.5gb",))


def test_an_unknown_profile_is_refused_by_name() -> None:
    assert "no such profile" in dict(planned_cuts(list(A100.values()), {"9g": 1}, [()])[1])["9g"]
    assert "cannot be partitioned" in dict(planned_cuts([], {"9g": 1}, [()])[1])["9g"]
    assert "no accelerator" in dict(planned_cuts(list(A100.values()), {"1g.5gb": 1}, [])[1])["1g.5gb"]
