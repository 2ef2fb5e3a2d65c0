"""A user's own server: one that adds up passes, and each thing that cannot be is named by its column."""

from dataclasses import replace
from typing import Any

import pytest

from twofold.building.own_nodes import judge_node
from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Node

CATALOG = load_catalog()
OURS = replace(CATALOG.node("HGX-H100-RoCE"), name="our-box", rack_units=6, power_w_max=9800.0)


def test_a_server_that_adds_up_passes() -> None:
    verdict = judge_node(CATALOG, OURS)
    assert verdict.passes and verdict.findings == ()
    assert (verdict.planned_w, verdict.card_count, verdict.card_bytes_per_s) == (9800.0, 8, 50e9)
    assert (verdict.nodes_per_rack, verdict.cooling) == (4, "contained air")


@pytest.mark.parametrize(
    ("change", "column", "said"),
    [
        ({"power_w_max": 4000.0}, "power_w", "they alone draw 5.6 kW"),
        ({"power_w_max": 98_000.0}, "power_w", "17.5 times what they draw"),
        ({"nic_type": "ConnectX-7 4x400"}, "nic_type", "is 1600 Gb/s, the row says 3200"),
        ({"nic_bytes_per_s": 3.2e12, "nic_type": "8x3200"}, "nic_gbit_s", "no roce switch"),
    ],
)
def test_what_cannot_be_is_an_error(change: dict[str, Any], column: str, said: str) -> None:
    verdict = judge_node(CATALOG, replace(OURS, **change))
    errors = [finding for finding in verdict.findings if finding.severity == "error"]
    assert not verdict.passes
    assert any(finding.column == column and said in finding.message for finding in errors), errors


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"power_w_max": 6000.0}, "its parts add up to"),
        ({"nic_bytes_per_s": 8e11, "nic_type": "8x800"}, "16 lanes of PCIe 5 carry 504"),
    ],
)
def test_what_is_odd_is_a_warning(change: dict[str, Any], said: str) -> None:
    verdict = judge_node(CATALOG, replace(OURS, **change))
    assert verdict.passes and any(said in finding.message for finding in verdict.findings)


def test_our_own_released_servers_pass() -> None:
    failing = [
        node.name
        for node in CATALOG.rows(Node)
        if CATALOG.accelerator(node.accelerator).released and not judge_node(CATALOG, node).passes
    ]
    assert failing == []
