"""Units held all year with others by the hour: the best split, whole, and cheaper than either alone."""

from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from twofold.answer import uncertainty
from twofold.answer.context import Context
from twofold.answer.serving_choice import ServingChoice, choose_serving
from twofold.catalog.catalog import load_catalog
from twofold.contracts.spec.reader import parse_spec
from twofold.core.quantity import YEAR_H
from twofold.perf.constants import load_constants
from twofold.portfolio.demand import class_demands
from twofold.portfolio.offers import NodeOffer, node_offers
from twofold.portfolio.problem import unit_usd_per_h
from twofold.portfolio.ways import Way, _accelerators, service_ways

CATALOG, CONSTANTS = load_catalog(), load_constants()
SPEC = """
name: mixed
model: llama-3.1-70b
serving:
  classes:
    chat: {traffic: {rate: 20 /s, peak: 3x}, slo: {ttft_p95: 1 s, tpot_p95: 60 ms}}
supply: {shop: {terms: [on_demand, reserved_1y], accelerators: [H100-SXM, H200]}}
"""


@pytest.fixture(scope="module")
def case() -> tuple[ServingChoice, tuple[NodeOffer, ...], Context]:
    spec = parse_spec(SPEC, "spec.yaml")
    draws = uncertainty.draw_factors(CONSTANTS, 20, 0)
    context = Context(spec, CATALOG, CONSTANTS, draws, date(2026, 11, 21))
    choice = choose_serving(spec.services[0], context)
    names = [offer.accelerator.name for offer in choice.offers.values()]
    return choice, node_offers(context, names, choice.offers.values(), None), context


def units_of(way: Way, choice: ServingChoice, context: Context) -> np.ndarray:
    """Whole units that every hour of the year asks for."""
    wanted = class_demands(choice)
    hours = [_accelerators(pool, choice, wanted, context) for pool in choice.fleet.pools]
    return np.ceil(sum(hours, np.zeros((52, 24))) / way.offer.accelerator_count - 1e-9)


def test_no_other_split_of_two_leases_costs_less(
    case: tuple[ServingChoice, tuple[NodeOffer, ...], Context],
) -> None:
    choice, offers, context = case
    ways = list(service_ways(choice, offers, context))
    mixed = [way for way in ways if way.base]
    assert mixed and len(mixed) < len(ways)
    for way in mixed:
        (base, count), (rest, more) = way.leases
        assert way.held and (base.accelerator, base.accelerator_count) == (
            rest.accelerator,
            rest.accelerator_count,
        )
        units = units_of(way, choice, context)
        assert count + more == units.max() == way.held.unit_count and 0 < count < units.max()
        assert more <= (rest.unit_limit or more)
        costs = {
            at: YEAR_H * (at * unit_usd_per_h(base) + np.maximum(0, units - at).mean() * unit_usd_per_h(rest))
            for at in range(max(1, int(units.max()) - (rest.unit_limit or 10**6)), int(units.max()))
        }
        sent = way.usd - costs[count]  # what leaves the providers is small beside them
        assert costs[count] == pytest.approx(min(costs.values())) and abs(sent) < 0.01 * way.usd
        mean = (count + np.maximum(0, units - count).mean()) / units.max()
        assert way.held.mean_fraction == pytest.approx(mean)
        alone = [
            each.usd
            for each in ways
            if not each.base and each.offer.provider in (base.provider, rest.provider)
        ]
        assert all(way.usd < usd for usd in alone)


def test_the_mean_price_is_what_all_hours_are_paid_with(
    case: tuple[ServingChoice, tuple[NodeOffer, ...], Context],
) -> None:
    choice, offers, context = case
    way = next(way for way in service_ways(choice, offers, context) if way.base)
    assert way.held and way.held.base and way.held.base.price and way.machine.price
    hours = way.held.unit_count * way.held.mean_fraction
    listed = [each.price.usd_per_accelerator_h for each in (way.held.base, way.machine) if each.price]
    paid = way.held.base_count * listed[0] + (hours - way.held.base_count) * listed[1]
    assert hours * way.held.usd_per_accelerator_h(way.machine) == pytest.approx(paid)
    assert replace(way.held, base=None).usd_per_accelerator_h(way.machine) == listed[1]


def test_what_no_account_gives_whole_is_held_in_part(
    case: tuple[ServingChoice, tuple[NodeOffer, ...], Context],
) -> None:
    """All of a fleet beyond an account was a contract; now only what the account does not give."""
    choice, offers, context = case
    least = min((way for way in service_ways(choice, offers, context) if way.base), key=lambda way: way.usd)
    (_, count), (rest, more) = least.leases
    few = tuple(
        replace(each, offer=replace(each.offer, unit_limit=more - 1))
        if each.offer.name == rest.name
        else each
        for each in offers
    )
    again = [way for way in service_ways(choice, few, context) if way.base and way.offer.name == rest.name]
    assert again and all(way.leases[1][1] <= more - 1 and way.leases[0][1] > count for way in again)
    assert not [
        way for way in service_ways(choice, few, context) if not way.base and way.offer.name == rest.name
    ]
