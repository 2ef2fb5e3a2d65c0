"""The system that rules bind: its fleets, enclaves, what crosses into it, and what is done otherwise."""

from dataclasses import dataclass
from math import ceil

from twofold.catalog import Catalog, Regime, figure_of
from twofold.contracts.results import compliance

MANAGEMENT, STAGING = "management", "staging"
ADMINISTRATORS_MIN = 5  # a rota around the clock, and the two-person rule


@dataclass(frozen=True, slots=True)
class RuledFleet:
    """Equal nodes of one run or service."""

    half: str  # training or serving
    node: str  # catalogue name
    node_count: int
    accelerator_count: int
    rented: bool


@dataclass(frozen=True, slots=True)
class RuledSystem:
    """What a plan is, as rules see it."""

    regime: Regime
    fleets: tuple[RuledFleet, ...]
    site_count: int  # regions that serve, at least one
    users_count: int
    requests_per_s: float  # mean
    peak_requests_per_s: float
    input_tokens: float  # mean of a request
    output_tokens: float  # mean of a request
    tightest_goal_s: float | None  # latency objective; None: none
    checkpoint_interval_s: float | None  # None: nothing trains
    weights_bytes: float
    data_bytes: float
    providers: tuple[str, ...] = ()  # of each region that is rented in

    def nodes_count(self, place: str = "any") -> int:
        """Nodes that are rented, owned, or any."""
        own = {"any": (True, False), "rented": (True,), "owned": (False,)}[place]
        return sum(fleet.node_count for fleet in self.fleets if fleet.rented in own)


def asks(regime: Regime) -> frozenset[str]:
    """The names under which tables ask something of a regime: `custom` starts from its baseline's."""
    return frozenset({regime.name, f"fedramp-{regime.baseline}" if regime.name == "custom" else regime.name})


def enclaves_of(system: RuledSystem) -> tuple[compliance.Enclave, ...]:
    """One boundary for each half, for each region that serves, for management, and below a one-way link.

    Why  Training holds raw data and writes weights; serving meets users. Neither may reach into the other:
    weights go from training to serving by the registry alone.
    """
    parts: list[compliance.Enclave] = []
    halves = {"training": "training data, checkpoints", "serving": "weights, prompts and answers"}
    for half, holds in halves.items():
        fleets = [fleet for fleet in system.fleets if fleet.half == half]
        count = system.site_count if half == "serving" else 1
        nodes = sum(fleet.node_count for fleet in fleets)
        place = "rented" if any(fleet.rented for fleet in fleets) else "owned"
        for number in range(count if fleets else 0):
            name = half if count == 1 else f"{half} {number + 1}"
            share = nodes // count + (number < nodes % count)
            parts.append(compliance.Enclave(name, holds, place, share, (MANAGEMENT,)))
    place = "rented" if any(part.place == "rented" for part in parts) else "owned"
    inner = tuple(part.name for part in parts)
    kept = "keys, mirrored registry, logs, sign-in, time"
    parts.append(compliance.Enclave(MANAGEMENT, kept, place, 0, inner))
    if system.regime.closed:
        below = "what is fetched, scanned and signed outside"
        parts.append(compliance.Enclave(STAGING, below, "owned", 0, (MANAGEMENT,)))
    return tuple(parts)


def spare_nodes(system: RuledSystem, catalog: Catalog) -> int:
    """Nodes kept in the room of a closed system: a share of those in use, at least one."""
    share = figure_of(catalog, "spares", "spare nodes on site, air-gapped").value
    return max(1, ceil(share * system.nodes_count("owned"))) if system.regime.closed else 0


def administrators(system: RuledSystem, catalog: Catalog) -> int:
    """Those with privileges, who are investigated."""
    share = figure_of(catalog, "spares", "share of users who administer").value
    return min(system.users_count, max(ADMINISTRATORS_MIN, ceil(share * system.users_count)))


def transfer_of(system: RuledSystem, catalog: Catalog) -> compliance.TransferPlan | None:
    """What crosses the one-way link into a closed system: weights and data once, updates again and again."""
    if not system.regime.closed:
        return None
    link = figure_of(catalog, "transfer", "one-way link").value
    update = figure_of(catalog, "transfer", "images and packages of an update").value
    first = system.weights_bytes + system.data_bytes + update
    every = figure_of(catalog, "transfer", "days between updates").value
    return compliance.TransferPlan(
        system.weights_bytes, system.data_bytes, update, link, first / link, update / link, every
    )


def differences_of(
    system: RuledSystem, transfer: compliance.TransferPlan | None, catalog: Catalog
) -> tuple[compliance.DoneOtherwise, ...]:
    """What is done otherwise than on an open system."""
    regime = system.regime
    found = [
        ("packages, images, models", "from public registries", "from a mirror inside, signed"),
        ("keys", "in the provider's key service", f"in modules of each {regime.hsm_per}"),
        ("sign-in", "passwords and tokens of the service", "hardware tokens, one directory"),
    ]
    if regime.dedicated:
        found.append(("tenants", "share hosts", "dedicated hosts or instances"))
    if transfer is not None:
        spares = spare_nodes(system, catalog)
        carried = f"carried in every {transfer.update_every_days:.0f} days, scanned and tried inside"
        found += [
            ("updates", "fetched when they appear", carried),
            ("telemetry", "to a service outside", "stays inside; none leaves by a one-way link"),
            ("spare parts", "exchanged by the vendor", f"{spares} nodes kept in the room"),
            ("failed drives", "returned", "destroyed inside"),
            ("time, names, certificates", "public services", "sources of its own"),
            ("remote work", "by VPN", "none: people come in"),
        ]
    return tuple(compliance.DoneOtherwise(*each) for each in found)
