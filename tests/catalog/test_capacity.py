import csv
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.catalog.capacity import (
    CONTRACT,
    NO_FABRIC,
    contract_band,
    gate_of,
    supplied,
    with_contracts,
)
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.catalog.types import Capacity, Price

CATALOG = load_catalog()
SEED = Path(__file__).parents[2].parent / "shared" / "catalog" / "offer_capacity.csv"


def listed(catalog: Catalog, provider: str, instance: str) -> Price:
    return next(each for each in catalog.prices() if (each.provider, each.instance) == (provider, instance))


@pytest.mark.skipif(not SEED.exists(), reason="the seed tables are not beside the checkout")
def test_every_row_that_was_found_is_in_the_table(catalog: Catalog) -> None:
    with SEED.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    held = [row for row in catalog.rows(Capacity) if row.provider != "any"]
    assert len(held) == len(found) == 109
    for row, seed in zip(held, found, strict=True):
        told = seed["provider"], seed["instance_or_family"], seed["offer_kind"], seed["accelerator"]
        assert (row.provider, row.family, row.kind, row.accelerators) == told
        assert row.accelerators_max == (
            int(most) if (most := seed["max_accelerators_self_service"]) else None
        )
        rate = float(seed["fabric_gbps_per_accelerator"] or "nan")
        assert row.fabric_bytes_per_s == pytest.approx(rate * 1e9 / 8) or rate != rate
        assert (row.source, row.confidence) == (seed["source"], seed["confidence"])


def test_every_price_is_good_for_some_and_never_for_more_in_one_job(catalog: Catalog) -> None:
    for price in with_contracts(catalog.prices(), catalog):
        can, size = supplied(price, catalog), price.accelerator_count
        assert 0 <= can.free_count <= can.most_count, price
        assert can.gang_count <= max(can.most_count, size), price
        if can.gang_count > size:  # more than one node only on a fabric that somebody states, with its rate
            assert can.fabric not in NO_FABRIC and can.nic_bytes_per_s, price
            held = size * catalog.accelerator(price.accelerator).memory_nominal_bytes
            assert can.ram_bytes is None or can.ram_bytes >= held, price


def test_a_marketplace_gives_a_job_one_host(catalog: Catalog) -> None:
    price = listed(catalog, "primeintellect", "primecompute__8xH100")
    can = supplied(price, catalog)
    assert (can.kind, can.gang_count, can.most_count) == ("marketplace host", 8, 8)  # as it states
    can = supplied(listed(catalog, "cudo", "h100-sxm_8x64v128gb"), catalog)
    assert (can.gang_count, can.most_count) == (8, 32)


def test_a_stated_limit_binds_whatever_is_usual(catalog: Catalog) -> None:
    """Rows that name an instance and a maximum, found apart from the package's own matching."""
    held = [row for row in catalog.rows(Capacity) if row.kind in ("on_demand", "marketplace")]
    stated = {row.provider: row for row in held if row.accelerators_max and row.provider != "any"}
    assert {"lambda", "primeintellect", "digitalocean"} <= {*stated}
    found = 0
    for price in catalog.prices():
        for row in held:
            same = row.provider == price.provider and price.instance in row.family.split()
            if same and row.accelerators_max and price.term == "on_demand":
                found += 1
                assert supplied(price, catalog).most_count == row.accelerators_max
    assert found > 3
    for size in ("gpu_1x_h100_sxm5", "gpu_8x_h100_sxm5"):
        assert supplied(listed(catalog, "lambda", size), catalog).most_count == 8


def test_an_empty_limit_is_that_of_its_kind(catalog: Catalog) -> None:
    """A specialised cloud with a fabric: 16 at once and 64 with a quota; a large one nothing at first."""
    can = supplied(listed(catalog, "nebius", "gpu-h100-sxm_8gpu"), catalog)
    assert (can.free_count, can.most_count, can.gang_count, can.fabric) == (16, 64, 64, "infiniband")
    large = supplied(listed(catalog, "azure", "Standard_ND96isr_H100_v5"), catalog)
    assert (large.free_count, large.most_count) == (0, 64)


def test_what_is_listed_but_sold_by_contract_only_is_marked(catalog: Catalog) -> None:
    can = supplied(listed(catalog, "crusoe", "h100-sxm5-80gb.1x"), catalog)
    assert (can.kind, can.most_count) == ("sold by contract only", 0)


def test_what_exceeds_an_offer_is_a_contract_that_is_not_cheaper(catalog: Catalog) -> None:
    prices = catalog.prices_for("H100-SXM5-80GB")
    made = [each for each in with_contracts(prices, catalog) if each.term == CONTRACT]
    band = contract_band("H100-SXM5-80GB", catalog)
    assert made and 2.0 < band < 5.0
    for each in made:
        own = min(
            price.usd_per_accelerator_h
            for price in prices
            if (price.provider, price.instance, price.region, price.term)
            == (each.provider, each.instance, each.region, "on_demand")
        )
        assert each.usd_per_accelerator_h == pytest.approx(max(own, band))
        assert supplied(each, catalog).most_count == inf
        assert not any(
            row.kind == "marketplace" for row in catalog.rows(Capacity) if row.provider == each.provider
        )


def test_gates_stand_where_a_list_ends(catalog: Catalog) -> None:
    price = listed(catalog, "nebius", "gpu-h100-sxm_8gpu")
    assert gate_of(price, 16, True, catalog) == ""
    assert gate_of(price, 64, True, catalog) == "ask nebius for a quota: 64 GPUs, accounts start at 16"
    asked = gate_of(replace(price, term=CONTRACT), 512, True, catalog)
    assert asked == "ask nebius for a quote: 512 GPUs, self-service stops at 64"
    cluster = replace(listed(catalog, "lambda", "gpu_8x_h100_sxm5"), term=CONTRACT)
    assert "as 1-Click Cluster H100, self-service stops at 8" in gate_of(cluster, 512, True, catalog)
    assert "1-Click" not in gate_of(cluster, 520, True, catalog)  # more than it has


@given(st.integers(1, 4096), st.integers(1, 4096), st.floats(0.0, 1e7))
def test_a_contract_is_paid_for_its_least_term(count: int, more: int, used_h: float) -> None:
    """As its row states it, else the assumed 30 days; what is by the hour is paid by the hour."""
    price = listed(CATALOG, "lambda", "gpu_8x_h100_sxm5")
    by_hour, contract = supplied(price, CATALOG), supplied(replace(price, term=CONTRACT), CATALOG)
    assert by_hour.paid_h(count, used_h) == used_h
    least_d, is_assumed = (14, False) if count <= 512 else (30, True)  # of a 1-Click Cluster, and beyond it
    assert contract.least_of(count) == (least_d * 24.0, is_assumed)
    assert contract.paid_h(count, used_h) == max(used_h, count * least_d * 24.0)
    assert contract.paid_h(count + more, used_h) >= contract.paid_h(count, used_h)
    unstated = replace(listed(CATALOG, "nebius", "gpu-h100-sxm_8gpu"), term=CONTRACT)
    assert supplied(unstated, CATALOG).least_of(count) == (720.0, True)


def test_your_own_rows_and_quotes_are_never_limited(catalog: Catalog) -> None:
    for source in ("user", "quote offers.csv:2", "prices: user"):
        mine = replace(listed(catalog, "nebius", "gpu-h100-sxm_8gpu"), source=source, term="spot")
        assert supplied(mine, catalog).gang_count == inf and gate_of(mine, 10**6, True, catalog) == ""
        assert not [*with_contracts([replace(mine, term="on_demand")], catalog)][1:]
