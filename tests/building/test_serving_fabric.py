"""The network of a serving fleet: sized by what flows, and alive with one leaf or spine lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.building.network import ServingFabric, serving_fabric, serving_flow
from twofold.catalog.catalog import load_catalog

CATALOG = load_catalog()


def built(nodes: int, flow: float) -> ServingFabric:
    found = serving_fabric(CATALOG, nodes, flow, 12.5e9)
    assert found
    return found


def test_text_alone_fills_nothing() -> None:
    """A hundred requests a second of 8.4 kB are about a megabyte a second."""
    flow = serving_flow(100.0, 8400.0, 10)
    assert 0.5e6 < flow * 10 < 2e6
    fabric = built(10, flow)
    assert fabric.used_fraction < 0.001 and fabric.oversubscription_ratio == 4.0


def test_models_that_load_are_what_sizes_it() -> None:
    text = serving_flow(100.0, 8400.0, 10)
    loading = serving_flow(100.0, 8400.0, 10, weights_bytes=140e9, load_within_s=20.0)
    assert loading - text == pytest.approx(7e9)
    assert built(10, loading).oversubscription_ratio < built(10, text).oversubscription_ratio


@given(st.integers(1, 2000), st.floats(0.0, 12.5e9))
def test_every_node_has_two_leaves_and_losing_one_doubles_the_load(nodes: int, flow: float) -> None:
    fabric = built(nodes, flow)
    leaves, *spines = fabric.parts.counts.switches
    assert leaves % 2 == 0 and leaves * fabric.parts.port_count >= 2 * nodes
    assert fabric.parts.counts.cable_count >= 2 * nodes
    if fabric.survives_a_leaf:
        assert 2 * fabric.used_fraction <= 1.0
    if spines:
        assert sum(spines) >= 2
        assert sum(spines) * fabric.parts.port_count >= leaves


@given(st.integers(1, 1000), st.integers(0, 500))
def test_more_nodes_never_take_fewer_switches(nodes: int, more: int) -> None:
    flow = serving_flow(10.0, 6000.0, 1)
    few, many = (built(count, flow).parts.counts.switch_count for count in (nodes, nodes + more))
    assert many >= few


def test_a_flow_beyond_one_link_does_not_survive_a_leaf() -> None:
    assert not built(4, 20e9).survives_a_leaf


def test_no_nodes_no_network() -> None:
    assert serving_fabric(CATALOG, 0, serving_flow(1.0, 1.0, 1), 12.5e9) is None
    assert serving_fabric(CATALOG, 4, serving_flow(1.0, 1.0, 4), 1e15) is None
