import pytest

from twofold.answer.offers import (
    bought_near,
    cluster_of,
    fixed_offer,
    node_for,
    node_of_size,
    own_offers,
    owned_offer,
    rented_offer,
    serving_offers,
    training_offers,
)
from twofold.catalog.catalog import Catalog
from twofold.contracts.spec.parts import FixedCluster
from twofold.contracts.spec.supply import Owned, Shop, Supply
from twofold.perf.constants import Constants

ON_DEMAND = ("on_demand",)


def supply(**shop: object) -> Supply:
    return Supply(shop=Shop.model_validate(shop))


def test_training_is_offered_whole_nodes_that_can_train(catalog: Catalog) -> None:
    found = training_offers(catalog, Supply())
    assert {"H100-SXM5-80GB", "B200-SXM-180GB"} <= {offer.accelerator.name for offer in found.offers}
    assert all(offer.price and not offer.price.term.startswith("reserved") for offer in found.offers)
    left_out = {loser.what: loser.why for loser in found.left_out}
    assert "inference part" in left_out["L4"] and "announced" in left_out["VR200-288GB"]


def test_the_cheapest_price_of_a_part_is_taken(catalog: Catalog) -> None:
    offers = serving_offers(catalog, supply(accelerators=["L40S"]), ()).offers
    allowed = [
        price.usd_per_accelerator_h
        for price in catalog.prices_for("L40S")
        if price.term in ("on_demand", "reserved_1y") and "gov" not in price.region
    ]
    assert min(offer.usd_per_accelerator_h or 0.0 for offer in offers) == min(allowed)


def test_what_is_excluded_stays_out(catalog: Catalog) -> None:
    everything = serving_offers(catalog, supply(accelerators=["H100-SXM", "L4"]), ()).offers
    provider = everything[0].price.provider if everything[0].price else ""
    offers = serving_offers(
        catalog, supply(accelerators=["H100-SXM", "L4"], exclude=["h100-sxm", provider]), ()
    ).offers
    assert offers and {offer.accelerator.name for offer in offers} == {"L4"}
    assert provider not in {offer.price.provider for offer in offers if offer.price}


def test_services_are_offered_machines_near_their_regions(catalog: Catalog) -> None:
    for offer in serving_offers(catalog, Supply(), ("eu-west",)).offers:
        assert offer.price
        assert not offer.price.region.startswith(("us-", "asia", "ap-")), offer.price


def test_government_regions_are_offered_only_by_name(catalog: Catalog) -> None:
    usual = serving_offers(catalog, Supply(), ()).offers
    assert not any("gov" in offer.price.region for offer in usual if offer.price)
    asked = serving_offers(catalog, Supply(), ("us-gov-west",)).offers
    assert asked and all(offer.price and "gov" in offer.price.region for offer in asked)


def test_a_given_cluster_is_that_many_nodes_of_that_size(catalog: Catalog, constants: Constants) -> None:
    on = FixedCluster.model_validate("64x8xH100-SXM")
    offer = fixed_offer(on, catalog, Supply(), ON_DEMAND)
    assert (offer.fixed_count, offer.node.accelerator_count, offer.node.fabric) == (64, 8, "infiniband")
    assert cluster_of(offer, 64, constants, catalog, Supply()).accelerator_count == 512


def test_a_part_of_a_node_has_its_share_of_the_network(catalog: Catalog) -> None:
    whole = node_of_size(catalog, catalog.accelerator("H100-SXM"), 8)
    half = node_of_size(catalog, catalog.accelerator("H100-SXM"), 4)
    assert half.accelerator_count == 4
    assert half.nic_bytes_per_s / 4 == pytest.approx(whole.nic_bytes_per_s / 8)


def test_a_part_that_no_node_holds_gets_an_assumed_one(catalog: Catalog) -> None:
    node = node_of_size(catalog, catalog.accelerator("H800"), 8)
    assert node.confidence == "assumed" and node.fabric == "infiniband"
    card = node_of_size(catalog, catalog.accelerator("RTX-6000-Ada"), 2)
    assert card.fabric == "ethernet"


def test_own_accelerators_stand_in_their_usual_nodes(catalog: Catalog) -> None:
    mine = Supply(own=(Owned(accelerator="H100-SXM", count=64), Owned(node="DGX-A100-80", count=3)))
    first, second = own_offers(catalog, mine)
    assert (first.node_count_max, first.node.accelerator_count, first.price) == (8, 8, None)
    assert (second.node_count_max, second.accelerator.name) == (3, "A100-SXM4-80GB")


def test_virtual_machines_lose_the_stated_share(catalog: Catalog, constants: Constants) -> None:
    virtual = Supply.model_validate({"virtual_overhead": "10 %"})
    on = FixedCluster.model_validate({"node": "p5.48xlarge", "count": 2})
    offer = fixed_offer(on, catalog, virtual, ON_DEMAND)
    assert offer.overhead_fraction == 0.1
    bare = fixed_offer(FixedCluster.model_validate("2x8xH100-SXM"), catalog, virtual, ON_DEMAND)
    rates = [
        float(cluster_of(each, 2, constants, catalog, virtual).device.memory_bytes_per_s)
        for each in (offer, bare)
    ]
    assert rates[1] / rates[0] == pytest.approx(1.1)


def test_a_machine_is_bought_where_the_service_runs_and_is_what_that_price_buys(catalog: Catalog) -> None:
    offer = fixed_offer(FixedCluster.model_validate("1x8xH100-SXM"), catalog, Supply(), ON_DEMAND)
    near = bought_near(offer, catalog, Supply(), ("us-east",), ON_DEMAND)
    assert near and near.price and offer.price
    assert near.price.usd_per_accelerator_h >= offer.price.usd_per_accelerator_h
    assert near.node == node_for(catalog, offer.accelerator, near.price)
    assert bool(near.overhead_fraction) == near.node.virtualised
    assert bought_near(offer, catalog, Supply(), ("cn-beijing",), ON_DEMAND) is None


@pytest.mark.parametrize(("count", "nodes", "size"), [(64, 8, 8), (12, 1, 8), (3, 3, 1), (1, 1, 1)])
def test_own_accelerators_fill_whole_nodes(catalog: Catalog, count: int, nodes: int, size: int) -> None:
    (offer,) = own_offers(catalog, Supply(own=(Owned(accelerator="H100-SXM", count=count),)))
    assert (offer.node_count_max, offer.node.accelerator_count) == (nodes, size)


@pytest.mark.parametrize(
    ("on", "owned"),
    [("8x8xH100-SXM", True), ("1xH100-SXM", True), ("9x8xH100-SXM", False), ("8x8xA100-80GB", False)],
)
def test_machines_that_are_named_are_yours_where_you_have_as_many(
    catalog: Catalog, on: str, owned: bool
) -> None:
    mine = Supply(own=(Owned(accelerator="H100-SXM", count=64),))
    named = FixedCluster.model_validate(on)
    offer = fixed_offer(named, catalog, mine, ON_DEMAND)
    bought = fixed_offer(named, catalog, Supply(), ON_DEMAND)
    assert (offer.owned, offer.price is None) == (owned, owned)
    assert (offer.fixed_count, offer.node) == (bought.fixed_count, bought.node)
    if owned:
        assert (offer.node_count_max or 0) * offer.node.accelerator_count == 64


def test_your_machines_elsewhere_are_not_those_that_are_named(catalog: Catalog) -> None:
    mine = Supply(own=(Owned(node="DGX-H100", count=2, region="aws:us-east-1"),))
    named = FixedCluster(node="DGX-H100", count=2)
    for region, has in (("us-east", True), ("eu-west", False)):
        rented = rented_offer(named, catalog, mine, ON_DEMAND, (region,))
        assert (owned_offer(named, rented, catalog, mine, (region,)) is not None) is has


def test_an_accelerator_by_name_is_bought_where_it_is_cheapest(catalog: Catalog) -> None:
    by_part = fixed_offer(FixedCluster.model_validate("1xL40S"), catalog, Supply(), ON_DEMAND)
    by_node = fixed_offer(FixedCluster(node="g6e.xlarge", count=1), catalog, Supply(), ON_DEMAND)
    prices = [p.usd_per_accelerator_h for p in catalog.prices_for("L40S") if p.term == "on_demand"]
    assert by_part.usd_per_accelerator_h == min(prices)
    assert by_node.price and by_node.price.instance == "g6e.xlarge"
