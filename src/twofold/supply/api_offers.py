"""Hosted interfaces that serve a model: their names mapped to the catalogue's, else a model as large."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from twofold.catalog import ApiPrice, Catalog, Model, canonical

SAME_SIZE = 0.1  # two open models whose parameters differ by less, all and active, cost alike to serve
# What providers put behind a model's name: revisions, formats, sizes that the name repeats, service words.
_ENDINGS = (
    r"-v?\d+:\d+$",
    r"-(maas|turbo|fp8|latest|versatile|instant|instruct|it|chat)$",
    r"-\d{4}$",
    r"-17b(-\d+e)?$",
    r"-0+\d+$",
)
_MAKERS = ("meta.", "meta-", "openai.", "openai-", "qwen.", "mistral.", "google.", "accounts/")


@dataclass(frozen=True, slots=True)
class ApiOffer:
    """One provider's price for a model's tokens, and whether it is this very model."""

    price: ApiPrice
    model: str  # the catalogue's name
    same_model: bool  # False: another open model of the same size


def api_model(price: ApiPrice, catalog: Catalog) -> Model | None:
    """The catalogue's model behind a provider's name; None for closed models and for unknown ones.

    Raises nothing: a name that fits no row is no error, the table names far more models than have shapes.
    """
    return _meant(price, catalog, _known_names(catalog)) if price.open_weights else None


def _meant(price: ApiPrice, catalog: Catalog, known: set[str]) -> Model | None:
    name = next((name for name in _spellings(price.model) if canonical(name) in known), None)
    return catalog.model(name) if name else None


def _known_names(catalog: Catalog) -> set[str]:
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
    shorter = name
    while shorter:
        ending = next((found for each in _ENDINGS if (found := re.search(each, shorter))), None)
        if ending is None:
            return
        shorter = shorter[: ending.start()]
        yield shorter


def api_offers(model: Model, catalog: Catalog) -> tuple[ApiOffer, ...]:
    """Every hosted offer of a model, by price; where none names it, those of open models of its size."""
    names = _known_names(catalog)
    open_prices = [price for price in catalog.rows(ApiPrice) if price.open_weights]
    known = [(price, found) for price in open_prices if (found := _meant(price, catalog, names))]
    own = [ApiOffer(price, found.name, True) for price, found in known if found.name == model.name]
    alike = [ApiOffer(price, found.name, False) for price, found in known if _alike(found, model)]
    return tuple(
        sorted(
            own or alike,
            key=lambda each: (
                each.price.input_usd_per_mtok + each.price.output_usd_per_mtok,
                each.price.provider,
                each.price.model_id,
            ),
        )
    )


def _alike(other: Model, model: Model) -> bool:
    return all(
        abs(getattr(other, count) / getattr(model, count) - 1) < SAME_SIZE
        for count in ("parameters", "parameters_active")
    )
