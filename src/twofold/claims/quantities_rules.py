"""Quantities of rules: what is in force, what a regime asks, what it adds to the bill."""

from collections.abc import Mapping

from twofold.catalog import Regime
from twofold.claims.quantities_catalog import list_price
from twofold.claims.quantity import Quantity, one_of
from twofold.claims.world import World
from twofold.contracts import ComplianceSpec
from twofold.facility import Rent, RuledFleet, RuledSystem, compliance_of, find_regime

HOURS_A_YEAR = 8760.0
UNDATED = ""  # verdicts do not change with the day on which they are asked


def in_force(world: World, name: str) -> bool:
    """Whether a law, order or memorandum stands: neither it nor what it rests on was revoked."""
    rows = world.catalog.mandates()
    row = rows[one_of(name, rows, "mandate")]
    rests = row.rests_on in rows and not in_force(world, row.rests_on)
    return not row.revoked_on and not rests


def asks_for(world: World, name: str, word: str) -> bool:
    """Whether a mandate bears on something, in the register's own words."""
    rows = world.catalog.mandates()
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


def rules_uplift(world: World, name: str, accelerators: int) -> float | None:
    """What a regime's items add in the first year to a year of H100 at list price."""
    price = list_price(world, "H100-SXM5-80GB")
    if price is None:
        return None
    hours = accelerators * HOURS_A_YEAR
    rent = Rent("training", hours, price, price, price, "list price", "list price", "list price", "")
    rents = (rent,) if find_regime(world.catalog, name).rented else ()
    found = compliance_of(
        _spec(name),
        _system(world, name, accelerators),
        rents,
        hours * price,
        world.catalog,
        UNDATED,
    )
    return found.uplift.uplift_fraction.value if found.uplift else None


def _spec(name: str) -> ComplianceSpec:
    return ComplianceSpec(regime=name)  # type: ignore[arg-type]  # `find_regime` has refused any other


def _system(world: World, name: str, accelerators: int) -> RuledSystem:
    """One training cluster of 8-GPU nodes in one place, in which twenty people work."""
    row = find_regime(world.catalog, name)
    nodes = max(1, accelerators // 8)
    fleet = RuledFleet("training", "DGX-H100", nodes, accelerators, bool(row.rented) and not row.closed)
    return RuledSystem(row, (fleet,), 1, 20, 0.0, 0.0, 0.0, 0.0, None, 3600.0, 140e9, 60e12)


RULES: Mapping[str, Quantity] = {
    "in_force": Quantity(in_force),
    "asks_for": Quantity(asks_for),
    "regime": Quantity(regime),
    "control_count": Quantity(control_count),
    "key_modules": Quantity(key_modules),
    "rules_uplift": Quantity(rules_uplift),
}
