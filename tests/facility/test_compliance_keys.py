"""Key-use points and the modules that hold the keys (R-111)."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.catalog import load_catalog
from twofold.contracts.results import KeyPlan
from twofold.facility.compliance_keys import clusters_of, keys_of
from twofold.facility.compliance_system import STAGING, RuledSystem, enclaves_of

CATALOG = load_catalog()
System = Callable[..., RuledSystem]


def keys(system: RuledSystem) -> KeyPlan:
    return keys_of(system, enclaves_of(system), CATALOG)


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
    assert len(clusters_of(system, enclaves)) == len(enclaves) - 1


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
