"""Batches take what their rows say: queues agree with theory, and nothing is lost on the way."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from twofold.contracts.rows.measured_rows import ServiceRow
from twofold.core.errors import Place
from twofold.inference.measured import MeasuredService
from twofold.policy.gate.settings import Beliefs, GateSettings
from twofold.twin.serving.engine_types import EngineWork, Finished, FirstToken, Output
from twofold.twin.serving.fault_types import SlowReplica
from twofold.twin.serving.fleet import simulate_fleet
from twofold.twin.serving.fleet_types import Arrival, FleetWorld, ReplicaGroup, ReplicaModel
from twofold.twin.serving.measured import BatchServer

batch = partial(ServiceRow, Place("rows.csv", 2, 1))
ROWS = MeasuredService.of([batch(1, 0.10), batch(4, 0.16), batch(8, 0.30)])


def world(service: MeasuredService, **changes: object) -> FleetWorld:
    model = ReplicaModel(partial(BatchServer, service), in_flight_limit=10_000)
    given_: dict[str, object] = {"network_s": 0.0, **changes}
    return FleetWorld(
        {("", ""): model},
        (ReplicaGroup(1),),
        GateSettings(),
        Beliefs(0.01, 0.0),
        **given_,  # type: ignore[arg-type]
    )


def served(server: BatchServer, arrivals: list[tuple[float, int]]) -> list[Output]:
    """Everything that comes out, asked for only when it is due."""
    out: list[Output] = []
    for at_s, key in arrivals:
        while (next_s := server.next_at_s()) is not None and next_s <= at_s:
            out += server.advance(next_s)
        server.submit(EngineWork(key, 10, 5), at_s)
    while (next_s := server.next_at_s()) is not None:
        out += server.advance(next_s)
    return out


def test_what_waits_is_the_next_batch_and_takes_what_lies_between_its_rows() -> None:
    out = served(BatchServer(ROWS), [(0.0, 0), (0.01, 1), (0.02, 2)])
    ends = {each.key: each.at_s for each in out if isinstance(each, Finished)}
    assert ends == {0: pytest.approx(0.10), 1: pytest.approx(0.22), 2: pytest.approx(0.22)}


def test_no_batch_is_larger_than_the_largest_row() -> None:
    arrivals = [(0.001 * key, key) for key in range(18)]
    ends = sorted(each.at_s for each in served(BatchServer(ROWS), arrivals) if isinstance(each, Finished))
    assert ends[1:9] == [pytest.approx(0.4)] * 8
    assert ends[9:17] == [pytest.approx(0.7)] * 8


def test_a_measured_first_output_comes_before_the_end_and_else_with_it() -> None:
    first = replace(ROWS, ttft_s=(0.02, 0.04, 0.08))
    out = served(BatchServer(first), [(0.0, 0)])
    assert out == [FirstToken(0, pytest.approx(0.02)), Finished(0, pytest.approx(0.10), 5)]
    out = served(BatchServer(ROWS), [(0.0, 0)])
    assert [each.at_s for each in out] == [pytest.approx(0.10)] * 2


@given(
    gaps=st.lists(st.floats(0.0, 0.3), min_size=1, max_size=30),
    cancelled=st.sets(st.integers(0, 29)),
    factor=st.floats(0.25, 4.0),
)
@example(gaps=[0.0, 0.25], cancelled={1}, factor=1.0)  # its last batch runs on for nobody
def test_every_request_comes_out_once_and_in_order_of_time(
    gaps: list[float], cancelled: set[int], factor: float
) -> None:
    server, out = BatchServer(ROWS), []
    now_s = 0.0
    for key, gap in enumerate(gaps):
        now_s += gap
        server.submit(EngineWork(key, 10, 5), now_s)
        if key == len(gaps) // 2:
            server.set_speed(factor, now_s)
        if key in cancelled:
            out += server.advance(now_s)
            server.cancel(key, now_s)
    while (next_s := server.next_at_s()) is not None:
        now_s = max(now_s, next_s)
        out += server.advance(next_s)
    times = [each.at_s for each in out]
    assert times == sorted(times)
    ended = [each.key for each in out if isinstance(each, Finished)]
    assert len(ended) == len(set(ended))
    assert set(range(len(gaps))) - cancelled <= set(ended)
    assert server.report() == (0, 0, 0.0)
    assert 0 < server.busy_s <= now_s + 1e-9  # a batch takes as long where all of it was cancelled


def test_one_at_a_time_it_is_an_m_d_1_queue() -> None:
    """Mean wait ρ·s / 2(1 − ρ), Pollaczek and Khinchine."""
    service_s, rate_per_s = 0.1, 6.0
    single = MeasuredService.of([batch(1, service_s)])
    gaps = np.random.default_rng(3).exponential(1 / rate_per_s, 6_000).cumsum().tolist()
    result = simulate_fleet(world(single), (Arrival(at_s, 10, 1) for at_s in gaps))
    busy = rate_per_s * service_s
    expected_s = service_s + busy * service_s / (2 * (1 - busy))
    (each,) = result.classes
    assert each.e2e_s is not None
    assert each.e2e_s.interval.mean is not None
    assert each.e2e_s.interval.mean[0] <= expected_s <= each.e2e_s.interval.mean[1]
    assert result.figures.utilisation_fraction == pytest.approx(busy, rel=0.02)


@pytest.mark.parametrize("load_fraction", [0.3, 0.6])
def test_the_plan_s_closed_form_is_near_and_on_the_safe_side(load_fraction: float) -> None:
    """Its term for the neighbourhood of saturation makes it half as long again at 60 %."""
    rate_per_s = load_fraction * 8 / 0.30
    gaps = np.random.default_rng(5).exponential(1 / rate_per_s, 3_000).cumsum().tolist()
    result = simulate_fleet(world(ROWS), (Arrival(at_s, 10, 1) for at_s in gaps))
    planned = ROWS.latency(rate_per_s)
    (each,) = result.classes
    assert planned is not None and each.e2e_s is not None
    planned_s = float(np.max(planned.mean_s))
    assert 0.6 * planned_s < each.e2e_s.mean < 1.05 * planned_s


def test_a_slow_replica_takes_longer_for_what_is_left_of_a_batch_too() -> None:
    slow = world(ROWS, faults=(SlowReplica(0.05, 10.0, "r0", 2.0),))
    result = simulate_fleet(slow, [Arrival(0.0, 10, 1)])
    assert result.figures.duration_s == pytest.approx(0.15)  # half as planned, half twice as long
