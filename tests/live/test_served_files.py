"""Result files of other tools, in the shapes that they publish, with figures of our own."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.contracts.results.served import Ranged
from twofold.core.errors import EncodingError, FileError, TableError
from twofold.live.loads.served_files import Imported, _imported, read_served

VLLM = {
    "date": "20261101-120000", "endpoint_type": "vllm", "model_id": "ours/small", "tokenizer_id": "ours",
    "num_prompts": 40, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 4, "duration": 20.0,
    "completed": 38, "total_input_tokens": 3800, "total_output_tokens": 1900, "request_throughput": 1.9,
    "output_throughput": 95.0, "total_token_throughput": 285.0,
    "mean_ttft_ms": 50.0, "median_ttft_ms": 45.0, "std_ttft_ms": 5.0, "p99_ttft_ms": 90.0,
    "mean_tpot_ms": 20.0, "median_tpot_ms": 19.0, "p99_tpot_ms": 30.0,
}  # fmt: skip


def statistics(average: float, unit: str) -> dict[str, Any]:
    parts = {"p50": 0.9, "p95": 1.5, "p99": 1.8}
    return {"unit": unit, "avg": average} | {name: average * part for name, part in parts.items()}


AIPERF = {
    "request_throughput": {"unit": "requests/sec", "avg": 2.0},
    "request_latency": statistics(1000.0, "ms"),
    "time_to_first_token": statistics(100.0, "ms"),
    "inter_token_latency": statistics(20.0, "ms"),
    "output_token_throughput": {"unit": "tokens/sec", "avg": 90.0},
    "input_sequence_length": {"unit": "tokens", "avg": 100.0},
    "output_sequence_length": {"unit": "tokens", "avg": 45.0},
    "request_count": {"unit": "requests", "avg": 60.0},
    "benchmark_duration": {"unit": "sec", "avg": 30.0},
    "error_summary": [
        {"error_details": {"code": 429, "type": "E", "message": "m"}, "count": 3},
        {"error_details": {"code": None, "type": "E", "message": "m"}, "count": 1},
    ],
    "input_config": {"endpoint": {"model_names": ["ours/small"]}, "loadgen": {"concurrency": 2}},
}
AIPERF_CSV = """\
Metric,avg,min,max,p50,p95,p99,std
Request Latency (ms),"1,000.00",1,2,900.00,"1,500.00","1,800.00",1
Time to First Token (ms),100.00,1,2,90.00,150.00,180.00,1
Inter Token Latency (ms),20.00,1,2,18.00,30.00,36.00,1
Input Sequence Length (tokens),100.00,1,2,100,100,100,0
Output Sequence Length (tokens),45.00,1,2,45,45,45,0

Metric,Value
Request Throughput (requests/sec),2.00
Output Token Throughput (tokens/sec),90.00
Request Count (requests),60.00
"""


def aiperf_record(begins_s: float, ends_s: float, error: dict[str, Any] | None = None) -> str:
    told = {"input_sequence_length": (100, "tokens"), "time_to_first_token": (100.0, "ms")}
    told |= {"request_latency": (1e3 * (ends_s - begins_s), "ms"), "output_sequence_length": (45, "tokens")}
    metrics = {name: {"value": value, "unit": unit} for name, (value, unit) in told.items()}
    metadata = {"request_start_ns": int(begins_s * 1e9), "request_end_ns": int(ends_s * 1e9)}
    metadata |= {"benchmark_phase": "profiling"}
    return json.dumps({"metadata": metadata, "metrics": {} if error else metrics, "error": error})


def distribution(mean: float) -> dict[str, Any]:
    percentiles = {"p50": mean * 0.9, "p95": mean * 1.5, "p99": mean * 1.8}
    return {"successful": {"mean": mean, "median": mean * 0.9, "percentiles": percentiles}, "errored": None}


def guidellm(strategy: dict[str, Any]) -> dict[str, Any]:
    means = {
        "requests_per_second": 2.0, "request_latency": 1.0, "prompt_token_count": 100.0,
        "output_token_count": 45.0, "time_to_first_token_ms": 100.0, "inter_token_latency_ms": 20.0,
        "request_concurrency": 2.5,
    }  # fmt: skip
    totals = {"successful": 60, "errored": 4, "incomplete": 2, "total": 66}
    metrics = {name: distribution(mean) for name, mean in means.items()} | {"request_totals": totals}
    return {"config": {"strategy": strategy}, "duration": 30.0, "metrics": metrics}


def told(text: str) -> Imported:
    found = _imported(text)
    assert found is not None
    return found


def test_a_file_of_vllm_is_one_load_by_its_clients_its_rate_or_all_at_once() -> None:
    found = told(json.dumps(VLLM))
    [load] = found.loads
    assert (found.tool, found.model) == ("vllm bench serve", "ours/small")
    assert (load.name, load.kind, load.concurrency, load.rate_per_s) == ("closed-4", "closed", 4.0, None)
    assert (load.input_tokens, load.output_tokens) == (100.0, 50.0)
    assert (load.sent, load.finished, load.failed) == (40, 38, 2)
    assert load.ttft and load.ttft.mean_s == pytest.approx(0.05) and load.ttft.p95_s is None
    assert load.ttft.p50_s == Ranged(pytest.approx(0.045)) and load.e2e is None
    [at_rate] = told(json.dumps(VLLM | {"request_rate": 2.5, "max_concurrency": None})).loads
    assert (at_rate.kind, at_rate.concurrency, at_rate.rate_per_s) == ("open", None, 2.5)
    [at_once] = told(json.dumps(VLLM | {"max_concurrency": None})).loads
    assert (at_once.kind, at_once.concurrency, at_once.rate_per_s) == ("burst", 40.0, None)


def test_aiperf_says_the_same_in_json_and_in_csv_but_how_it_was_loaded() -> None:
    [data], [table] = told(json.dumps(AIPERF)).loads, told(AIPERF_CSV).loads
    for load in (data, table):
        assert (load.requests_per_s, load.output_tokens_per_s, load.finished) == (2.0, 90.0, 60)
        assert load.e2e and load.e2e.mean_s == pytest.approx(1.0)
        assert load.e2e.p95_s == Ranged(pytest.approx(1.5))
        assert load.tpot and load.tpot.p50_s == Ranged(pytest.approx(0.018))
        assert load.concurrency == 2.0  # told by the one, by Little's law from the other
    assert (data.sent, data.refused, data.failed) == (64, 3, 1)
    assert data.reasons == (("429", 3), ("error", 1))


def test_records_of_aiperf_give_quantiles_errors_and_the_most_in_flight() -> None:
    lines = [aiperf_record(begin, begin + 1.0) for begin in (0.0, 0.5, 1.0, 1.5, 2.0)]
    lines.append(aiperf_record(2.0, 2.1, {"code": 503, "type": "E", "message": "m"}))
    for text in ("\n".join(lines), "\n".join(lines) + '\n{"cut off'):
        [load] = told(text).loads
        assert (load.concurrency, load.sent, load.finished, load.refused, load.failed) == (2.0, 6, 5, 1, 0)
        assert load.requests_per_s == pytest.approx(5 / 3) and load.output_tokens_per_s == pytest.approx(75)
        assert load.e2e and load.e2e.p50_s and load.e2e.p50_s.value == pytest.approx(1.0)
    [alone] = told(aiperf_record(1.0, 2.0)).loads
    assert (alone.concurrency, alone.finished) == (1.0, 1)


@pytest.mark.parametrize(
    ("strategy", "kind", "clients", "rate"),
    [
        ({"type_": "synchronous"}, "closed", 1.0, None),
        ({"type_": "concurrent", "streams": 8}, "closed", 8.0, None),
        ({"type_": "constant", "rate": 3.0}, "open", None, 3.0),
        ({"type_": "poisson", "rate": 3.0}, "open", None, 3.0),
        ({"type_": "throughput"}, "closed", 2.5, None),
    ],
)
def test_every_strategy_of_guidellm_is_a_load(
    strategy: dict[str, Any], kind: str, clients: float | None, rate: float | None
) -> None:
    newer = {"args": {"model": "ours/small"}, "benchmarks": [guidellm(strategy)]}
    older = guidellm(strategy)
    older |= {"args": older.pop("config"), "request_totals": older["metrics"].pop("request_totals")}
    for report in (newer, {"benchmarks": [older | {"worker": {"backend_model": "ours/small"}}]}):
        found = told(json.dumps(report))
        [load] = found.loads
        assert (found.tool, found.model) == ("GuideLLM", "ours/small")
        assert (load.kind, load.concurrency, load.rate_per_s) == (kind, clients, rate)
        assert (load.sent, load.finished, load.failed) == (64, 60, 4)
        assert load.output_tokens_per_s == pytest.approx(90.0)
        assert load.e2e and load.e2e.mean_s == pytest.approx(1.0)  # seconds there, milliseconds elsewhere
        assert load.ttft and load.ttft.p99_s == Ranged(pytest.approx(0.18))


def test_other_files_are_refused_with_what_would_be_read(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    for text in (
        "",
        "[]",
        "{}",
        "a,b\n1,2\n",
        '{"benchmarks": []}',
        '{"benchmarks": 3}',
        "Metric,avg\n",
        "[" * 9000,
    ):
        path.write_text(text)
        with pytest.raises(TableError) as caught:
            read_served(path)
        assert "vllm bench serve" in caught.value.hint and caught.value.place
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(EncodingError):
        read_served(path)
    with pytest.raises(FileError):
        read_served(tmp_path / "none.json")


ODD = st.sampled_from([None, True, -1, "x", "1e999", float("1e308"), 10**400, [], {}, "12,5", [1]])
PLACES = st.sampled_from(["model_id", "request_rate", "completed", "total_output_tokens", "median_ttft_ms"])


@given(st.dictionaries(PLACES, ODD))
def test_odd_values_are_left_out_and_never_a_crash(odd: dict[str, Any]) -> None:
    [load] = told(json.dumps(VLLM | odd)).loads
    for value in (load.rate_per_s, load.output_tokens, load.requests_per_s):
        assert value is None or value >= 0


@given(ODD, st.sampled_from(["request_latency", "error_summary", "input_config", "request_count"]))
def test_odd_parts_of_aiperf_and_guidellm_are_left_out_too(odd: Any, place: str) -> None:
    assert told(json.dumps(AIPERF | {place: odd})).tool == "AIPerf"
    report = guidellm({"type_": "constant", "rate": odd})
    report["metrics"] |= {"requests_per_second": odd, "request_totals": odd}
    assert told(json.dumps({"args": odd, "benchmarks": [report, odd]})).tool == "GuideLLM"
