"""Latencies over the load, and fleets that were weighed: they agree with the plan that they stand in."""

import pytest

from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ServicePlan


def _services(examples: dict[str, Plan]) -> list[ServicePlan]:
    return [service for plan in examples.values() for service in plan.serving]


def test_every_promise_on_a_latency_has_a_curve_that_holds_the_plan_s_own_figure(
    examples: dict[str, Plan],
) -> None:
    seen = 0
    for service in _services(examples):
        curves = {(each.class_name, each.metric): each for each in service.latency_curves}
        for one in service.classes if service.pools else ():
            for slo in one.slos:
                if slo.metric == "finish_within":
                    assert (one.name, slo.metric) not in curves
                    continue
                points = {point.rate_per_s: point for point in curves[one.name, slo.metric].points}
                planned = min(points, key=lambda rate: abs(rate - one.peak_per_s))
                assert planned == pytest.approx(one.peak_per_s)
                assert points[planned].latency == slo.predicted
                seen += 1
    assert seen >= 10


def test_a_class_holds_its_promise_until_the_rate_that_the_plan_names(examples: dict[str, Plan]) -> None:
    """At the largest rate that still holds by the plan the tightest goal is nearly used up, none missed."""
    for service in _services(examples):
        for one in service.classes:
            own = [each for each in service.latency_curves if each.class_name == one.name]
            if not own:
                continue
            at = {
                each.metric: min(
                    each.points, key=lambda p: abs(p.rate_per_s - one.holds_until_per_s.value)
                ).latency.value
                / each.limit_s
                for each in own
            }
            assert max(at.values()) <= 1.001, (service.name, at)


def test_more_load_never_makes_a_token_come_sooner(examples: dict[str, Plan]) -> None:
    """INV-9, for tokens after the first. What a processor's few cores sustain bends where batches end."""
    for service in _services(examples):
        if service.machine.accelerator.startswith("CPU"):
            continue
        for curve in service.latency_curves:
            values = [point.latency.value for point in curve.points]
            assert values == sorted(values), (service.name, curve.metric)
            assert all(p.latency.low <= p.latency.value <= p.latency.high for p in curve.points)
            rates = [point.rate_per_s for point in curve.points]
            assert rates == sorted(rates) and len({*rates}) == len(rates)


def test_the_planned_fleet_is_the_first_of_those_that_were_weighed_and_all_keep_the_goal(
    examples: dict[str, Plan],
) -> None:
    found = [service for service in _services(examples) if service.weighed]
    assert len(found) >= 5
    for service in found:
        first, *others = service.weighed
        assert first.chosen and not any(each.chosen for each in others)
        assert first.accelerator_count == service.machine.accelerator_count
        for each in service.weighed:
            assert 0.0 < each.latency_s <= each.limit_s
        slo = next(
            slo
            for one in service.classes
            for slo in one.slos
            if (one.name, slo.metric) == (first.class_name, first.metric)
        )
        assert slo.predicted and first.latency_s == pytest.approx(slo.predicted.value)
