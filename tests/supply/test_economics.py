"""Money per token, query and joule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.supply import TokenMix, cost_ratio, energy_usd, query_price_usd, usd_per_mtok
from twofold.supply.economics import blended_usd_per_mtok, tokens_per_j, usd_per_query

POSITIVE = st.floats(0.01, 1e6)


@given(POSITIVE, POSITIVE, st.floats(0.0, 1.0), POSITIVE, POSITIVE)
def test_a_mix_costs_no_less_than_its_cheapest_and_no_more_than_its_dearest_token(
    sent: float, got: float, cached: float, asked: float, answered: float
) -> None:
    blended = blended_usd_per_mtok(TokenMix(sent, got, cached), asked, answered)
    assert min(asked, answered) * (1 - 1e-9) <= blended <= max(asked, answered) * (1 + 1e-9)


@given(POSITIVE, POSITIVE, POSITIVE)
def test_a_query_costs_its_tokens_at_the_price_of_the_mix(sent: float, got: float, price: float) -> None:
    mix = TokenMix(sent, got)
    assert query_price_usd(mix, price, 2 * price) == pytest.approx(
        blended_usd_per_mtok(mix, price, 2 * price) * (sent + got) / 1e6
    )


def test_cached_input_costs_what_the_provider_asks_for_it() -> None:
    mix = TokenMix(1e6, 0.0, cached_fraction=0.5)
    assert query_price_usd(mix, 2.0, 9.0, 0.2) == pytest.approx(1.1)
    assert query_price_usd(mix, 2.0, 9.0) == pytest.approx(2.0)


def test_work_that_does_not_happen_has_no_finite_price() -> None:
    assert usd_per_mtok(1.0, 0.0) == usd_per_query(1.0, 0.0) == tokens_per_j(1.0, 0.0) == float("inf")


def test_energy_costs_its_kilowatt_hours() -> None:
    assert energy_usd(3.6e9, 0.1) == pytest.approx(100.0)
    assert tokens_per_j(500.0, 100.0) == 5.0


@pytest.mark.parametrize(("training", "verdict"), [(1.0, "below"), (8.0, "within"), (30.0, "above")])
def test_a_ratio_is_held_against_its_claim(training: float, verdict: str) -> None:
    row = cost_ratio("per GPU", training, 1.0, (5.0, 10.0), "a node of each")
    assert (row.ratio, row.verdict) == (training, verdict)
