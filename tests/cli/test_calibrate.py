"""Exit codes and streams of `twofold calibrate`."""

import json
from pathlib import Path

import pytest

HEADER = "model,gpu,gpus,framework,precision,seq_len,global_batch_seqs,tp,micro_batch,recompute,step_time_s\n"
ROW = "llama-3.1-8b,H100-SXM,8,Megatron-Core,bf16,4096,{batch},1,1,full,{step_s}\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(HEADER + ROW.format(batch=64, step_s=4.1) + ROW.format(batch=128, step_s=8.2))
    return path


@pytest.mark.usefixtures("table")
def test_a_calibration_is_written_once_and_replaced_only_when_told(run) -> None:
    assert run("twofold calibrate rows.csv").code == 0
    again = run("twofold calibrate rows.csv")
    assert again.code == 2
    assert "E-file" in again.err
    assert run("twofold calibrate rows.csv --force").code == 0


@pytest.mark.usefixtures("table")
def test_json_names_the_file_and_says_what_it_holds(run) -> None:
    done = run("twofold calibrate rows.csv --out mine.json --json")
    assert done.code == 0
    assert '"schema": "twofold/calibration/1"' in done.out
    assert '"file": "mine.json"' in done.out
    data = json.loads(Path("mine.json").read_text())
    assert data["stacks"][0]["factors"][0]["name"] == "compute"


@pytest.mark.parametrize("content", ["", "a,b\n", HEADER, HEADER + ROW.format(batch=64, step_s="")])
def test_a_table_without_a_usable_row_is_bad_input(content, table, run) -> None:
    table.write_text(content)
    done = run("twofold calibrate rows.csv")
    assert done.code == 2
    assert done.err.startswith("error[E-")


def test_a_file_that_is_not_there_is_bad_input(run) -> None:
    assert run("twofold calibrate nothing.csv").code == 2
