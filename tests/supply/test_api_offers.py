"""Hosted names and the models that they mean."""

from dataclasses import replace

import pytest

from twofold.catalog import ApiPrice, load_catalog
from twofold.supply import api_offers
from twofold.supply.api_offers import api_model

CATALOG = load_catalog()
PRICES = CATALOG.rows(ApiPrice)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("meta.llama3-3-70b-instruct-v1:0", "llama-3.3-70b"),
        ("llama-v3p1-405b-instruct", "llama-3.1-405b"),
        ("Meta-Llama-3.1-8B-Instruct-Turbo", "llama-3.1-8b"),
        ("Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b"),
        ("Llama-4-Maverick-17B-128E-Instruct-FP8", "llama-4-maverick"),
        ("openai.gpt-oss-120b-1:0", "gpt-oss-120b"),
    ],
)
def test_a_providers_spelling_is_the_catalogues_model(name: str, model: str) -> None:
    price = replace(PRICES[0], model=name, open_weights=True)
    found = api_model(price, CATALOG)
    assert found is not None and found.name == model


def test_closed_and_unknown_models_have_no_shape() -> None:
    assert api_model(replace(PRICES[0], model="llama-3.1-8b", open_weights=False), CATALOG) is None
    assert api_model(replace(PRICES[0], model="no-such-model-7", open_weights=True), CATALOG) is None


def test_most_open_models_are_known() -> None:
    known = [bool(api_model(price, CATALOG)) for price in PRICES if price.open_weights]
    assert sum(known) / len(known) > 0.75


def test_offers_come_by_price_and_carry_their_date() -> None:
    offers = api_offers(CATALOG.model("llama-3.1-8b"), CATALOG)
    assert len(offers) > 2 and all(offer.same_model and offer.price.date for offer in offers)
    asked = [offer.price.input_usd_per_mtok + offer.price.output_usd_per_mtok for offer in offers]
    assert asked == sorted(asked)


def test_a_model_that_nobody_hosts_is_compared_with_one_as_large() -> None:
    offers = api_offers(CATALOG.model("llama-3.1-70b"), CATALOG)
    assert offers and not any(offer.same_model for offer in offers)
    assert {offer.model for offer in offers} == {"llama-3.3-70b"}
