"""The serving world as a whole: what goes in comes out, the same again, in fixed memory."""

import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import astuple, replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.core.errors import TraceError, ValueRefusedError
from twofold.policy.gate.settings import Beliefs, GateSettings
from twofold.twin.serving.fault_types import RandomCrashes, ReplicaCrash, ZoneLoss
from twofold.twin.serving.fleet import FleetRun, simulate_fleet
from twofold.twin.serving.fleet_types import (
    Arrival,
    ClassModel,
    ClientModel,
    FleetResult,
    FleetWorld,
    RequestRecord,
    Retry,
    Turn,
)
from twofold.twin.serving.traffic import TrafficModel, generate

Worlds = Callable[..., FleetWorld]
Requests = Callable[..., list[Arrival]]
BUSY = TrafficModel(40.0, gap_cv=2.0)


def run(world: FleetWorld, arrivals: list[Arrival]) -> tuple[FleetResult, list[RequestRecord]]:
    records: list[RequestRecord] = []
    return simulate_fleet(world, arrivals, records.append), records


def test_an_idle_fleet_answers_in_the_engine_s_time_and_two_delays(
    fixed_world: Worlds, steady: Requests
) -> None:
    result, records = run(fixed_world(network_s=0.01), steady(3, 1.0))
    assert [r.ttft_s for r in records] == pytest.approx([0.12] * 3)
    assert [r.e2e_s for r in records] == pytest.approx([0.22] * 3)
    assert result.figures.outcomes == {"finished": 3}
    assert result.figures.output_tokens == 33 and result.figures.input_tokens == 300
    assert result.figures.broke_first is None and result.figures.waits_for is None


def test_without_a_network_delay_nothing_else_changes(fixed_world: Worlds, steady: Requests) -> None:
    result, records = run(fixed_world(network_s=0.0), steady(3, 1.0))
    assert [r.ttft_s for r in records] == pytest.approx([0.1] * 3)
    assert result.figures.finished_count == 3


CLIENTS = (
    ClientModel(),
    ClientModel(Retry.BACKOFF, 3),
    ClientModel(Retry.IMMEDIATE, 4, patience_s=0.4),
    ClientModel(patience_s=0.15, answer_patience_s=0.3),
)
FAULTS = (
    (),
    (ReplicaCrash(1.0, "r0", "process", 1.0),),
    (ReplicaCrash(0.5, "r1", "node", None), ReplicaCrash(1.0, "r0", "kv", 0.5)),
    (ZoneLoss(0.7, "a", 1.0),),
    (RandomCrashes(3000.0, "process", 0.5),),
)


@given(
    client=st.sampled_from(CLIENTS),
    faults=st.sampled_from(FAULTS),
    rate=st.floats(2.0, 80.0),
    limit=st.integers(1, 8),
    seed=st.integers(0, 9),
)
@settings(max_examples=30)
def test_every_request_that_arrives_ends_once_whatever_happens(
    fixed_world: Worlds,  # INV-13, and of the world
    client: ClientModel,
    faults: tuple[ReplicaCrash, ...],
    rate: float,
    limit: int,
    seed: int,
) -> None:
    world = fixed_world(
        2,
        ("a", "b"),
        faults=faults,
        classes=(ClassModel("", client),),
        in_flight_limit=limit,
        warm_up_s=0.2,
        seed=seed,
        first_token_timeout_s=2.0,
        stall_timeout_s=1.0,
    )
    arrivals = list(generate(TrafficModel(rate), seed, 3.0))
    result, records = run(world, arrivals)
    assert (
        len(records) == result.figures.arrived_count == len(arrivals) == sum(result.figures.outcomes.values())
    )
    assert result.figures.waits_for is None
    finished = [record for record in records if record.outcome == "finished"]
    assert len(finished) == result.figures.finished_count == result.figures.outcomes["finished"]
    # Tokens are conserved: each finished answer has the length that the world meant it to have.
    lengths = {arrival.arrival_s: arrival.output_tokens for arrival in arrivals}
    assert all(record.output_tokens == lengths[record.arrival_s] for record in finished)
    assert result.figures.output_tokens == sum(record.output_tokens for record in finished)
    assert result.figures.little_error_fraction < 1e-9
    [figures] = result.classes
    assert (
        sum(figures.outcomes.values()) == figures.arrived_count == sum(a.arrival_s >= 0.2 for a in arrivals)
    )
    assert sum(row.arrived_count for row in result.timeline) == len(arrivals)
    assert sum(row.finished_count for row in result.timeline) == len(finished)


def test_equal_inputs_give_equal_results_to_the_byte(fixed_world: Worlds) -> None:
    world = fixed_world(3, error_fraction=0.05, faults=(RandomCrashes(100.0),), seed=4)
    one, two = (repr(simulate_fleet(world, generate(BUSY, 7, 20.0))) for _ in range(2))
    assert one == two
    assert repr(simulate_fleet(replace(world, seed=5), generate(BUSY, 7, 20.0))) != one


def test_the_time_average_of_open_requests_is_their_rate_times_their_stay(fixed_world: Worlds) -> None:
    result, records = run(fixed_world(2), list(generate(BUSY, 3, 60.0)))
    open_s = sum(row.in_flight_mean * (row.until_s - row.from_s) for row in result.timeline)
    assert open_s == pytest.approx(sum(record.e2e_s for record in records), rel=1e-9)
    assert result.figures.little_error_fraction < 1e-9


def test_percentiles_are_those_of_the_records_to_half_a_percent(fixed_world: Worlds) -> None:
    result, records = run(fixed_world(2), list(generate(BUSY, 3, 60.0)))
    latency = result.classes[0].e2e_s
    assert latency is not None
    stays = sorted(record.e2e_s for record in records if record.outcome == "finished")
    for name, fraction in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        figure, bounds = getattr(latency, name), getattr(latency.interval, name)
        assert figure == pytest.approx(stays[int(fraction * len(stays) - 1e-9)], rel=0.0051)
        assert bounds is None or bounds[0] <= figure <= bounds[1]
    assert latency.mean == pytest.approx(sum(stays) / len(stays))


@pytest.mark.parametrize("seed", range(3))
def test_more_replicas_are_never_worse(fixed_world: Worlds, seed: int) -> None:
    arrivals = list(generate(BUSY, seed, 30.0))
    results = [simulate_fleet(fixed_world(count), arrivals) for count in (1, 2, 4)]
    ttft = [result.classes[0].ttft_s for result in results]
    assert all(figure is not None for figure in ttft)
    means = [figure.mean for figure in ttft if figure is not None]
    # With common random numbers, up to what least-work's misjudgement of lengths may cost.
    assert means[0] * 1.02 >= means[1] and means[1] * 1.02 >= means[2]
    assert (
        results[0].figures.finished_count
        <= results[1].figures.finished_count
        <= results[2].figures.finished_count
    )


def endless(count: int) -> Iterator[Arrival]:
    return (Arrival((n + 1) * 0.02, 100, 3) for n in range(count))


def test_memory_does_not_grow_with_the_number_of_requests(fixed_world: Worlds) -> None:
    world = fixed_world(2, classes=(ClassModel("", ClientModel(patience_s=1.0)),))
    simulate_fleet(world, endless(200))
    peaks = []
    counts = (1200, 2700)
    for count in counts:
        tracemalloc.start()
        simulate_fleet(world, endless(count))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # A request that were kept would take hundreds of bytes; buckets and batches still fill up.
    assert peaks[1] - peaks[0] < 50 * (counts[1] - counts[0])


def test_a_session_asks_on_after_its_answer_and_not_after_a_failure(fixed_world: Worlds) -> None:
    turns = (Turn(1.0, 200, 5), Turn(2.0, 300, 6))
    first = Arrival(0.5, 100, 11, session_id="s", turns=turns)
    result, records = run(fixed_world(network_s=0.0), [first])
    assert [record.arrival_s for record in records] == pytest.approx([0.5, 1.7, 3.84])
    assert [record.output_tokens for record in records] == [11, 5, 6]
    assert result.figures.arrived_count == 3
    failing = fixed_world(error_fraction=1.0)
    assert simulate_fleet(failing, [first]).figures.outcomes == {"finished": 0, "failed: error": 1}


def test_an_endless_session_ends_at_the_horizon(fixed_world: Worlds) -> None:
    def turns() -> Iterator[Turn]:
        while True:
            yield Turn(0.1, 100, 5)

    result = simulate_fleet(fixed_world(horizon_s=10.0), [Arrival(0.0, 100, 5, turns=turns())])
    assert (
        30 < result.figures.arrived_count < 50
        and result.figures.outcomes["finished"] == result.figures.arrived_count
    )


def test_impatient_clients_leave_and_their_work_is_dropped(fixed_world: Worlds, steady: Requests) -> None:
    client = ClientModel(patience_s=0.05)
    result, records = run(fixed_world(classes=(ClassModel("", client),)), steady(5, 1.0))
    assert result.figures.outcomes == {"finished": 0, "left": 5}
    assert [record.e2e_s for record in records] == pytest.approx([0.05] * 5)


def test_naive_retries_multiply_requests_and_backoff_spreads_them(
    fixed_world: Worlds, steady: Requests
) -> None:
    def load(client: ClientModel) -> FleetResult:
        world = fixed_world(1, classes=(ClassModel("", client),), in_flight_limit=4, token_s=0.1)
        return simulate_fleet(world, steady(200, 0.05))

    never, naive, patient = (
        load(client)
        for client in (ClientModel(), ClientModel(Retry.IMMEDIATE, 50), ClientModel(Retry.BACKOFF, 50, 1.0))
    )
    assert never.figures.retry_count == 0
    assert naive.figures.retry_count > 5 * patient.figures.retry_count > 0
    assert patient.figures.finished_count > never.figures.finished_count


def test_a_request_that_can_never_fit_fails_and_holds_nothing(fixed_world: Worlds, steady: Requests) -> None:
    result = simulate_fleet(fixed_world(), [Arrival(1.0, 10, 0), *steady(2, 2.0)])
    assert result.figures.arrived_count == 3 and sum(result.figures.outcomes.values()) == 3


def test_a_fleet_that_is_dead_refuses_everybody_and_ends(fixed_world: Worlds, steady: Requests) -> None:
    world = fixed_world(2, faults=(ReplicaCrash(0.0, "r0"), ReplicaCrash(0.0, "r1")))
    result = simulate_fleet(world, steady(50, 0.2))
    assert result.figures.finished_count == 0 and result.figures.waits_for is None
    assert result.figures.outcomes.get("refused: no-replica", 0) > 40


def test_a_run_that_cannot_end_says_what_it_waits_for(fixed_world: Worlds, steady: Requests) -> None:
    world = fixed_world(1, token_s=1e9, drain_s=100.0, first_token_timeout_s=inf)
    result = simulate_fleet(world, steady(3, 1.0))
    assert result.figures.waits_for is not None
    assert (
        "3 of 3 requests have not ended" in result.figures.waits_for
        and "1 of 1 replicas" in result.figures.waits_for
    )
    assert result.figures.outcomes == {"finished": 0, "open": 3}
    assert result.figures.duration_s == pytest.approx(103.0, abs=6.0)


def test_worlds_that_contradict_themselves_are_refused(fixed_world: Worlds, steady: Requests) -> None:
    with pytest.raises(ValueRefusedError, match="no replicas"):
        simulate_fleet(fixed_world(0), [])
    with pytest.raises(ValueRefusedError, match="one name each"):
        simulate_fleet(fixed_world(classes=(ClassModel("a"), ClassModel("a"))), [])
    with pytest.raises(ValueRefusedError, match="class `b`"):
        simulate_fleet(fixed_world(classes=(ClassModel("a"),)), steady(1, 1.0, class_name="b"))
    with pytest.raises(TraceError, match="request 2 arrives at 1 s, after one at 2 s"):
        simulate_fleet(fixed_world(), [*steady(1, 2.0), *steady(1, 1.0)])
    with pytest.raises(ValueRefusedError, match="no replica is described"):
        simulate_fleet(replace(fixed_world(), models={}), [])


def test_no_arrivals_give_an_empty_result(fixed_world: Worlds) -> None:
    result = simulate_fleet(fixed_world(), [])
    assert result.figures.arrived_count == 0 and result.classes[0].ttft_s is None


def test_beliefs_may_be_off_and_the_world_stays_as_it_is(fixed_world: Worlds) -> None:
    arrivals = list(generate(BUSY, 1, 20.0))
    world = replace(fixed_world(4, gate=GateSettings()), beliefs=Beliefs(0.0001, 0.01, 0.5))
    wrong = replace(world, belief_factor=1.3)
    believed = FleetRun(wrong).gateway.gate.view.beliefs
    assert astuple(believed) == pytest.approx(
        [1.3 * true_s for true_s in astuple(world.beliefs)]
    )  # all of it
    perfect = simulate_fleet(world, arrivals)
    off = simulate_fleet(wrong, arrivals)
    assert off.figures.outcomes == perfect.figures.outcomes
    assert off.figures.input_tokens == perfect.figures.input_tokens


def test_warm_up_is_left_out_of_figures_and_not_of_outcomes(fixed_world: Worlds, steady: Requests) -> None:
    result = simulate_fleet(fixed_world(warm_up_s=5.01), steady(10, 1.0))
    [figures] = result.classes
    assert (figures.arrived_count, figures.finished_count, result.figures.finished_count) == (5, 5, 10)
    latency = figures.ttft_s
    assert latency is not None and latency.count == 5
    assert result.figures.measured_s == pytest.approx(result.figures.duration_s - 5.01)


def test_a_client_whose_answer_broke_asks_again_and_waits_as_long_again(
    fixed_world: Worlds, steady: Requests
) -> None:
    client = ClientModel(Retry.BACKOFF, 3, backoff_s=0.5, patience_s=0.3)
    crash = (ReplicaCrash(1.15, "r0", back_after_s=0.1),)
    gate = GateSettings(probe_every_s=0.05, open_s=0.1, open_s_max=0.1)
    world = fixed_world(
        1, gate=gate, faults=crash, classes=(ClassModel("", client),), start_s=0.1, token_s=0.02
    )
    result, [record] = run(world, steady(1, 1.0))
    assert result.figures.retry_count == 1 and record.outcome == "finished"
    assert record.ttft_s is not None and record.ttft_s > 0.5
