"""Each fault does what it says, to those that it says, for as long as it says, and nothing else."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from twofold.core.errors import ValueRefusedError
from twofold.policy.gate.events import ReplicaStartFailed, StartReplica
from twofold.policy.gate.settings import GateSettings
from twofold.twin.heap import Heap
from twofold.twin.serving.fault_types import (
    ColdStart,
    Drain,
    Fault,
    Partition,
    RandomCrashes,
    Release,
    ReplicaCrash,
    SlowReplica,
    StorageBrownout,
    ThermalThrottle,
    ZoneLoss,
)
from twofold.twin.serving.fleet import simulate_fleet
from twofold.twin.serving.fleet_replicas import Fleet
from twofold.twin.serving.fleet_types import (
    Arrival,
    ClassModel,
    FleetResult,
    FleetWorld,
    RequestRecord,
    Start,
    Storage,
    replica_order,
)

Worlds = Callable[..., FleetWorld]
Requests = Callable[..., list[Arrival]]
SOON = GateSettings(open_s=0.5, open_s_max=0.5)  # a replica that is back is found at once
LONG = 3_000_000.0  # bytes of weights; at 1 MB/s 3 s


def run(world: FleetWorld, arrivals: list[Arrival]) -> tuple[FleetResult, list[RequestRecord]]:
    records: list[RequestRecord] = []
    return simulate_fleet(world, arrivals, records.append), records


def stay(records: list[RequestRecord], from_s: float, until_s: float) -> float:
    """Mean seconds of the answers to what arrived in between."""
    times = [r.e2e_s for r in records if from_s <= r.arrival_s < until_s and r.outcome == "finished"]
    return sum(times) / len(times)


def test_a_fault_that_never_comes_changes_nothing(fixed_world: Worlds, steady: Requests) -> None:
    arrivals = steady(100, 0.05)
    plain, _ = run(fixed_world(), arrivals)
    later, _ = run(fixed_world(faults=(ReplicaCrash(1e6, "r0"),)), arrivals)
    assert repr(later) == repr(plain)


def test_a_crash_costs_one_retry_per_request_in_flight_and_then_the_capacity(
    fixed_world: Worlds, steady: Requests
) -> None:
    world = fixed_world(2, faults=(ReplicaCrash(2.05, "r0", back_after_s=1.0),), start_s=0.5)
    result, records = run(world, steady(200, 0.05))
    # An answer that had begun is lost; one that had not is sent again elsewhere.
    lost = [r for r in records if r.outcome != "finished"]
    assert {r.outcome for r in lost} <= {"failed: broken"} and len(lost) <= 4
    between = {r.replica_id for r in records if 2.3 < r.arrival_s < 3.3}
    after = {r.replica_id for r in records if r.arrival_s > 6.0}
    assert between == {"r1"} and after == {"r0", "r1"}
    assert result.figures.started_count == 1 and result.figures.start_s_mean == pytest.approx(0.5)
    assert result.figures.effects["OpenCircuit"] >= 1 and result.figures.effects["CloseCircuit"] >= 1


@pytest.mark.parametrize("cause", ["process", "kv", "accelerator"])
def test_a_cause_shows_in_how_requests_fail(fixed_world: Worlds, steady: Requests, cause: str) -> None:
    world = fixed_world(1, faults=(ReplicaCrash(2.01, "r0", cause),), first_s=0.1, token_s=0.1)
    _, records = run(world, steady(40, 0.05))
    failed = {"kv": "failed: error"}.get(cause, "failed: broken")
    assert failed in {r.outcome for r in records}


def test_a_node_that_goes_dark_is_noticed_by_time_outs(fixed_world: Worlds, steady: Requests) -> None:
    faults = (ReplicaCrash(2.01, "r0", "node"),)
    world = fixed_world(1, faults=faults, token_s=0.1, stall_timeout_s=3.0, first_token_timeout_s=5.0)
    _, records = run(world, steady(40, 0.05))
    stalled = [r for r in records if r.outcome == "failed: timeout" and r.ttft_s is not None]
    assert stalled and all(r.arrival_s + r.e2e_s == pytest.approx(5.01) for r in stalled)
    silent = [r for r in records if r.outcome == "failed: timeout" and r.ttft_s is None]
    assert silent and all(r.e2e_s <= 5.0 + 1e-9 for r in silent)


def test_a_replica_that_does_not_come_back_is_announced_and_not_paid_for(
    fixed_world: Worlds, steady: Requests
) -> None:
    world = fixed_world(2, faults=(ReplicaCrash(0.01, "r0"),), lost_after_s=2.0)
    result, _ = run(world, steady(200, 0.05))
    assert result.replica_h * 3600.0 == pytest.approx(result.figures.duration_s + 2.01, rel=1e-3)


def test_a_slow_replica_is_slow_while_it_is(fixed_world: Worlds, steady: Requests) -> None:
    world = fixed_world(1, faults=(SlowReplica(3.0, 6.0, "r0", 2.0),), network_s=0.0)
    _, records = run(world, steady(100, 0.1))
    assert stay(records, 0.0, 2.5) == pytest.approx(0.2)
    assert stay(records, 3.0, 5.5) == pytest.approx(0.4)
    assert stay(records, 7.0, 10.0) == pytest.approx(0.2)


def test_heat_slows_its_zone_alone(fixed_world: Worlds, steady: Requests) -> None:
    world = fixed_world(2, ("a", "b"), faults=(ThermalThrottle(0.0, 100.0, 3.0, "b"),), network_s=0.0)
    _, records = run(world, steady(100, 0.2))
    by_replica = {name: {round(r.e2e_s, 6) for r in records if r.replica_id == name} for name in ("r0", "r1")}
    assert by_replica["r0"] == {0.2} and by_replica["r1"] <= {0.6}


def test_a_zone_is_lost_and_starts_cold_when_it_is_back(fixed_world: Worlds, steady: Requests) -> None:
    faults = (ZoneLoss(2.0, "b", 3.0),)
    world = fixed_world(4, ("a", "b"), faults=faults, start_s=1.0, stall_timeout_s=1.0)
    result, records = run(world, steady(200, 0.05))
    assert {r.replica_id for r in records if 3.0 < r.arrival_s < 5.9} == {"r0", "r1"}
    assert {"r2", "r3"} & {r.replica_id for r in records if r.arrival_s > 7.0}
    assert result.figures.started_count == 2
    assert result.figures.broke_first is None or "zone b was lost at 2 s" in result.figures.broke_first.text


@pytest.mark.parametrize("cause", ["process", "node"])
def test_what_was_down_when_its_zone_was_lost_comes_back_with_the_zone(
    fixed_world: Worlds, steady: Requests, cause: str
) -> None:
    faults = (ReplicaCrash(1.0, "r1", cause, 1.5), ZoneLoss(2.0, "b", 3.0))
    world = fixed_world(2, ("a", "b"), faults=faults, start_s=1.0, stall_timeout_s=1.0, gate=SOON)
    result, records = run(world, steady(300, 0.05))
    assert {r.replica_id for r in records if r.arrival_s > 9.0} == {"r0", "r1"}
    assert result.figures.started_count == 1


def test_of_two_losses_of_a_zone_at_once_the_longer_one_counts(fixed_world: Worlds, steady: Requests) -> None:
    faults = (ZoneLoss(1.0, "b", 2.0), ZoneLoss(2.0, "b", 4.0))
    world = fixed_world(2, ("a", "b"), faults=faults, start_s=0.5, stall_timeout_s=1.0, gate=SOON)
    result, records = run(world, steady(300, 0.05))
    assert {r.replica_id for r in records if 2.5 < r.arrival_s < 6.4} == {"r0"}
    assert {r.replica_id for r in records if r.arrival_s > 9.0} == {"r0", "r1"}
    assert result.figures.started_count == 1


def test_what_was_down_when_its_zone_was_lost_for_good_is_announced_and_not_paid_for(
    fixed_world: Worlds, steady: Requests
) -> None:
    faults = (ReplicaCrash(1.0, "r1", "process", 2.0), ZoneLoss(2.0, "b"))
    world = fixed_world(2, ("a", "b"), faults=faults, lost_after_s=1.0)
    result, _ = run(world, steady(200, 0.05))
    assert result.replica_h * 3600.0 == pytest.approx(result.figures.duration_s + 4.0, rel=1e-3)


@pytest.mark.parametrize(("cause", "told_s"), [("process", 3.0), ("node", 13.0), ("power", 13.0)])
def test_a_start_that_dies_is_told_at_once_only_where_somebody_is_left_to_tell(
    fixed_world: Worlds, cause: str, told_s: float
) -> None:
    heap = Heap()
    fleet = Fleet(fixed_world(0, start_s=60.0, lost_after_s=10.0), heap)
    fleet.start(StartReplica("late", "", "", "", ""), 0.0)
    assert fleet.crash(fleet.replicas["late"], cause, None, 3.0) == []
    due = heap.pop_until(59.0)
    assert due is not None and (due[0], due[3]) == (told_s, [ReplicaStartFailed("late")])
    assert heap.pop_until(59.0) is None  # and once


def test_a_partition_ends_and_what_was_said_meanwhile_arrives(fixed_world: Worlds, steady: Requests) -> None:
    world = fixed_world(2, ("a", "b"), faults=(Partition(1.01, 3.0, "b"),), token_s=0.05)
    result, records = run(world, steady(200, 0.05))
    assert result.figures.outcomes["finished"] == 200
    late = [r for r in records if r.replica_id == "r1" and 0.5 < r.arrival_s < 1.01]
    assert late and all(r.arrival_s + r.e2e_s >= 3.0 or r.e2e_s < 0.7 for r in late)
    assert {r.replica_id for r in records if 1.5 < r.arrival_s < 2.9} == {"r0"}
    assert {r.replica_id for r in records if r.arrival_s > 6.0} == {"r0", "r1"}


def test_a_long_partition_breaks_answers_that_had_begun(fixed_world: Worlds, steady: Requests) -> None:
    faults = (Partition(1.01, 60.0, "b"),)
    world = fixed_world(2, ("a", "b"), faults=faults, token_s=0.05, stall_timeout_s=2.0)
    result, _ = run(world, steady(100, 0.05))
    assert result.figures.outcomes["failed: timeout"] >= 1
    assert sum(result.figures.outcomes.values()) == 100


def test_crashes_by_chance_come_at_their_rate(fixed_world: Worlds, steady: Requests) -> None:
    crashes = RandomCrashes(360.0, "process", 0.2)  # one per replica and 10 s
    result, _ = run(fixed_world(4, faults=(crashes,), start_s=0.1), steady(400, 0.25))
    # Each life ends after 10 s in the mean and takes 0.3 s to begin again: 39 expected, ±4 deviations.
    assert 14 <= result.figures.started_count <= 64


def cold(world: FleetWorld, count: int) -> FleetWorld:
    group = replace(world.replicas[0], count=count, start=Start.COLD)
    return replace(world, replicas=(*world.replicas, group))


def test_cold_starts_share_the_store_and_a_brownout_slows_them(fixed_world: Worlds, steady: Requests) -> None:
    def start_s(storage: Storage, *faults: Fault) -> float:
        world = fixed_world(1, weight_bytes=LONG, start_s=1.0, storage=storage, faults=faults)
        result, _ = run(cold(world, 10), steady(600, 0.1))
        assert result.figures.started_count == 10
        return result.figures.start_s_mean

    plenty, shared = start_s(Storage(1e9)), start_s(Storage(1e6))
    assert plenty == pytest.approx(1.0, abs=0.05)
    assert shared == pytest.approx(31.0)  # ten times 3 MB at 1 MB/s, and the warm-up
    assert start_s(Storage(1e6), StorageBrownout(5.0, 15.0, 0.5)) == pytest.approx(36.0)


def test_peers_make_a_mass_start_faster(fixed_world: Worlds, steady: Requests) -> None:
    def start_s(peer_bytes_per_s: float) -> float:
        storage = Storage(1e6, peer_bytes_per_s)
        world = cold(fixed_world(1, weight_bytes=LONG, start_s=1.0, storage=storage), 50)
        return run(world, steady(400, 0.5))[0].figures.start_s_mean

    assert start_s(0.0) == pytest.approx(151.0)
    assert start_s(4e6) == pytest.approx(31.0)  # one ready peer gives four times the store's rate


def test_a_start_in_a_lost_zone_is_no_start(fixed_world: Worlds, steady: Requests) -> None:
    world = cold(fixed_world(1, ("a",), weight_bytes=LONG, start_s=1.0), 1)
    world = replace(
        world,
        replicas=(world.replicas[0], replace(world.replicas[1], order=replica_order("b"))),
        faults=(ZoneLoss(0.5, "b", None),),
    )
    result, _ = run(world, steady(60, 0.1))
    assert result.figures.started_count == 0 and result.figures.finished_count == 60


def test_a_fleet_that_starts_cold_has_lost_no_zone(fixed_world: Worlds, steady: Requests) -> None:
    """The same run as one whose zones are all lost and back at once, but told as what it is."""
    classes = (ClassModel("", ttft_s=0.15),)
    world = fixed_world(4, ("a", "b"), start_s=5.0, weight_bytes=LONG, storage=Storage(1e6), classes=classes)
    lost = (ZoneLoss(0.0, "a", 0.0), ZoneLoss(0.0, "b", 0.0))
    result, records = run(replace(world, faults=(ColdStart(),)), steady(200, 0.2))
    assert result.figures.started_count == 4
    assert records == run(replace(world, faults=lost), steady(200, 0.2))[1]
    assert result.figures.broke_first is not None
    assert result.figures.broke_first.text.endswith("after the fleet started cold at 0 s")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ReplicaCrash(1.0, "r9"), "no replica `r9`"),
        (ReplicaCrash(1.0, "r0", "boredom"), "`boredom` is no cause"),
        (ZoneLoss(1.0, "z"), "no zone `z`"),
        (SlowReplica(5.0, 4.0, "r0", 2.0), "no span of time"),
        (SlowReplica(1.0, 4.0, "r0", 0.0), "not above 0"),
        (StorageBrownout(-1.0, 4.0, 0.5), "no span of time"),
        (RandomCrashes(0.0), "not above 0"),
        (Release(1.0, "v2", error_fraction=2.0), "no fraction"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(fixed_world: Worlds, fault: Fault, said: str) -> None:
    with pytest.raises(ValueRefusedError, match=said):
        simulate_fleet(fixed_world(faults=(fault,)), [])


def test_a_drained_zone_finishes_what_it_has_and_gets_nothing_new(
    fixed_world: Worlds, steady: Requests
) -> None:
    zones = ("zone-1", "zone-2")
    world = fixed_world(4, zones, faults=(Drain(2.0, "zone-1"),), start_s=0.5)
    result, records = run(world, steady(200, 0.05, output_tokens=51))
    assert {r.outcome for r in records} == {"finished"}  # an answer that had begun is not cut
    of_zone = {"r0", "r1"}
    assert any(r.replica_id in of_zone and r.arrival_s + r.e2e_s > 2.0 for r in records)
    assert not {r.replica_id for r in records if r.arrival_s > 2.0} & of_zone
    whole, _ = run(fixed_world(4, zones), steady(200, 0.05, output_tokens=51))
    assert result.replica_h < whole.replica_h  # and is not paid for once it is empty


def test_a_drained_zone_comes_back_cold_under_new_names(fixed_world: Worlds, steady: Requests) -> None:
    zones = ("zone-1", "zone-2")
    world = fixed_world(4, zones, faults=(Drain(2.0, "zone-1", back_after_s=3.0),), start_s=0.5)
    result, records = run(world, steady(200, 0.05))
    assert result.figures.started_count == 2 and result.figures.start_s_mean == pytest.approx(0.5)
    again = [r.arrival_s for r in records if r.replica_id in ("r0-again", "r1-again")]
    assert again and min(again) >= 5.5  # 2 s + 3 s away + 0.5 s to start
    assert {r.outcome for r in records} == {"finished"}


def test_an_empty_zone_is_drained_at_once_and_an_unknown_one_is_refused(
    fixed_world: Worlds, steady: Requests
) -> None:
    zones = ("zone-1", "zone-2")
    result, records = run(fixed_world(4, zones, faults=(Drain(0.0, "zone-1"),)), steady(20, 0.5))
    assert {r.replica_id for r in records} <= {"r2", "r3"}
    assert result.figures.broke_first is None
    with pytest.raises(ValueRefusedError, match="there is no zone `zone-3`"):
        run(fixed_world(4, zones, faults=(Drain(0.0, "zone-3"),)), [])
