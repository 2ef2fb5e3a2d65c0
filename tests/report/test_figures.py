import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.core.estimate import Estimate, exact
from twofold.report.figures import (
    apportioned,
    hours_unit,
    in_unit_of,
    percent,
    ranged,
    shares,
    summed,
    watt_hours,
)

amounts = st.floats(0.0, 1e9)


@given(st.lists(amounts, min_size=1, max_size=9), st.integers(0, 3))
def test_what_is_shown_of_parts_adds_up_to_the_rounded_sum(
    values: list[float], decimals: int
) -> None:  # INV-1
    shown = [float(text.replace(",", "")) for text in apportioned(values, decimals)]
    assert sum(shown) == pytest.approx(round(sum(values), decimals), abs=0.51 * 10**-decimals)
    assert all(abs(a - b) <= 1.01 * 10**-decimals for a, b in zip(shown, values, strict=True))


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=9))
def test_shares_are_100_percent_together(values: list[float]) -> None:
    texts = shares([(f"part{n}", value) for n, value in enumerate(values)])
    assert sum(int(text.split()[-2].replace(",", "")) for text in texts) == 100


def test_a_sum_is_shown_with_terms_that_add_up() -> None:
    total = Estimate(17.04 * 86400, 15 * 86400, 19 * 86400, "s")
    text = summed([("compute", 16.61 * 86400), ("failures", 0.43 * 86400)], total)
    assert text == "16.6 d compute + 0.4 d failures = 17.0 d [15.0–19.0] f"


def test_a_term_too_small_for_the_unit_of_the_total_is_shown_in_its_own() -> None:
    total = Estimate(10_855.0, 9_720.0, 11_880.0, "s")
    text = summed([("compute", 10_800.0), ("checkpoints", 43.0), ("failures", 12.0), ("none", 0.0)], total)
    assert text == "3.0 h compute + 43 s checkpoints + 12 s failures + 0.0 h none = 3.0 h [2.7–3.3] f"


@pytest.mark.parametrize(
    ("accelerator", "unit"),
    [
        ("H100-SXM5-80GB", "GPU-h"),
        ("MI300X", "GPU-h"),
        ("TPU-v5p", "accelerator-h"),
        ("CPU-4-core-AVX2", "accelerator-h"),
        ("this-machine", "accelerator-h"),
    ],
)
def test_hours_of_what_is_no_gpu_are_not_called_so(accelerator: str, unit: str) -> None:
    assert hours_unit(accelerator) == unit


def test_parts_take_the_unit_and_decimals_of_their_total() -> None:
    assert in_unit_of(7200.0, "s", [3600.0, 3600.0]) == (["1.0", "1.0"], "h")


def test_a_number_has_a_unit_a_range_or_exactness_and_a_letter() -> None:  # INV-7
    assert ranged(Estimate(8.6, 7.9, 9.5, "s")) == "8.6 s [7.9–9.5] f"
    assert ranged(exact(0.05, "fraction")) == "5.0 % a"
    assert ranged(Estimate(44 * 2**30, 42 * 2**30, 47 * 2**30, "B"), "memory B") == "44 GiB [42–47] f"


def test_energy_is_shown_as_it_is_billed() -> None:
    assert watt_hours(Estimate(3.6e9, 3.6e9, 7.2e9, "J")) == "1.0 MWh [1.0–2.0] f"


@pytest.mark.parametrize(
    ("fraction", "text"), [(0.14, "14 %"), (0.05, "5 %"), (0.004, "0.4 %"), (0.0, "0 %")]
)
def test_shares_without_a_range_are_short(fraction: float, text: str) -> None:
    assert percent(fraction) == text
