"""Air or liquid by density: the limit is stated, and the cheapest feasible way comes first."""

import pytest

from twofold.building.cooling import COOLING_KINDS
from twofold.building.filling import rack_limits
from twofold.building.racks import cooling_options
from twofold.catalog.catalog import load_catalog
from twofold.contracts.results.premises import CoolingWay

CATALOG = load_catalog()
USD_PER_KWH = 0.08


def ways(
    name: str, count: int, usd_per_kwh: float = USD_PER_KWH, power_w: float | None = None
) -> tuple[CoolingWay, ...]:
    """Every way to cool so many of a server where it is temperate."""
    limits = {kind: rack_limits(CATALOG, kind, power_w=power_w) for kind in COOLING_KINDS}
    return cooling_options(CATALOG, CATALOG.node(name), count, usd_per_kwh, "temperate", limits)


def test_a_10_u_b200_stands_in_air_one_to_a_rack() -> None:
    air = next(each for each in ways("HGX-B200-10U-CX7", 8) if each.kind == "air")
    assert (air.feasible, air.nodes_per_rack, air.rack_count) == (True, 1, 8)
    assert air.why == "air: 1 node of 14.3 kW in a rack of at most 20 kW, bound by cooling"


def test_a_rack_of_120_kw_takes_liquid() -> None:
    found = ways("GB200-NVL72-rack", 2)
    assert found[0].kind == "direct_to_chip"
    assert {each.kind for each in found if not each.feasible} == {"air", "contained_air", "rear_door"}


def test_feasible_ways_come_first_and_the_cheapest_of_them() -> None:
    found = ways("DGX-H100", 64)
    costs = [each.usd_per_year for each in found if each.feasible][:-2]
    assert costs[0] <= 1.03 * min(costs)
    assert [each.feasible for each in found] == sorted((each.feasible for each in found), reverse=True)
    assert {each.kind for each in found[-2:]} == {"immersion", "liquid_800_v"}  # only where asked for


def test_dear_energy_favours_the_lower_pue() -> None:
    cheap, dear = (ways("DGX-H100", 64, price)[0].pue_ratio for price in (0.01, 0.5))
    assert dear <= cheap


@pytest.mark.parametrize("rack_power_w", [5e3, 15e3, 30e3])
def test_a_rack_feed_limits_every_way(rack_power_w: float) -> None:
    found = ways("DGX-H100", 8, power_w=rack_power_w)
    assert all(each.nodes_per_rack <= rack_power_w / 10_200 for each in found)
