"""From what was counted to what a run came to, and to what broke first."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import sqrt

from twofold.contracts.goals import METRICS
from twofold.contracts.results import courses, simulated
from twofold.contracts.results.simulated import ClassFigures
from twofold.twin.serving.engine_types import EngineSpent
from twofold.twin.serving.fleet_gateway import Gateway
from twofold.twin.serving.fleet_replicas import Fleet
from twofold.twin.serving.fleet_types import FleetResult, FleetWorld, own_groups
from twofold.twin.serving.metrics import FINISHED, OPEN, ClassTally, Metrics
from twofold.twin.serving.tiers import TierWorld

LITTLE_ERROR_MAX = 1e-6
JUDGED_MIN_COUNT = 20  # requests below which nothing is said of a span
REFUSED_FRACTION_MAX = 0.01  # of what ended; also of failed ones, and of those whose clients left
UNANSWERED = (("queue", "were refused"), ("failures", "failed"), ("patience", "were left by their clients"))
NOTES_MAX_COUNT = 3  # of one moment that are named
KV_FRACTION_MAX = 0.98
BEYOND_CHANCE = 4.0  # standard deviations of a share: of hundreds of spans some lie three apart


def fleet_result(
    world: FleetWorld,
    fleet: Fleet,
    metrics: Metrics,
    gateway: Gateway,
    now_s: float,
    waits_for: str | None,
    course: courses.FleetCourse,
) -> FleetResult:
    """All figures of a run that has ended at `now_s`."""
    spent, engines, measured_s = fleet.spent, fleet.spent.engines, max(now_s - world.warm_up_s, 0.0)
    effects = {made.__name__: count for made, count in gateway.effects.items()}
    since, (own_count, smaller_count) = gateway.since_fault, _standing(world)
    samples = max(1, sum(bucket.samples for bucket in metrics.timeline.buckets))
    read_tokens = engines.prefill_tokens + engines.hit_tokens
    has_price = spent.overflow_usd > 0 or any(each.price_usd_per_h > 0 for each in world.models.values())
    return FleetResult(
        figures=simulated.FleetFigures(
            replica_count=own_count,
            replica_count_max=fleet.max_count - smaller_count,
            duration_s=now_s,
            measured_s=measured_s,
            arrived_count=metrics.arrived,
            finished_count=metrics.finished,
            outcomes=_outcomes(metrics),
            retry_count=metrics.retries,
            goodput_per_s=metrics.within / measured_s if measured_s else 0.0,
            input_tokens=metrics.input_tokens,
            output_tokens=metrics.output_tokens,
            given_again_tokens=gateway.given_again_tokens,
            utilisation_fraction=engines.busy_s / spent.ready_s if spent.ready_s else 0.0,
            kv_utilisation_fraction=metrics.kv_sum / metrics.kv_samples if metrics.kv_samples else 0.0,
            prefix_hit_fraction=engines.hit_tokens / read_tokens if read_tokens else 0.0,
            computed_s=engines.busy_s,
            saved_s=engines.saved_s,
            kv_waste_fraction=_unused_fraction(engines),
            token_gap_p99_s=engines.gaps.quantile(0.99) if engines.gaps.count else None,
            token_gap_max_s=engines.gaps.quantile(1.0) if engines.gaps.count else None,
            preempted_count=engines.preempted_count,
            started_count=spent.started_count,
            start_s_mean=spent.start_s / spent.started_count if spent.started_count else 0.0,
            accelerator_h=spent.accelerator_s / 3600.0,
            cost_usd=spent.cost_usd if has_price else None,
            overflowed_count=spent.overflowed_count if world.gate.overflow else None,
            smaller_count=spent.smaller_count if smaller_count else None,
            overflow_usd=spent.overflow_usd if world.gate.overflow else None,
            usd_per_1k_output_tokens=_each(spent.cost_usd, metrics.output_tokens, 1e3) if has_price else None,
            usd_per_request=_each(spent.cost_usd, metrics.finished) if has_price else None,
            energy_j=spent.energy_j,
            output_tokens_per_j=_each(metrics.output_tokens, spent.energy_j) or None,
            event_count=gateway.event_count,
            # A probe is no decision: it is sent to every replica at its time, whatever happens.
            decision_count=sum(count for name, count in effects.items() if name != "Probe"),
            effects=dict(sorted(effects.items())),
            little_error_fraction=little_error(metrics, now_s),
            waits_for=waits_for,
            broke_first=named_tier(broke_first(metrics), world, gateway.tiers),
            tiers=tier_figures(metrics, gateway.tiers),
            queued_mean=sum(bucket.queued for bucket in metrics.timeline.buckets) / samples,
            waiting_mean=sum(bucket.waiting for bucket in metrics.timeline.buckets) / samples,
        ),
        classes=tuple(counted_figures(tally, world, now_s) for tally in metrics.classes),
        timeline=metrics.timeline.rows(now_s),
        course=course,
        replica_h=spent.granted_s / 3600.0,
        first_effects_s={made.__name__: at_s for made, at_s in since.first_s.items()},
        sent_counts=dict(since.sent_counts),
        missent_count=since.missent_count,
        missent_last_s=since.missent_last_s,
    )


def _standing(world: FleetWorld) -> tuple[int, int]:
    """Replicas of the service's own model when the run begins, and of smaller ones."""
    own_count = sum(each.count for each in own_groups(world))
    return own_count, sum(each.count for each in world.replicas) - own_count


def _outcomes(counted: Metrics | ClassTally) -> dict[str, int]:
    """Of all that arrived, by how it ended."""
    outcomes = {FINISHED: counted.finished, **dict(sorted(counted.outcomes.items()))}
    still_open = counted.arrived - sum(outcomes.values())
    assert still_open >= 0, outcomes
    return {**outcomes, OPEN: still_open} if still_open else outcomes


def _unused_fraction(engines: EngineSpent) -> float:
    """Of the cache that requests held, what no token filled."""
    held = engines.held_token_s
    return max(0.0, 1.0 - engines.used_token_s / held) if held else 0.0


def _each(amount: float, count: float, scale: float = 1.0) -> float | None:
    """So much for each; None of none."""
    return amount / count * scale if count else None


def little_error(metrics: Metrics, now_s: float) -> float:
    """How far the time average of open visits is from their rate times their mean stay.

    Formula  |∫ N dt − Σ stays| / Σ stays, those still open up to now
    Why      Little's law, exact over any span that begins empty. N comes from how many began and ended in
             each bucket, the stays from each visit: one that is lost, or ends twice or elsewhere, shows.
    """
    open_count = metrics.arrived - metrics.finished - sum(metrics.outcomes.values())
    stays_s = metrics.visit_s + open_count * now_s - (metrics.arrivals_s - metrics.ended_arrivals_s)
    if stays_s <= 0.0:
        return 0.0
    error = abs(metrics.timeline.open_s(now_s) - stays_s) / stays_s
    assert error < LITTLE_ERROR_MAX, f"Little's law is off by {error:g}"
    return error


@dataclass(slots=True)
class _Window:
    """Buckets in a row with enough requests to be judged. Mutable."""

    from_s: float = 0.0  # where the first bad one is
    count: int = 0
    bad: list[int] = field(default_factory=lambda: [0, 0, 0])

    def add(self, from_s: float, count: int, bad: Sequence[int]) -> bool:
        """One bucket more; whether there is enough to judge now."""
        if self.count >= JUDGED_MIN_COUNT or not self.count:
            self.count, self.bad = 0, [0] * len(bad)
        if not any(self.bad):
            self.from_s = from_s
        self.count += count
        self.bad = [before + now for before, now in zip(self.bad, bad, strict=True)]
        return self.count >= JUDGED_MIN_COUNT


def broke_first(metrics: Metrics) -> simulated.BrokeFirst | None:
    """The first limit that did not hold, and when; of several at once, the likelier cause."""
    width_s = metrics.timeline.width_s
    ends, answers = _Window(), [_Window() for _ in metrics.classes]
    for number, bucket in enumerate(metrics.timeline.buckets):
        at_s = number * width_s
        kv = bucket.kv / bucket.samples if bucket.samples else 0.0
        if kv >= KV_FRACTION_MAX and bucket.waiting:
            text = f"KV caches were {kv:.0%} full and requests waited"
            return _with_cause(simulated.BrokeFirst(at_s, "kv", kv, KV_FRACTION_MAX, text), width_s, metrics)
        unanswered = bucket.turned_away, bucket.failed, bucket.left
        found = _lost(ends) if ends.add(at_s, bucket.ended, unanswered) else None
        for tally, window in zip(metrics.classes, answers, strict=True):
            late = bucket.late[3 * tally.number : 3 * tally.number + 3]
            if found is None and window.add(at_s, bucket.done[tally.number], late):
                found = _late(window, tally)
        if found is not None:
            return _with_cause(found, width_s, metrics)
    return None


def _lost(window: _Window) -> simulated.BrokeFirst | None:
    """Of requests that ended, too many without an answer; a client's askings of one thing are one request."""
    for (signal, what), count in zip(UNANSWERED, window.bad, strict=True):
        part = count / window.count
        if part > REFUSED_FRACTION_MAX:
            text = f"{count} of {window.count} requests that ended {what}"
            return simulated.BrokeFirst(window.from_s, signal, part, REFUSED_FRACTION_MAX, text)
    return None


def _late(window: _Window, tally: ClassTally) -> simulated.BrokeFirst | None:
    model = tally.model
    allowed = 1.0 - model.attained_fraction
    name = f"{model.name} " if model.name else ""
    limits = (model.ttft_s, model.tpot_s, model.e2e_s)
    for metric, limit_s, count in zip(METRICS, limits, window.bad, strict=True):
        late = count / window.count
        chance = BEYOND_CHANCE * sqrt(allowed * (1.0 - allowed) / window.count)
        if limit_s is not None and late > allowed + chance + 1e-9:
            text = f"{late:.0%} of {name}answers had a {metric.upper()} above {limit_s:g} s"
            return simulated.BrokeFirst(window.from_s, f"slo {name}{metric}", late, allowed, text)
    return None


def _with_cause(broke: simulated.BrokeFirst, width_s: float, metrics: Metrics) -> simulated.BrokeFirst:
    """With when, and with all that befell the world at the last moment before that bucket's end."""
    before_s = [noted_s for noted_s, _ in metrics.notes if noted_s < broke.at_s + width_s]
    last_s = before_s[-1] if before_s else None
    # Everything of that moment: which of several did it nobody can tell.
    said = list(dict.fromkeys(note for noted_s, note in metrics.notes if noted_s == last_s))
    more = len(said) - NOTES_MAX_COUNT
    causes = " and ".join(said[:NOTES_MAX_COUNT]) + (f" and {more} more" if more > 0 else "")
    after = "" if last_s is None else f", after {causes} at {last_s:g} s"
    at_s = broke.at_s if last_s is None else max(broke.at_s, last_s)  # a bucket begins before its cause
    return replace(broke, at_s=at_s, text=f"{broke.text} from {at_s:g} s on{after}")


def tier_figures(metrics: Metrics, tiers: TierWorld | None) -> tuple[simulated.TierFigures, ...]:
    """What came of each CPU tier, beside what waited for replicas on average."""
    samples = max(1, sum(bucket.samples for bucket in metrics.timeline.buckets))
    waits = sum(bucket.queued + bucket.waiting for bucket in metrics.timeline.buckets) / samples
    return () if tiers is None else tiers.figures(waits)


def named_tier(
    broke: simulated.BrokeFirst | None, world: FleetWorld, tiers: TierWorld | None
) -> simulated.BrokeFirst | None:
    """The same, put down to a CPU tier where at that time its line was as long as it has places.

    Why      Who waits there begins late and may be refused or leave: whatever limit that breaks, more
             replicas would not help.
    """
    if broke is None or tiers is None or broke.signal == "kv" or broke.signal.endswith(" tpot"):
        return broke
    near_s = 2.0 * world.metrics_every_s
    full = tiers.full_near(broke.at_s - near_s, broke.at_s + near_s)
    if full is None:
        return broke
    waits = f"{full.waiting_count} requests waited for the {full.place_count} places of CPU tier {full.name}"
    return replace(broke, signal=f"tier {full.name}", text=f"{waits}: {broke.text}")


def counted_figures(tally: ClassTally, world: FleetWorld, now_s: float) -> ClassFigures:
    """Rates are those of the time in which requests come."""
    span_s = max(min(world.horizon_s, now_s) - world.warm_up_s, 1e-9)
    unanswered, tokens = tally.arrived - tally.finished, tally.tpot.histogram().count
    return ClassFigures(
        name=tally.model.name,
        rate_per_s=tally.arrived / span_s,
        arrived_count=tally.arrived,
        finished_count=tally.finished,
        ttft_s=tally.ttft.latency(unanswered),
        tpot_s=tally.tpot.latency(unanswered, tally.finished - tokens),
        e2e_s=tally.e2e.latency(unanswered),
        outcomes=_outcomes(tally),
        goodput_per_s=tally.within / span_s,
        goodput_fraction=tally.within / tally.arrived if tally.arrived else 0.0,
        input_tokens=tally.input_tokens,
        output_tokens=tally.output_tokens,
    )
