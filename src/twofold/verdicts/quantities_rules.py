"""Quantities of rules: what is in force, what a regime asks, what it adds to the bill."""

from dataclasses import replace

from twofold.catalog import MandateRow, Price, Regime, best_price
from twofold.contracts.spec import ComplianceSpec
from twofold.core import YEAR_H, InfeasibleError
from twofold.facility import Rent, RuledFleet, RuledSystem, compliance_of, find_regime, permits
from twofold.verdicts.quantity import MissingFigure, one_of
from twofold.verdicts.world import World

RENTED = "H100-SXM5-80GB"
ON_DEMAND = ("on_demand",)
UNDATED = ""  # verdicts do not change with the day on which they are asked


def in_force(world: World, name: str) -> bool:
    """Whether a law, order or memorandum stands: neither it nor what it rests on was revoked."""
    rows = world.catalog.named(MandateRow)
    row = rows[one_of(name, rows, "mandate")]
    rests = row.rests_on in rows and not in_force(world, row.rests_on)
    return not row.revoked_on and not rests


def asks_for(world: World, name: str, word: str) -> bool:
    """Whether a mandate bears on something, in the register's own words."""
    rows = world.catalog.named(MandateRow)
    return word in rows[one_of(name, rows, "mandate")].bears_on


def regime(world: World, name: str) -> Regime:
    """One regime's row."""
    return find_regime(world.catalog, name)


def control_count(world: World, name: str) -> int:
    """Controls of NIST SP 800-53 in a regime's baseline."""
    system = _system(world, name, 64)
    return len(compliance_of(_spec(name), system, (), None, world.catalog, UNDATED).controls)


def key_modules(world: World, name: str, accelerators: int) -> int:
    """Hardware security modules that a regime asks of a training cluster."""
    system = _system(world, name, accelerators)
    return compliance_of(_spec(name), system, (), None, world.catalog, UNDATED).keys.module_count


def rules_uplift(world: World, name: str, accelerators: int) -> float:
    """What a regime adds to a year of H100 at list price: its items, and the premium of its regions.

    What is paid once is spread over the years that it serves; a premium is over the same provider's price.
    """
    hours = accelerators * YEAR_H
    rent = _rent(world, find_regime(world.catalog, name), hours)
    provider = rent.paid.split(" ")[0]
    system = _system(world, name, accelerators)
    rents = (rent,) if system.regime.rented else ()
    system = replace(system, providers=(provider,) if rents else ())
    base_usd = hours * rent.provider_usd_per_h
    found = compliance_of(_spec(name), system, rents, base_usd, world.catalog, UNDATED)
    if found.uplift is None:
        raise InfeasibleError(f"{name} has no bill")
    return found.uplift.uplift_fraction.value


def _rent(world: World, regime: Regime, hours: float) -> Rent:
    """The cheapest H100 that a regime permits, beside its provider's and anybody's without the regime."""
    anywhere = best_price(world.catalog, RENTED, ON_DEMAND)
    rented = regime.rented and not regime.closed  # else the list price stands for machines of one's own
    authorised = world.catalog.restricted(permits(world.catalog, regime)) if rented else world.catalog
    paid = best_price(authorised, RENTED, ON_DEMAND)
    if paid is None or anywhere is None:
        raise MissingFigure(f"no list price of {RENTED} under {regime.name}")
    prices = [
        each for each in world.catalog.prices_for(RENTED)
        if each.provider == paid.provider and each.instance == paid.instance and each.term in ON_DEMAND
    ]  # fmt: skip
    same = min(prices, key=lambda each: each.usd_per_accelerator_h)
    return Rent(
        "training",
        hours,
        paid.usd_per_accelerator_h,
        same.usd_per_accelerator_h,
        anywhere.usd_per_accelerator_h,
        _words(paid),
        _words(same),
        _words(anywhere),
        paid.date,
    )


def _words(price: Price) -> str:
    return f"{price.provider} {price.instance} {price.region} {price.term}"


def log_wait_s(world: World, name: str, how: str) -> float:
    """Seconds that an answer of 200 tokens waits for its attributions' record, `synchronous` or not."""
    one_of(how, ("synchronous", "asynchronous"), "way to write a log")
    system = replace(
        _system(world, name, 8), requests_per_s=1.0, peak_requests_per_s=2.0, input_tokens=1000.0,
        output_tokens=200.0,
    )  # fmt: skip
    spec = _spec(name).model_copy(update={"recorded": "attribution"})
    logs = compliance_of(spec, system, (), None, world.catalog, UNDATED).logs
    waits = logs.synchronous_s if how == "synchronous" else logs.asynchronous_s
    if waits is None:
        raise InfeasibleError("nothing is served")
    return waits.value


def _spec(name: str) -> ComplianceSpec:
    return ComplianceSpec(regime=name)  # type: ignore[arg-type]  # `find_regime` has refused any other


def _system(world: World, name: str, accelerators: int) -> RuledSystem:
    """One training cluster of 8-GPU nodes in one place, in which twenty people work."""
    row = find_regime(world.catalog, name)
    nodes = max(1, accelerators // 8)
    fleet = RuledFleet("training", "DGX-H100", nodes, accelerators, bool(row.rented) and not row.closed)
    return RuledSystem(row, (fleet,), 1, 20, 0.0, 0.0, 0.0, 0.0, None, 3600.0, 140e9, 60e12)
