"""Regimes, and who is authorised for them: which offers a rule permits, and why others are refused."""

from collections.abc import Callable

from twofold.catalog.catalog import Catalog
from twofold.catalog.types import Authorisation, Regime
from twofold.core.errors import UnknownNameError, ValueRefusedError


def find_regime(catalog: Catalog, name: str) -> Regime:
    """The row of a regime. `custom` is a user's own row.

    Raises ValueRefusedError where a spec says `custom` and no table of the user's has it.
    """
    regimes = catalog.named(Regime)
    if name in regimes:
        return regimes[name]
    if name == "custom":
        raise ValueRefusedError(
            "`compliance: custom` needs rules of yours",
            hint="put `catalog/regimes.csv` beside the spec: name,title,baseline; custom,our rules,moderate",
        )
    raise UnknownNameError(f"`{name}` is no regime", hint="regimes: " + ", ".join(regimes))


def permits(catalog: Catalog, regime: Regime) -> Callable[[str, str], bool]:
    """Whether a provider is authorised in a region; nobody where nothing may be rented."""
    places = {(row.provider.lower(), row.region.lower()) for row in catalog.authorisations(regime.name)}
    return lambda provider, region: regime.rented and (provider.lower(), region.lower()) in places


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
