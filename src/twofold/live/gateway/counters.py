"""The gateway's counters, and its page of them for Prometheus: `twofold_*`.

Labels are bounded: classes are those that are set, tenants beyond a limit share one label, replicas are
those of now.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from twofold.live import metrics_text, watched
from twofold.live.gateway.telemetry import FINISHED, NO_CLASS, Outcome, Telemetry
from twofold.policy.gate import tiers as gate_tiers
from twofold.policy.gate.breaker import state_of
from twofold.policy.gate.events import TierPassed
from twofold.policy.gate.fleet_view import FleetView
from twofold.policy.gate.settings import ClassSettings

TENANTS_MAX = ZONES_MAX = 100  # with a label of their own
OTHERS, DEFAULT_CLASS = "other", "default"
# Each doubles or so; goals are buckets too, so that who kept one is counted and not interpolated.
TTFT_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
TPOT_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)
E2E_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0)
SERIES = {
    "ttft": ("twofold_ttft_seconds", "From a request's arrival to the first token of its answer", TTFT_S),
    "tpot": ("twofold_tpot_seconds", "Mean time of a token after the first", TPOT_S),
    "e2e": ("twofold_e2e_seconds", "From a request's arrival to the last token of its answer", E2E_S),
}
ZONE_TTFT = "twofold_client_zone_ttft_seconds"


class OfClass:
    """What became of one class's requests that were answered. Mutable.

    HOT: per request; found once, where sums and histograms by class and kind were looked up five times.
    """

    def __init__(self, buckets: Mapping[str, tuple[float, ...]]) -> None:
        self.histograms = {kind: metrics_text.Histogram(buckets[kind]) for kind in SERIES}
        self.ttft, self.tpot, self.e2e = (self.histograms[kind] for kind in SERIES)
        self.input_tokens = self.output_tokens = 0


class Counters:
    """Counts outcomes. Mutable, and bounded by classes, replicas and `TENANTS_MAX`."""

    def __init__(self, classes: Iterable[ClassSettings]) -> None:
        known = tuple(classes)
        self._classes = {each.name for each in known}
        self._first = next((each.name for each in known), "")
        self._requests: Counter[tuple[str, str, str, str]] = Counter()  # by class, outcome, status, reason
        self._again: Counter[str] = Counter()  # answers and tokens that were given again
        self.overflow_usd = 0.0
        self._tier_histograms: dict[str, metrics_text.Histogram] = {}
        self._tier_wait_s: defaultdict[str, float] = defaultdict(float)
        self.resource: Mapping[str, str] = {}  # who this is; nobody yet
        self._zones: Counter[tuple[str, str]] = Counter()  # of clients that say theirs, and outcome
        self._zone_histograms: dict[str, metrics_text.Histogram] = {}
        self._tenants: Counter[str] = Counter()
        self._tenant_tokens: Counter[str] = Counter()
        self._buckets = {kind: buckets_s(kind, known) for kind in SERIES}
        self._answered = {name or DEFAULT_CLASS: OfClass(self._buckets) for name in self._classes or {""}}

    def saw(self, outcome: Outcome) -> None:
        """One request ended."""
        name = self._class(outcome.class_name)
        self._requests[name, outcome.outcome, str(outcome.status), outcome.reason] += 1
        self.overflow_usd += outcome.usd or 0.0
        tenant = self._tenant(outcome)
        self._tenants[tenant] += 1
        if outcome.zone:
            self._saw_zone(outcome)
        if outcome.outcome != FINISHED:
            return
        read, written = outcome.input_tokens or 0, outcome.output_tokens
        if outcome.given_again:  # no replica wrote them
            self._again.update(requests=1, input=read, output=written)
            read = written = 0
        self._tenant_tokens[tenant] += read + written
        answered = self._answered.get(name)
        if answered is None:
            answered = self._answered[name] = OfClass(self._buckets)
        answered.input_tokens += read
        answered.output_tokens += written
        answered.e2e.observe(outcome.e2e_s)
        if outcome.ttft_s is not None:
            answered.ttft.observe(outcome.ttft_s)
        if (tpot_s := outcome.tpot_s) is not None:
            answered.tpot.observe(tpot_s)

    def _saw_zone(self, outcome: Outcome) -> None:
        """Zones are clients' word: one of which nobody was answered is not kept."""
        known, name = self._zone_histograms, outcome.zone
        if name not in known and (outcome.outcome != FINISHED or len(known) >= ZONES_MAX):
            name = OTHERS
        histogram = known.setdefault(name, metrics_text.Histogram(self._buckets["ttft"]))
        self._zones[name, outcome.outcome] += 1
        if outcome.outcome == FINISHED and outcome.ttft_s is not None:
            histogram.observe(outcome.ttft_s)

    def passed(self, told: TierPassed) -> None:
        """A request is through a CPU tier."""
        self._tier_histograms.setdefault(told.tier, metrics_text.Histogram(TTFT_S)).observe(told.took_s)
        self._tier_wait_s[told.tier] += told.wait_s

    def page_of_tiers(self, tiers: Iterable[gate_tiers.Tier], bottleneck: str | None) -> str:
        """All series of the CPU tiers, as of now."""
        known = {each.settings.name: each for each in tiers}
        took = [
            sample
            for name, histogram in sorted(self._tier_histograms.items())
            for sample in histogram.samples({"tier": name})
        ]

        def each(value: Callable[[gate_tiers.Tier], float]) -> list[tuple[dict[str, str], float]]:
            return [({"tier": name}, value(tier)) for name, tier in known.items()]

        return metrics_text.families_text(
            (
                metrics_text.Family(
                    "twofold_tier_seconds", "histogram", "In a CPU tier, waiting and work", tuple(took)
                ),
                _counter(
                    "twofold_tier_wait_seconds_total",
                    "Waiting for a place of a CPU tier, of requests that passed it",
                    each(lambda tier: self._tier_wait_s[tier.settings.name]),
                ),
                _gauge("twofold_tier_places", "At once", each(lambda tier: tier.settings.place_count)),
                _gauge("twofold_tier_requests_at_work", "At servers", each(lambda tier: tier.working_count)),
                _gauge("twofold_tier_requests_waiting", "For a place", each(lambda tier: len(tier.waiting))),
                _counter("twofold_tier_refused_total", "In vain", each(lambda tier: tier.refused_count)),
                _counter("twofold_tier_failures_total", "Attempts", each(lambda tier: tier.failed_count)),
                _gauge(
                    "twofold_tier_bottleneck",
                    "1: of late it holds requests up more than other tiers and the replicas do",
                    each(lambda tier: float(tier.settings.name == bottleneck)),
                ),
            )
        )

    def page(self, view: FleetView, seen: Telemetry, lost_lines: Mapping[str, int]) -> str:
        """All series, as of now; lines that were lost by log."""
        tenants = self._of_tenants(view)
        return metrics_text.families_text(tenants) + self.page_for_clients(view, seen, lost_lines)

    def families(
        self, view: FleetView, seen: Telemetry, lost_lines: Mapping[str, int]
    ) -> Iterator[metrics_text.Family]:
        """The same, not yet as text."""
        yield from self._of_tenants(view)
        yield from self._for_clients(view, seen, lost_lines)

    def _of_tenants(self, view: FleetView) -> tuple[metrics_text.Family, ...]:
        return (
            _counter("twofold_tenant_requests_total", "Requests that ended", _by_tenant(self._tenants)),
            _counter("twofold_tenant_tokens_total", "Tokens of answers", _by_tenant(self._tenant_tokens)),
            *(self._overflowed(view) if view.overflow is not None else ()),
            *((_to_smaller(view),) if view.smaller_models else ()),
        )

    def page_for_clients(self, view: FleetView, seen: Telemetry, lost_lines: Mapping[str, int]) -> str:
        """All series but those that name tenants: who else asks, and how much, is no client's business."""
        return metrics_text.families_text(self._for_clients(view, seen, lost_lines))

    def _for_clients(
        self, view: FleetView, seen: Telemetry, lost_lines: Mapping[str, int]
    ) -> Iterator[metrics_text.Family]:
        lost = [({"log": name}, float(lines)) for name, lines in lost_lines.items()]
        if self.resource:
            yield watched.info_family(self.resource)
        yield from watched.memory_families()
        yield from self._counted()
        yield from _of_fleet(view)
        yield from _of_gate(view, seen)
        yield _counter("twofold_log_lines_lost_total", "Lines that no disk would take", lost)

    def _class(self, name: str) -> str:
        return name if name in self._classes or name == NO_CLASS else self._first or DEFAULT_CLASS

    def _tenant(self, outcome: Outcome) -> str:
        """Names are clients' word where there are no keys: one that was never answered is not kept."""
        tenant = outcome.tenant
        is_new = outcome.outcome == FINISHED and len(self._tenants) < TENANTS_MAX
        return tenant if tenant in self._tenants or is_new else OTHERS

    def _overflowed(self, view: FleetView) -> Iterator[metrics_text.Family]:
        sent: list[tuple[dict[str, str], float]] = [({}, view.counts.overflowed)]
        yield _counter("twofold_overflow_attempts_total", "Requests that went to the hosted API", sent)
        yield _counter(
            "twofold_overflow_usd_total", "What it asks for them, in USD", [({}, self.overflow_usd)]
        )

    def _counted(self) -> Iterator[metrics_text.Family]:
        yield _counter(
            "twofold_requests_total",
            "Requests that ended, by what became of them",
            (
                ({"class": name, "outcome": outcome, "code": code, "reason": reason}, count)
                for (name, outcome, code, reason), count in sorted(self._requests.items())
            ),
        )
        known = sorted(self._answered.items())
        tokens = {
            "input": [({"class": name}, float(of.input_tokens)) for name, of in known],
            "output": [({"class": name}, float(of.output_tokens)) for name, of in known],
        }
        for direction, counts in tokens.items():
            meaning = f"Tokens of {direction} of requests that were answered"
            yield _counter(f"twofold_{direction}_tokens_total", meaning, counts)
        yield _counter(
            "twofold_cache_hits_total", "Requests that got a kept answer", [({}, self._again["requests"])]
        )
        yield _counter(
            "twofold_cache_tokens_total",
            "Tokens of answers that were given again, which no replica read or wrote",
            (({"direction": way}, self._again[way]) for way in ("input", "output")),
        )
        for kind, (series, meaning, _) in SERIES.items():
            samples = (
                sample for name, of in known for sample in of.histograms[kind].samples({"class": name})
            )
            yield metrics_text.Family(series, "histogram", meaning, tuple(samples))
        if self._zones:
            yield from self._of_zones()

    def _of_zones(self) -> Iterator[metrics_text.Family]:
        yield _counter(
            "twofold_client_zone_requests_total",
            "Requests that ended, by where their clients are",
            (
                ({"zone": zone, "outcome": outcome}, count)
                for (zone, outcome), count in sorted(self._zones.items())
            ),
        )
        samples = (
            sample
            for zone, histogram in sorted(self._zone_histograms.items())
            for sample in histogram.samples({"zone": zone})
        )
        yield metrics_text.Family(ZONE_TTFT, "histogram", SERIES["ttft"][1], tuple(samples))


def _by_tenant(counts: Counter[str]) -> Iterator[tuple[dict[str, str], float]]:
    return (({"tenant": tenant}, count) for tenant, count in sorted(counts.items()))


def buckets_s(kind: str, classes: Iterable[ClassSettings]) -> tuple[float, ...]:
    """The usual ones, and every class's goal."""
    goals = {"ttft": "ttft_slo_s", "tpot": "tpot_slo_s", "e2e": "e2e_slo_s"}[kind]
    own = {goal for each in classes if (goal := getattr(each, goals)) is not None}
    return tuple(sorted({*SERIES[kind][2], *own}))


def _to_smaller(view: FleetView) -> metrics_text.Family:
    sent: list[tuple[dict[str, str], float]] = [({}, view.counts.smaller)]
    return _counter("twofold_smaller_attempts_total", "Requests that went to the smaller model", sent)


def _of_fleet(view: FleetView) -> Iterator[metrics_text.Family]:
    now_s, replicas = time.monotonic(), tuple(view.replicas.values())
    yield _gauge("twofold_replicas", "Replicas that are known", [({}, len(replicas))])
    healthy = sum(each.healthy for each in replicas)
    yield _gauge("twofold_replicas_ready", "Replicas that are sent requests", [({}, healthy)])
    yield _gauge(
        "twofold_replica_requests_in_flight",
        "Requests that a replica has",
        (({"replica": each.replica_id}, each.in_flight_count) for each in replicas),
    )
    yield _gauge(
        "twofold_replica_kv_used_fraction",
        "Of its cache, as it says, else as it is believed",
        (
            ({"replica": each.replica_id}, each.report.kv_used_fraction)
            for each in replicas
            if each.report is not None
        ),
    )
    yield _gauge(
        "twofold_replica_circuit_closed",
        "1: the replica is trusted; 0: its circuit is open, or a try is due",
        (
            ({"replica": each.replica_id}, float(state_of(each.circuit, now_s).value == "closed"))
            for each in replicas
        ),
    )


def _of_gate(view: FleetView, seen: Telemetry) -> Iterator[metrics_text.Family]:
    yield _gauge("twofold_requests_in_flight", "Requests at replicas", [({}, len(view.requests))])
    yield _gauge("twofold_requests_queued", "Requests that wait in the gate", [({}, len(view.held))])
    yield _counter("twofold_hedges_total", "Attempts beside a slow first one", [({}, seen.hedge_count)])
    yield _counter("twofold_retries_total", "Attempts after a failed one", [({}, seen.retry_count)])
    yield _gauge("twofold_degrade_level", "0: answers are as asked for", [({}, seen.degrade_level)])
    release = [] if seen.release is None else [({"version": seen.release[0]}, seen.release[1])]
    yield _gauge("twofold_release_share", "Of requests that the newest release is sent", release)


def _counter(name: str, meaning: str, samples: Iterable[tuple[dict[str, str], float]]) -> metrics_text.Family:
    return metrics_text.Family(
        name, "counter", meaning, tuple(("", labels, value) for labels, value in samples)
    )


def _gauge(name: str, meaning: str, samples: Iterable[tuple[dict[str, str], float]]) -> metrics_text.Family:
    return metrics_text.Family(
        name, "gauge", meaning, tuple(("", labels, value) for labels, value in samples)
    )
