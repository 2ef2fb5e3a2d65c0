"""What replicas are reported to be: an idle service's log does not grow by it."""

from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from twofold.live.control.engine_checks import Report
from twofold.live.control.engines import EngineSettings
from twofold.live.control.observed import Watched
from twofold.live.control.reports import Reports, report_of

THERE = {"kept_tokens": 64, "in_flight": 2}


def replica(report: Report | None = None) -> Watched:
    engine = EngineSettings("v1", "float32", 1, 256, 64)
    return Watched("r0", engine, "v1", "127.0.0.1", 9, 0.0, 1, report=report)


def told(reports: Reports, at_s: float, fresh_s: float | None = None, **more: Any) -> int:
    report = report_of(replica(), {**THERE, **more}, at_s)
    return len(list(reports.news([report], "first", fresh_s)))


def test_an_engine_is_believed_and_one_that_says_nothing_is_counted() -> None:
    said = report_of(replica(Report(5, 3, 0.25)), THERE, 7.0)
    assert (said["running_count"], said["waiting_count"], said["kv_used_fraction"]) == (5, 3, 0.25)
    counted = report_of(replica(Report(None, None, None)), THERE, 7.0)
    assert (counted["running_count"], counted["waiting_count"]) == (2, 0)
    assert counted["kv_used_fraction"] == 64 / replica().engine.kv_capacity_tokens
    assert counted["observed_s"] == 7.0


def test_what_stays_as_it_was_is_told_once() -> None:
    reports = Reports()
    assert sum(told(reports, at_s) for at_s in range(0, 3600, 2)) == 1
    assert told(reports, 3600.0, in_flight=3) == 1
    assert told(reports, 3602.0, in_flight=3) == 0


def test_a_gate_that_forgets_old_reports_hears_them_again_before_it_does() -> None:
    reports, fresh_s = Reports(), 60.0
    heard_s = [at_s for at_s in range(0, 600, 2) if told(reports, float(at_s), fresh_s)]
    gaps_s = [later - sooner for sooner, later in pairwise(heard_s)]
    assert len(heard_s) == 20 and max(gaps_s) <= fresh_s / 2 + 2


def test_a_gateway_that_was_started_anew_is_told_all_and_one_that_did_not_hear_again() -> None:
    reports, report = Reports(), report_of(replica(), THERE, 1.0)
    assert len(list(reports.news([report], "first", None))) == 1
    assert len(list(reports.news([report], "second", None))) == 1
    reports.keep(["r0"])
    assert list(reports.news([report], "second", None)) == []
    reports.keep(())
    assert len(list(reports.news([report], "second", None))) == 1
