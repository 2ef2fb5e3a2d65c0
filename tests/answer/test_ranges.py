"""Ranges of answers: sides, arithmetic draw by draw, and the widths that left-out sources ask for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.answer.ranges import Drawn, drawn, serving_power_spread, serving_spread, step_spread
from twofold.answer.uncertainty import DRAW_COUNT, Spread, draw_factors
from twofold.catalog.catalog import Catalog
from twofold.inference.replica import engine
from twofold.perf.constants import Constants
from twofold.perf.device import device
from twofold.training.job import TrainingJob
from twofold.training.stack import load_stack

SPREAD = Spread(0.7, 1.5, "a constant")


@given(middle=st.floats(1e-9, 1e12), width=st.floats(0.0, 0.5))
def test_the_middle_lies_in_its_range(middle: float, width: float) -> None:
    samples = middle * np.exp(width * np.linspace(-2, 2, 101))
    for spread in (None, SPREAD):
        estimate = drawn(middle, samples, spread).estimate("s")
        assert estimate.low <= estimate.value == middle <= estimate.high


def test_a_range_is_never_narrower_than_left_out_sources_showed() -> None:
    narrow = 10.0 * np.exp(0.01 * np.linspace(-2, 2, 201))
    estimate = drawn(10.0, narrow, SPREAD).estimate("s")
    assert estimate.low == pytest.approx(7.0, rel=0.02)
    assert estimate.high == pytest.approx(15.0, rel=0.02)


def own(middle: float, width: float) -> Drawn:
    samples = np.exp(width * np.random.default_rng(5).normal(size=DRAW_COUNT))
    return drawn(middle, samples, SPREAD)


@given(middle=st.floats(1e-6, 1e9), width=st.floats(0.0, 1.0))
def test_a_limit_at_an_end_of_the_range_holds_as_probably_as_the_range_says(
    middle: float, width: float
) -> None:
    figure = own(middle, width)
    told = figure.estimate("s")
    for limit, wanted in ((told.high, 0.9), (told.value, 0.5), (told.low, 0.1)):
        assert figure.probability_within(limit) == pytest.approx(wanted, abs=0.0051)  # one draw of 200


@given(middle=st.floats(1e-6, 1e9), width=st.floats(0.0, 1.0), ratios=st.lists(st.floats(0.01, 100)))
def test_a_looser_goal_holds_at_least_as_probably(middle: float, width: float, ratios: list[float]) -> None:
    figure, limits = own(middle, width), [middle * ratio for ratio in sorted(ratios)]
    shares = [figure.probability_within(limit) for limit in limits]
    told = [figure.estimate("s").probability_within(limit) for limit in limits]
    assert shares == sorted(shares) and told == sorted(told)
    assert figure.probability_within(0.0) == 0.0 and figure.probability_within(float("inf")) == 1.0


def test_nothing_stays_nothing() -> None:
    estimate = drawn(0.0, np.zeros(5), SPREAD).estimate("s")
    assert (estimate.low, estimate.value, estimate.high) == (0, 0, 0)


def test_figures_that_rise_together_cancel_in_their_ratio() -> None:
    figure = drawn(2.0, np.array([1.0, 2.0, 4.0]))
    ratio = figure.inverse(figure).estimate("")
    assert ratio.low == ratio.value == ratio.high == 1.0
    assert figure.times(figure).middle == 4.0
    assert figure.inverse(6.0).middle == 3.0
    assert isinstance(figure.times(2.0), Drawn)


def test_a_faster_host_and_less_overlap_change_software_alone(constants: Constants) -> None:
    stack = load_stack(constants, "megatron-core")
    faster = stack.scaled({"host": 2.0})
    assert faster.host_layer_s == pytest.approx(np.asarray(stack.host_layer_s) / 2)
    assert faster.kernel_factor == stack.kernel_factor
    exposed = stack.scaled({"overlap": 1e6})
    assert exposed.tp_exposed_fraction == 1.0
    served = engine(constants, "vllm")
    assert served.scaled({"host": 2.0}).host_step_s == pytest.approx(np.asarray(served.host_step_s) / 2)
    assert stack.scaled(draw_factors(constants)).host_layer_s.shape == (200, 1)  # type: ignore[union-attr]


def test_measured_widths_are_found_for_every_kind_of_model(catalog: Catalog, constants: Constants) -> None:
    accelerator = catalog.accelerator("H100-SXM5-80GB")
    part = device(accelerator, constants)
    for name in ("llama-3.1-70b", "deepseek-v3", "mixtral-8x7b"):
        model = catalog.model(name)
        for metric in ("ttft", "tpot", "output"):
            for load in ("closed", "open", "saturated"):
                spread = serving_spread(constants, model, metric, load, part, engine(constants, "vllm"))
                assert spread
                assert spread.low_factor < 1 < spread.high_factor
        found = step_spread(constants, TrainingJob(model, "pretrain", 4096, 64), accelerator)
        assert found
        assert found.low_factor < 1 < found.high_factor


def test_tokens_per_second_are_off_as_far_as_tokens_are(catalog: Catalog, constants: Constants) -> None:
    part = device(catalog.accelerator("H100-SXM5-80GB"), constants)
    model, vllm = catalog.model("llama-3.1-70b"), engine(constants, "vllm")
    token, rate = (
        serving_spread(constants, model, metric, "closed", part, vllm) for metric in ("tpot", "output")
    )
    assert token and rate
    assert token.high_factor * rate.low_factor == pytest.approx(1.0)
    assert token.low_factor * rate.high_factor == pytest.approx(1.0)


def test_power_ranges_as_published_devices_do(catalog: Catalog, constants: Constants) -> None:
    part = device(catalog.accelerator("H100-SXM5-80GB"), constants)
    spread = serving_power_spread(constants, part)
    row = constants.estimate("serving_power_fraction", family="hopper")
    watts = [part.idle_w + share * (part.tdp_w - part.idle_w) for share in (row.low, row.value, row.high)]
    assert spread.low_factor == pytest.approx(watts[0] / watts[1])
    assert spread.high_factor == pytest.approx(watts[2] / watts[1])
    assert spread.low_factor < 0.9 < 1.1 < spread.high_factor  # wider than the draws of power alone
