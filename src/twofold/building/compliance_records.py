"""Where keys are used, and how many hardware security modules hold them."""

from math import ceil

from twofold.building.compliance_system import STAGING, RuledSystem, asks, enclaves_of
from twofold.catalog import Catalog, KeyPoint, figure_of
from twofold.contracts.results import compliance
from twofold.core import DAY_S, YEAR_S, Estimate, Source, record

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
