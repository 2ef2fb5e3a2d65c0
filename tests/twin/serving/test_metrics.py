"""Figures of a run: sums however time is cut, limits that break when they break, and cost."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, pairwise
from math import inf
from operator import attrgetter
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.policy.gate.settings import ClassSettings, GateSettings, QueueSettings
from twofold.twin.serving.fault_types import Fault, Partition, ReplicaCrash, SlowReplica
from twofold.twin.serving.fleet import simulate_fleet
from twofold.twin.serving.fleet_types import (
    Arrival,
    ClassModel,
    ClientModel,
    FleetResult,
    FleetWorld,
    RequestRecord,
    Retry,
)
from twofold.twin.serving.metrics import Metrics
from twofold.twin.serving.metrics_result import broke_first
from twofold.twin.serving.traffic import Lengths, Surge, TrafficModel, generate

Worlds = Callable[..., FleetWorld]
Requests = Callable[..., list[Arrival]]


def run(world: FleetWorld, arrivals: list[Arrival]) -> tuple[FleetResult, list[RequestRecord]]:
    records: list[RequestRecord] = []
    return simulate_fleet(world, arrivals, records.append), records


@given(count=st.integers(1, 30), rate=st.floats(1.0, 40.0), seed=st.integers(0, 5))
@settings(max_examples=10)
def test_buckets_part_the_time_and_lose_nothing_however_few(
    fixed_world: Worlds, count: int, rate: float, seed: int
) -> None:
    arrivals = list(generate(TrafficModel(rate), seed, 20.0))
    result, records = run(fixed_world(2, timeline_count=count, in_flight_limit=6), arrivals)
    rows = result.timeline
    assert len(rows) <= 2 * count
    assert rows[0].from_s == 0.0 and rows[-1].until_s == pytest.approx(result.figures.duration_s)
    assert all(before.until_s == after.from_s for before, after in pairwise(rows))
    assert sum(row.arrived_count for row in rows) == len(arrivals)
    assert sum(row.finished_count for row in rows) == result.figures.finished_count
    for row in rows:
        inside = (min(r.arrival_s + r.e2e_s, row.until_s) - max(r.arrival_s, row.from_s) for r in records)
        open_s = sum(max(span_s, 0.0) for span_s in inside)
        assert row.in_flight_mean * (row.until_s - row.from_s) == pytest.approx(open_s, abs=1e-6)
        begun = [r for r in records if row.from_s <= r.arrival_s + r.e2e_s < row.until_s and r.ttft_s]
        finished = [r for r in begun if r.outcome == "finished"]
        if row.finished_count == len(finished) > 0:
            first_s = [r.ttft_s for r in finished if r.ttft_s is not None]
            assert row.ttft_s_mean == pytest.approx(sum(first_s) / len(first_s))
            assert row.ttft_s_max == pytest.approx(max(first_s))


def test_classes_are_counted_apart_and_add_up(fixed_world: Worlds) -> None:
    classes = (ClassModel("chat", ttft_s=0.15), ClassModel("batch", e2e_s=0.01))
    streams = (
        generate(TrafficModel(10.0, class_name=name), seed, 20.0)
        for seed, name in ((1, "chat"), (2, "batch"))
    )
    result, records = run(
        fixed_world(4, classes=classes), sorted(chain(*streams), key=attrgetter("arrival_s"))
    )
    assert [figures.name for figures in result.classes] == ["chat", "batch"]
    for figures in result.classes:
        own = [r for r in records if r.class_name == figures.name]
        assert figures.arrived_count == len(own)
        assert figures.output_tokens == sum(r.output_tokens for r in own)
        assert figures.goodput_per_s == pytest.approx(
            figures.goodput_fraction * figures.arrived_count / result.figures.measured_s
        )
    chat, batch = result.classes
    within_count = sum(r.ttft_s <= 0.15 for r in records if r.class_name == "chat" and r.ttft_s)
    assert chat.goodput_fraction * chat.arrived_count == pytest.approx(within_count)
    assert batch.goodput_fraction == 0
    assert result.figures.output_tokens == chat.output_tokens + batch.output_tokens
    assert result.figures.goodput_per_s == pytest.approx(chat.goodput_per_s + batch.goodput_per_s)
    assert sum(row.within_slo_count for row in result.timeline) == within_count


def test_what_broke_first_is_the_first_limit_that_did_not_hold(fixed_world: Worlds, steady: Requests) -> None:
    classes = (ClassModel("chat", ttft_s=0.15, e2e_s=1.0),)
    sound = fixed_world(1, classes=classes)
    arrivals = steady(600, 0.05, class_name="chat")
    assert simulate_fleet(sound, arrivals).figures.broke_first is None
    slowed = replace(sound, faults=(SlowReplica(12.0, 20.0, "r0", 3.0),))
    broke = simulate_fleet(slowed, arrivals).figures.broke_first
    assert broke is not None and broke.signal == "slo chat ttft"
    assert 11.0 <= broke.at_s <= 13.0 and broke.value > broke.limit == pytest.approx(0.05)
    assert "replica r0 became 3 times slower at 12 s" in broke.text
    assert broke.at_s >= 12.0  # its bucket may begin before what it broke by


@pytest.mark.parametrize(("late", "broke"), [(12, False), (40, True)])
def test_a_span_that_chance_alone_makes_late_breaks_nothing(late: int, broke: bool) -> None:
    """Of 200 answers 10 may be late; in one of many spans 12 are, without any goal being missed."""
    bucket = SimpleNamespace(kv=0.0, samples=1, waiting=0, ended=200, turned_away=0, failed=0, left=0)
    bucket.done, bucket.late = [200], [late, 0, 0]
    chat = SimpleNamespace(number=0, model=ClassModel("chat", ttft_s=0.5))
    counted = SimpleNamespace(
        timeline=SimpleNamespace(width_s=1.0, buckets=[bucket]), classes=[chat], notes=[]
    )
    assert (broke_first(cast(Metrics, counted)) is not None) == broke


def test_an_overfull_queue_breaks_as_refusals(fixed_world: Worlds) -> None:
    traffic = TrafficModel(5.0, output=Lengths(20.0, 40.0), surges=(Surge(10.0, 20.0, 20.0),))
    result = simulate_fleet(fixed_world(1, in_flight_limit=16), generate(traffic, 1, 30.0))
    assert result.figures.broke_first is not None and result.figures.broke_first.signal == "queue"
    assert 10.0 <= result.figures.broke_first.at_s < 15.0


@given(
    patience_s=st.sampled_from([0.001, 0.05, 1.0, inf]),
    retry=st.sampled_from(Retry),
    rate=st.sampled_from([5.0, 60.0]),
    fault=st.sampled_from([None, ReplicaCrash(5.0, "r0"), SlowReplica(5.0, 20.0, "r0", 9.0)]),
)
@settings(max_examples=12)
def test_where_more_than_a_hundredth_got_no_answer_a_limit_broke_and_its_part_is_a_part(
    fixed_world: Worlds, patience_s: float, retry: Retry, rate: float, fault: Fault | None
) -> None:
    client = ClientModel(retry=retry, attempts_max=4, patience_s=patience_s)
    world = fixed_world(
        1,
        classes=(ClassModel("", client),),
        in_flight_limit=4,
        faults=(fault,) if fault else (),
        drain_s=60.0,
    )
    result = simulate_fleet(world, generate(TrafficModel(rate), 1, 10.0))
    lost_count = (
        result.figures.arrived_count - result.figures.finished_count - result.figures.outcomes.get("open", 0)
    )
    if lost_count > 0.02 * result.figures.arrived_count + 20:
        assert result.figures.broke_first is not None
    if result.figures.broke_first is not None:
        assert result.figures.broke_first.limit < result.figures.broke_first.value <= 1.0


def test_everything_that_befell_at_the_last_moment_is_named(fixed_world: Worlds, steady: Requests) -> None:
    faults = (ReplicaCrash(10.0, "r1"), SlowReplica(10.0, 20.0, "r0", 9.0))
    world = fixed_world(2, classes=(ClassModel("", ttft_s=0.15),), faults=faults)
    broke = simulate_fleet(world, steady(400, 0.05)).figures.broke_first
    assert broke is not None and broke.text.endswith(
        "after replica r1 went down (process) and replica r0 became 9 times slower at 10 s"
    )
    crowd = tuple(ReplicaCrash(10.0, f"r{number}") for number in range(8))
    broke = simulate_fleet(fixed_world(8, faults=crowd, drain_s=60.0), steady(400, 0.05)).figures.broke_first
    assert broke is not None and broke.text.endswith("replica r2 went down (process) and 5 more at 10 s")


def test_a_stopped_run_records_what_is_still_open_once(fixed_world: Worlds, steady: Requests) -> None:
    world = fixed_world(1, faults=(Partition(2.0, inf, ""),), stall_timeout_s=1e6, drain_s=30.0)
    result, records = run(replace(world, first_token_timeout_s=1e6), steady(100, 0.05))
    assert result.figures.waits_for is not None and result.figures.outcomes["open"] > 0
    assert len(records) == result.figures.arrived_count
    assert Counter(record.outcome for record in records) == Counter(dict(result.figures.outcomes))
    assert all(
        record.arrival_s + record.e2e_s == pytest.approx(result.figures.duration_s)
        for record in records
        if record.outcome == "open"
    )


@pytest.mark.parametrize(("rate", "waits"), [(5.0, False), (40.0, True)])
def test_what_the_gate_holds_is_counted_and_probes_are_no_decisions(
    fixed_world: Worlds, rate: float, waits: bool
) -> None:
    gate = GateSettings(queue=QueueSettings(), classes=(ClassSettings("", wait_s_max=5.0),))
    crash = (ReplicaCrash(9.0, "r0", back_after_s=0.5),)
    result = simulate_fleet(
        fixed_world(1, in_flight_limit=4, gate=gate, metrics_every_s=0.5, faults=crash),
        generate(TrafficModel(rate, output=Lengths(10.0, 20.0)), 1, 10.0),
    )
    assert (result.figures.queued_mean > 5.0) is waits
    assert (
        result.figures.decision_count
        == sum(result.figures.effects.values()) - result.figures.effects["Probe"]
    )
    for row in result.timeline:
        assert 0.0 <= row.queued_mean + row.waiting_mean <= result.figures.arrived_count


def test_cost_and_energy_follow_from_time_and_work(fixed_world: Worlds, steady: Requests) -> None:
    world = fixed_world(2, network_s=0.0)
    model = replace(
        world.models["", ""], idle_w=100.0, busy_w=500.0, price_usd_per_h=36.0, accelerator_count=4
    )
    result = simulate_fleet(replace(world, models={("", ""): model}), steady(100, 0.1))
    granted_s = 2 * result.figures.duration_s
    busy_s = 100 * 0.2 / 4  # each answer takes 0.2 s of one place in four
    assert result.figures.cost_usd == pytest.approx(granted_s * 0.01)
    assert result.figures.accelerator_h == pytest.approx(4 * result.replica_h)
    assert result.replica_h * 3600.0 == pytest.approx(granted_s)
    assert result.figures.energy_j == pytest.approx(granted_s * 100.0 + busy_s * 400.0)
    assert result.figures.output_tokens_per_j == pytest.approx(1100 / result.figures.energy_j)
    assert result.figures.utilisation_fraction == pytest.approx(busy_s / granted_s)


def test_an_interval_narrows_with_more_requests_and_is_endless_with_few(fixed_world: Worlds) -> None:
    few, more = (
        simulate_fleet(fixed_world(2, in_flight_limit=16), generate(TrafficModel(10.0), 1, until_s)).classes[
            0
        ]
        for until_s in (4.0, 150.0)
    )
    assert few.e2e_s is not None and few.e2e_s.interval.p99 is None
    assert more.e2e_s is not None and more.e2e_s.interval.p50 is not None
    low, high = more.e2e_s.interval.p50
    assert (high - low) / 2 / more.e2e_s.p50 < 0.2
