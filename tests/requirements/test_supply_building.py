"""The requirement rows of areas `facility` and `deployment` about buildings and sites."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twofold.building.filling import NodeList as Servers
from twofold.building.filling import nodes_per_rack, rack_limits, serving_racks, training_racks, unevenness
from twofold.building.node_power import node_power
from twofold.building.sites import Site, rank_sites
from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Node

Ask = Callable[[str], Any]
ROOT = Path(__file__).parents[2]
SPECS = ROOT / "tests" / "requirements" / "specs"
CATALOG = load_catalog()


def building_of(ask: Ask, command: str) -> dict[str, Any]:
    """The part of the plan, whatever of it the command prints."""
    data = ask(f"{command.replace(' --details', '')} --json").data["building"]
    assert isinstance(data, dict)
    return data


def test_r_095_the_order_of_sites_changes_with_price_and_power_cap(
    screen: str, command: str, ask: Ask
) -> None:
    told = building_of(ask, command)["sites"]
    assert [(site["name"], site["feasible"]) for site in told] == [
        ("north", True),
        ("east", True),
        ("valley", False),
    ]
    assert "MW wanted, 0.1 MW there" in screen

    def order(**change: dict[str, float | None]) -> list[str]:
        sites = [
            Site(
                each["name"],
                each["region"],
                change.get("price", {}).get(each["name"]) or each["electricity_usd_per_kwh"],
                300.0,
                1.3,
                0.2,
                change.get("cap", {}).get(each["name"], each["power_cap_w"]),
                None,
                12.5e9,
            )
            for each in told
        ]
        return [rank.name for rank in rank_sites(CATALOG, sites, 2e5, peak_it_w=2e5) if rank.feasible]

    assert order() == ["north", "east"]
    assert order(price={"north": 0.2}) == ["east", "north"]
    assert order(cap={"valley": None}) == ["valley", "north", "east"]
    assert order(cap={"north": 1e5}) == ["east"]


def test_r_096_a_site_says_how_long_its_data_set_takes(screen: str, command: str, ask: Ask) -> None:
    told = building_of(ask, command)
    assert told["dataset_bytes"] == 500e12
    hours = {site["name"]: site["transfer_s"] / 3600 for site in told["sites"]}
    assert hours["north"] == pytest.approx(500e12 * 8 / 100e9 / 0.8 / 3600)  # at 80 % of 100 Gb/s
    assert hours["east"] == pytest.approx(hours["north"] / 4)  # 400 Gb/s
    assert re.search(r"north .* data in 14 h", screen) and "data set 500 TB" in screen


def test_r_097_the_round_trip_of_each_region_is_added_to_the_first_token(command: str, ask: Ask) -> None:
    plan = ask(f"{command.replace(' --details', '')} --json").data
    users = plan["building"]["users"]
    regions = {each["users"] for each in users}
    assert regions == {"aws:us-east-1", "aws:eu-west-1", "aws:ap-northeast-1"}
    ttft_s = plan["serving"][0]["classes"][0]["percentiles"]["ttft_p95"]["value"]
    for each in users:
        assert each["rtt_s"] == pytest.approx(CATALOG.rtt_s(each["users"], each["site"]))
        assert each["ttft_s"] == pytest.approx(ttft_s + each["rtt_s"])
    nearest = [each for each in users if each["users"] == each["site"]]
    assert len(nearest) == 3 and all(each["rtt_s"] <= 0.002 for each in nearest)


def test_r_108_a_server_of_your_own_is_judged_and_planned_with(screen: str, ask: Ask, tmp_path: Path) -> None:
    assert "our-box passes: 9.8 kW" in screen and "8 cards of 400 Gb/s" in screen
    told = building_of(ask, "twofold plan tests/requirements/specs/own-node")
    assert {group["node"] for group in told["racks"]} == {"our-box"}
    assert (told["racks"][0]["nodes_per_rack"], told["racks"][0]["binding"]) == (2, "ports")
    row = (SPECS / "own-node" / "catalog" / "nodes.csv").read_text("utf-8")
    wrong = {
        "power": (",9800,", ",980,", "they alone draw"),
        "ports": ("8x400", "2x400", "the row says 3200"),
    }
    for name, (right, changed, said) in wrong.items():
        (tmp_path / name / "catalog").mkdir(parents=True)
        text = (SPECS / "own-node" / "twofold.yaml").read_text("utf-8")
        (tmp_path / name / "twofold.yaml").write_text(text, "utf-8")
        (tmp_path / name / "catalog" / "nodes.csv").write_text(row.replace(right, changed), "utf-8")
        done = ask(f"twofold check {tmp_path / name}")
        assert done.code == 2 and said in done.err and "nodes.csv:2:1" in done.err


def test_r_149_rack_power_comes_from_the_servers_and_is_held_against_the_bands(
    screen: str, command: str, ask: Ask
) -> None:
    told = building_of(ask, command)
    for group in told["racks"]:
        node = CATALOG.node(group["node"])
        assert group["rack_w"] == pytest.approx(group["nodes_per_rack"] * (node.power_w_max or 0.0))
        low_kw, high_kw = (40, 120) if group["use"] == "training" else (10, 30)
        assert (group["band_low_w"], group["band_high_w"]) == (1e3 * low_kw, 1e3 * high_kw)
        inside = low_kw <= group["rack_w"] / 1e3 <= high_kw
        assert (group["band"] == "in") == inside
    assert "in 40–120" in screen and "10–30" in screen
    for drawn in told["nodes"]:
        assert sum(drawn["parts"].values()) == pytest.approx(drawn["modelled_w"])
        node = CATALOG.node(drawn["node"])
        published = published_server(node)
        assert drawn["stated_w"] == published.power_w_max
        modelled = node_power(CATALOG, published)
        assert modelled.nameplate_w == pytest.approx(published.power_w_max, rel=0.1)
        # A cloud lends that server without all of its cards and drives: nothing else may differ.
        inside = dict(modelled.parts)
        same = ("accelerators", "accelerator switches", "board")
        assert [drawn["parts"][name] for name in same] == pytest.approx([inside[name] for name in same])
        assert node.virtualised or drawn["modelled_w"] == pytest.approx(drawn["stated_w"], rel=0.1)


def published_server(node: Node) -> Node:
    """The server whose maximum its maker publishes: the node itself, or what a cloud lends as its own."""
    if not node.virtualised:
        return node
    alike = (node.accelerator, node.accelerator_count, node.power_w_max)
    (found,) = [
        each
        for each in CATALOG.rows(Node)
        if each.confidence == "vendor"
        and (each.accelerator, each.accelerator_count, each.power_w_max) == alike
    ]
    return found


def test_r_150_a_10_u_server_of_eight_b200_stands_in_air_alone_in_its_rack(
    screen: str, command: str, ask: Ask
) -> None:
    told = building_of(ask, command)
    group, choice = told["racks"][0], told["cooling"][0]
    assert CATALOG.node(group["node"]).rack_units == 10 and "B200" in group["node"]
    assert (group["cooling"], group["nodes_per_rack"]) == ("air", 1)
    ways = {way["kind"]: way for way in choice["ways"]}
    assert ways["air"]["feasible"] and ways["air"]["nodes_per_rack"] == 1
    assert ways["contained_air"]["nodes_per_rack"] == 3 < ways["direct_to_chip"]["nodes_per_rack"]
    assert "in a rack of at most 20 kW" in " ".join(screen.split())


def test_r_151_breakers_hold_80_percent_and_the_step_of_the_load_is_shown(
    screen: str, command: str, ask: Ask
) -> None:
    power = building_of(ask, command)["power"]
    assert all(0 < feed["load_alone_fraction"] <= 0.8 for feed in power["feeds"])
    swing = next(each for each in power["swings"] if each["name"] == "pretrain")
    assert swing["swing_w"] > 1e5 and swing["phase_swing_w"] > 0
    assert swing["buffer_j"] == pytest.approx(swing["swing_w"] * swing["ramp_s"] / 2)
    assert f"pretrain steps {swing['swing_w'] / 1e3:.0f} kW" in " ".join(screen.split())


def test_r_153_racks_of_a_run_are_alike_and_mixed_ones_show_their_hot_spots(
    screen: str, command: str, ask: Ask
) -> None:
    told = building_of(ask, command)
    training = [rack for rack in told["heat"] if "pretrain" in rack["holds"]]
    assert len({(rack["heat_w"], rack["planned_w"]) for rack in training}) == 1
    assert told["training_imbalance_ratio"] == pytest.approx(1.0)
    assert re.search(r"imbalance training 1\.00, serving \d\.\d\d", " ".join(screen.split()))
    limits = rack_limits(CATALOG, "contained_air")
    hot = Servers("hot", "serving", CATALOG.node("DGX-H200"), 5)
    cool = Servers("cool", "serving", CATALOG.node("L4-2U-4"), 3)
    mixed, _ = unevenness(serving_racks(CATALOG, [hot, cool], limits))
    alike, _ = unevenness(
        training_racks(CATALOG, Servers("run", "training", CATALOG.node("DGX-H100"), 16), limits)
    )
    assert mixed > alike == pytest.approx(1.0)


def test_r_155_the_limit_that_binds_is_named_for_each_rack(command: str, ask: Ask) -> None:
    told = building_of(ask, command)
    for group in told["racks"]:
        by_limit = {limit["limit"]: limit["nodes"] for limit in group["limits"]}
        assert {"cooling", "power", "rack units", "ports", "weight"} <= by_limit.keys()
        assert by_limit[group["binding"]] == min(by_limit.values())
    assert all(rack["binding"] for rack in told["heat"])
    node = CATALOG.node("L4-2U-4")
    free = rack_limits(CATALOG, "direct_to_chip")
    assert nodes_per_rack(CATALOG, node, free).binding == "rack units"
    heavy = rack_limits(CATALOG, "direct_to_chip", weight_kg=200.0)
    assert nodes_per_rack(CATALOG, node, heavy).binding == "weight"
