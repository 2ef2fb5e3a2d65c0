"""Cables with lengths: every cable has one, media reach, and the bill is the sum of its parts."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.building.cabling import CableRun, cable_runs, fabric_bill, hall
from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import NetworkPart
from twofold.contracts.results.premises import BuiltNetwork
from twofold.perf.topology import FabricParts, fabric_parts

CATALOG = load_catalog()
HALL = hall(CATALOG)
NDR = 50e9


def parts_of(nodes: int, fabric: str = "infiniband", rate: float = NDR) -> FabricParts:
    found = fabric_parts(CATALOG, fabric, nodes * 8, rate, rails=8)
    assert found
    return found


def bill_of(parts: FabricParts, rate: float, runs: Sequence[CableRun]) -> BuiltNetwork:
    return fabric_bill(
        CATALOG,
        parts,
        rate,
        runs,
        name="run",
        fabric="infiniband",
        shape="fat tree",
        oversubscription_ratio=1.0,
        survives="a spine",
        note="",
    )


def runs_of(parts: FabricParts, nodes: int) -> tuple[CableRun, ...]:
    racks = [4] * (nodes // 4) + ([nodes % 4] if nodes % 4 else [])
    return cable_runs(parts, racks, 8, HALL, max(parts.port_count // 2, 1))


@settings(max_examples=40)
@given(st.integers(2, 600))
def test_every_cable_that_is_counted_has_a_length(nodes: int) -> None:
    parts = parts_of(nodes)
    runs = runs_of(parts, nodes)
    by_tier = [
        sum(run.count for run in runs if run.tier == tier) for tier in range(len(parts.counts.switches))
    ]
    assert by_tier == [parts.counts.end_cables, *parts.counts.tier_cables]
    least_m = HALL.inside_rack_m * (1 + HALL.slack_fraction)
    assert all(run.length_m >= least_m - 0.1 for run in runs)


def test_larger_halls_have_longer_cables() -> None:
    means = []
    for nodes in (64, 512, 2048):
        runs = runs_of(parts_of(nodes), nodes)
        means.append(sum(r.count * r.length_m for r in runs) / sum(r.count for r in runs))
    assert means == sorted(means) and means[0] < means[-1]


@pytest.mark.parametrize(
    ("length_m", "media"),
    [
        (2.0, {"400G DAC 2 m"}),
        (20.0, {"400G SR4 (OSFP flat, NDR)", "800G 2xSR4 (twin-port OSFP)"}),
        (200.0, {"400G DR4", "800G 2xDR4 (twin-port OSFP)"}),
        (1500.0, {"400G FR4", "800G 2xFR4"}),
    ],
)
def test_the_medium_reaches(length_m: float, media: set[str]) -> None:
    parts = parts_of(128)
    bill = bill_of(parts, NDR, [CableRun(0, 1020, length_m)])
    named = {item.part for item in bill.parts if item.kind != "switch" and "fibre" not in item.part}
    assert named == media


def test_no_optic_reaches_so_far() -> None:
    bill = bill_of(parts_of(128), NDR, [CableRun(0, 8, 90_000.0)])
    assert (bill.shape, bill.parts, bill.usd) == ("not known", (), None)
    assert bill.note == "no switch or optic of the catalogue has 400 Gb/s for infiniband"


@pytest.mark.parametrize(
    ("fabric", "rate"), [("infiniband", NDR), ("roce", NDR), ("roce", 100e9), ("efa", 12.5e9)]
)
def test_the_bill_is_the_sum_of_its_parts(fabric: str, rate: float) -> None:
    parts = parts_of(64, fabric, rate)
    bill = bill_of(parts, rate, runs_of(parts, 64))
    assert bill.usd == pytest.approx(sum(item.count * (item.unit_usd or 0.0) for item in bill.parts))
    power_w = {part.name: part.power_w for part in CATALOG.rows(NetworkPart)}
    assert bill.power_w == pytest.approx(sum(item.count * (power_w[item.part] or 0.0) for item in bill.parts))
    assert bill.cable_count == parts.counts.cable_count
    switches = sum(item.count for item in bill.parts if item.kind == "switch")
    assert switches == parts.counts.switch_count
    ends = sum(item.count for item in bill.parts if item.kind == "transceiver")
    assert 0 <= ends <= 2 * bill.cable_count


def test_twin_port_optics_serve_two_cables() -> None:
    """1,020 cards and 1,024 uplinks of a published design: twin modules in switches, single ones in cards."""
    parts = parts_of(128)
    bill = bill_of(parts, NDR, [CableRun(0, 1024, 20.0), CableRun(1, 1024, 20.0)])
    counts = {item.part: item.count for item in bill.parts}
    assert counts["400G SR4 (OSFP flat, NDR)"] == 1024
    assert counts["800G 2xSR4 (twin-port OSFP)"] == 512 + 1024


def test_a_slow_card_takes_a_switch_that_the_catalogue_has() -> None:
    found = fabric_parts(CATALOG, "ethernet", 128, 12.5e9)
    assert found and found.port_count >= 64
