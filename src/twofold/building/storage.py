"""Storage by what jobs ask of it: ingest, checkpoint bursts, restarts and cold-start storms, priced."""

from dataclasses import dataclass
from math import ceil
from typing import Literal

from twofold.catalog.catalog import Catalog
from twofold.catalog.figures import figure
from twofold.catalog.types import Storage
from twofold.contracts.results import premises

TB, TIB = 1e12, 2.0**40
DRIVE, DRIVE_BYTES = "Local NVMe PCIe4", 3.84e12
StorageClass = Literal["parallel_fs", "object", "nvme"]
# How rows of the table `storage` begin that only that cloud sells.
CLOUD_NAMES = {
    "aws": ("AWS",),
    "gcp": ("GCP", "GCS"),
    "azure": ("Azure",),
    "oci": ("OCI",),
    "nebius": ("Nebius",),
    "coreweave": ("CoreWeave",),
}
INTERNET = ("Cloudflare", "Backblaze", "Wasabi")
HOSTED = (*(name for names in CLOUD_NAMES.values() for name in names), *INTERNET)
PER_CLIENT = ("client", "GPU")  # units that are as many as the cluster: throughput is not bought by capacity
INFREQUENT = ("-IA", "Nearline", "Cool")  # cheap to keep, dear to read
REFERENCES = ("SU of", "DGX node", "Meta ")  # guidance and reports, not products


@dataclass(frozen=True, slots=True)
class StorageNeed:
    """What one class of storage must do, with the term that sets each figure."""

    kind: StorageClass
    read_bytes_per_s: float
    read_term: str
    write_bytes_per_s: float
    write_term: str
    capacity_bytes: float


def training_need(
    ingest_bytes_per_s: float,
    checkpoint_bytes: float,
    checkpoint_write_s: float,
    restart_read_s: float,
    dataset_bytes: float,
    checkpoints_kept: float,
) -> StorageNeed:
    """What a run asks of the file system that it trains from.

    Formula  read = max(ingest, checkpoint / restart time); write = checkpoint / pause;
             capacity = data set + kept · checkpoint
    Why      A checkpoint is written in one burst, and read in one when the run restarts.
    Units    bytes/s, bytes.
    Source   arithmetic on the run's own figures: nothing is assumed about its size.
    """
    restart = checkpoint_bytes / restart_read_s if restart_read_s > 0 else 0.0
    write = checkpoint_bytes / checkpoint_write_s if checkpoint_write_s > 0 else 0.0
    return StorageNeed(
        "parallel_fs",
        max(ingest_bytes_per_s, restart),
        "data ingest" if ingest_bytes_per_s > restart else "restart read",
        write,
        "checkpoint write",
        dataset_bytes + checkpoints_kept * checkpoint_bytes,
    )


def storm_need(weights_bytes: float, replica_count: int, within_s: float) -> StorageNeed:
    """What many replicas that start at once ask: each reads all weights within that time.

    Formula  replicas · weights / time
    Why      Scale-out after a failure starts them together.
    Units    bytes/s.
    Source   arithmetic.
    """
    rate = replica_count * weights_bytes / within_s if within_s > 0 else 0.0
    return StorageNeed(
        "object", rate, "cold-start storm", weights_bytes / 3600.0, "releases", 4 * weights_bytes
    )


def archive_need(dataset_bytes: float, checkpoint_bytes: float, upload_within_s: float) -> StorageNeed:
    """What is kept outside the cluster: the data set and every promoted checkpoint."""
    rate = dataset_bytes / upload_within_s if upload_within_s > 0 else 0.0
    return StorageNeed(
        "object", rate, "staging the data set", rate, "upload", dataset_bytes + checkpoint_bytes
    )


def local_choice(
    catalog: Catalog,
    name: str,
    weights_bytes: float,
    within_s: float,
    node_count: int,
    node_nvme_bytes: float,
) -> premises.BuiltStorage | None:
    """Drives in each server that hold a copy of the weights: its own where they suffice, else more of them.

    Formula  drives = max(⌈2·weights / drive⌉, ⌈weights / time / drive's rate⌉) in each server
    Why      Two versions are there while a release rolls; a copy beside the accelerators needs no network.
    Units    USD a month; nothing for drives that the server has.
    Source   catalogue: `storage`, drives of the PCIe 4 class.
    """
    row = next((row for row in catalog.rows(Storage) if row.name.startswith(DRIVE)), None)
    if row is None or within_s <= 0 or weights_bytes <= 0:
        return None
    by_capacity = ceil(2 * weights_bytes / DRIVE_BYTES)
    by_read = ceil(weights_bytes / within_s / (row.read_bytes_per_s_per_unit or 1.0))
    count = max(by_capacity, by_read)
    own = int(node_nvme_bytes / DRIVE_BYTES)
    to_buy = max(count - own, 0)
    usd = to_buy * node_count * DRIVE_BYTES / TB * (row.usd_per_tb_month or 0.0)
    total = count * node_count
    rate = weights_bytes / within_s * node_count
    return premises.BuiltStorage(
        name,
        "nvme",
        row.name if to_buy else "drives of the servers",
        "drive",
        total,
        total * DRIVE_BYTES,
        rate,
        "a load on every server",
        rate,
        "a release",
        "read" if by_read > by_capacity else "capacity",
        usd,
        row.source,
    )


def choose_storage(
    catalog: Catalog, name: str, need: StorageNeed, provider: str = "", client_count: int = 1
) -> premises.BuiltStorage | None:
    """The cheapest product of the class that is fast and large enough; None where no row has a price.

    Formula  units = max(read/unit's, write/unit's, capacity/unit's); cost = TB bought · $/TB-month
    Why      Throughput comes with capacity or with appliances: a small fast store buys more than it fills.
    Units    USD a month.
    Source   catalogue: `storage`; capacity of an appliance from `facility: storage`.
    Limits   `provider`: its own products, other hosts' where it has none; "": products to own.
    """
    rows = [
        row
        for row in catalog.rows(Storage)
        if row.kind == need.kind
        and row.usd_per_tb_month
        and row.read_bytes_per_s_per_unit
        and row.write_bytes_per_s_per_unit
        and not row.name.startswith(REFERENCES)
        and not any(word in row.name for word in INFREQUENT)
        and not row.unit.startswith(REFERENCES)
    ]
    own = [row for row in rows if row.name.startswith(CLOUD_NAMES.get(provider, ("\0",)))]
    hosted = [row for row in rows if row.name.startswith(HOSTED)]
    to_own = [row for row in rows if row not in hosted]
    # Stores that are reached over the internet, or tied to their host's machines, do not stand in.
    elsewhere = [row for row in hosted if row.unit != "GPU" and not row.name.startswith(INTERNET)]
    able = (own or elsewhere) if provider else to_own
    appliance = figure(catalog, "storage", "usable capacity of one flash appliance").value
    choices = [_sized(row, name, need, client_count, appliance) for row in able]
    return min(choices, key=lambda choice: choice.usd_per_month, default=None)


def _sized(
    row: Storage, name: str, need: StorageNeed, client_count: int, appliance_bytes: float
) -> premises.BuiltStorage:
    """So many units that they are as fast and as large as is needed."""
    read, write = row.read_bytes_per_s_per_unit or 1.0, row.write_bytes_per_s_per_unit or 1.0
    by_client = any(word in row.unit for word in PER_CLIENT)
    unit_bytes = TIB if row.unit == "TiB" else appliance_bytes
    counts = {
        "read": ceil(need.read_bytes_per_s / read),
        "write": ceil(need.write_bytes_per_s / write),
        "capacity": 0 if by_client else ceil(need.capacity_bytes / unit_bytes),
    }
    bound: Literal["read", "write", "capacity"] = "capacity"
    for rate in ("read", "write"):
        if counts[rate] > counts[bound]:
            bound = rate
    units = max(client_count if by_client else 1, *counts.values())
    held = need.capacity_bytes if by_client else units * unit_bytes
    usd = held / TB * (row.usd_per_tb_month or 0.0)
    return premises.BuiltStorage(
        name,
        need.kind,
        row.name,
        row.unit,
        units,
        held,
        need.read_bytes_per_s,
        need.read_term,
        need.write_bytes_per_s,
        need.write_term,
        bound,
        usd,
        row.source,
    )
