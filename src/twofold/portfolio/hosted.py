"""Hosted interfaces as offers of a portfolio: requests are paid for, nothing is held, no latency promised."""

from collections.abc import Mapping

import numpy as np

from twofold.answer import Context, ServingChoice, asked_regions, may_host
from twofold.catalog import Model
from twofold.core import InputError
from twofold.portfolio.demand import ClassDemand
from twofold.supply import ApiOffer, CapacityOffer, ServingRate, api_offer, api_offers, api_usd_per_request

KEPT = 3  # cheapest of a class: what they answer has no limit, so others lose


def hosted(
    wanted: tuple[ClassDemand, ...], services: Mapping[str, ServingChoice], context: Context
) -> tuple[tuple[CapacityOffer, ...], tuple[ServingRate, ...], tuple[str, ...]]:
    """Offers and rates of hosted interfaces, and what to know; nothing where the spec does not ask for them.

    Those of the model itself, else of an open one as large. Under rules only authorised providers count, and
    where a region is asked none: the table of prices says no place. Nobody hosts what a run of the spec
    makes.
    """
    if not context.spec.supply.shop.hosted:
        return (), (), ()
    offers: list[CapacityOffer] = []
    rates: list[ServingRate] = []
    notes: list[str] = []
    own = _trained(context)
    for each in wanted:
        choice = services[each.service]
        if run := own.get(choice.model.name):
            notes.append(f"{each.name}: no hosted interface, for it serves what `{run}` trains")
            continue
        if asked_regions(choice.entry, context.spec.supply):
            notes.append(f"{each.name}: no hosted interface, for none says in which region it answers")
            continue
        priced = sorted(
            ((_usd_per_request(found, each), found) for found in _found(choice.model, context)),
            key=lambda one: (one[0], one[1].price.provider, one[1].price.model_id),
        )
        if not priced:
            notes.append(f"{each.name}: no hosted interface that may be used is known")
        for usd, found in priced[:KEPT]:
            offer = api_offer(found.price, each.name)
            offers.append(offer)
            rates.append(ServingRate(offer.name, each.name, f"{found.model} hosted", np.inf, None, usd))
    return tuple(offers), tuple(rates), tuple(notes)


def _trained(context: Context) -> Mapping[str, str]:
    """Models that runs of the spec train or tune, with the run."""
    catalog = context.catalog
    return {catalog.model(run.model.name).name: run.name for run in context.spec.training if run.model.name}


def _found(model: Model, context: Context) -> tuple[ApiOffer, ...]:
    shop = context.spec.supply.shop
    try:
        known = context.catalog.model(model.name)
    except InputError:
        return ()  # a config file of one's own: nobody hosts it
    return tuple(
        each
        for each in api_offers(known, context.catalog)
        if may_host(each.price.provider, context)
        and (not shop.providers or each.price.provider in shop.providers)
        and each.price.provider not in shop.exclude
    )


def _usd_per_request(found: ApiOffer, each: ClassDemand) -> float:
    lengths = each.load.traffic.lengths
    return api_usd_per_request(
        found.price,
        float(np.max(np.asarray(lengths.input_tokens, float))),
        float(np.max(np.asarray(lengths.output_tokens, float))),
        each.load.traffic.shared_prefix_fraction,
    )
