"""Bytes × rate × retention, and the time that a record takes from a request."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.catalog import ComplianceFigure, load_catalog
from twofold.facility.compliance_logs import logs_of, record_bytes
from twofold.facility.compliance_system import RuledSystem

CATALOG = load_catalog()
System = Callable[..., RuledSystem]
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
