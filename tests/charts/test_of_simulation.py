"""Pictures of rehearsals: courses add up to figures, marks are the JSON's numbers, labels are apart."""

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.rehearsed import rehearsal, rehearsals
from twofold.charts.chart import Chart, Curves, Spans
from twofold.charts.of_simulation import charts_of_simulation
from twofold.charts.svg import CHARACTER, WIDTH, svg_of
from twofold.charts.text import text_of
from twofold.contracts.results.simulated import SIMULATION_SCHEMA
from twofold.core.data import to_json

SVG = "{http://www.w3.org/2000/svg}"
POINTS_MOST = 200


def charts(scenario: str) -> dict[str, Chart]:
    return {each.key: each for each in charts_of_simulation(rehearsal(scenario))}


def test_a_course_counts_what_the_figures_count() -> None:
    for name, made in rehearsals().items():
        assert len(made.courses) == len(made.fleets), name
        for fleet, course in zip(made.fleets, made.courses, strict=True):
            assert (course.service, course.pool) == (fleet.service, fleet.pool)
            assert sum(course.arrived_count) == fleet.arrived_count
            assert sum(course.finished_count) == fleet.finished_count
            assert 0 < len(course.until_s) <= POINTS_MOST
            assert course.until_s == tuple(sorted(course.until_s))
            assert course.until_s[-1] == pytest.approx(fleet.duration_s)
            columns = (course.queued_mean, course.ready_count, course.kv_used_fraction, course.refused_count)
            assert {len(each) for each in columns} == {len(course.until_s)}


def test_percentiles_of_a_span_are_in_order_and_of_answers_that_ended_in_it() -> None:
    seen = 0
    for made in rehearsals().values():
        for course in made.courses:
            for latency in course.latencies:
                for p50, p95, p99 in zip(latency.p50_s, latency.p95_s, latency.p99_s, strict=True):
                    assert (p50 is None) == (p95 is None) == (p99 is None)
                    if p50 is not None and p95 is not None and p99 is not None:
                        assert 0.0 <= p50 <= p95 <= p99
                        seen += 1
            answered = [each is not None for each in course.latencies[0].p50_s]
            of_one_class = len({each.name for each in course.latencies}) == 1
            if of_one_class and course.latencies[0].metric != "tpot":
                assert answered == [count > 0 for count in course.finished_count]
    assert seen > 100


def test_lives_of_a_replica_follow_each_other_and_none_has_two_at_once() -> None:
    (course,) = rehearsal("replica-crash").courses
    assert {each.state for each in course.replicas} >= {"ready", "down", "starting"}
    for name in {each.replica for each in course.replicas}:
        lives = sorted((each.from_s, each.until_s) for each in course.replicas if each.replica == name)
        assert all(start < end for start, end in lives)
        assert all(one[1] <= other[0] for one, other in pairwise(lives))
    assert any(mark.at_s > 0.0 for mark in course.marks)


def test_the_trial_of_a_bad_release_ends_in_the_decision_that_the_gate_took() -> None:
    made = rehearsal("bad-canary")
    for course, fleet in zip(made.courses, made.fleets, strict=True):
        for trial in course.trials:
            assert trial.decision.startswith("rolled back") == ("RollBackRelease" in fleet.effects)
            chances = [each for column in trial.worse_probability.values() for each in column]
            assert chances and all(0.0 <= each <= 1.0 for each in chances)
            assert {len(column) for column in trial.worse_probability.values()} == {len(trial.at_s)}
            assert trial.at_s == tuple(sorted(trial.at_s)) and trial.at_s[-1] == (
                trial.decided_s or trial.at_s[-1]
            )
            assert trial.tried_count == tuple(sorted(trial.tried_count))
    assert any(course.trials for course in made.courses)


def test_the_plan_s_own_run_has_its_failures_and_checkpoints_in_its_course() -> None:
    for scenario in ("run-alone", "training-week"):
        training = rehearsal(scenario).training
        assert training is not None and training.course is not None
        own = [job for job in training.course.jobs if job.own]
        assert [job.name for job in own] == [run.name for run in training.runs]
        for job in training.course.jobs:
            assert all(one.until_s <= other.from_s for one, other in pairwise(job.spans))
            assert all(each.from_s < each.until_s <= training.duration_s for each in job.spans)
        total = [
            sum(parts)
            for parts in zip(
                training.course.training_count,
                training.course.serving_count,
                training.course.idle_count,
                training.course.away_count,
                strict=True,
            )
        ]
        assert all(each == pytest.approx(training.accelerator_count, rel=1e-3) for each in total)


def test_a_fan_s_marks_are_the_numbers_of_the_json_on_a_logarithmic_axis() -> None:
    """Places are measured on the drawing alone: place against log of number is one straight line."""
    data = json.loads(to_json(rehearsal("as-planned")))
    assert data["schema"] == SIMULATION_SCHEMA
    latency = data["courses"][0]["latencies"][0]
    drawn = charts("as-planned")[f"fan.{data['courses'][0]['service']}.{latency['name']}.{latency['metric']}"]
    root = ElementTree.fromstring(svg_of(drawn))
    (path,) = [
        each.attrib["d"] for each in root.iter(f"{SVG}path") if (each.findtext(f"{SVG}title") or "") == "p95"
    ]
    places = [float(pair.split()[1]) for pair in re.findall(r"[ML]([\d.]+ [\d.]+)", path)]
    logs = [math.log(each) for each in latency["p95_s"] if each is not None]
    assert len(places) == len(logs) > 5
    low, high = logs.index(min(logs)), logs.index(max(logs))
    slope = (places[high] - places[low]) / (logs[high] - logs[low])
    assert slope < 0.0  # upwards
    for place, log in zip(places, logs, strict=True):
        assert place == pytest.approx(places[low] + slope * (log - logs[low]), abs=0.15)


def test_pictures_of_rehearsals_have_labels_apart_and_inside_and_fit_a_terminal() -> None:
    drawn = 0
    for name, made in rehearsals().items():
        for chart in charts_of_simulation(made):
            assert all(len(line) <= 100 for line in text_of(chart)), (name, chart.key)
            root = ElementTree.fromstring(svg_of(chart))
            boxes = []
            for each in root.iter(f"{SVG}text"):
                wide = len(each.text or "") * CHARACTER * 0.92
                shift = {"middle": 0.5, "end": 1.0}.get(each.attrib.get("text-anchor", ""), 0.0)
                left, base = float(each.attrib["x"]) - shift * wide, float(each.attrib["y"])
                boxes.append((left, left + wide, base - 9.0, base + 1.0, each.text))
                assert 0.0 <= left <= WIDTH
            for at, one in enumerate(boxes):
                for other in boxes[at + 1 :]:
                    apart = (
                        one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] or other[3] <= one[2]
                    )
                    assert apart, (name, chart.key, one[4], other[4])
            drawn += 1
    assert drawn > 15


def test_goals_are_shown_as_shares_of_their_limits_and_keys_are_unique() -> None:
    for made in rehearsals().values():
        found = charts_of_simulation(made)
        assert len({each.key for each in found}) == len(found)
    made = rehearsal("as-planned")
    goals = charts("as-planned")["goals"]
    shares = [bar.pieces[0].value for bar in goals.bars if bar.name.startswith("twin")]  # type: ignore[union-attr]
    seen = [
        slo.simulated_s / slo.limit_s
        for one in made.classes
        for slo in one.slos
        if slo.simulated_s is not None and slo.metric != "finish_within"
    ]
    assert shares == seen


def test_a_file_from_before_courses_still_has_its_goals() -> None:
    made = replace(rehearsal("as-planned"), courses=())
    assert [each.key for each in charts_of_simulation(made)] == ["goals"]


def test_a_crash_is_a_row_of_lives_and_a_line_in_the_pictures_over_time() -> None:
    found = charts("replica-crash")
    (lives,) = [each for each in found.values() if each.key.startswith("replicas.")]
    assert isinstance(lives, Spans) and {each.name for each in lives.spans} >= {"down", "starting"}
    (queue,) = [each for each in found.values() if each.key.startswith("queue.")]
    assert isinstance(queue, Curves) and [rule.name for rule in queue.rules] == ["fault"]
