"""One replica more under load: real controller, gateway and load; engines are stand-ins that take a while."""

import csv
import json
import subprocess
import sys
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="needs the extras [train] and [live]: `make extras`")
pytest.importorskip("psutil", reason="needs the extras [train] and [live]: `make extras`")
pytest.importorskip("uvicorn", reason="needs the extras [train] and [live]: `make extras`")
pytest.importorskip("tokenizers", reason="needs the extras [train] and [live]: `make extras`")

from tests.app.test_looping import EXAMPLE
from tests.live.test_engine_kit import MAKE
from twofold.app import scaling_out
from twofold.app.gates import served_gate
from twofold.app.loop_page import SCALE_OUT, serving_rows
from twofold.app.loop_settings import serve_settings, train_settings
from twofold.app.loop_stages import LoopRequest, own_load, own_load_ended_s, service_settings
from twofold.app.planning import plan
from twofold.app.releasing import Release
from twofold.app.sources import load
from twofold.contracts.results import loop
from twofold.contracts.rows.measured_rows import read_start_rows
from twofold.core.errors import TableError, UnknownNameError
from twofold.core.estimate import Source
from twofold.live.control.supervisor import bring_down, bring_up
from twofold.live.processes import free_port, running

STUB = Path(__file__).parents[1] / "live" / "stub_server.py"
START_S = 2.0  # of the stand-in, before it listens
RATE_PER_S = 20.0


def artefact_in(folder: Path) -> Path:
    """What prompts are made by, and what a start reads."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = {chr(byte): number for number, byte in enumerate(range(32, 127))}
    made = Tokenizer(models.BPE(letters, []))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    (folder / "pace.txt").write_text("0.002")
    return folder


def asked_of_example(folder: Path, **serving: object) -> LoopRequest:
    """The example's loop in a folder of its own, with other settings of its service."""
    for name in ("twofold.yaml", "config.json"):
        (folder / name).write_text((EXAMPLE.parent / name).read_text("utf-8"), "utf-8")
    spec, state = folder / "twofold.yaml", folder / ".twofold"
    read = load(spec).spec
    told = replace(serve_settings(read, 1.0), **serving)
    return LoopRequest(spec, state, train_settings(read, state), told, free_port(), lambda _: None, "tiny")


def test_r_182_starts_under_load_replace_the_plans_and_the_tail_stands_beside_the_twins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "stub"
    program.write_text(f'#!/bin/sh\nsleep {START_S}\nexec {sys.executable} {STUB} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(scaling_out, "LEAD_S", 3.0)
    request = asked_of_example(tmp_path, program=str(program), rate_per_s=RATE_PER_S, input_tokens=32)
    spec, state = request.spec, request.state
    gate, artefact = served_gate(spec, 2, None), artefact_in(tmp_path / "v1")
    measured = loop.ServingMeasured("transformers", 2, 16384.0, None, artefact.name, ())
    logged = plan(spec).serving[0]
    assert logged.cold_start_s is not None and logged.cold_start_s.source is Source.ASSUMED
    try:
        bring_up(service_settings(request, gate, Release("tiny:1", "", artefact, is_tried=False)), state)
        measured, said = scaling_out.scaled_out(request, artefact, gate, measured)
        assert {child.role for child in running(state, "replica-")} == {"replica-0", "replica-1"}
    finally:
        bring_down(state)
    seen = measured.scale_out
    assert seen is not None, said
    assert seen.warm_start_s is not None
    assert all(START_S < each < START_S + 20.0 for each in (seen.cold_start_s, seen.warm_start_s))
    assert seen.memory_after_bytes > 1.2 * seen.memory_before_bytes > 0  # three processes, not two
    assert seen.serving_after_s - seen.asked_after_s > START_S
    assert seen.requests_meanwhile > RATE_PER_S * START_S / 2
    assert seen.ttft_s_p95 is not None and seen.ttft_s_p95_before is not None and seen.slow_ratio >= 1.0

    rows = read_start_rows(state / "starts.csv")
    assert [(row.kind, row.accelerator, row.engine) for row in rows] == [
        ("cold", "this-machine", "transformers"),
        ("warm", "this-machine", "transformers"),
    ]
    again = plan(spec).serving[0]
    (reading, warming) = again.cold_start_parts
    assert warming.value.source is Source.MEASURED
    assert warming.value.value == pytest.approx(seen.warm_start_s, rel=1e-4)
    assert again.cold_start_s is not None and again.cold_start_s.value < logged.cold_start_s.value
    assert reading.value.value == pytest.approx(logged.cold_start_parts[0].value.value)
    assert again.classes[0].percentiles == logged.classes[0].percentiles  # steps are as sure as before
    (model,) = served_gate(spec, 2, None).task.world.models.values()
    assert model.warm_up_s == warming.value.value  # the twin's number is the plan's

    tail = scaling_out.twin_of(gate.task, request, seen)
    assert tail is not None and 0.0 < tail.low <= tail.value <= tail.high
    page = serving_rows({}, measured, again.cold_start_s, {SCALE_OUT: {"ttft_p95": tail}})
    [shown] = [row for row in page if "while it starts" in row.name]
    assert (shown.twin, shown.measured) == (tail, seen.ttft_s_p95)
    [start] = [row for row in page if row.name.startswith("start beside")]
    assert (start.planned, start.measured) == (again.cold_start_s, seen.cold_start_s)


def test_r_061_a_measured_start_of_a_small_model_lies_within_what_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real engine and the example's model: a warm start stands for the warm-up, a cold one is planned."""
    pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
    pytest.importorskip("transformers", reason="needs the extra [train]: `make extras`")
    monkeypatch.setattr(scaling_out, "LEAD_S", 1.0)
    request = asked_of_example(tmp_path, replica_count=1, rate_per_s=1.0, input_tokens=32, output_tokens=4)
    spec, artefact = request.spec, tmp_path / "v1"
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    shape = {name: value for name, value in config.items() if name not in ("architectures", "model_type")}
    made = [sys.executable, "-c", MAKE, str(artefact), json.dumps(shape)]
    assert subprocess.run(made, check=False, capture_output=True).returncode == 0
    gate = served_gate(spec, 1, None)
    measured = loop.ServingMeasured("transformers", 1, 16384.0, None, artefact.name, ())
    try:
        bring_up(
            service_settings(request, gate, Release("tiny:1", "", artefact, is_tried=False)), request.state
        )
        measured, said = scaling_out.scaled_out(request, artefact, gate, measured)
    finally:
        bring_down(request.state)
    seen = measured.scale_out
    assert seen is not None and seen.warm_start_s is not None, said
    (service,) = plan(spec).serving
    (reading, warming), whole = service.cold_start_parts, service.cold_start_s
    assert 0.0 < reading.value.value < 0.1 * warming.value.value  # 23 MB
    assert warming.value.value == pytest.approx(seen.warm_start_s, rel=1e-4)
    assert whole is not None and whole.low <= seen.cold_start_s <= whole.high


def test_nothing_is_started_where_somebody_else_decides_and_the_page_says_so(tmp_path: Path) -> None:
    text = EXAMPLE.read_text("utf-8").replace("  engine:", "  policies: {scaling: {most: 2}}\n  engine:")
    (tmp_path / "config.json").write_text((EXAMPLE.parent / "config.json").read_text("utf-8"), "utf-8")
    spec = tmp_path / "twofold.yaml"
    spec.write_text(text, "utf-8")
    read, state = load(spec).spec, tmp_path / ".twofold"
    request = LoopRequest(
        spec, state, train_settings(read, state), serve_settings(read, 1.0), 1, lambda _: None, "tiny"
    )
    measured = loop.ServingMeasured("transformers", 2, 16384.0, None, "a", ())
    kept, (why,) = scaling_out.scaled_out(request, tmp_path, served_gate(spec, 2, None), measured)
    assert kept is measured and "`scaling` decides" in why


def test_when_a_load_of_ours_breaks_off_it_is_still_nobody_elses(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), own_load(tmp_path):
        raise KeyboardInterrupt
    assert 0.0 < own_load_ended_s(tmp_path) <= time.monotonic()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("lukewarm,this-machine,transformers,3", "`lukewarm` is no kind of start"),
        ("cold,this-machine,transformers,-3", "`-3` is not a number above 0"),
        ("cold,,transformers,3", "`accelerator` has no value"),
    ],
)
def test_a_table_of_starts_that_cannot_be_is_refused_with_its_place(
    line: str, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "starts.csv"
    path.write_text(f"kind,accelerator,engine,start_s\n{line}\n")
    with pytest.raises(TableError, match=says) as caught:
        read_start_rows(path)
    assert caught.value.place is not None and caught.value.place.line == 2 and caught.value.exit_code == 2


def test_starts_of_an_accelerator_that_nobody_knows_are_refused_at_their_line(tmp_path: Path) -> None:
    for name in ("twofold.yaml", "config.json"):
        (tmp_path / name).write_text((EXAMPLE.parent / name).read_text("utf-8"), "utf-8")
    (tmp_path / ".twofold").mkdir()
    table = tmp_path / ".twofold" / "starts.csv"
    table.write_text("kind,accelerator,engine,start_s\nwarm,H100-SMX,vllm,30\n")
    with pytest.raises(UnknownNameError, match="H100-SMX") as caught:
        plan(tmp_path / "twofold.yaml")
    assert caught.value.place is not None and caught.value.place.line == 2 and "H100-SXM" in caught.value.hint


def test_starts_are_written_as_they_are_read(tmp_path: Path) -> None:
    read, state = load(EXAMPLE).spec, tmp_path / ".twofold"
    state.mkdir()
    request = LoopRequest(
        EXAMPLE, state, train_settings(read, state), serve_settings(read, 1.0), 1, lambda _: None, "tiny"
    )
    seen = loop.ScaleOut(2, 1.5, 9.0, 7.5, 2**30, 3 * 2**29, 10.0, 20.0, 15, 0.5, 0.25, 1.2)
    path = scaling_out.write_starts(request, seen, date(2026, 11, 27))
    cold, warm = read_start_rows(path)
    assert (cold.start_s, cold.memory_bytes, cold.memory_after_bytes) == (9.0, 2.0**30, 1.5 * 2**30)
    assert (warm.kind, warm.start_s, warm.replica_count, warm.rate_per_s) == ("warm", 7.5, 2, 1.5)
    assert warm.memory_bytes is None
    assert [row["note"] for row in csv.DictReader(path.read_text().splitlines())] == [
        "measured 2026-11-27"
    ] * 2
