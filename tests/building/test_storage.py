"""Storage sized by jobs: what is bought meets what is asked, and the term that asks is named."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.building.storage import (
    StorageNeed,
    archive_need,
    choose_storage,
    local_choice,
    storm_need,
    training_need,
)
from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Storage

CATALOG = load_catalog()
TB = 1e12


def test_a_checkpoint_burst_sets_the_writes_and_a_restart_the_reads() -> None:
    need = training_need(1e8, 6 * TB, 60.0, 300.0, 60 * TB, 3)
    assert need.write_bytes_per_s == pytest.approx(1e11)  # 6 TB in a minute: 100 GB/s
    assert need.read_bytes_per_s == pytest.approx(2e10) and need.read_term == "restart read"
    assert need.capacity_bytes == 78 * TB
    assert training_need(3e10, 6 * TB, 60.0, 300.0, 0.0, 3).read_term == "data ingest"


def test_replicas_that_start_at_once_all_read_the_weights() -> None:
    assert storm_need(140e9, 50, 60.0).read_bytes_per_s == pytest.approx(50 * 140e9 / 60)


@settings(max_examples=40)
@given(
    st.floats(1e6, 1e12),
    st.floats(1e6, 1e12),
    st.floats(1e9, 1e16),
    st.sampled_from(["", "aws", "gcp", "azure", "oci", "lambda"]),
)
def test_what_is_bought_meets_what_is_asked(
    read: float, write: float, capacity: float, provider: str
) -> None:
    need = StorageNeed("parallel_fs", read, "ingest", write, "checkpoint", capacity)
    choice = choose_storage(CATALOG, "base", need, provider)
    assert choice
    row = next(row for row in CATALOG.rows(Storage) if row.name == choice.product)
    assert row.read_bytes_per_s_per_unit and row.write_bytes_per_s_per_unit
    assert choice.unit_count * row.read_bytes_per_s_per_unit >= read
    assert choice.unit_count * row.write_bytes_per_s_per_unit >= write
    assert choice.capacity_bytes >= capacity and choice.usd_per_month > 0


@settings(max_examples=30)
@given(st.floats(1e8, 1e12), st.floats(1.0, 10.0))
def test_a_faster_need_never_costs_less(write: float, more: float) -> None:
    costs = []
    for rate in (write, write * more):
        choice = choose_storage(CATALOG, "base", StorageNeed("parallel_fs", 0.0, "", rate, "", 1e13), "aws")
        assert choice
        costs.append(choice.usd_per_month)
    assert costs[1] >= costs[0]


def test_a_cloud_sells_its_own_and_owners_buy_appliances() -> None:
    need = training_need(1e8, TB, 60.0, 300.0, 3 * TB, 3)
    names = {}
    for provider in ("aws", "gcp", ""):
        choice = choose_storage(CATALOG, "base", need, provider)
        assert choice
        names[provider] = choice.product
    assert names["aws"].startswith("AWS FSx") and names["gcp"].startswith("GCP")
    assert not names[""].startswith(("AWS", "GCP", "Azure", "OCI"))


def test_cheap_stores_that_are_dear_to_read_hold_no_weights() -> None:
    choice = choose_storage(CATALOG, "base", storm_need(140e9, 8, 30.0), "aws", 8)
    assert choice and choice.product == "AWS S3 Standard"


def test_a_server_with_drives_of_its_own_buys_none() -> None:
    own = local_choice(CATALOG, "chat", 140e9, 20.0, 8, 30.72e12)
    bare = local_choice(CATALOG, "chat", 140e9, 20.0, 8, 0.0)
    assert own and bare
    assert (own.product, own.usd_per_month) == ("drives of the servers", 0.0)
    assert bare.usd_per_month > 0 and bare.unit_count == own.unit_count == 16  # 7 GB/s: two drives each
    assert local_choice(CATALOG, "chat", 0.0, 20.0, 8, 0.0) is None


def test_an_archive_is_as_fast_as_its_staging() -> None:
    need = archive_need(86_400e9, 1e12, 86_400.0)
    assert need.read_bytes_per_s == pytest.approx(1e9)
    assert need.capacity_bytes == 86_400e9 + 1e12
