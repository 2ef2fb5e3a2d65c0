"""The system that rules bind: enclaves, what crosses into it and is done otherwise, keys, logs."""

from dataclasses import dataclass
from math import ceil

from twofold.catalog.catalog import Catalog
from twofold.catalog.figures import figure_of
from twofold.catalog.types import KeyPoint, Regime
from twofold.contracts.results import compliance
from twofold.core import record
from twofold.core.estimate import Estimate, Source
from twofold.core.quantity import DAY_S, YEAR_S

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


RELEASES_A_YEAR = 52.0
YEAR_DAYS = 365.0
MONTH_DAYS = YEAR_DAYS / 12
RECORDED = ("audit record", "text of one token", "attribution of one output token", "envelope")
RECORD = "(audit + tokens × text + output × attribution) × envelope, as far as recorded"
WRITES, AT_ONCE = ("durable append", "write rate of one writer"), "append in memory"
HOST_LOGS = "host logs of a node in a day"
AUDIT, CONTENT, ATTRIBUTION = "audit", "content", "attribution"
OFFLINE = frozenset({"il5", "air-gapped"})  # regimes whose root never is online


def keys_of(system: RuledSystem, catalog: Catalog) -> compliance.KeyPlan:
    """The points of table `key_uses` that a regime asks for, and the modules for them.

    Formula  modules = clusters × max(least, ⌈rate / clusters / rate of one⌉ + 1)
    Why      One more than the load needs, so that a module may fail at the peak; never fewer than a cluster
             needs to be available.
    Source   tables key_uses and compliance_figures.
    """
    halves = {"any", *(fleet.half for fleet in system.fleets)}
    training = sum(fleet.node_count for fleet in system.fleets if fleet.half == "training")
    update_s = figure_of(catalog, "transfer", "days between updates").value * DAY_S
    per_s = {  # how often each comes, at the peak
        "year": 1 / YEAR_S,
        "day": 1 / DAY_S,
        "release": RELEASES_A_YEAR / YEAR_S,
        "transfer": 1 / update_s,
        "enclave_s": float(len(enclaves_of(system))),
        "node_start": system.nodes_count() / figure_of(catalog, "hsm", "window of a fleet's start").value,
        "checkpoint_node": training / (system.checkpoint_interval_s or YEAR_S),
        "request": system.peak_requests_per_s,
    }
    points = tuple(
        compliance.KeyUse(row.name, row.protects, row.standard, row.evidence, row.operations * per_s[row.per])
        for row in catalog.rows(KeyPoint)
        if row.half in halves and asks(system.regime) & set(row.regimes.split())
    )
    rate_per_s = sum(point.operations_per_s for point in points)
    one = figure_of(catalog, "hsm", "RSA-2048 signatures of one module").value
    least = int(figure_of(catalog, "hsm", "modules of a cluster, at least").value)
    clusters = len(clusters_of(system))
    each = max(least, ceil(rate_per_s / clusters / one) + 1)
    is_offline = system.regime.name in OFFLINE or system.regime.closed
    offline = int(figure_of(catalog, "hsm", "offline modules").value) if is_offline else 0
    plural = "s" if clusters > 1 else ""
    peak = f"{rate_per_s:,.0f}" if rate_per_s >= 100 else f"{rate_per_s:.3g}"
    reason = f"{each} in each of {clusters} {system.regime.hsm_per}{plural}, peak {peak}/s"
    return compliance.KeyPlan(points, rate_per_s, one, clusters, clusters * each, offline, reason)


def clusters_of(system: RuledSystem) -> tuple[str, ...]:
    """The place, rented or owned, of each cluster of modules: by site, or by enclave."""
    inside = [enclave.place for enclave in enclaves_of(system) if enclave.name != STAGING]
    return (inside[-1],) * system.site_count if system.regime.hsm_per == "site" else tuple(inside)


def logs_of(
    system: RuledSystem, recorded: str, retention_days: float | None, catalog: Catalog
) -> compliance.LogPlan:
    """The room that logs take, and the latency budget of writing them.

    Formula  bytes a year = requests × record + nodes × bytes a day of their own logs
             searchable   = bytes/s × time online; archive = bytes/s × (retention − time online)
             synchronous  = durable append + record / write rate
    Units    B, s, days.
    Source   table compliance_figures; retention of the regime unless the spec has its own.
    """
    each = record_bytes(system, recorded, catalog)
    hosts = figure_of(catalog, "log", HOST_LOGS)
    nodes = record.note("nodes", system.nodes_count(), "")
    kept = retention_days or system.regime.retention_months * MONTH_DAYS
    online = min(kept, system.regime.online_months * MONTH_DAYS)
    serves = system.requests_per_s > 0
    low, middle, high = (
        system.requests_per_s * DAY_S * getattr(each, end) + nodes * getattr(hosts, end)
        for end in ("low", "value", "high")
    )
    a_day = Estimate(middle, low, high, "B", Source.ASSUMED)
    said = "a year of requests × bytes of one + nodes × host logs"
    used = ("requests", "bytes_per_request") if serves else ()
    bytes_per_year = record.note("bytes_per_year", a_day.times(YEAR_DAYS), said, *used, "nodes", HOST_LOGS)
    rooms = {
        name: record.note(f"{name}_bytes", a_day.times(days), "a year / 365 × days", "bytes_per_year", name)
        for name, days in (("online", online), ("archive", kept - online))
    }
    waits = budget_s = at_once = None
    if serves:
        record.note("bytes_per_request", each, RECORD, "tokens", *RECORDED)
        append, rate = (figure_of(catalog, "latency", item) for item in WRITES)
        middle = append.value + each.value / rate.value
        low, high = append.low + each.low / rate.high, append.high + each.high / rate.low
        said, waits = "durable append + bytes / write rate", Estimate(middle, low, high, "s", Source.ASSUMED)
        record.note("synchronous_s", waits, said, *WRITES, "bytes_per_request")
        at_once = figure_of(catalog, "latency", AT_ONCE)
        record.note("asynchronous_s", at_once, AT_ONCE, AT_ONCE)
    if system.tightest_goal_s is not None:
        share = figure_of(catalog, "latency", "share of the tightest goal that a log may take")
        budget_s = system.tightest_goal_s * share.value
    return compliance.LogPlan(
        recorded=recorded,
        bytes_per_request=each.value if serves else None,
        requests_per_s=system.requests_per_s,
        host_bytes_per_s=nodes * hosts.value / DAY_S,
        bytes_per_year=bytes_per_year,
        retention_days=kept,
        online_days=online,
        online_bytes=rooms["online"],
        archive_bytes=rooms["archive"],
        synchronous_s=waits,
        asynchronous_s=at_once,
        budget_s=budget_s,
        synchronous_fits=None if waits is None or budget_s is None else waits.high <= budget_s,
    )


def record_bytes(system: RuledSystem, recorded: str, catalog: Catalog) -> Estimate:
    """Bytes of one request's record with its envelope.

    Formula  (audit + tokens × text + output tokens × attribution) × envelope, as far as recorded
    """
    audit, text, weights, envelope = (figure_of(catalog, "log", item) for item in RECORDED)
    tokens = 0.0 if recorded == AUDIT else system.input_tokens + system.output_tokens
    attributed = system.output_tokens if recorded == ATTRIBUTION else 0.0
    record.note("tokens", tokens, "")
    ends = [
        (getattr(audit, end) + tokens * getattr(text, end) + attributed * getattr(weights, end))
        * getattr(envelope, end)
        for end in ("low", "value", "high")
    ]
    return Estimate(ends[1], ends[0], ends[2], "B", Source.ASSUMED)
