"""The SERVING block of the one-screen plan."""

from collections.abc import Iterator

from twofold.app.figures import percent, ranged, watt_hours
from twofold.app.lines import DOT, both_ends, field, table
from twofold.app.screen_training import bound_pieces, cost_text, memory_lines, price_text
from twofold.contracts import ClassPlan, ServicePlan, SloOutcome
from twofold.core import format_bytes, format_seconds, format_si

HEADINGS = ("class", "peak", "goal", "at the peak", "replicas", "holds until")
METRICS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}


def serving_lines(service: ServicePlan, rehearsed: bool) -> list[str]:
    """One service: the fleet, what each class gets at its peak, and what the fleet is bound by."""
    costs = [
        f"{latency_class.name} {ranged(latency_class.usd_per_1k_output_tokens, 'USD')}"
        for latency_class in service.classes
        if latency_class.usd_per_1k_output_tokens
    ]
    note = [f"quality: {service.quality_note}"] if service.quality_note else []
    return [
        *both_ends(
            f"SERVING   {service.name}: {_fleet(service)}", cost_text(service.cost_usd_per_year, "/y")
        ),
        *field(
            "replica", [*service.replica.text.split(DOT), service.replica.engine, *_rates(service), *note]
        ),
        *table(HEADINGS, [row for one in service.classes for row in _class_rows(one)], numbers=(1, 4)),
        *memory_lines(service.memory_bytes, service.memory_parts, service.memory_capacity_bytes),
        *field("fleet", _fleet_pieces(service)),
        *(field("cost", [f"per 1k output tokens: {costs[0]}", *costs[1:]]) if costs else []),
        *field(
            "price", [price_text(service.machine.price), f"energy {watt_hours(service.energy_j_per_year)}/y"]
        ),
        *field("bound by", [*bound_pieces(service.bounds), _batch_limit(service)]),
        *field("", ["rehearsed"] if rehearsed else ["not rehearsed: closed form only"]),
    ]


def _fleet(service: ServicePlan) -> str:
    """`14 × 4 H200-SXM-141GB (fp8, TP 4), 2 of them spare, 3 zones`."""
    replica = service.replica
    spare = f", {service.spare_count} of them spare" if service.spare_count else ""
    zones = f", {service.zones} zones" if service.zones > 1 else ""
    size = f"{service.replica_count} × {replica.accelerator_count} {service.machine.accelerator}"
    return f"{size} ({replica.weights_format}){spare}{zones}"


def _rates(service: ServicePlan) -> list[str]:
    return [
        f"{ranged(service.output_tokens_per_s_per_accelerator, 'tok/s')} per device",
        f"{ranged(service.output_tokens_per_j, 'tok/J')}",
        f"exposed communication {percent(service.communication_exposed_fraction)}",
    ]


def _class_rows(latency_class: ClassPlan) -> Iterator[tuple[str, ...]]:
    """A row for each goal; the first one carries what belongs to the class."""
    peak = format_si(latency_class.peak_per_s, "1/s")
    replicas, holds = f"{latency_class.replica_count}", ranged(latency_class.holds_until_per_s, "1/s")
    own = (latency_class.name, peak), (replicas, holds)
    for slo in latency_class.slos:
        (name, rate), rest = own
        missed = "" if slo.met else " missed"
        yield name, rate, goal_text(slo), ranged(slo.predicted) + missed, *rest
        own = ("", ""), ("", "")


def goal_text(slo: SloOutcome) -> str:
    """`TTFT p95 ≤ 500 ms`."""
    metric, _, percentile = slo.metric.partition("_p")
    name = f"{METRICS.get(metric, metric)} p{percentile}" if percentile else "done"
    return f"{name} ≤ {format_seconds(slo.limit_s)}"


def _fleet_pieces(service: ServicePlan) -> list[str]:
    return [
        f"spare: {service.spare_reason}" if service.spare_reason else "no spare",
        f"cold start {ranged(service.cold_start_s)}, warm pool {service.warm_pool_count}",
        f"KV {format_bytes(service.kv_bytes_per_token)} per token",
        f"KV cache {percent(service.kv_utilisation_fraction)} full at peak",
        f"own pools cost {percent(service.pooling_loss_fraction)} more replicas than one",
        *([f"regions {', '.join(service.regions)}"] if service.regions else []),
    ]


def _batch_limit(service: ServicePlan) -> str:
    return f"batch limited by {service.batch_limit}"
