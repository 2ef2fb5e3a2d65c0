"""Regimes, and who is authorised for them: which offers a rule permits, and why others are refused."""

from collections import Counter
from collections.abc import Callable, Iterable

from twofold.catalog import Authorisation, Catalog, ComplianceFigure, Price, Regime
from twofold.contracts.results import Permitted, Refusal
from twofold.core import Estimate, Source, UnknownNameError, ValueRefusedError

CUSTOM = "custom"


def find_regime(catalog: Catalog, name: str) -> Regime:
    """The row of a regime. `custom` is a user's own row.

    Raises ValueRefusedError where a spec says `custom` and no table of the user's has it.
    """
    regimes = catalog.named(Regime)
    if name in regimes:
        return regimes[name]
    if name == CUSTOM:
        raise ValueRefusedError(
            "`compliance: custom` needs rules of yours",
            hint="put `catalog/regimes.csv` beside the spec: name,title,baseline; custom,our rules,moderate",
        )
    raise UnknownNameError(f"`{name}` is no regime", hint="regimes: " + ", ".join(regimes))


def asks(regime: Regime) -> frozenset[str]:
    """The names under which tables ask something of a regime: `custom` starts from its baseline's."""
    start = {f"fedramp-{regime.baseline}"} if regime.name == CUSTOM else set()
    return frozenset({regime.name, *start})


def figure_of(catalog: Catalog, category: str, item: str) -> Estimate:
    """One row of the table `compliance_figures`; ends that it does not state are the value itself."""
    for row in catalog.rows(ComplianceFigure):
        if (row.category, row.item) == (category, item):
            low = row.value if row.low is None else min(row.low, row.value)
            high = row.value if row.high is None else max(row.high, row.value)
            source = Source.VENDOR if row.confidence == "vendor" else Source.ASSUMED
            return Estimate(row.value, low, high, row.unit, source)
    raise UnknownNameError(f"`{category}: {item}` is not a row of the table compliance_figures")


def permits(catalog: Catalog, regime: Regime) -> Callable[[Price], bool]:
    """Whether a price is of a region where its provider is authorised."""
    may = authorises(catalog, regime)
    return lambda price: may(price.provider, price.region)


def authorises(catalog: Catalog, regime: Regime) -> Callable[[str, str], bool]:
    """Whether a provider is authorised in a region; nobody where nothing may be rented."""
    places = {(row.provider.lower(), row.region.lower()) for row in catalog.authorisations(regime.name)}
    return lambda provider, region: regime.rented and (provider.lower(), region.lower()) in places


def permitted_places(prices: Iterable[Price], catalog: Catalog, regime: Regime) -> tuple[Permitted, ...]:
    """The authorised places that have prices, most prices first."""
    may = permits(catalog, regime)
    counts = Counter((price.provider.lower(), price.region.lower()) for price in prices if may(price))
    rows = {(row.provider.lower(), row.region.lower()): row for row in catalog.authorisations(regime.name)}
    return tuple(
        Permitted(f"{place[0]}:{place[1]}", count, row.since, row.conditions, row.confidence)
        for place, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        if (row := rows[place])
    )


def refused_places(prices: Iterable[Price], catalog: Catalog, regime: Regime) -> tuple[Refusal, ...]:
    """The places that a regime forbids, with the reason, most prices first."""
    may = permits(catalog, regime)
    counts = Counter((price.provider.lower(), price.region.lower()) for price in prices if not may(price))
    rows = catalog.authorisations(regime.name)
    return tuple(
        Refusal(f"{provider}:{region}", count, refusal_reason(provider, region, regime, rows))
        for (provider, region), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )


def refusal_reason(provider: str, region: str, regime: Regime, rows: tuple[Authorisation, ...]) -> str:
    """Why an offer is outside, in words."""
    held = sorted(row.region for row in rows if row.provider.lower() == provider)
    if regime.closed or not regime.rented:
        return f"{regime.title}: nothing is rented from the public catalogue"
    if not held:
        return f"no authorisation of {provider} for {regime.name} is known"
    if region in {"all", "default", "any", "global", "us", ""}:
        return f"the price names no region; {provider} is authorised for {regime.name} in {', '.join(held)}"
    return f"{provider} is authorised for {regime.name} in {', '.join(held)} only"


def places_in_words(rows: Iterable[Authorisation], limit: int = 6) -> str:
    """`aws us-gov-west-1, us-gov-east-1 · azure usgovvirginia`: who would be authorised."""
    by_provider: dict[str, list[str]] = {}
    for row in rows:
        by_provider.setdefault(row.provider, []).append(row.region)
    return " · ".join(
        f"{provider} {', '.join(regions[:limit])}{' …' if len(regions) > limit else ''}"
        for provider, regions in by_provider.items()
    )
