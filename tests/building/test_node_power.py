"""A server's power by part: what vendors state and fleets measured, and laws of what it draws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.building.node_power import (
    draw_w,
    is_liquid_cooled,
    network_cards,
    node_power,
    resting_w,
    serving_w,
    training_peak_w,
    training_w,
)
from twofold.catalog.catalog import load_catalog
from twofold.catalog.figures import figure
from twofold.catalog.types import Node

CATALOG = load_catalog()
STATED = [
    node.name for node in CATALOG.rows(Node) if node.provider == "onprem" and node.confidence == "vendor"
]
H100 = node_power(CATALOG, CATALOG.node("DGX-H100"))


@pytest.mark.parametrize("name", STATED)
def test_the_model_is_within_10_percent_of_what_vendors_publish(name: str) -> None:
    power = node_power(CATALOG, CATALOG.node(name))
    assert power.stated_w and power.nameplate_w == pytest.approx(power.stated_w, rel=0.10)
    assert power.planned_w == power.stated_w


def test_the_list_of_published_servers_is_not_empty() -> None:
    assert {"DGX-A100-80", "DGX-H100", "DGX-B200", "DGX-B300", "GB200-NVL72-rack", "Gaudi2-8"} <= set(STATED)


def test_the_training_peak_of_eight_h100_is_what_was_measured() -> None:
    """Latif et al. 2024 measured at most 8.4 kW on a node of 10.2 kW; the table holds the share, 0.82."""
    share = figure(CATALOG, "power_fraction", "node, 8xH100 training peak (of nameplate 10.2 kW)").value
    assert training_peak_w(CATALOG, H100) == pytest.approx(share * 10_200, rel=0.10)


def test_an_idle_server_draws_what_makers_report() -> None:
    reported = figure(CATALOG, "power_fraction", "node, 8-GPU idle (of nameplate)")
    assert reported.low <= resting_w(CATALOG, H100).value / 10_200 <= reported.high


@pytest.mark.parametrize("name", ["DGX-A100-80", "DGX-B200", "GB200-NVL72-rack", "L40S-4U-8"])
def test_what_it_draws_lies_between_rest_and_maximum(name: str) -> None:
    power = node_power(CATALOG, CATALOG.node(name))
    steady, peak = training_w(CATALOG, power), training_peak_w(CATALOG, power)
    assert (
        resting_w(CATALOG, power).value
        < serving_w(CATALOG, power).value
        < steady.value
        < peak
        < power.nameplate_w
    )
    assert steady.low < steady.value < steady.high
    assert serving_w(CATALOG, power, 0.0).value < serving_w(CATALOG, power, 1.0).value


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 0.5))
def test_more_work_never_draws_less(accelerators: float, host: float, more: float) -> None:
    assert draw_w(H100, accelerators + more, host) >= draw_w(H100, accelerators, host)
    assert draw_w(H100, accelerators, host + more) >= draw_w(H100, accelerators, host)


def test_the_parts_add_up_to_the_nameplate() -> None:
    for node in CATALOG.rows(Node):
        power = node_power(CATALOG, node)
        assert sum(power.parts.values()) == pytest.approx(power.nameplate_w)
        assert draw_w(power, 1.0, 1.0) == pytest.approx(power.nameplate_w)


def test_a_rack_of_72_and_its_trays_need_liquid_and_an_8_u_server_does_not() -> None:
    dense = {name: is_liquid_cooled(CATALOG, CATALOG.node(name)) for name in ("GB200-tray-4", "DGX-H100")}
    assert dense == {"GB200-tray-4": True, "DGX-H100": False}


@pytest.mark.parametrize(
    ("name", "count", "gbit_per_s"),
    [
        ("DGX-H100", 8, 400),
        ("L40S-4U-8", 2, 200),
        ("gd-8xh100ib-i128", 8, 400),
        ("g2-standard-96", 1, 100),
        ("p5e.48xlarge", 8, 400),
    ],
)
def test_cards_are_as_the_type_says_or_one_an_accelerator(name: str, count: int, gbit_per_s: float) -> None:
    assert network_cards(CATALOG.node(name)) == (count, gbit_per_s * 1e9 / 8)
