"""When nodes fail: as often as published rates say, at the same times whatever else differs."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Observation
from twofold.policy.cluster.events import FaultCause, RepairKind
from twofold.training.run import Reliability
from twofold.twin.cluster.cluster_types import CauseRate, FaultRates, NodeGroup
from twofold.twin.cluster.faults import CAUSES, Drift, FaultClocks, published_rates
from twofold.twin.cluster.nodes import Nodes

ROWS = load_catalog().rows(Observation)
RATES = FaultRates(
    (
        CauseRate(FaultCause.ACCELERATOR, 3e-3, 600.0, RepairKind.REPLACED),
        CauseRate(FaultCause.HOST, 1e-3, 60.0, RepairKind.REBOOTED),
    )
)


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


def failures(rates: FaultRates, node_count: int, until_s: float, seed: int = 0) -> list[list[float]]:
    nodes = Nodes((NodeGroup("n", node_count),))
    clocks = FaultClocks(rates, nodes, seed)
    times = []
    for node in nodes:
        times.append([])
        while (failure := clocks.next(node)) and failure.at_s < until_s:
            times[-1].append(failure.at_s)
    return times


def test_nodes_fail_as_often_as_the_rates_say() -> None:
    count = sum(map(len, failures(RATES, 100, 100 * 3600.0)))
    assert count == pytest.approx(100 * 8 * 100 * 4e-3, abs=4 * np.sqrt(320))


def test_further_nodes_change_nothing_for_the_first_ones() -> None:
    assert failures(RATES, 20, 1e6)[:10] == failures(RATES, 10, 1e6)


def test_lemons_take_their_share_of_the_same_total() -> None:
    lemons = replace(RATES, lemon_fraction=0.05, lemon_failure_share=0.7)
    counts = np.sort([len(times) for times in failures(lemons, 400, 50 * 3600.0)])
    total = 400 * 8 * 50 * 4e-3
    assert counts.sum() == pytest.approx(total, rel=0.35)  # how many lemons there are is chance too
    assert counts[-30:].sum() / counts.sum() > 0.5


def test_rates_that_drift_give_more_failures_when_they_are_higher() -> None:
    drifting = replace(RATES, drift=((0.0, 1.0), (50 * 3600.0, 4.0)))
    times = np.concatenate(failures(drifting, 100, 100 * 3600.0))
    early, late = np.sum(times < 50 * 3600), np.sum(times >= 50 * 3600)
    assert late / early == pytest.approx(4.0, rel=0.4)


def test_exposure_is_inverted_exactly() -> None:
    drift = Drift(((0.0, 2.0), (10.0, 0.5), (20.0, 1.0)))
    for at_s in (0.0, 5.0, 10.0, 15.0, 30.0):
        assert drift.when_s(drift.until(at_s)) == pytest.approx(at_s)
    assert Drift(((0.0, 1.0), (10.0, 0.0))).when_s(11.0) == inf


def test_a_healed_lemon_fails_no_earlier_than_now() -> None:
    lemons = replace(RATES, lemon_fraction=0.5, lemon_failure_share=0.9)
    nodes = Nodes((NodeGroup("n", 20),))
    clocks = FaultClocks(lemons, nodes, 0)
    lemon = next(node for node in nodes if node.is_lemon)
    healed = clocks.heal(lemon, 5000.0)
    assert healed is not None and healed.at_s >= 5000.0
    assert not lemon.is_lemon
