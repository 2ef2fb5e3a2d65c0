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


@pytest.mark.parametrize(
    ("measured", "says"),
    [
        ("tpot_mean_ms=0.011", "tpot_mean_ms is in seconds? 11 ms would agree with the prediction"),
        ("tpot_mean_ms=11000", "tpot_mean_ms is in microseconds?"),
        ("ttft_mean_ms=0.09", "ttft_mean_ms is in seconds?"),
    ],
)
def test_a_row_in_another_unit_is_refused_with_what_to_write(run, measured: str, says: str) -> None:
    column, value = measured.split("=")
    head = f"model,gpu,gpus_total,framework,tp,isl_mean,osl_mean,concurrency,{column}"
    row = "llama-3.1-8b,h100,1,vllm,1,1000,200,32,"
    Path("rows.csv").write_text(f"{head}\n{row}{value}\n")
    done = run("twofold calibrate rows.csv")
    assert done.code == 2 and "line 2: unit" in done.err
    assert says in " ".join(done.err.split())


def test_a_file_that_is_not_there_is_bad_input(run) -> None:
    assert run("twofold calibrate nothing.csv").code == 2
