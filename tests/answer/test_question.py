"""Machines in words: what they mean, what a question may vary, and what is refused."""

import pytest

from twofold.answer.question import Given, Variation, given, resized, scaled
from twofold.catalog.catalog import Catalog
from twofold.core.errors import InputError
from twofold.perf.constants import Constants


@pytest.mark.parametrize(
    ("words", "nodes", "per_node", "accelerator"),
    [
        ("64x8xH100-SXM", 64, 8, "H100-SXM5-80GB"),
        ("64 × 8 × H100-SXM", 64, 8, "H100-SXM5-80GB"),
        ("4xH200", 1, 4, "H200-SXM5-141GB"),
        ("H200", 1, 1, "H200-SXM5-141GB"),
        ("512xH100-SXM", 64, 8, "H100-SXM5-80GB"),
        ("8xp5.48xlarge", 8, 8, "H100-SXM5-80GB"),
        ("p5.48xlarge", 1, 8, "H100-SXM5-80GB"),
        ("2xGB200-NVL72-rack", 2, 72, "GB200-186GB"),
    ],
)
def test_words_mean_nodes_and_accelerators(
    catalog: Catalog, constants: Constants, words: str, nodes: int, per_node: int, accelerator: str
) -> None:
    found = given(words, catalog, constants)
    assert (found.machine.node_count, found.machine.accelerators_per_node) == (nodes, per_node)
    assert found.accelerator.name == accelerator
    assert found.cluster.accelerator_count == found.accelerator_count == nodes * per_node
    assert found.machine.accelerator_count == nodes * per_node


@pytest.mark.parametrize("words", ["", "8x", "x8", "0xH100-SXM", "8xNothing", "8x8x8xH100-SXM", "-1xH200"])
def test_other_words_are_refused(catalog: Catalog, constants: Constants, words: str) -> None:
    with pytest.raises(InputError):
        given(words, catalog, constants)


def rates(machines: Given) -> tuple[object, object]:
    return machines.cluster.network.link_bytes_per_s, machines.cluster.network.nic_bytes_per_s


def test_variations_change_what_they_name(catalog: Catalog, constants: Constants) -> None:
    def vary(variation: Variation) -> Given:
        return given("8x8xH100-SXM", catalog, constants, variation)

    usual = vary(Variation())
    link, card = rates(usual)
    assert rates(vary(Variation(scale={"link": 0.5}))) == (pytest.approx(link / 2), card)
    assert rates(vary(Variation(scale={"nic": 2.0}))) == (link, pytest.approx(card * 2))
    assert rates(vary(Variation(oversubscription_ratio=4.0))) == (link, pytest.approx(card / 4))
    assert rates(vary(Variation(nic_bytes_per_s=usual.nic_bytes_per_s / 2))) == (
        link,
        pytest.approx(card / 2),
    )
    assert vary(Variation(fabric="ethernet")).machine.fabric == "ethernet"
    priced = vary(Variation(price_usd_per_h=2.5)).machine.price
    assert priced
    assert priced.usd_per_accelerator_h.low == priced.usd_per_accelerator_h.high == 2.5


def test_people_may_say_nic_memory_and_bandwidth() -> None:
    assert scaled({"nic": 2.0, "memory": 1.1, "bandwidth": 0.9}) == {
        "fabric": 2.0,
        "memory_capacity": 1.1,
        "memory_bandwidth": 0.9,
    }


def test_a_part_of_a_node_keeps_its_links_to_itself(catalog: Catalog, constants: Constants) -> None:
    whole = given("64x8xH100-SXM", catalog, constants)
    for count, nodes, per_node in ((1, 1, 1), (4, 1, 4), (8, 1, 8), (512, 64, 8)):
        part = resized(whole, count)
        assert (part.machine.node_count, part.machine.accelerators_per_node) == (nodes, per_node)
        assert part.cluster.network.domain_size == min(8, per_node)
    rack = given("GB200-NVL72-rack", catalog, constants)
    assert resized(rack, 8).cluster.network.domain_size <= 72


def test_what_is_assumed_or_only_announced_is_said(catalog: Catalog, constants: Constants) -> None:
    assert any("Groq" in warning for warning in given("8xGroq", catalog, constants).warnings)
    announced = given("VR200-NVL72-rack", catalog, constants)
    assert any("announced" in warning for warning in announced.warnings)
    assert given("64x8xH100-SXM", catalog, constants).warnings == ()
