"""Hosted interfaces as offers of a portfolio: requests are paid for, nothing is held, no latency promised."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from twofold.answer.context import Context
from twofold.answer.serving_choice import ServingChoice
from twofold.answer.supply_rules import asked_regions, may_host
from twofold.catalog.catalog import Catalog
from twofold.catalog.names import canonical
from twofold.catalog.types import ApiPrice, Model
from twofold.core.errors import InputError
from twofold.portfolio.demand import ClassDemand
from twofold.portfolio.problem import CapacityOffer, ServingRate

KEPT = 3  # cheapest of a class: what they answer has no limit, so others lose
SAME_SIZE = 0.1  # two open models whose parameters differ by less, all and active, cost alike to serve
# What providers put behind a model's name: revisions, formats, sizes that the name repeats, service words.
_ENDINGS = (
    r"-v?\d+:\d+$",
    r"-(maas|turbo|fp8|latest|versatile|instant|instruct|it|chat)$",
    r"-\d{4}$",
    r"-17b(-\d+e)?$",
    r"-0+\d+$",
)
# What tells two architectures apart: the rest is names and formats.
_NUMBERS = attrgetter(
    *("parameters", "parameters_active", "layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab"),
    *("experts", "experts_topk", "moe_ffn_hidden", "attention"),
)
_MAKERS = ("meta.", "meta-", "openai.", "openai-", "qwen.", "mistral.", "google.", "accounts/")


@dataclass(frozen=True, slots=True)
class ApiOffer:
    """One provider's price for a model's tokens, and whether it is this very model."""

    price: ApiPrice
    model: str  # the catalogue's name
    same_model: bool  # False: another open model of the same size


def api_model(price: ApiPrice, catalog: Catalog, known: set[str]) -> Model | None:
    """The catalogue's model behind a provider's name; None for closed models and for unknown ones.

    Raises nothing: a name that fits no row is no error, the table names far more models than have shapes.
    """
    if not price.open_weights:
        return None
    name = next((name for name in _spellings(price.model) if canonical(name) in known), None)
    return catalog.model(name) if name else None


def known_names(catalog: Catalog) -> set[str]:
    """Names and aliases of models that mean one row: asking for any other would search for near misses."""
    aliases = [
        canonical(str(row["alias"])) for row in catalog.table("aliases").rows if row["kind"] == "model"
    ]
    once = {alias for alias in aliases if aliases.count(alias) == 1}
    return once | {canonical(model.name) for model in catalog.rows(Model)}


def _spellings(text: str) -> Iterator[str]:
    """From the provider's name to ever plainer ones: `meta.llama3-3-70b-instruct-v1:0` is `llama-3.3-70b`."""
    name = text.lower().rsplit("/", 1)[-1]
    yield name
    for maker in _MAKERS:
        name = name.removeprefix(maker)
    name = re.sub(r"^llama-?v?(\d)", r"llama-\1", name)
    name = name.replace("deepseek.", "deepseek-")
    name = re.sub(r"(\d)p(\d)", r"\1.\2", name)  # `llama-3p1`, `kimi-k2p6`
    name = re.sub(r"^llama-(\d)-(\d)-", r"llama-\1.\2-", name)
    yield name
    while ending := next((found for each in _ENDINGS if (found := re.search(each, name))), None):
        name = name[: ending.start()]
        yield name


def api_offers(model: Model, catalog: Catalog) -> tuple[ApiOffer, ...]:
    """Every hosted offer of a model, by price; where none names it, those of open models of its size."""
    names = known_names(catalog)
    known = [
        (price, found) for price in catalog.rows(ApiPrice) if (found := api_model(price, catalog, names))
    ]
    own = [ApiOffer(price, found.name, True) for price, found in known if found.name == model.name]
    alike = [
        ApiOffer(price, found.name, False)
        for price, found in known
        if all(
            abs(getattr(found, count) / getattr(model, count) - 1) < SAME_SIZE
            for count in ("parameters", "parameters_active")
        )
    ]

    def dearness(each: ApiOffer) -> tuple[float, str, str]:
        price = each.price
        usd = price.input_usd_per_mtok + price.output_usd_per_mtok
        return usd, price.provider, price.model_id

    return tuple(sorted(own or alike, key=dearness))


def published(model: Model, catalog: Catalog) -> Model | None:
    """The catalogue's model of this name; of one's own config.json one with the same architecture, if any
    hosted one has it."""
    try:
        return catalog.model(model.name)
    except InputError:
        alike = [each for each in catalog.rows(Model) if _NUMBERS(each) == _NUMBERS(model)]
        hosted = (each for each in alike if any(one.same_model for one in api_offers(each, catalog)))
        return next(hosted, alike[0] if alike else None)


def usd_per_request(
    price: ApiPrice, input_tokens: float, output_tokens: float, cached_fraction: float
) -> float:
    """What a hosted API asks for one request.

    Formula  (input · ((1 − c)·p_in + c·p_cached) + output · p_out) / 1e6
    Why      Providers bill input and output apart, and input that their cache holds at a price of its own.
    Units    tokens of one request; USD per 1e6 tokens.
    Limits   without a price for cached input it costs what other input costs.
    """
    cached = price.cached_input_usd_per_mtok
    cached_usd = price.input_usd_per_mtok if cached is None else cached
    read = input_tokens * ((1 - cached_fraction) * price.input_usd_per_mtok + cached_fraction * cached_usd)
    return (read + output_tokens * price.output_usd_per_mtok) / 1e6


def hosted(
    wanted: tuple[ClassDemand, ...], services: Mapping[str, ServingChoice], context: Context
) -> tuple[tuple[CapacityOffer, ...], tuple[ServingRate, ...], tuple[str, ...]]:
    """Offers and rates of hosted APIs, and what to know; nothing where the spec does not ask for them.

    Those of the model itself, else of an open one as large. Under rules only authorised providers count, and
    where a region is asked none: the table of prices says no place. Nobody hosts what a run of the spec
    makes.
    """
    if context.spec.supply.shop.hosted != "true":
        return (), (), ()
    offers: list[CapacityOffer] = []
    rates: list[ServingRate] = []
    notes: list[str] = []
    catalog = context.catalog
    own = {  # models that runs of the spec train or tune, with the run
        catalog.model(run.model.name).name: run.name for run in context.spec.training if run.model.name
    }
    for each in wanted:
        choice = services[each.service]
        if run := own.get(choice.model.name):
            notes.append(f"{each.name}: no hosted API, for it serves what `{run}` trains")
            continue
        if asked_regions(choice.entry, context.spec.supply):
            notes.append(f"{each.name}: no hosted API, for none says in which region it answers")
            continue
        lengths, shared = each.load.traffic.lengths, each.load.traffic.shared_prefix_fraction
        sent, got = (
            float(np.max(np.asarray(one, float))) for one in (lengths.input_tokens, lengths.output_tokens)
        )
        found = _found(choice.model, context)
        priced = [(usd_per_request(one.price, sent, got, shared), one) for one in found]
        priced.sort(key=lambda one: (one[0], one[1].price.provider, one[1].price.model_id))
        if not priced:
            notes.append(f"{each.name}: no hosted API that may be used is known")
        for usd, one in priced[:KEPT]:
            offer = api_offer(one.price, each.name)
            offers.append(offer)
            rates.append(ServingRate(offer.name, each.name, f"{one.model} hosted", np.inf, None, usd))
    return tuple(offers), tuple(rates), tuple(notes)


def _found(model: Model, context: Context) -> tuple[ApiOffer, ...]:
    shop = context.spec.supply.shop
    known = published(model, context.catalog)
    return tuple(
        each
        for each in (api_offers(known, context.catalog) if known else ())
        if may_host(each.price.provider, context)
        and (not shop.providers or each.price.provider in shop.providers)
        and each.price.provider not in shop.exclude
    )


def api_offer(price: ApiPrice, work: str) -> CapacityOffer:
    """A hosted API for one class: nothing is held, requests are paid for."""
    return CapacityOffer(
        name=f"{price.provider} {price.model_id} · {work}",
        provider=price.provider,
        instance=price.model_id,
        accelerator="hosted API",
        accelerator_count=0,
        region="",
        term="api",
        tenure="api",
        usd_per_unit_h=0.0,
        source=f"api_prices: {price.source}",
        date=price.date,
    )
