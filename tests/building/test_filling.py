"""Servers into racks: no limit is passed, the least limit is named, and heat is as even as it can be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.building.cooling import COOLING_KINDS, CoolingKind
from twofold.building.filling import (
    NodeList,
    RackLimits,
    RackLoad,
    band_verdict,
    even_counts,
    nodes_per_rack,
    rack_limits,
    serving_racks,
    training_racks,
    unevenness,
)
from twofold.catalog.catalog import load_catalog

CATALOG = load_catalog()
ONPREM = ["DGX-H100", "HGX-B200-10U-CX7", "L40S-4U-8", "L4-2U-4", "GB200-NVL72-rack", "HGX-H100-5U"]


def test_four_dgx_h100_fill_a_rack_of_41_kw_as_published() -> None:
    fill = nodes_per_rack(CATALOG, CATALOG.node("DGX-H100"), rack_limits(CATALOG, "contained_air"))
    assert (fill.nodes_per_rack, fill.binding, fill.rack_w) == (4, "cooling", 40_800)
    assert band_verdict(CATALOG, "training", fill.rack_w) == "in"


@pytest.mark.parametrize(
    ("limits", "binding"),
    [
        ({"power_w": 21e3}, "power"),
        ({"rack_units": 24}, "rack units"),
        ({"ports": 16}, "ports"),
        ({"weight_kg": 300.0}, "weight"),
    ],
)
def test_each_limit_binds_when_it_is_the_least(limits: dict[str, float], binding: str) -> None:
    limits_of = rack_limits(CATALOG, "direct_to_chip", **limits)  # type: ignore[arg-type]  # one of several
    assert nodes_per_rack(CATALOG, CATALOG.node("DGX-H100"), limits_of).binding == binding


def test_a_rack_of_72_is_its_own_rack_and_takes_liquid() -> None:
    node = CATALOG.node("GB200-NVL72-rack")
    found = {kind: nodes_per_rack(CATALOG, node, rack_limits(CATALOG, kind)) for kind in COOLING_KINDS}
    assert {kind: fill.nodes_per_rack for kind, fill in found.items()} == {
        "air": 0,
        "contained_air": 0,
        "rear_door": 0,
        "direct_to_chip": 1,
        "immersion": 1,
        "liquid_800_v": 1,
    }


@given(st.integers(1, 600), st.integers(1, 12))
def test_servers_are_spread_evenly_and_none_is_lost(count: int, per_rack: int) -> None:
    counts = even_counts(count, per_rack)
    assert sum(counts) == count and max(counts) <= per_rack
    assert max(counts) - min(counts) <= 1
    assert len(counts) <= 1.15 * -(-count // per_rack)


def test_training_racks_are_alike_and_their_imbalance_is_1() -> None:
    wanted = NodeList("base", "training", CATALOG.node("DGX-H100"), 64)
    racks = training_racks(CATALOG, wanted, rack_limits(CATALOG, "contained_air"))
    ratio, hot = unevenness(racks)
    assert len(racks) == 16 and {rack.holds for rack in racks} == {(("base", 4),)}
    assert ratio == pytest.approx(1.0) and not any(hot)


def test_mixed_racks_are_less_even_than_equal_ones_and_name_the_hot_ones() -> None:
    wanted = [
        NodeList("chat", "serving", CATALOG.node("HGX-H200-RoCE"), 5),
        NodeList("search", "serving", CATALOG.node("L4-2U-4"), 6),
    ]
    racks = serving_racks(CATALOG, wanted, rack_limits(CATALOG, "air"))
    ratio, hot = unevenness(racks)
    assert ratio > 1.0
    heat = [rack.load.heat_w for rack in racks]
    assert hot == [heat_w > 1.15 * sum(heat) / len(heat) for heat_w in heat]


@settings(max_examples=25)
@given(
    st.dictionaries(st.sampled_from(ONPREM), st.integers(1, 30), min_size=1),
    st.sampled_from(COOLING_KINDS),
)
def test_no_rack_passes_a_limit_and_every_server_that_fits_stands(
    counts: dict[str, int], kind: CoolingKind
) -> None:
    limits = rack_limits(CATALOG, kind)
    wanted = [NodeList(name, "serving", CATALOG.node(name), count) for name, count in counts.items()]
    racks = serving_racks(CATALOG, wanted, limits)
    placed = {name: sum(dict(rack.holds).get(name, 0) for rack in racks) for name in counts}
    fits = {each.name: nodes_per_rack(CATALOG, each.node, limits).nodes_per_rack > 0 for each in wanted}
    assert placed == {name: count if fits[name] else 0 for name, count in counts.items()}
    for rack in racks:
        _within(rack.load, limits)


def _within(load: RackLoad, limits: RackLimits) -> None:
    assert load.planned_w <= limits.cooling_w * (1 + 1e-9)
    assert load.rack_units <= limits.rack_units or load.rack_units >= 40  # a rack of its own
    assert load.ports <= limits.ports
    assert load.weight_kg <= limits.weight_kg * (1 + 1e-9)


def test_nothing_to_place_takes_no_rack() -> None:
    limits = rack_limits(CATALOG, "air")
    assert serving_racks(CATALOG, [], limits) == ()
    assert training_racks(CATALOG, NodeList("none", "training", CATALOG.node("L4-2U-4"), 0), limits) == ()
    assert unevenness(()) == (1.0, [])
