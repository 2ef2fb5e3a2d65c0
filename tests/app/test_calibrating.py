"""`calibrate` writes a file that plans beside it read, and shows what it did."""

import json
from datetime import date, timedelta
from pathlib import Path

import pytest

from twofold.app.local_tables import LocalTables, local_tables
from twofold.app.measured_rows import calibrate
from twofold.app.planning import plan
from twofold.contracts.rows.calibrations import Calibration
from twofold.core.errors import AlteredError, FileError, InputError
from twofold.core.estimate import Source
from twofold.perf.constants import load_constants
from twofold.report.plan import plan_lines

DAY = date(2026, 11, 1)
HEADER = "model,gpu,gpus,framework,precision,seq_len,global_batch_seqs,tp,micro_batch,recompute,step_time_s\n"
SPEC = """\
name: small
training:
  kind: finetune
  model: llama-3.1-8b
  tokens: 1 Gtok
  sequence: 4096 tok
  global_batch: 64 seq
  framework: megatron-core
  on: 1x8xH100-SXM
"""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six steps, and one in milliseconds, in the working folder beside a spec."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twofold.yaml").write_text(SPEC)
    steps = [
        (64, 1, "4.12"),
        (128, 1, "8.2"),
        (64, 2, "4.4"),
        (128, 2, "8.8"),
        (256, 1, "16.4"),
        (32, 1, "2.1"),
    ]
    rows = [
        f"llama-3.1-8b,H100-SXM,8,Megatron-Core,bf16,4096,{batch},{tp},1,full,{step_s}"
        for batch, tp, step_s in [*steps, (64, 4, "0.0044")]
    ]
    path = tmp_path / "rows.csv"
    path.write_text(HEADER + "\n".join(rows) + "\n")
    return path


def test_a_plan_beside_the_file_uses_it_and_one_elsewhere_does_not(table: Path, tmp_path: Path) -> None:
    before = plan(tmp_path).training[0].step_s
    answer = calibrate(table, today=DAY)
    after = plan(tmp_path)
    assert before.source == Source.FITTED
    assert after.training[0].step_s.source == Source.MEASURED
    assert after.training[0].step_s.value != before.value
    assert after.calibration == "6 rows of rows.csv, calibrated 2026-11-01"
    assert "m measured or calibrated here" in "\n".join(plan_lines(after))
    assert "6 rows of rows.csv" in str(after) and "calibrated" not in str(plan(SPEC))
    assert after.digests.calibration == Calibration.read(answer.path).digest
    assert plan(SPEC).training[0].step_s == before


def test_the_file_says_the_schema_and_what_was_refused(table: Path) -> None:
    answer = calibrate(table, today=DAY)
    data = json.loads(answer.path.read_text())
    assert next(iter(data)) == "schema"
    assert data["schema"] == Calibration.schema
    assert [row["line"] for row in data["refused"]] == [8]


def test_the_screen_shows_factors_errors_before_and_after_and_refusals(table: Path) -> None:
    answer = calibrate(table, today=DAY)
    screen = str(answer)
    assert all(len(line) <= 100 for line in answer.lines)
    for word in ("FACTOR", "compute", "before", "row left out", "REFUSED", "line 8", "6 rows of rows.csv"):
        assert word in screen
    assert "<pre" in answer._repr_html_()


def test_a_row_that_says_it_is_context_alone_is_left_out_aloud(table: Path) -> None:
    """What a rate limit let through was fitted as a machine's speed."""
    header, first, *rest = table.read_text().splitlines()
    lines = [f"{header},tier,notes", f"{first},C,5 of 15 finished; 10 × 429", *(f"{row},," for row in rest)]
    table.write_text("\n".join(lines) + "\n")
    answer = calibrate(table, today=DAY)
    assert (answer.data.rows, answer.data.refused[0].line) == (5, 2)
    assert "tier C: context, no measurement of a machine: 5 of 15 finished; 10 × 429" in str(answer)


def test_a_fit_that_misses_rows_more_than_before_names_their_lines(table: Path) -> None:
    header, *rows = table.read_text().splitlines()
    slow = [f"{row.rpartition(',')[0]},{float(row.rpartition(',')[2]) * 4}" for row in rows[:3]]
    fast = [f"{row.rpartition(',')[0]},{float(row.rpartition(',')[2]) / 1.3}" for row in rows[3:6]]
    table.write_text("\n".join([header, *slow, *fast]) + "\n")
    [figure] = calibrate(table, today=DAY).data.stacks[0].figures
    assert figure.error_after > figure.error_before
    assert figure.worse_lines and set(figure.worse_lines) <= {2, 3, 4, 5, 6, 7}


def test_the_same_rows_and_day_give_the_same_bytes(table: Path) -> None:
    first = calibrate(table, today=DAY).path.read_bytes()
    assert calibrate(table, today=DAY).path.read_bytes() == first


def test_a_table_that_cannot_be_calibrated_with_leaves_no_file(table: Path, tmp_path: Path) -> None:
    table.write_text(HEADER + "llama-3.1-8b,H100-SXM,8,Megatron-Core,bf16,4096,64,1,1,full,\n")
    with pytest.raises(InputError, match="nothing measured"):
        calibrate(table, today=DAY)
    assert not (tmp_path / ".twofold").exists()


def test_an_altered_file_stops_a_plan(table: Path, tmp_path: Path) -> None:
    path = calibrate(table, today=DAY).path
    path.write_text(path.read_text().replace('"rows": 6', '"rows": 60'))
    with pytest.raises(AlteredError):
        plan(tmp_path)
    path.write_text("{")
    with pytest.raises(FileError):
        plan(tmp_path)


def test_an_old_calibration_and_one_to_other_constants_are_noted(table: Path) -> None:
    path = calibrate(table, today=DAY).path
    assert local_tables(None, path, DAY).notes == ()
    (old,) = local_tables(None, path, DAY + timedelta(days=400)).notes
    assert "400 days old" in old
    data = json.loads(path.read_text()) | {"constants_digest": "of others", "constants_version": 1}
    from twofold.contracts.rows.calibrations import _digest

    data.pop("schema")
    path.write_text(json.dumps({"schema": Calibration.schema, **data, "digest": _digest(data)}))
    (other,) = local_tables(None, path, DAY).notes
    assert f"multiplies constants 1, these are {load_constants().version}" in other


def test_without_a_calibration_the_tables_are_those_of_the_device() -> None:
    assert local_tables(None, None) == LocalTables(load_constants())
