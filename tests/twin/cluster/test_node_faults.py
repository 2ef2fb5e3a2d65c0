"""Published failure rates, read from the catalogue, agree with each other."""

import pytest

from twofold.catalog import Observation, load_catalog
from twofold.policy.cluster.events import FaultCause, RepairKind
from twofold.training import Reliability
from twofold.twin.cluster import published_rates
from twofold.twin.cluster.node_faults import CAUSES, fleet_rates

ROWS = load_catalog().rows(Observation)


def test_the_causes_together_are_the_rate_that_plans_use() -> None:
    rate = published_rates(ROWS).failures_per_accelerator_h
    assert 1 / rate == pytest.approx(Reliability().accelerator_h_between_failures, rel=0.001)


def test_no_published_cause_is_left_out() -> None:
    published = {row.cause for row in ROWS if row.metric == "unexpected interruptions" and row.cause != "all"}
    assert published <= set(CAUSES)


def test_accelerators_and_their_memory_are_the_most_frequent_causes() -> None:
    causes = published_rates(ROWS).causes
    assert [one.cause for one in causes[:2]] == [FaultCause.ACCELERATOR, FaultCause.MEMORY]
    by_cause = {one.cause: one for one in causes}
    assert by_cause[FaultCause.SOFTWARE].repair_s == 0
    assert by_cause[FaultCause.HOST].repair_s == 1800
    assert by_cause[FaultCause.ACCELERATOR].repair_s == 8 * 3600
    assert {one.repair for one in causes} == {RepairKind.REBOOTED}  # or lemons would be forgotten


@pytest.mark.parametrize(("system", "per_1000"), [("Meta-RSC-1", 6.5), ("Meta-RSC-2", 2.34)])
def test_a_fleet_fails_as_often_as_it_reported(system: str, per_1000: float) -> None:
    rates = fleet_rates(ROWS, system, 8)
    assert rates.failures_per_accelerator_h * 8 * 24 * 1000 == pytest.approx(per_1000)
