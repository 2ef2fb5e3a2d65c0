"""The page of the loop: parts still sum, shares of a load add up, and every line fits the screen."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.app.loop_page import LoopShown, _grouped, _row, notes_on_loads, serving_rows, share_of_load
from twofold.contracts.results.loop import (
    Finding,
    LoadPoint,
    LoopPage,
    Quantiles,
    Recovery,
    Row,
    RunCourse,
    ServingMeasured,
    StepParts,
    Stretch,
    TrainingMeasured,
)
from twofold.contracts.results.parts import Part
from twofold.core.data import from_data
from twofold.core.estimate import Estimate, Source
from twofold.report.loop import loop_lines

QUANTILES = Quantiles(0.02, 0.018, 0.04, 0.05)
LOAD = LoadPoint(
    "closed-4", 4, None, 128.0, 48.0, 40, 38, 1, 1, 3.2, 153.6, QUANTILES, QUANTILES, QUANTILES, 700.0
)
RUN = TrainingMeasured(
    rank_count=2,
    parameter_count=5_800_000,
    steps=110,
    tokens_per_step=1024,
    step_s_p10=0.5,
    step_s_p50=0.55,
    step_s_p90=0.7,
    parts=StepParts(0.001, 0.2, 0.28, 0.05, 0.01, 0.004, 0.005),
    first_loss=8.3,
    last_loss=5.0,
    peak_memory_bytes=900_000_000,
    checkpoint_bytes=69_000_000,
    checkpoint_count=8,
    checkpoint_write_s=0.4,
    recovery=Recovery(1, 60, 52, 8, True, 9.5),
    wall_s=90.0,
    course=RunCourse(
        (
            Stretch("starting", 0.0, 12.0, 0),
            Stretch("training", 12.0, 45.0, 60),
            Stretch("checkpoint", 38.0, 38.4, 52),
            Stretch("killed", 45.2, 54.7, 60, "rank 1"),
            Stretch("starting", 48.0, 54.1, 52),
            Stretch("training", 54.1, 84.0, 110),
            Stretch("not saved", 60.0, 60.0, 65, "No space left on device"),
        )
    ),
)
PAGE = LoopPage(
    name="laptop",
    machine="Some Processor With A Rather Long Name @ 2.50GHz, 2 cores, 23.5 GiB",
    spec_digest="0" * 64,
    plan_digest="1" * 64,
    device_digest="2" * 64,
    rows=(
        Row("training", "step", "s", Estimate(0.5, 0.4, 0.7, "s", Source.MEASURED), 0.55, True),
        Row("training", "· saving", "s", None, 0.004, None),
        Row("serving", "16 clients: TTFT p95", "s", Estimate(0.2, 0.1, 0.3, "s"), 0.9, False),
        Row("serving", "16 clients: output", "tok/s", Estimate(300.0, 200.0, 400.0, "tok/s"), None, None),
        Row(
            "serving",
            "2 /s: TTFT p95",
            "s",
            Estimate(0.04, 0.02, 0.08, "s"),
            0.05,
            True,
            Estimate(0.03, 0.025, 0.036, "s"),
        ),
    ),
    training=(RUN,),
    serving=(ServingMeasured("transformers 5.23.0", 2, 16_384.0, None, "sha256-" + "a" * 64, (LOAD,)),),
    findings=(Finding("input-bound", "ok", "0.2% of the time of its steps is spent waiting for data", ""),),
    notes=("no price for tiny",),
)


def test_the_page_fits_a_screen_and_shows_both_sides() -> None:
    lines = loop_lines(PAGE)
    assert max(map(len, lines)) <= 100
    text = "\n".join(lines)
    for shown in (
        "TRAINING",
        "SERVING",
        "×1.10",
        "twin",
        "30 ms [25–36] f",
        "×4.50 outside",
        "bit for bit",
        "38 finished",
        "input-bound",
    ):
        assert shown in text, shown


def test_a_page_from_before_rehearsals_stood_there_is_read_and_has_no_column_of_them() -> None:
    data = json.loads(LoopShown(PAGE).json)
    for row in data["rows"]:
        del row["twin"]
    old = from_data(LoopPage, {name: value for name, value in data.items() if name != "schema"})
    assert old.rows == tuple(replace(row, twin=None) for row in PAGE.rows)
    assert "twin" not in "\n".join(loop_lines(old))


def test_the_twin_s_figures_stand_at_the_rows_of_their_load() -> None:
    opened = replace(LOAD, name="open-2", concurrency=None, rate_per_s=2.0)
    service = replace(PAGE.serving[0], loads=(LOAD, opened))
    said = {"open-2": {"ttft_p95": Estimate(0.03, 0.02, 0.04, "s")}}
    rows = serving_rows({}, service, None, said)
    assert {row.name: row.twin for row in rows if row.twin} == {"2 /s: TTFT p95": said["open-2"]["ttft_p95"]}


def test_losses_that_differ_are_shouted() -> None:
    run = replace(RUN, recovery=Recovery(1, 60, 52, 8, False, 9.5))
    assert "OTHER LOSSES" in "\n".join(loop_lines(replace(PAGE, training=(run,))))


def test_the_json_names_its_schema_and_keeps_every_record() -> None:
    data = json.loads(LoopShown(PAGE).json)
    assert data["schema"] == "twofold/loop/1"
    assert data["training"][0]["recovery"]["equal_losses"] is True
    assert data["rows"][0]["planned"]["source"] == "m"
    assert data["serving"][0]["cold_start_s"] is None


PLANNED = st.sampled_from(["compute", "host", "head", "DP", "TP", "optimiser", "data", "jitter"])


@given(st.lists(st.tuples(PLANNED, st.floats(0.0, 1e3)), min_size=1))
def test_planned_parts_keep_their_sum_when_grouped(parts: list[tuple[str, float]]) -> None:  # INV-1
    planned = [Part(name, Estimate(v, v / 2, v * 2, "s"), 0.0) for name, v in parts]
    grouped = _grouped(planned)
    assert set(grouped) <= {"compute", "communication", "optimiser", "data"}
    assert sum(each.value for each in grouped.values()) == pytest.approx(sum(v for _, v in parts))


@given(clients=st.integers(1, 64), replica_count=st.integers(1, 8))
def test_the_shares_of_a_closed_load_are_the_load(clients: int, replica_count: int) -> None:
    share, rate, busy = share_of_load(replace(LOAD, concurrency=clients), replica_count)
    assert rate is None
    assert share is not None
    assert busy == min(clients, replica_count)
    assert abs(share * busy - clients) <= busy / 2


def test_an_open_load_is_spread_over_all_replicas() -> None:
    assert share_of_load(replace(LOAD, concurrency=None, rate_per_s=3.0), 2) == (None, 1.5, 2)


@given(value=st.floats(0.1, 10.0), measured=st.floats(0.1, 10.0))
def test_a_planned_point_has_no_range_to_be_outside_of(value: float, measured: float) -> None:
    point = _row("training", "checkpoint size", "B", Estimate(value, value, value, "B"), measured)
    assert point.inside is None
    text = "\n".join(loop_lines(replace(PAGE, rows=(point,))))
    assert f"×{measured / value:.2f}" in text
    assert "outside" not in text
    ranged = _row("training", "step", "s", Estimate(value, value / 2, value * 2, "s"), measured)
    assert ranged.inside == (value / 2 <= measured <= value * 2)


def test_what_too_few_requests_or_unequal_shares_mean_is_said() -> None:
    (service,) = PAGE.serving
    assert notes_on_loads(service, share_count=2) == ()
    few = replace(LOAD, name="closed-1", finished=3)
    silent = replace(LOAD, name="open-2", finished=0)
    notes = notes_on_loads(replace(service, loads=(few, LOAD, silent)), share_count=1)
    assert len(notes) == 3
    assert "open-2" in notes[0]
    assert "closed-1 3" in notes[1]
    assert "closed-4" not in notes[1]
    assert "1 of 1 shares" in notes[2]
