"""Loads become rows that `predict` and `calibrate` take, in the units that columns name."""

from dataclasses import replace

from twofold.catalog.catalog import load_catalog
from twofold.contracts.results.served import Latency, Ranged, ServedLoad, ServedPage
from twofold.measure.inference_rows import read_case
from twofold.measure.lint_table import INFERENCE
from twofold.measure.served_rows import COLUMNS, RunOn, rows_of, table_of
from twofold.measure.truth import measured_figures
from twofold.perf.constants import load_constants

LATENCY = Latency(0.030, Ranged(0.025), Ranged(0.050), Ranged(0.060))
CLOSED = ServedLoad(
    "closed-8", "closed", 8.0, None, 512.0, 128.0, "fixed", 100, 98, 2, 0, (("429", 2),), 2.0, 256.0,
    ttft=LATENCY, tpot=LATENCY, e2e=LATENCY, memory_peak_bytes=2**31, joules_per_token=0.5,
)  # fmt: skip
RAN_ON = RunOn("llama-3.1-8b", "H100-SXM", 2, 2, "vllm", "0.11.0", "fp8")


def page(*loads: ServedLoad) -> ServedPage:
    return ServedPage("http://127.0.0.1:8000/v1/completions", "our/name", loads)


def test_a_closed_load_is_read_back_as_the_case_that_it_was() -> None:
    [row] = rows_of(page(CLOSED), RAN_ON)
    case = read_case(row, load_catalog(), load_constants())
    assert (case.kind, case.concurrency, case.rate_per_s) == ("closed", 8.0, 0.0)
    assert (case.input_tokens, case.output_tokens, case.length_spread) == (512.0, 128.0, 0.0)
    assert (case.accelerators, case.tp, case.engine, case.version) == (2.0, 2.0, "vllm", "0.11.0")
    assert case.weights_format == "fp8" and not case.assumed
    figures = dict(measured_figures("inference", row))
    assert figures == {"ttft_mean_ms": 30.0, "tpot_mean_ms": 30.0, "output_tok_s": 256.0}
    assert (row["ttft_p50_ms"], row["e2e_p99_ms"], row["mem_gib"], row["joules_per_token"]) == (
        "25", "60", "2", "0.5",
    )  # fmt: skip
    assert row["total_tok_s"] == "1280" and row["output_tok_s_per_gpu"] == "128"
    assert row["notes"] == "98 of 100 finished; 2 × 429"


def test_a_load_that_a_limit_turned_away_is_marked_as_no_measurement_of_the_machine() -> None:
    limited = replace(CLOSED, finished=90, refused=7, failed=3)
    assert [row["tier"] for row in rows_of(page(CLOSED, limited), RAN_ON)] == ["", "C"]


def test_rates_bursts_and_all_at_once_are_the_kinds_of_load_that_rows_know() -> None:
    kinds = {
        "open": ServedLoad("open-2", "open", None, 2.0, 10.0, 10.0),
        "bursts": ServedLoad("bursts-2x8", "bursts", None, 2.0, 10.0, 10.0),
        "replay": ServedLoad("replay-1x", "replay", None, 2.0, 10.0, 10.0, "trace"),
        "burst": ServedLoad("burst-64", "burst", 64.0, None, 10.0, 10.0),
    }
    for name, load in kinds.items():
        [row] = rows_of(page(load), RAN_ON)
        case = read_case(row, load_catalog(), load_constants())
        wanted = ("burst", 64.0, 0.0) if name == "burst" else ("open", 0.0, 2.0)
        assert (case.kind, case.concurrency, case.rate_per_s) == wanted, name


def test_a_load_that_finished_nothing_is_no_row_and_columns_are_those_that_are_read() -> None:
    assert rows_of(page(ServedLoad("closed-1", "closed", 1.0, finished=0)), RAN_ON) == []
    known = INFERENCE.every
    assert set(COLUMNS) <= set(known) | {"id", "source", "source_ref", "tier", "notes"}
    header, line = table_of(rows_of(page(CLOSED), RunOn()))
    assert header == list(COLUMNS) and line[header.index("model")] == "our/name"
    assert line[header.index("gpu")] == line[header.index("tp")] == ""
