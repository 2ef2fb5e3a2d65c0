"""Ways to cool a rack: what each carries, and its energy and water in a climate."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from twofold.catalog.catalog import Catalog
from twofold.catalog.figures import figure
from twofold.core.errors import UnknownNameError
from twofold.core.estimate import Estimate

CoolingKind = Literal["air", "contained_air", "rear_door", "direct_to_chip", "immersion", "liquid_800_v"]
Climate = Literal["cold", "temperate", "hot"]
COLD_FROM_DEG, HOT_BELOW_DEG = 50.0, 30.0  # of latitude, where nothing else is known


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of the table `facility` that describe one kind."""

    rack_kw: str
    pue: str
    capex: str
    water: str


_AIR, _LIQUID = "shell plus MEP, air", "shell plus MEP, AI liquid-cooled"
_MIXED = "direct-to-chip liquid (mixed with air)"
_CONTAINED = "modern air with containment and economiser"
_WET, _DRY = "evaporative cooling", "closed loop / dry"
KINDS: MappingProxyType[CoolingKind, _Rows] = MappingProxyType(
    {
        "air": _Rows("air, practical limit", "global average, all sites", _AIR, _WET),
        "contained_air": _Rows("air, full containment upper limit", _CONTAINED, _AIR, _WET),
        "rear_door": _Rows("rear-door heat exchanger, active", "rear-door heat exchanger", _LIQUID, _WET),
        "direct_to_chip": _Rows("direct-to-chip liquid", _MIXED, _LIQUID, _DRY),
        "immersion": _Rows("immersion tank", "single-phase immersion", _LIQUID, _DRY),
        "liquid_800_v": _Rows("next-generation 800 V DC rack (Kyber)", _MIXED, _LIQUID, _DRY),
    }
)
COOLING_KINDS = tuple(KINDS)
LIQUID: tuple[CoolingKind, ...] = ("direct_to_chip", "immersion", "liquid_800_v")


def cooling_limit_w(catalog: Catalog, kind: CoolingKind) -> Estimate:
    """Heat that one rack may give off, in W."""
    return figure(catalog, "rack_kw", _rows(kind).rack_kw)


def climate_of(latitude_deg: float) -> Climate:
    """A climate where only the place is known: by latitude, which is coarse."""
    degrees = abs(latitude_deg)
    return "cold" if degrees >= COLD_FROM_DEG else "hot" if degrees < HOT_BELOW_DEG else "temperate"


def pue(catalog: Catalog, kind: CoolingKind, climate: Climate = "temperate") -> float:
    """Facility power over IT power: the low end of what such sites report where it is cold, the high end
    where it is hot. The ranges are of the table `facility: pue`."""
    return _by_climate(figure(catalog, "pue", _rows(kind).pue), climate)


def wue_l_per_kwh(catalog: Catalog, kind: CoolingKind, climate: Climate = "temperate") -> float:
    """Litres of site water per kWh of IT energy, by the ends of `facility: water` as `pue` does."""
    return _by_climate(figure(catalog, "water", _rows(kind).water), climate)


def capex_usd_per_w(catalog: Catalog, kind: CoolingKind) -> Estimate:
    """What a building of that kind costs per watt of IT."""
    return figure(catalog, "capex_facility", _rows(kind).capex)


def _by_climate(estimate: Estimate, climate: Climate) -> float:
    return {"cold": estimate.low, "temperate": estimate.value, "hot": estimate.high}[climate]


def _rows(kind: CoolingKind) -> _Rows:
    if kind in KINDS:
        return KINDS[kind]
    raise UnknownNameError(f"`{kind}` is not a way to cool", hint="kinds: " + ", ".join(KINDS))
