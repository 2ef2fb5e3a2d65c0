"""Key-use points and the modules that hold the keys (R-111)."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.building.compliance_system import (
    STAGING,
    RuledSystem,
    clusters_of,
    enclaves_of,
    keys_of,
    logs_of,
    record_bytes,
)
from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import ComplianceFigure
from twofold.contracts.results.compliance import KeyPlan

CATALOG = load_catalog()
System = Callable[..., RuledSystem]


def keys(system: RuledSystem) -> KeyPlan:
    return keys_of(system, CATALOG)


def test_every_point_says_what_it_protects_and_which_control_asks(ruled: System) -> None:
    points = keys(ruled("il5")).points
    assert {"checkpoints at rest", "weights at rest", "log seal", "root of trust"} <= {p.name for p in points}
    assert all(point.protects and point.standard and point.evidence for point in points)


def test_a_half_without_machines_uses_no_keys_of_its_own(ruled: System) -> None:
    training = {point.name for point in keys(ruled("il5", halves=("training",))).points}
    serving = {point.name for point in keys(ruled("il5", halves=("serving",))).points}
    assert "gateway's TLS key" in serving - training
    assert "checkpoints at rest" in training - serving


def test_only_a_closed_system_signs_what_crosses_its_link(ruled: System) -> None:
    assert "transfer manifest" in {point.name for point in keys(ruled("air-gapped")).points}
    assert "transfer manifest" not in {point.name for point in keys(ruled("il5")).points}


def test_modules_come_by_site_or_by_enclave(ruled: System) -> None:
    moderate, high = keys(ruled("fedramp-moderate")), keys(ruled("fedramp-high"))
    assert (moderate.cluster_count, moderate.module_count) == (1, 2)
    assert (high.cluster_count, high.module_count) == (3, 6)  # training, serving, management
    assert keys(ruled("fedramp-moderate", sites=2)).cluster_count == 2
    assert (high.offline_count, keys(ruled("il5")).offline_count) == (0, 2)


def test_what_stands_below_the_link_has_no_modules(ruled: System) -> None:
    system = ruled("air-gapped", rented=False)
    enclaves = enclaves_of(system)
    assert STAGING in {enclave.name for enclave in enclaves}
    assert len(clusters_of(system)) == len(enclaves) - 1


@settings(max_examples=30, deadline=None)
@given(rate_per_s=st.floats(0.1, 1e6))
def test_a_module_may_fail_at_the_peak(ruled: System, rate_per_s: float) -> None:
    plan = keys(ruled("fedramp-high", rate_per_s=rate_per_s))
    left = plan.module_count - plan.cluster_count  # one lost in each cluster
    assert left * plan.module_operations_per_s >= plan.operations_per_s * (1 - 1e-9)
    assert plan.module_count >= 2 * plan.cluster_count


def test_the_rate_is_the_sum_of_its_points(ruled: System) -> None:
    plan = keys(ruled("il5"))
    assert plan.operations_per_s == pytest.approx(sum(point.operations_per_s for point in plan.points))


DAY_S = 86400.0


@given(rate_per_s=st.floats(0.01, 1e5), days=st.floats(1, 3650))
def test_room_is_bytes_times_rate_times_retention(ruled: System, rate_per_s: float, days: float) -> None:
    logs = logs_of(ruled("il5", rate_per_s=rate_per_s), "content", days, CATALOG)
    assert logs.bytes_per_request is not None
    per_s = logs.bytes_per_request * rate_per_s + logs.host_bytes_per_s
    assert logs.bytes_per_year.value == pytest.approx(per_s * 365 * DAY_S)
    assert logs.online_bytes.value + logs.archive_bytes.value == pytest.approx(per_s * days * DAY_S)
    assert logs.online_days <= logs.retention_days == days


def test_more_is_recorded_the_more_is_asked(ruled: System) -> None:
    audit, content, attribution = (
        record_bytes(ruled("il5"), recorded, CATALOG).value
        for recorded in ("audit", "content", "attribution")
    )
    assert audit < content < attribution
    envelope, text = (
        row.value for row in CATALOG.rows(ComplianceFigure) if row.item in {"envelope", "text of one token"}
    )
    assert content - audit == pytest.approx(1200 * envelope * text)  # 1,000 tokens in, 200 out


def test_the_rules_of_today_keep_twelve_months_of_which_six_are_searchable(ruled: System) -> None:
    logs = logs_of(ruled("fedramp-high"), "audit", None, CATALOG)
    assert (logs.retention_days, logs.online_days) == (pytest.approx(365.0), pytest.approx(182.5))


def test_a_record_waits_in_memory_or_on_disk_and_has_a_budget(ruled: System) -> None:
    logs = logs_of(ruled("il5", goal_s=1.0), "content", None, CATALOG)
    assert logs.synchronous_s is not None
    assert logs.asynchronous_s is not None
    assert logs.asynchronous_s.high < logs.synchronous_s.low  # the ranges do not meet
    assert logs.budget_s == pytest.approx(0.05)
    assert logs.synchronous_fits is True
    tight = logs_of(ruled("il5", goal_s=0.01), "content", None, CATALOG)
    assert tight.synchronous_fits is False
    assert logs_of(ruled("il5", goal_s=None), "content", None, CATALOG).budget_s is None


def test_a_cluster_that_only_trains_has_host_logs_alone(ruled: System) -> None:
    logs = logs_of(ruled("il5", halves=("training",)), "attribution", None, CATALOG)
    assert (logs.bytes_per_request, logs.synchronous_s, logs.synchronous_fits) == (None, None, None)
    assert logs.bytes_per_year.value == pytest.approx(logs.host_bytes_per_s * 365 * DAY_S)
