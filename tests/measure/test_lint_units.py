import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Accelerator
from twofold.measure.lint_table import COLUMNS, read_table
from twofold.measure.lint_units import (
    AGREEMENTS,
    BEYOND_RANGE,
    SLIPS,
    Slip,
    disagreements,
    fastest_flops_per_s,
    slips,
    surprises,
    whole,
)
from twofold.measure.truth import read_rows

TABLE, _ = read_table("training", [{"id": "a", "step_time_s": "1", "gpus": "64", "dp": "1"}])
MISTAKES = (Slip(1e3, "milliseconds"), Slip(np.array([64.0]), "all GPUs"), Slip(1.0, "nothing"))
DIFFERENT = "one of these was measured or worked out differently"
ALL_GPUS = "tokens_per_s_per_gpu is the rate of all GPUs together"


def told_twice(ratio):
    stated, implied = np.array([ratio]), np.array([1.0])
    return disagreements(TABLE, "training rate", implied, TABLE.numbers, stated=stated)


def against_prediction(measured, low=0.8, high=1.3):
    ends = {"": "1", "_low": str(low), "_high": str(high)}
    row = {f"pred_step_time_s{end}": value for end, value in ends.items()}
    return surprises(TABLE, [row], ("step_time_s",), np.array([measured]), "s", MISTAKES)


@given(st.floats(1 / 1.019, 1.019))
def test_two_figures_that_agree_but_for_rounding_are_no_finding(ratio):
    assert told_twice(ratio) == []


@given(st.floats(0.99, 1.01), st.sampled_from([(1000.0, "step_time_s is in milliseconds"), (64.0, ALL_GPUS)]))
def test_a_ratio_near_a_slip_names_it(noise, slip):
    factor, cause = slip
    (finding,) = told_twice(factor * noise)
    assert (finding.rule, finding.severity, finding.hint) == ("unit", "impossible", cause)


@given(st.floats(1.03, 1.5))
def test_a_small_difference_that_no_slip_explains_is_suspect(ratio):
    (finding,) = told_twice(ratio)
    assert (finding.rule, finding.severity, finding.hint) == ("rate", "suspect", DIFFERENT)


def test_a_slip_of_factor_one_explains_nothing():
    (finding,) = told_twice(1.025)  # the one replica's batch is the batch
    assert finding.hint == DIFFERENT


def test_a_blank_figure_disagrees_with_nothing():
    assert told_twice(float("nan")) == []


@given(st.floats(0.8 / BEYOND_RANGE * 1.001, 1.3 * BEYOND_RANGE * 0.999))
def test_what_lies_near_its_range_is_no_surprise(measured):
    assert against_prediction(measured) == []


@given(st.floats(0.8, 1.3), st.sampled_from([1000.0, 64.0]))
def test_a_slip_that_brings_a_measurement_home_is_named(truth, factor):
    (finding,) = against_prediction(truth * factor)
    assert (finding.rule, finding.severity) == ("unit", "impossible" if factor > 100 else "suspect")


@pytest.mark.parametrize(
    ("measured", "severity"), [(2.5, "note"), (9.0, "suspect"), (0.3, "note"), (0.1, "suspect")]
)
def test_a_surprise_without_a_slip_is_a_note_until_it_is_far(measured, severity):
    (finding,) = against_prediction(measured)
    assert (finding.rule, finding.severity) == ("prediction", severity)


def test_a_slip_smaller_than_the_range_is_a_note_for_it_may_be_chance():
    (finding,) = against_prediction(60.0, low=0.1, high=10.0)
    assert (finding.rule, finding.severity) == ("unit", "note")


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_slips_of_time_are_the_factors_between_units(unit):
    seconds = {
        "hours": 3600,
        "minutes": 60,
        "seconds": 1,
        "milliseconds": 1e-3,
        "microseconds": 1e-6,
        "nanoseconds": 1e-9,
    }
    own = 1.0 if unit == "s" else 1e-3
    named = {
        slip.cause.split(" is in ")[-1]: slip.factor
        for slip in slips(f"time in {unit}", "t", {})
        if " is in " in slip.cause
    }
    for name, factor in named.items():
        assert factor == pytest.approx(own / seconds[name])


def test_a_narrower_format_is_never_slower():
    for accelerator in load_catalog().rows(Accelerator):
        rates = [
            fastest_flops_per_s(accelerator, width, ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4"))
            for width in (4.0, 2.0, 1.0, 0.5)
        ]
        known = [rate for rate in rates if not np.isnan(rate)]
        assert known == sorted(known)


def test_whole_says_what_divides_and_lets_blanks_pass():
    nan = float("nan")
    assert whole(np.array([8.0, 9.0, nan, 8.0]), np.array([4.0, 4.0, 4.0, nan])).tolist() == [
        True,
        False,
        True,
        True,
    ]


def test_what_is_told_twice_stands_in_columns_of_one_half_and_names_slips_that_there_are():
    known = [{*columns.configuration, *columns.measured} for columns in COLUMNS.values()]
    groups = {row["slips"] for row in read_rows(SLIPS)}
    for row in read_rows(AGREEMENTS):
        told = {*row["stated"].split(";"), *row["implied"].split(";")}
        assert any(told <= columns for columns in known)
        assert set(row["slips"].split(";")) <= groups
