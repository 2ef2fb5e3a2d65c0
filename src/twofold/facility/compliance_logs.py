"""What is recorded of requests and nodes: bytes × rate × retention, and the time a request waits for it."""

from twofold.catalog import Catalog
from twofold.contracts.results import LogPlan
from twofold.core import DAY_S, Estimate, Source
from twofold.facility.compliance_regimes import figure_of
from twofold.facility.compliance_system import RuledSystem

YEAR_DAYS = 365.0
MONTH_DAYS = YEAR_DAYS / 12
AUDIT, CONTENT, ATTRIBUTION = "audit", "content", "attribution"


def logs_of(system: RuledSystem, recorded: str, retention_days: float | None, catalog: Catalog) -> LogPlan:
    """The room that logs take, and the latency budget of writing them.

    Formula  bytes a year = requests × record + nodes × bytes a day of their own logs
             searchable   = bytes/s × time online; archive = bytes/s × (retention − time online)
             synchronous  = durable append + record / write rate
    Units    B, s, days.
    Source   table compliance_figures; retention of the regime unless the spec has its own.
    """
    record = record_bytes(system, recorded, catalog)
    hosts = figure_of(catalog, "log", "host logs of a node in a day")
    nodes = system.nodes_count()
    kept = retention_days or system.regime.retention_months * MONTH_DAYS
    online = min(kept, system.regime.online_months * MONTH_DAYS)
    serves = system.requests_per_s > 0
    low, middle, high = (
        system.requests_per_s * DAY_S * size + nodes * of_node
        for size, of_node in (
            (record.low, hosts.low),
            (record.value, hosts.value),
            (record.high, hosts.high),
        )
    )
    a_day = Estimate(middle, low, high, "B", Source.ASSUMED)
    waits = _synchronous_s(record, catalog) if serves else None
    budget_s = _budget_s(system, catalog)
    return LogPlan(
        recorded=recorded,
        bytes_per_request=record.value if serves else None,
        requests_per_s=system.requests_per_s,
        host_bytes_per_s=nodes * hosts.value / DAY_S,
        bytes_per_year=a_day.times(YEAR_DAYS),
        retention_days=kept,
        online_days=online,
        online_bytes=a_day.times(online),
        archive_bytes=a_day.times(kept - online),
        synchronous_s=waits,
        asynchronous_s=figure_of(catalog, "latency", "append in memory") if serves else None,
        budget_s=budget_s,
        synchronous_fits=None if waits is None or budget_s is None else waits.high <= budget_s,
    )


def record_bytes(system: RuledSystem, recorded: str, catalog: Catalog) -> Estimate:
    """Bytes of one request's record with its envelope.

    Formula  (audit + tokens × text + output tokens × attribution) × envelope, as far as recorded
    """
    audit = figure_of(catalog, "log", "audit record")
    text = figure_of(catalog, "log", "text of one token")
    weights = figure_of(catalog, "log", "attribution of one output token")
    envelope = figure_of(catalog, "log", "envelope")
    tokens = 0.0 if recorded == AUDIT else system.input_tokens + system.output_tokens
    attributed = system.output_tokens if recorded == ATTRIBUTION else 0.0
    ends = [
        (getattr(audit, end) + tokens * getattr(text, end) + attributed * getattr(weights, end))
        * getattr(envelope, end)
        for end in ("low", "value", "high")
    ]
    return Estimate(ends[1], ends[0], ends[2], "B", Source.ASSUMED)


def _synchronous_s(record: Estimate, catalog: Catalog) -> Estimate:
    append = figure_of(catalog, "latency", "durable append")
    rate = figure_of(catalog, "latency", "write rate of one writer")
    return Estimate(
        append.value + record.value / rate.value,
        append.low + record.low / rate.high,
        append.high + record.high / rate.low,
        "s",
        Source.ASSUMED,
    )


def _budget_s(system: RuledSystem, catalog: Catalog) -> float | None:
    if system.tightest_goal_s is None:
        return None
    share = figure_of(catalog, "latency", "share of the tightest goal that a log may take")
    return system.tightest_goal_s * share.value
