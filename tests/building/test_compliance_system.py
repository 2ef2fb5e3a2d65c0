"""Enclaves, the one-way link, and what a closed system does otherwise."""

from collections.abc import Callable

import pytest

from twofold.building.compliance_system import (
    RuledSystem,
    administrators,
    differences_of,
    enclaves_of,
    spare_nodes,
    transfer_of,
)
from twofold.catalog.catalog import load_catalog

CATALOG = load_catalog()
System = Callable[..., RuledSystem]


@pytest.mark.parametrize("sites", [1, 2, 3])
def test_every_node_stands_in_one_enclave(ruled: System, sites: int) -> None:
    system = ruled("il5", nodes=14, sites=sites)
    enclaves = enclaves_of(system)
    assert sum(enclave.node_count for enclave in enclaves) == system.nodes_count()
    assert len({enclave.name for enclave in enclaves}) == len(enclaves) == sites + 2


def test_training_and_serving_reach_each_other_by_management_alone(ruled: System) -> None:
    by_name = {enclave.name: enclave for enclave in enclaves_of(ruled("fedramp-high"))}
    assert by_name["training"].connects_to == by_name["serving"].connects_to == ("management",)


def test_only_a_closed_system_has_a_side_below_and_nothing_flows_back_to_it(ruled: System) -> None:
    closed = {enclave.name: enclave for enclave in enclaves_of(ruled("air-gapped"))}
    assert closed["staging"].connects_to == ("management",)
    assert not [enclave for enclave in closed.values() if "staging" in enclave.connects_to]
    assert "staging" not in {enclave.name for enclave in enclaves_of(ruled("il5"))}


def test_what_crosses_the_link_takes_its_bytes_over_its_rate(ruled: System) -> None:
    assert transfer_of(ruled("il5"), CATALOG) is None
    plan = transfer_of(ruled("air-gapped"), CATALOG)
    assert plan is not None
    whole = plan.weights_bytes + plan.data_bytes + plan.update_bytes
    assert plan.first_s == pytest.approx(whole / plan.link_bytes_per_s)
    assert plan.update_s < plan.first_s


def test_a_closed_room_keeps_spares_and_an_open_one_none(ruled: System) -> None:
    assert spare_nodes(ruled("air-gapped", rented=False, nodes=2), CATALOG) == 1
    assert spare_nodes(ruled("air-gapped", rented=False, nodes=200), CATALOG) == 10
    assert spare_nodes(ruled("il5", rented=False), CATALOG) == 0


def test_updates_telemetry_and_spares_change_behind_an_air_gap(ruled: System) -> None:
    system = ruled("air-gapped", rented=False)
    changed = {each.what for each in differences_of(system, transfer_of(system, CATALOG), CATALOG)}
    assert {"updates", "telemetry", "spare parts"} <= changed
    open_system = ruled("il5")
    others = {each.what for each in differences_of(open_system, None, CATALOG)}
    assert "tenants" in others
    assert not {"updates", "telemetry"} & others


def test_a_few_administer_whoever_many_use(ruled: System) -> None:
    assert administrators(ruled("il5"), CATALOG) == 20  # a tenth of 200
