"""Result files of other load generators, as loads: of `vllm bench serve`, AIPerf and GuideLLM.

What a file does not say stays None. Its kind is seen by its fields, never by its name.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from twofold.contracts.results import served
from twofold.core.errors import EncodingError, FileError, Place, TableError, unread
from twofold.live.loads.serving_figures import latency_of

FILE_LIMIT_BYTES = 256 * 2**20
REFUSED = ("429", "503")
HINT = (
    "a JSON of `vllm bench serve --save-result`, a profile_export of AIPerf (JSON, CSV or JSON lines), or a"
    " JSON of GuideLLM"
)
Data = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Imported:
    """The loads of a file, which tool wrote it, and the model that it names."""

    tool: str
    model: str
    loads: tuple[served.ServedLoad, ...]


def read_served(path: Path) -> Imported:
    """The loads of a result file. Raises FileError, EncodingError, or TableError for one that is none."""
    try:
        with path.open("rb") as opened:
            raw = opened.read(FILE_LIMIT_BYTES + 1)
    except OSError as error:
        raise unread(path, error, HINT) from error
    if len(raw) > FILE_LIMIT_BYTES:
        raise FileError(f"`{path}` is larger than {FILE_LIMIT_BYTES // 2**20} MiB", hint="import its summary")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise EncodingError("not UTF-8 text", place=Place(str(path), 1, 1), hint=HINT) from error
    found = _imported(text)
    if found is None or not found.loads:
        what = f"`{path.name}` holds no results of a tool that is known here"
        raise TableError(what, place=Place(str(path), 1, 1), hint=HINT)
    return found


def _imported(text: str) -> Imported | None:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict):
        if "benchmarks" in data:
            return _guidellm(data)
        if "total_output_tokens" in data and "duration" in data:
            return Imported("vllm bench serve", _word(data.get("model_id")), (_vllm(data),))
        if "metrics" in data and "metadata" in data:  # one line alone
            return _aiperf_records([data])
        return _aiperf(data) if "request_latency" in data and "request_throughput" in data else None
    if text.lstrip().startswith("{"):
        records = list(_json_lines(text))
        return _aiperf_records(records) if records else None
    return _aiperf_csv(text) if text.startswith("Metric,") else None


def _vllm(data: Data) -> served.ServedLoad:
    """One file is one load: closed where it capped its clients, open at a finite rate, else all at once."""
    rate, clients = _number(data.get("request_rate")), _number(data.get("max_concurrency"))
    sent, finished = _count(data.get("num_prompts")), _count(data.get("completed"))
    failed = _count(data.get("failed"))
    if failed is None and sent is not None and finished is not None:
        failed = max(0, sent - finished)
    kind, name = ("open", f"open-{rate:g}") if rate else ("closed", f"closed-{clients or 0:g}")
    if not rate and not clients:
        kind, name, clients = "burst", f"burst-{sent or 0}", float(sent) if sent else None
    inputs, outputs = _number(data.get("total_input_tokens")), _number(data.get("total_output_tokens"))

    def latency(key: str) -> served.Latency | None:
        figures = {what: data.get(f"{what}_{key}_ms") for what in ("mean", "median", "p95", "p99")}
        return _latency(figures, "mean", "median", 1e-3)

    return served.ServedLoad(
        name=name,
        kind=kind,
        concurrency=None if rate else clients,
        rate_per_s=rate,
        input_tokens=inputs / finished if inputs and finished else None,
        output_tokens=outputs / finished if outputs and finished else None,
        sent=sent,
        finished=finished,
        failed=failed,
        requests_per_s=_number(data.get("request_throughput")),
        output_tokens_per_s=_number(data.get("output_throughput")),
        ttft=latency("ttft"),
        tpot=latency("tpot"),
        e2e=latency("e2el"),
        duration_s=_number(data.get("duration")),
    )


def _aiperf(data: Data) -> Imported:
    config = _part(data, "input_config")
    names = _part(config, "endpoint").get("model_names")
    model = _word(names[0]) if isinstance(names, list) and names else ""
    load = _part(config, "loadgen")
    reasons: Counter[str] = Counter()
    summary = data.get("error_summary")
    for each in summary if isinstance(summary, list) else ():
        if isinstance(each, dict):
            code = _part(each, "error_details").get("code")
            reasons[str(code or "error")] += _count(each.get("count")) or 0
    metrics = {name: each for name, each in data.items() if isinstance(each, dict)}
    rate, clients = _number(load.get("request_rate")), _number(load.get("concurrency"))
    return Imported("AIPerf", model, (_aiperf_load(metrics, rate, clients, reasons),))


def _aiperf_csv(text: str) -> Imported | None:
    """The tables of metrics, by the names that its JSON gives them. Who loaded how is not in the file."""
    metrics: dict[str, Data] = {}
    header: list[str] = []
    try:
        for cells in csv.reader(io.StringIO(text)):
            if cells and cells[0] == "Metric":
                header = cells[1:]
            elif not cells or not any(cells):
                header = []
            elif header:
                name = re.sub(r"\s*\(.*\)$", "", cells[0]).strip().lower().replace(" ", "_")
                unit = re.search(r"\((.*)\)$", cells[0])
                figures = dict(zip(header, cells[1:], strict=False))
                metrics[name] = {"unit": unit[1] if unit else "", "avg": figures.get("Value")} | figures
    except csv.Error:
        return None
    if "request_latency" not in metrics:
        return None
    return Imported("AIPerf", "", (_aiperf_load(metrics, None, None, Counter()),))


def _aiperf_load(
    metrics: dict[str, Data], rate: float | None, clients: float | None, reasons: Counter[str]
) -> served.ServedLoad:
    def value(name: str) -> float | None:
        return _number(metrics.get(name, {}).get("avg"))

    def latency(name: str) -> served.Latency | None:
        figures = metrics.get(name, {})
        return _latency(figures, "avg", "p50", 1.0 if figures.get("unit") in ("sec", "s") else 1e-3)

    finished, per_s = _count(value("request_count")), value("request_throughput")
    e2e = latency("request_latency")
    if rate is None and clients is None and per_s and e2e and e2e.mean_s:
        clients = round(per_s * e2e.mean_s, 2)  # Little's law: nobody says how many there were
    lost = sum(reasons.values())
    refused = sum(reasons[code] for code in REFUSED)
    return served.ServedLoad(
        name=f"open-{rate:g}" if rate else f"closed-{clients or 0:g}",
        kind="open" if rate else "closed",
        concurrency=None if rate else clients,
        rate_per_s=rate,
        input_tokens=value("input_sequence_length"),
        output_tokens=value("output_sequence_length"),
        sent=None if finished is None else finished + lost,
        finished=finished,
        refused=refused,
        failed=lost - refused,
        reasons=tuple(reasons.most_common()),
        requests_per_s=per_s,
        output_tokens_per_s=value("output_token_throughput"),
        ttft=latency("time_to_first_token"),
        tpot=latency("inter_token_latency"),
        e2e=e2e,
        duration_s=value("benchmark_duration"),
    )


def _aiperf_records(records: Sequence[Data]) -> Imported | None:
    """One record a request: quantiles and their ranges are made here; clients are the most in flight."""
    reasons: Counter[str] = Counter()
    spans: list[tuple[float, float]] = []
    told: dict[str, list[float]] = {}
    for record in records:
        metadata, metrics = _part(record, "metadata"), _part(record, "metrics")
        if _word(metadata.get("benchmark_phase") or "profiling") != "profiling":
            continue
        began, ended = _number(metadata.get("request_start_ns")), _number(metadata.get("request_end_ns"))
        if began is None or ended is None:
            continue
        if record.get("error"):
            reasons[str(_part(record, "error").get("code") or "error")] += 1
            continue
        spans.append((began / 1e9, ended / 1e9))
        for name, each in metrics.items():
            if isinstance(each, dict) and (number := _number(each.get("value"))) is not None:
                told.setdefault(name, []).append(number)
    if not spans:
        return None
    whole_s = max(end for _, end in spans) - min(begin for begin, _ in spans)
    outputs, clients = told.get("output_sequence_length", []), _most_at_once(spans)
    lost = sum(reasons.values())
    refused = sum(reasons[code] for code in REFUSED)

    def latency(name: str) -> served.Latency | None:
        return latency_of([1e-3 * value for value in told.get(name, [])])

    load = served.ServedLoad(
        name=f"closed-{clients}",
        kind="closed",
        concurrency=float(clients),
        input_tokens=_mean(told.get("input_sequence_length", [])),
        output_tokens=_mean(outputs),
        sent=len(spans) + lost,
        finished=len(spans),
        refused=refused,
        failed=lost - refused,
        reasons=tuple(reasons.most_common()),
        requests_per_s=len(spans) / whole_s if whole_s else None,
        output_tokens_per_s=sum(outputs) / whole_s if whole_s and outputs else None,
        ttft=latency("time_to_first_token"),
        tpot=latency("inter_token_latency"),
        e2e=latency("request_latency"),
        duration_s=whole_s,
    )
    return Imported("AIPerf", "", (load,))


def _guidellm(data: Data) -> Imported | None:
    benchmarks = data["benchmarks"]
    if not isinstance(benchmarks, list):
        return None
    parts = [each for each in benchmarks if isinstance(each, dict) and _part(each, "metrics")]
    places = [
        _part(data, "args"),
        *(_part(_part(each, "config"), "backend") for each in parts),
        *(_part(each, "worker") for each in parts),
    ]
    named = (_word(place.get(key)) for place in places for key in ("model", "backend_model"))
    model = next((name for name in named if name), "")
    return Imported("GuideLLM", model, tuple(_guidellm_load(each) for each in parts))


def _guidellm_load(data: Data) -> served.ServedLoad:
    """One benchmark of a report. Output per second is requests per second times their mean answer."""
    metrics = _part(data, "metrics")
    strategy = _part(_part(data, "config"), "strategy") or _part(_part(data, "args"), "strategy")
    totals = _part(metrics, "request_totals") or _part(data, "request_totals")
    counts = {name: _count(totals.get(name)) or 0 for name in ("successful", "errored", "incomplete")}

    def figures(name: str) -> Data:
        return _part(_part(metrics, name), "successful")

    def latency(name: str, scale: float) -> served.Latency | None:
        told = figures(name)
        return _latency({**told, **_part(told, "percentiles")}, "mean", "median", scale)

    kind = _word(strategy.get("type_") or strategy.get("kind"))
    rate = _number(strategy.get("rate")) if kind in ("constant", "poisson", "async") else None
    clients = 1.0 if kind == "synchronous" else _number(strategy.get("streams"))
    per_s, outputs = _number(figures("requests_per_second").get("mean")), figures("output_token_count")
    if rate is None and clients is None:  # as fast as it goes: so many were in flight
        clients = _number(figures("request_concurrency").get("mean"))
    answer = _number(outputs.get("mean"))
    return served.ServedLoad(
        name=f"open-{rate:g}" if rate else f"closed-{clients or 0:g}",
        kind="open" if rate else "closed",
        concurrency=None if rate else clients,
        rate_per_s=rate,
        input_tokens=_number(figures("prompt_token_count").get("mean")),
        output_tokens=answer,
        # What was under way when it ended says nothing either way, and is not counted as sent.
        sent=counts["successful"] + counts["errored"],
        finished=counts["successful"],
        failed=counts["errored"],
        requests_per_s=per_s,
        output_tokens_per_s=per_s * answer if per_s and answer else None,
        ttft=latency("time_to_first_token_ms", 1e-3),
        tpot=latency("inter_token_latency_ms", 1e-3),
        e2e=latency("request_latency", 1.0),
        duration_s=_number(data.get("duration")),
    )


def _latency(figures: Data, mean: str, median: str, scale: float) -> served.Latency | None:
    """Figures of one latency in seconds; None where there is neither a mean nor a median."""

    def ranged(*names: str) -> served.Ranged | None:
        found = next((value for name in names if (value := _number(figures.get(name))) is not None), None)
        return None if found is None else served.Ranged(found * scale)

    middle, average = ranged(median, "p50"), _number(figures.get(mean))
    if middle is None and average is None:
        return None
    mean_s = None if average is None else average * scale
    return served.Latency(mean_s, middle, ranged("p95"), ranged("p99"))


def _most_at_once(spans: Sequence[tuple[float, float]]) -> int:
    """The most requests in flight; where one ends as another begins, they are one client's."""
    changes = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def _json_lines(text: str) -> Iterator[Data]:
    for line in text.split("\n"):
        try:
            record = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            return  # cut off while it was written: what stands before it counts
        if isinstance(record, dict):
            yield record


def _part(data: Data, name: str) -> Data:
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    """A finite number that is not negative; text as spreadsheets write it too."""
    if isinstance(value, str):
        try:
            value = float(value.replace(",", ""))
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) and number >= 0 else None


def _count(value: object) -> int | None:
    number = _number(value)
    return None if number is None else round(number)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
