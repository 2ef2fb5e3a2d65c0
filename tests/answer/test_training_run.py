"""The run around a step: sums, and how length, writes, price and headroom move it."""

from collections.abc import Callable, Mapping

import pytest

from twofold.answer.question import Variation, given
from twofold.answer.training_estimate import TrainingQuestion, estimate_training
from twofold.answer.training_run import RunEstimate
from twofold.catalog.catalog import Catalog
from twofold.core.errors import InfeasibleError
from twofold.perf.constants import Constants
from twofold.training.job import TrainingJob

Ask = Callable[..., RunEstimate]


@pytest.fixture
def run_of(catalog: Catalog, constants: Constants) -> Ask:
    def ask(
        price_usd_per_h: float | None = None,
        tokens: float = 1e12,
        write_within_s: float = 60.0,
        stall_s: float | None = None,
        headroom: Mapping[str, float] | None = None,
        on: str = "16x8xH100-SXM",
        batch: int = 512,
    ) -> RunEstimate:
        job = TrainingJob(catalog.model("llama-3.1-8b"), "pretrain", 8192, batch)
        variation = Variation(price_usd_per_h=price_usd_per_h)
        machines = given(on, catalog, constants, variation)
        saving = {"write_within_s": write_within_s, "stall_s": stall_s}
        question = TrainingQuestion(job, machines, tokens=tokens, headroom=headroom or {}, **saving)
        run = estimate_training(question, constants).run
        assert run
        return run

    return ask


def test_the_run_is_compute_and_writes_and_failures(run_of: Ask) -> None:  # INV-1
    run = run_of()
    parts_s = run.compute_s.value + run.checkpoint_s.value + run.failure_s.value
    assert parts_s == pytest.approx(run.wall_s.value)
    assert run.goodput_fraction.value == pytest.approx(run.compute_s.value / run.wall_s.value)
    assert run.base_accelerator_h.value == pytest.approx(run.wall_s.value / 3600 * 128)
    assert run.steps * 512 * 8192 >= run.tokens > (run.steps - 1) * 512 * 8192


def test_twice_the_tokens_take_twice_the_run(run_of: Ask) -> None:
    once, twice = run_of(), run_of(tokens=2e12)
    assert twice.wall_s.value == pytest.approx(2 * once.wall_s.value, rel=1e-3)
    assert twice.energy_j.value == pytest.approx(2 * once.energy_j.value, rel=1e-3)
    assert twice.checkpoints.size_bytes == once.checkpoints.size_bytes


def test_headroom_is_bought_on_top(run_of: Ask) -> None:
    plain, roomy = run_of(), run_of(headroom={"retries": 0.05, "experiments": 0.15})
    assert roomy.base_accelerator_h == plain.base_accelerator_h
    assert roomy.accelerator_h.value == pytest.approx(1.2 * plain.accelerator_h.value)
    assert sum(part.value.value for part in roomy.headroom) == pytest.approx(roomy.accelerator_h.value)


def test_faster_writes_take_more_bandwidth_and_less_time(run_of: Ask) -> None:
    slow, fast = (run_of(write_within_s=each, stall_s=each) for each in (60.0, 10.0))
    assert fast.checkpoints.write_bytes_per_s == pytest.approx(6 * slow.checkpoints.write_bytes_per_s)
    assert fast.checkpoint_s.value < slow.checkpoint_s.value
    assert fast.checkpoints.interval_s.value < slow.checkpoints.interval_s.value


def test_money_is_hours_times_price_and_ranges_as_they_do(run_of: Ask) -> None:
    run = run_of(price_usd_per_h=2.0)
    assert run.cost_usd
    assert run.cost_usd.value == pytest.approx(2.0 * run.accelerator_h.value)
    assert run.cost_usd.low == pytest.approx(2.0 * run.accelerator_h.low)
    listed = run_of().cost_usd
    assert listed  # a listed price is in doubt too: its range is wider
    width = listed.high / listed.low
    assert width > run.cost_usd.high / run.cost_usd.low


def test_a_run_that_failures_outpace_is_infeasible_and_says_what_would_help(run_of: Ask) -> None:
    """On 131,072 accelerators something fails every 23 minutes: 10-minute checkpoints never get done."""
    huge = {"on": "16384x8xH100-SXM", "batch": 131_072}
    assert 0.3 < run_of(**huge).goodput_fraction.value < 0.6
    with pytest.raises(InfeasibleError) as refused:
        run_of(**huge, write_within_s=600.0)
    assert refused.value.exit_code == 3
    lines = dict(refused.value.lines)
    assert "every 23 min" in lines["binds"]
    fewer, faster = lines["would fit"].split(" · ")
    count = int(fewer.removeprefix("fewer than ").removesuffix(" accelerators").replace(",", ""))
    assert count == pytest.approx(131_072 * 1393 / 1620, rel=1e-3)
    assert faster.startswith("checkpoints within ")
