from datetime import date

import pytest

from twofold.answer.context import (
    Context,
    carbon,
    day_of,
    facility_energy,
    gate_warnings,
    machine_of,
    model_of,
    price_used,
    price_warnings,
)
from twofold.answer.offers import Offer, fixed_offer
from twofold.answer.uncertainty import draw_factors
from twofold.catalog.catalog import Catalog
from twofold.contracts.spec.parts import FixedCluster, ModelReference
from twofold.contracts.spec.reader import parse_spec
from twofold.contracts.spec.supply import Supply
from twofold.core.errors import ValueRefusedError
from twofold.core.estimate import Estimate
from twofold.perf.constants import Constants
from twofold.planner.build import build_plan

SPEC = "name: c\nmodel: llama-3.1-8b\ntraining: {tokens: 1 Gtok}\n"


def context_on(day: date | None, catalog: Catalog, constants: Constants) -> Context:
    return Context(parse_spec(SPEC, "c.yaml"), catalog, constants, draw_factors(constants), day)


def offer_of(text: str, catalog: Catalog) -> Offer:
    return fixed_offer(FixedCluster.model_validate(text), catalog, Supply(), ("on_demand",))


def test_dates_of_any_precision_are_days() -> None:
    assert [day_of(text) for text in ("2026", "2026-08", "2026-08-03")] == [
        date(2026, 7, 1),
        date(2026, 8, 15),
        date(2026, 8, 3),
    ]


def test_a_price_older_than_a_year_is_stale(catalog: Catalog, constants: Constants) -> None:
    offer = offer_of("1x8xH100-SXM", catalog)
    assert offer.price
    seen = day_of(offer.price.date)
    fresh = context_on(seen, catalog, constants)
    old = context_on(seen.replace(year=seen.year + 2), catalog, constants)
    assert price_warnings(offer, fresh) == ()
    assert "stale price" in price_warnings(offer, old)[0]
    assert price_warnings(offer, context_on(None, catalog, constants)) == ()


@pytest.mark.parametrize(("count", "told"), [(1, True), (4, False), (0, False)])
def test_named_machines_beyond_those_you_have_are_said_to_be_rented(
    catalog: Catalog, constants: Constants, count: int, told: bool
) -> None:
    """All were rented without a word, as if the spec had none."""
    own = f"supply: {{own: {{node: DGX-H100, count: {count}}}}}\n" if count else ""
    spec = parse_spec(SPEC + own, "c.yaml")
    context = Context(spec, catalog, constants, draw_factors(constants, 2, 0), None)
    offer = fixed_offer(FixedCluster.model_validate("4x8xH100-SXM"), catalog, spec.supply, ("on_demand",))
    notes = [text for text in price_warnings(offer, context) if "`on:` names 32" in text]
    assert bool(notes) == told and (not told or "you have 8" in notes[0])
    assert offer.owned == (count == 4)


def test_a_price_spreads_around_its_row(catalog: Catalog, constants: Constants) -> None:
    offer = offer_of("1x8xH100-SXM", catalog)
    used = price_used(offer, context_on(None, catalog, constants))
    assert used and offer.price
    price = used.usd_per_accelerator_h
    assert price.value == offer.price.usd_per_accelerator_h and price.low < price.value < price.high
    assert price_used(offer_of("1x8xH800", catalog), context_on(None, catalog, constants)) is None


def test_energy_at_the_meter_is_more_than_the_accelerators(catalog: Catalog, constants: Constants) -> None:
    context = context_on(None, catalog, constants)
    drawn = Estimate(1e9, 0.9e9, 1.1e9, "J")
    price = next(price for price in catalog.prices_for("H100-SXM") if price.provider == "aws")
    metered = facility_energy(drawn, price, context)
    assert metered.low > drawn.low and metered.value > 1.3 * drawn.value
    grams = carbon(metered, price, context)
    grid = catalog.region(f"aws:{price.region}").grid_gco2_per_kwh
    assert grams and grams.value == pytest.approx(metered.value / 3.6e6 * grid)
    assert carbon(metered, None, context) is None


def test_measured_rows_are_no_model(catalog: Catalog) -> None:
    with pytest.raises(ValueRefusedError, match="measured"):
        model_of(ModelReference.model_validate({"measured": "rows.csv"}), catalog)


@pytest.mark.parametrize(
    "half",
    [
        "training: {tokens: 1 Gtok}",
        "serving: {classes: {c: {traffic: {rate: 1 /s, input: 9 tok, output: 9 tok}, slo: {ttft_p95: 1 s}}}}",
    ],
)
def test_a_model_without_tokens_is_refused_in_either_half(
    half: str, catalog: Catalog, constants: Constants
) -> None:
    spec = parse_spec(f"name: c\nmodel: sdxl-unet\n{half}\n", "c.yaml")
    with pytest.raises(ValueRefusedError, match="sdxl-unet is a diffusion model"):
        build_plan(spec, catalog, constants, spec_digest="0")


def test_what_a_list_price_is_not_is_said_of_the_machines(catalog: Catalog, constants: Constants) -> None:
    context = context_on(None, catalog, constants)
    many = machine_of(offer_of("64x8xH100-SXM", catalog), 512, context, is_job=True)
    (warning,) = gate_warnings(many)
    assert "512 GPUs" in warning and "assumed" in warning and "ask" in warning
    one = machine_of(offer_of("1x8xH100-SXM", catalog), 8, context, is_job=True)
    assert one.price and one.price.gate == "" and gate_warnings(one) == ()
