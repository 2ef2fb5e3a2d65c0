import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate.breaker import Circuit
from twofold.policy.gate.events import FailOverZone, ReplicaAdded, RestoreZone
from twofold.policy.gate.fleet_view import FleetView
from twofold.policy.gate.outliers import ZoneWatch, replicas_with_spares
from twofold.policy.gate.settings import Beliefs, GateSettings, ZoneSettings


def fleet() -> FleetView:
    view = FleetView(GateSettings(), Beliefs(0.001, 0.01))
    for number in range(10):
        view.add_replica(ReplicaAdded(f"r{number}", 8, zone="ab"[number % 2]))
    return view


def set_sick(view: FleetView, zone: str, count: int) -> None:
    for index, replica in enumerate(r for r in view.replicas.values() if r.added.zone == zone):
        replica.circuit = Circuit(until_s=9e9 if index < count else None)


def test_a_zone_that_is_almost_all_sick_is_failed_over_and_one_with_some_sick_is_not() -> None:
    view, watch = fleet(), ZoneWatch(ZoneSettings())
    set_sick(view, "a", 3)
    assert watch.tick(view, 0.0) == []
    set_sick(view, "a", 4)
    assert watch.tick(view, 1.0) == [FailOverZone("a")] and watch.tick(view, 2.0) == []


def test_a_zone_is_taken_back_only_after_a_while_without_a_break() -> None:
    view, watch = fleet(), ZoneWatch(ZoneSettings(restore_after_s=30.0))
    set_sick(view, "a", 5)
    watch.tick(view, 0.0)
    set_sick(view, "a", 1)
    assert watch.tick(view, 10.0) == watch.tick(view, 39.0) == []
    set_sick(view, "a", 5)
    assert watch.tick(view, 39.5) == []
    set_sick(view, "a", 1)
    assert watch.tick(view, 41.0) == watch.tick(view, 70.0) == []
    assert watch.tick(view, 71.0) == [RestoreZone("a")] and watch.lost == {}


def test_a_zone_of_which_too_few_are_well_is_not_taken_back() -> None:
    view, watch = fleet(), ZoneWatch(ZoneSettings(restored_fraction=0.5, restore_after_s=30.0))
    set_sick(view, "a", 5)
    watch.tick(view, 0.0)
    set_sick(view, "a", 3)
    assert watch.tick(view, 1.0) == watch.tick(view, 100.0) == []
    set_sick(view, "a", 2)
    assert watch.tick(view, 101.0) == [] and watch.tick(view, 131.0) == [RestoreZone("a")]


def test_a_zone_is_not_given_up_for_one_that_is_given_up_itself() -> None:
    """Probes find most of the lost one well again, but it is not taken back yet: nothing is sent there."""
    view, watch = fleet(), ZoneWatch(ZoneSettings(restore_after_s=30.0))
    set_sick(view, "a", 5)
    assert watch.tick(view, 0.0) == [FailOverZone("a")]
    set_sick(view, "a", 0)
    set_sick(view, "b", 5)
    assert watch.tick(view, 1.0) == []


def test_the_last_zone_is_never_given_up() -> None:
    view, watch = fleet(), ZoneWatch(ZoneSettings())
    set_sick(view, "a", 5)
    set_sick(view, "b", 5)
    assert watch.tick(view, 0.0) == []
    set_sick(view, "b", 2)
    assert watch.tick(view, 1.0) == [FailOverZone("a")]
    set_sick(view, "b", 5)
    assert watch.tick(view, 2.0) == []


def test_replicas_without_a_zone_and_those_that_leave_count_for_nothing() -> None:
    view, watch = fleet(), ZoneWatch(ZoneSettings())
    for replica in view.replicas.values():
        replica.draining = replica.added.zone == "a" and replica.replica_id != "r0"
    view.add_replica(ReplicaAdded("none", 8))
    view.replicas["none"].circuit = Circuit(until_s=9e9)
    set_sick(view, "a", 1)
    assert watch.tick(view, 0.0) == [FailOverZone("a")]


@given(st.integers(0, 300), st.integers(1, 6), st.integers(0, 6))
def test_spares_are_enough_for_the_lost_zones_and_one_less_is_not(needed: int, zones: int, lost: int) -> None:
    def left(total: int) -> int:
        return total - lost * math.ceil(total / zones)

    total = replicas_with_spares(needed, zones, lost)
    if lost == 0 or zones <= lost:
        assert total == needed
    else:
        assert left(total) >= needed and (needed == 0 or all(left(less) < needed for less in range(total)))


@pytest.mark.parametrize("wrong", [{"lost_fraction": 0.0}, {"restore_after_s": -1.0}, {"tick_s": 0.0}])
def test_settings_that_could_not_work_are_our_mistake(wrong: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        ZoneSettings(**wrong)  # type: ignore[arg-type]
