"""Single questions: the textbook ring, tails of jitter, FLOPs of fleets, points under the roofline."""

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from twofold.answer.question import given
from twofold.answer.quick_single import (
    estimate_collective,
    estimate_compute,
    estimate_roofline,
    slowest_factor,
)
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.core.errors import InputError
from twofold.perf import collectives
from twofold.perf.constants import Constants, load_constants

GB = 1e9


def test_the_slowest_of_many_normal_ranks_is_what_tables_say() -> None:
    """Medians of the largest of n standard normal deviations (Tippett 1925): 1.499 for 10, 2.462 for 100."""
    assert slowest_factor(1.0, 10, 0.5) - 1 == pytest.approx(1.499, abs=0.001)
    assert slowest_factor(1.0, 100, 0.5) - 1 == pytest.approx(2.462, abs=0.001)
    assert slowest_factor(0.0, 1000, 0.99) == 1.0


@examples(jitter=st.floats(0, 1), ranks=st.integers(2, 20_000), more=st.integers(1, 1000))
def test_more_ranks_and_more_jitter_never_shorten_the_tail(jitter: float, ranks: int, more: int) -> None:
    tail = slowest_factor(jitter, ranks, 0.99)
    assert slowest_factor(jitter, ranks + more, 0.99) >= tail >= slowest_factor(jitter, ranks, 0.5) >= 1
    assert slowest_factor(jitter + 0.1, ranks, 0.99) > tail


@examples(
    operation=st.sampled_from(list(collectives.BY_NAME)),
    payload=st.floats(1e3, 1e11),
    on=st.sampled_from(["8xH100-SXM", "64x8xH100-SXM", "8x1xH100-SXM", "8xL40S"]),
)
def test_an_idle_collective_is_near_the_textbook_and_longer_when_larger(
    operation: str, payload: float, on: str
) -> None:
    machines = given(on, load_catalog(), load_constants())
    small, large = (
        estimate_collective(operation, size, machines, load_constants()) for size in (payload, 2 * payload)
    )
    assert large.idle_s.value > small.idle_s.value
    # Launches and slow starts add to the textbook, which a smooth maximum never undercuts.
    assert small.ring_difference_fraction >= -0.01
    if payload > 1e10:
        assert small.ring_difference_fraction < 0.35


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(catalog: Catalog, constants: Constants) -> None:
    machines = given("64x8xH100-SXM", catalog, constants)
    whole, scatter, gather = (
        estimate_collective(name, 10 * GB, machines, constants).idle_s.value
        for name in ("all_reduce", "reduce_scatter", "all_gather")
    )
    assert whole == pytest.approx(scatter + gather, rel=0.01)


def test_ranks_and_names_that_cannot_be_are_refused(catalog: Catalog, constants: Constants) -> None:
    machines = given("8xH100-SXM", catalog, constants)
    for name, ranks in (("broadcast", 8), ("all_reduce", 1), ("all_reduce", 9)):
        with pytest.raises(InputError):
            estimate_collective(name, GB, machines, constants, ranks)
    assert estimate_collective("AllReduce", GB, machines, constants, 8).operation == "all_reduce"


@examples(days=st.floats(0.1, 1000), mfu=st.floats(0.01, 1), spend=st.floats(1, 1e9))
def test_flops_are_peak_times_share_times_time(days: float, mfu: float, spend: float) -> None:
    machines = given("3125x8xA100-80GB", load_catalog(), load_constants())
    answer = estimate_compute(machines, days * 86400, mfu, spend)
    assert answer.flops == pytest.approx(25_000 * 312e12 * mfu * days * 86400)
    assert answer.usd_per_accelerator_h
    assert answer.usd_per_accelerator_h * answer.accelerator_h == pytest.approx(spend)


@pytest.mark.parametrize("model", ["llama-3.1-70b", "mixtral-8x7b", "deepseek-v3", "llama-3.2-1b"])
def test_points_lie_under_the_roof_and_decode_is_one_flop_a_byte(
    catalog: Catalog, constants: Constants, model: str
) -> None:
    answer = estimate_roofline(catalog.model(model), given("H200", catalog, constants))
    for point in answer.points:
        assert point.flops_per_s <= answer.peak_flops_per_s
        assert point.flops_per_s <= point.flops_per_byte * answer.memory_bytes_per_s * (1 + 1e-9)
        assert (point.flops_per_byte >= answer.ridge_flops_per_byte) == (point.bound == "compute")
    decode = [point.flops_per_byte for point in answer.points if point.name.startswith("decode")]
    assert decode == sorted(decode)
    assert 0.5 < decode[0] < 3.0  # two FLOPs per 16-bit weight, and attention
