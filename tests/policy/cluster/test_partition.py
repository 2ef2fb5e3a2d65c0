from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.catalog import PartitionRefused, load_catalog, place_parts
from twofold.policy.cluster.partition import planned_cuts

DEVICES = ["A100-SXM4-40GB", "H100-SXM5-80GB", "H200", "B200", "MI300X"]


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
    plan = planned_cuts(list(rows.values()), wanted, [()] * 3)
    for cut in plan.cuts:
        if cut:
            assert not isinstance(place_parts([rows[name] for name in cut]), PartitionRefused)
    made = Counter(name for cut in plan.cuts for name in cut)
    short = {name for name, count in wanted.items() if made[name] < count}
    assert short == {name for name, _ in plan.refused}


def test_seven_and_one_do_not_go_on_one_device() -> None:
    plan = planned_cuts(list(A100.values()), {"7g.40gb": 1, "1g.5gb": 1}, [()])
    assert plan.cuts == (("7g.40gb",),)
    [(profile, reason)] = plan.refused
    assert profile == "1g.5gb" and "A100-SXM4-40GB has 7" in reason and "8 compute slices" in reason
    assert planned_cuts(list(A100.values()), {"7g.40gb": 1, "1g.5gb": 1}, [(), ()]).refused == ()


@settings(max_examples=40, deadline=None)
@given(WANTED)
def test_a_demand_that_is_met_changes_nothing(wanted: dict[str, int]) -> None:
    rows = list(A100.values())
    plan = planned_cuts(rows, wanted, [()] * 16)
    assert planned_cuts(rows, wanted, plan.cuts).cuts == plan.cuts
    less = {name: count - 1 for name, count in wanted.items() if count}
    assert planned_cuts(rows, less, plan.cuts).cuts == plan.cuts


def test_a_new_part_is_cut_where_least_is_in_use() -> None:
    rows = list(A100.values())
    cuts = (("3g.20gb", "3g.20gb"), ("7g.40gb",), ())
    assert planned_cuts(rows, {"3g.20gb": 2, "7g.40gb": 1, "1g.5gb": 1}, cuts).cuts == (
        *cuts[:2],
        ("1g.5gb",),
    )
    # No room left beside what is wanted: the cut that nobody wants any more goes.
    assert planned_cuts(rows, {"3g.20gb": 2, "1g.5gb": 1}, cuts[:2]).cuts == (cuts[0], ("1g.5gb",))


def test_an_unknown_profile_is_refused_by_name() -> None:
    assert "no such profile" in dict(planned_cuts(list(A100.values()), {"9g": 1}, [()]).refused)["9g"]
    assert "cannot be partitioned" in dict(planned_cuts([], {"9g": 1}, [()]).refused)["9g"]
    assert "no accelerator" in dict(planned_cuts(list(A100.values()), {"1g.5gb": 1}, []).refused)["1g.5gb"]
