import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from twofold.inference import regimes
from twofold.inference.fleet import (
    LatencyBudget,
    ReplicaCount,
    cold_start_s,
    replicas_power_w,
    throughput_of,
    warm_pool,
)
from twofold.inference.steady import Lengths


@given(
    peak=st.floats(0.01, 1e4),
    limit=st.floats(0.5, 50),
    zones=st.integers(1, 5),
    availability=st.floats(0.9, 0.99999),
)
def test_what_is_left_after_a_zone_carries_the_peak(peak, limit, zones, availability):
    count = ReplicaCount.of(peak, limit, zones=zones, availability_fraction=availability)
    assert sum(count.by_zone) == count.total
    left = count.total - (max(count.by_zone) if zones > 1 else 0)
    assert left >= count.needed
    assert count.needed * limit >= peak


def test_any_traffic_at_all_needs_a_replica():
    assert ReplicaCount.of(1e-12, 1e4).needed == 1
    assert ReplicaCount.of(0.0, 1e4).total == 0


def test_spares_follow_the_binomial_distribution():
    assert ReplicaCount.of(8.0, 10.0, availability_fraction=0.999).spare == 1  # 1 − 0.995 is more than 0.001
    assert ReplicaCount.of(8.0, 10.0, availability_fraction=0.99).spare == 0
    assert ReplicaCount.of(900.0, 10.0, availability_fraction=0.9999).spare >= 3  # of 100, half a one is down


@given(needed=st.integers(1, 1000), ratio=st.floats(1.0, 1e6))
def test_what_an_hour_down_is_worth_takes_the_spares_that_cost_least(needed: int, ratio: float) -> None:
    """Held against the sum of both costs for every number of spares, by SciPy's binomial."""
    sums = [k + ratio * binom.cdf(needed - 1, needed + k, 0.995) for k in range(65)]
    worth = ReplicaCount.availability_worth(needed, 1.0, ratio)
    spare = ReplicaCount.of(9.0 * needed, 10.0, availability_fraction=worth - 1e-12).spare
    assert sums[spare] <= min(sums) * (1.0 + 1e-6) + 1e-6


@pytest.mark.parametrize("availability", [0.5, 0.99, 0.99999])
def test_spares_of_many_replicas_continue_those_of_few(availability: float) -> None:
    few, many = (ReplicaCount.of(n * 9.0, 10.0, availability_fraction=availability) for n in (1000, 1001))
    assert (few.needed, many.needed) == (1000, 1001)
    assert abs(many.spare - few.spare) <= 3  # the normal limit of few failures is a little low in its tail
    assert ReplicaCount.of(1e9, 10.0, availability_fraction=availability).spare > 1e5


@pytest.mark.parametrize("rate_per_s", [9.0, 9e5])
def test_nothing_promised_needs_no_spare(rate_per_s: float) -> None:
    assert ReplicaCount.of(rate_per_s, 10.0, availability_fraction=0.0).spare == 0


def test_no_traffic_needs_no_replica_and_no_limit_is_refused():
    assert ReplicaCount.of(0.0, 3.0).total == 0
    with pytest.raises(ValueError, match="carries nothing"):
        ReplicaCount.of(1.0, 0.0)


def test_cold_start_is_bytes_over_bandwidth_plus_warm_up(replica_of):
    replica = replica_of("llama-3.1-70b", weights="fp8")
    assert cold_start_s(replica, 5e9, 40.0) == pytest.approx(72.6e9 / 5e9 + 40, rel=0.01)
    assert cold_start_s(replica, 1e15, 40.0) == pytest.approx(40, rel=0.01)


def test_a_warm_pool_covers_the_growth_of_a_cold_start():
    assert warm_pool(60.0, 0.5, 10.0) == 3
    assert warm_pool(60.0, 0.0, 10.0) == 0


def test_replicas_add_up_nearly_linearly():
    rate, efficiency = throughput_of([1, 2, 8, 64], 10.0, 40.0)
    assert efficiency[0] == 1
    assert np.all(np.diff(efficiency) < 0)
    assert efficiency[-1] > 0.9
    assert np.allclose(rate, np.array([1, 2, 8, 64]) * 10 * efficiency)


def test_a_device_that_serves_draws_the_measured_share_and_an_idle_one_its_idle_power(replica_of):
    replica = replica_of("llama-3.1-8b", "H100", "fp8", tp=1.0)
    device = replica.cluster.device
    one = ReplicaCount.of(1.0, 2.0)
    watts = [replicas_power_w(replica, batch, one.total) / one.total for batch in (0.0, 0.5, 50.0)]
    assert watts[0] == pytest.approx(device.idle_w)
    assert watts[0] < watts[1] < watts[2] < device.tdp_w
    assert 500 < watts[2] < 600  # H100: 400–690 W published, by model and batch


def test_a_latency_budget_sums_its_stations(replica_of):
    served = regimes.open_loop(replica_of(), Lengths(1000.0, 200.0), 1.0)
    budget = LatencyBudget.of(served, 200.0, edge_rtt_s=0.02, gateway_s=0.004)
    parts = (budget.edge_s, budget.gateway_s, budget.queue_s, budget.prefill_s, budget.decode_s)
    assert budget.total_s == pytest.approx(sum(parts))
    assert budget.total_s == pytest.approx(0.024 + float(served.e2e.mean_s), rel=0.02)
