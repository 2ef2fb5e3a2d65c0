"""What a spec's regions mean, where an offer must be; and which offer a plan is priced with."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from twofold.catalog.catalog import Catalog
from twofold.catalog.geography import distance_m
from twofold.catalog.names import canonical
from twofold.catalog.types import Price, Region
from twofold.core.errors import UnknownNameError

METRO_M = 40e3  # a: how far apart the data centres of one metropolitan area are
# Prices with these words for a region are of a provider's list, which names none.
UNNAMED = frozenset({"", "all", "any", "anywhere", "default", "global"})
# Where these words mean countries: members of the union, and the continent with those around them.
UNION = frozenset({
    "AT", "BE", "BG", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GR", "HR", "HU", "IE", "IT", "LT",
    "LU", "LV", "MT", "NL", "PL", "PT", "RO", "SE", "SI", "SK",
})  # fmt: skip
ZONE = re.compile(r"(?<=\d)-?[a-f]$")  # how a zone of a region ends
OWNER = "own"  # whoever has machines says where they stand as any region is named
AREAS = {"eu": UNION, "europe": UNION | {"CH", "GB", "IS", "NO", "UA"}, "uk": frozenset({"GB"})}


class Fit(Enum):
    """How the place of a price lies to the regions that are asked."""

    INSIDE = "inside"
    WIDER = "wider"  # the price's place holds a region asked, and says no more
    OUTSIDE = "outside"


@dataclass(frozen=True, slots=True)
class Scope:
    """Some regions that are asked, as what they cover."""

    places: frozenset[str]  # `provider:name`, those of the same cities with them
    countries: frozenset[str]
    names: frozenset[str]  # of regions, whoever has them
    families: tuple[str, ...]  # how names of regions begin, without dashes
    government: bool  # whether a closed region is asked by its name


@lru_cache(maxsize=8192)
def fit_of(catalog: Catalog, provider: str, region: str, asked: tuple[str, ...]) -> Fit:
    """How a price's place lies to the regions asked; with none asked all fit but a government's.

    Inside is a region of that name, one of the same city, or one of the country, union or family (`us-east`)
    that is asked. A list that names no region, or only a country, is wider where the provider has a region
    that is asked. A government's region counts by its own name, or where rules left only such places.
    """
    seller, own = provider.lower(), region.lower()
    if ":" not in own and seller == OWNER:
        own = next(iter(_meant(catalog, own)), own)
    if ":" in own:
        seller, _, own = own.partition(":")
    row = _by_id(catalog).get(f"{seller}:{own}")
    closed = "gov" in own or bool(row and row.government)
    if not asked:
        return Fit.OUTSIDE if closed and not catalog.is_restricted else Fit.INSIDE
    scope = scope_of(catalog, asked)
    # By name, as one of a family, or as a zone: `us-east1-a` is of `us-east1`.
    if closed:
        exact = own in scope.names or f"{seller}:{own}" in scope.places
        named = scope.government and (exact or canonical(own).startswith(scope.families or ("\0",)))
    else:
        named = bool({own, ZONE.sub("", own)} & scope.names) or _of_family(own, scope.families)
    if named:
        return Fit.INSIDE
    if closed and not catalog.is_restricted:
        return Fit.OUTSIDE
    if own in UNNAMED:
        has = any(place.startswith(f"{seller}:") for place in places_in(catalog, asked))
        return Fit.WIDER if has else Fit.OUTSIDE
    if own.upper() in _countries(catalog):  # the price says only in which country it holds
        if own.upper() in scope.countries:
            return Fit.INSIDE
        held = (_by_id(catalog)[place] for place in scope.places)
        wider = any(each.country == own.upper() and not each.government for each in held)
        return Fit.WIDER if wider else Fit.OUTSIDE
    row = row or _city(catalog, own)
    if row:
        at = f"{row.provider}:{row.name}".lower()
        inside = at in scope.places or row.country in scope.countries
        return Fit.INSIDE if inside else Fit.OUTSIDE
    within = _countries_of_name(catalog, own)
    return Fit.INSIDE if within and within <= scope.countries else Fit.OUTSIDE


def _of_family(own: str, families: tuple[str, ...]) -> bool:
    """`us-east-04` and `eastus2` are of `us-east`."""
    folded = canonical(own)
    turned = {f"{family[2:]}{family[:2]}" for family in families if family.startswith("us")}
    return any(folded.startswith(family) for family in families) or folded.rstrip("0123456789") in turned


@lru_cache(maxsize=256)
def scope_of(catalog: Catalog, asked: tuple[str, ...]) -> Scope:
    """What regions cover: exact ones with their cities, unions, countries, else families of names."""
    places: set[str] = set()
    countries: set[str] = set()
    names: set[str] = set()
    families: list[str] = []
    rows = _by_id(catalog)
    for word in (each.lower() for each in asked):
        bare = word.rpartition(":")[2]
        same_name = {place for place, row in rows.items() if row.name.lower() == bare}
        if word in AREAS:
            countries |= AREAS[word]
        elif word in rows:
            places |= {word} if rows[word].government else _with_cities(catalog, {word})
        elif same_name:
            names.add(bare)
            open_to_all = {place for place in same_name if not rows[place].government}
            places |= same_name | _with_cities(catalog, _meant(catalog, word) & open_to_all or open_to_all)
        elif word.upper() in _countries(catalog) and {
            row.country for row in rows.values() if row.name.lower().startswith(f"{word}-")
        } <= {word.upper()}:
            # `us` and `ca` are countries; `sa` begins names in South America, and is none.
            countries.add(word.upper())
        else:
            families.append(canonical(word))
            of_family = {place for place, row in rows.items() if _of_family(row.name, (canonical(word),))}
            places |= of_family
            if "gov" not in word:
                places |= _with_cities(catalog, of_family | _meant(catalog, word))
            names |= {bare} & {each.lower() for each in _priced_names(catalog)}
    government = any("gov" in word for word in asked) or any(
        rows[place].government for place in places if place in {each.lower() for each in asked}
    )
    return Scope(frozenset(places), frozenset(countries), frozenset(names), tuple(families), government)


def places_in(catalog: Catalog, asked: tuple[str, ...]) -> frozenset[str]:
    """The table's regions that are asked, `provider:name`; closed ones only where rules left those."""
    scope = scope_of(catalog, asked)
    return frozenset(
        place
        for place, row in _by_id(catalog).items()
        if (place in scope.places or row.country in scope.countries)
        and (not row.government or catalog.is_restricted)
    )


def country_of(catalog: Catalog, provider: str, region: str) -> str:
    """The country of a region, also of one that no table lists, where its name tells; else ""."""
    own = region.lower()
    row = _by_id(catalog).get(f"{provider.lower()}:{own}") or _city(catalog, own)
    within = frozenset({row.country}) if row else _countries_of_name(catalog, own)
    return next(iter(within)) if len(within) == 1 else ""


def _countries_of_name(catalog: Catalog, own: str) -> frozenset[str]:
    """Countries of the regions that are called alike but for digits, else that of a name's first letters."""
    if found := _stems(catalog).get(_letters(own)):
        return found
    head = re.split(r"[\W\d_]", own)[0].upper()
    return frozenset({head}) & _countries(catalog)


def region_names(catalog: Catalog) -> frozenset[str]:
    """Every word that may stand for a region: regions, those that only prices name, countries and unions."""
    rows = _by_id(catalog).values()
    own = {name for row in rows for name in (row.name, f"{row.provider}:{row.name}")}
    return frozenset(own | set(_priced_names(catalog)) | _countries(catalog) | set(AREAS))


@lru_cache(maxsize=16)
def _by_id(catalog: Catalog) -> dict[str, Region]:
    return {f"{row.provider}:{row.name}".lower(): row for row in catalog.regions()}


@lru_cache(maxsize=16)
def _countries(catalog: Catalog) -> frozenset[str]:
    """Codes of two letters, those that a price alone names with them."""
    priced = {price.region.upper() for price in catalog.whole.prices() if len(price.region) == 2}
    return frozenset(row.country for row in catalog.regions()) | priced


@lru_cache(maxsize=16)
def _priced_names(catalog: Catalog) -> frozenset[str]:
    """Regions that a price names and no table describes, as it writes them."""
    known = {row.name.lower() for row in catalog.regions()} | UNNAMED
    names = {price.region for price in catalog.whole.prices()}
    return frozenset(name for name in names if name.lower() not in known and len(name) > 2)


@lru_cache(maxsize=16)
def _stems(catalog: Catalog) -> dict[str, frozenset[str]]:
    """Letters of names of regions -> the countries of the regions with these letters."""
    found: dict[str, set[str]] = {}
    for row in catalog.regions():
        found.setdefault(_letters(row.name.lower()), set()).add(row.country)
    return {stem: frozenset(held) for stem, held in found.items()}


def _letters(own: str) -> str:
    """`us-central2-a` without its zone, digits and dashes."""
    return re.sub(r"[\W\d_]+", "", ZONE.sub("", own))


def _meant(catalog: Catalog, word: str) -> set[str]:
    """The region that an alias stands for."""
    try:
        region = catalog.region(word)
    except UnknownNameError:
        return set()
    return {f"{region.provider}:{region.name}".lower()}


def _with_cities(catalog: Catalog, places: set[str]) -> set[str]:
    """Some regions, and every provider's regions in the same cities."""
    rows = _by_id(catalog)

    def cities(region: Region) -> set[str]:
        return {part.strip().lower() for part in region.city.split("/")}

    return places | {
        place
        for place, row in rows.items()
        for start in (rows[each] for each in places)
        if row.country == start.country and (cities(row) & cities(start) or distance_m(row, start) <= METRO_M)
    }


def _city(catalog: Catalog, own: str) -> Region | None:
    """The region of the table whose city a provider's region is called by: `montreal`, `kansascity`."""
    word = canonical(own.rstrip("0123456789-"))
    if len(word) < 4:
        return None
    for row in catalog.regions():
        # American cities are written with their state: `Kansas City MO`.
        if word in {canonical(re.sub(r" [A-Z]{2}$", "", part.strip())) for part in row.city.split("/")}:
            return row
    return None


def best_price(
    catalog: Catalog,
    accelerator_name: str,
    terms: Collection[str],
    *,
    regions: Collection[str] = (),
    exclude_providers: Collection[str] = (),
) -> Price | None:
    """The cheapest list price per accelerator-hour under one of `terms`; None where nobody lists one.

    `community` offers (one's own machine, let to others) count only where `terms` names them. `regions` keeps
    these regions, and lists of providers that have one there; empty keeps all. A word of `exclude_providers`
    leaves out a provider, or the term of that name.
    """
    wanted = tuple(regions)
    for region in wanted:
        scope = scope_of(catalog, (region,))
        if not (scope.places or scope.names or scope.countries):
            catalog.region(region)  # raises: no table, price, country or family is called so
    excluded = {canonical(word) for word in exclude_providers}
    offers = [
        price
        for price in catalog.prices_for(accelerator_name)
        if price.term in terms
        and (not wanted or fit_of(catalog, price.provider, price.region, wanted) is not Fit.OUTSIDE)
        and not {canonical(price.provider), canonical(price.term)} & excluded
    ]
    # Equal prices: the youngest, then by name, so that the choice never depends on the order of rows.
    offers.sort(key=lambda price: (price.provider, price.instance, price.region, price.term))
    offers.sort(key=lambda price: price.date, reverse=True)
    return min(offers, key=lambda price: price.usd_per_accelerator_h, default=None)
