"""What a replica serves under each kind of load: arrays as each number alone, and the laws between kinds."""

from dataclasses import replace

import numpy as np
import pytest

from twofold.answer import loads
from twofold.answer.question import given
from twofold.answer.quick_serve import ServingQuestion, make_replica
from twofold.catalog.catalog import load_catalog
from twofold.inference import regimes
from twofold.inference.latency import Served
from twofold.inference.replica import Replica
from twofold.inference.steady import Lengths
from twofold.perf.constants import load_constants

LENGTHS = Lengths(1155.0, 211.0)
TWO = np.array([2.0, 6.0])
HABITS = regimes.LimitHabits(0.2, 0.5, 0.5, 0.5)


@pytest.fixture(scope="module")
def replica() -> Replica:
    catalog, constants = load_catalog(), load_constants()
    asked = ServingQuestion(catalog.model("llama-3.1-8b"), given("1xH200", catalog, constants), 1155, 211)
    return make_replica(asked, constants)


def kinds(replica: Replica, size: object) -> list[loads.Load]:
    amount: float = size  # type: ignore[assignment]  # a number, or an array of them
    return [
        *(loads.ClosedLoop(amount), loads.OpenLoop(amount), loads.SustainedRate(amount)),
        *(loads.StaticBatch(amount), loads.HeldBatch(amount), loads.MetBatch(amount)),
        loads.SustainedRate(amount, (0.05, 0.02), HABITS),
        loads.Disaggregated(amount, replica, 1.0, 1.0),
    ]


def figures(served: Served) -> np.ndarray:
    found = served.ttft.mean_s, served.tpot.mean_s, served.requests_per_s
    return np.stack(np.broadcast_arrays(*found), axis=-1)


def test_an_array_of_loads_is_served_as_each_alone(replica: Replica) -> None:
    two = replace(replica, tp=np.ones(2))
    for place, together in enumerate(kinds(two, TWO)):
        both = figures(loads.served(two, LENGTHS, together))
        for each, size in zip(both, TWO, strict=True):
            alone = figures(loads.served(replica, LENGTHS, kinds(replica, float(size))[place]))
            # A curve is read off points that reach as far as the largest load.
            assert each == pytest.approx(alone, rel=0.01), together


def test_a_measured_rate_never_saturates_what_served_it(replica: Replica) -> None:
    most = float(loads.served(replica, LENGTHS, loads.Saturation()).requests_per_s)
    arriving = loads.served(replica, LENGTHS, loads.OpenLoop(2.0 * most))
    measured = loads.served(replica, LENGTHS, loads.SustainedRate(2.0 * most))
    assert not np.isfinite(arriving.ttft.mean_s)
    assert np.isfinite(measured.ttft.mean_s)
    assert float(measured.requests_per_s) <= most


@pytest.mark.parametrize("share", [0.96, 0.99, 1.2])
def test_a_counted_run_near_or_above_capacity_is_answered_by_its_own_queue(
    replica: Replica, share: float
) -> None:
    rate = share * float(loads.served(replica, LENGTHS, loads.Saturation()).requests_per_s)
    found = loads.served(replica, LENGTHS, loads.SustainedRate(rate, request_count=2000.0))
    run = regimes.finite_run(replica, LENGTHS, 2000.0, rate)
    assert figures(found) == pytest.approx(figures(run))


def test_a_rate_chosen_within_a_limit_meets_it(replica: Replica) -> None:
    found = loads.served(replica, LENGTHS, loads.SustainedRate(20.0, (0.02, 0.0), HABITS))
    assert float(found.tpot.mean_s) <= float(found.tpot.p99_s) <= 0.02


def test_clients_send_no_more_than_saturation(replica: Replica) -> None:
    most = float(loads.served(replica, LENGTHS, loads.Saturation()).requests_per_s)
    many = loads.served(replica, LENGTHS, loads.ClosedLoop(4096.0))
    assert float(many.requests_per_s) <= most * 1.01


def test_a_step_takes_longer_for_more(replica: Replica) -> None:
    steps = [loads.decode_step(replica, n, 1000.0).total_s for n in (1.0, 64.0)]
    prompts = [loads.prefill_step(replica, n).total_s for n in (512.0, 8192.0)]
    assert steps[0] < steps[1] and prompts[0] < prompts[1]
    slower = replace(replica, cluster=replica.cluster.scaled({"memory_bandwidth": 0.5}))
    assert loads.decode_step(slower, 1.0, 1000.0).total_s > steps[0]
