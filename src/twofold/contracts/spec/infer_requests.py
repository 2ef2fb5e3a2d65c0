"""The spec behind a log of requests, one JSON object per line."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from twofold.contracts import Names
from twofold.contracts.rows import (
    ARRIVAL_NAMES,
    INPUT_NAMES,
    OUTPUT_NAMES,
    Arrival,
    TraceStatistics,
    flat_record,
)
from twofold.contracts.rows import seconds as read_seconds
from twofold.contracts.rows import tokens as read_tokens
from twofold.contracts.spec.infer_command import (
    ASSUMED_MODEL,
    ASSUMED_SLO,
    COMMENT,
    catalog_model,
    spec_name,
    written,
    yaml_text,
)
from twofold.core import InferenceSourceError, Place, format_seconds

MODEL_LIMIT = 1000  # distinct model names that are counted


def spec_of_requests(lines: Iterable[str], file: str, names: Names) -> str:
    """A service with the log's rate, peak and lengths. Every line needs an arrival and both lengths."""
    statistics, models = TraceStatistics(), Counter[str]()
    for number, line in enumerate(lines, 1):
        if line.strip():
            place = Place(file, number, 1)
            record = _record(line, place)
            statistics.add(_arrival(record, place))
            if isinstance(record.get("model"), str) and len(models) < MODEL_LIMIT:
                models[record["model"]] += 1
    trace = statistics.summary(file)
    logged = models.most_common(1)[0][0] if models else ""
    model, note = catalog_model(logged, names) if logged else (ASSUMED_MODEL, f"{COMMENT}assumed")
    text = [
        f"# Inferred from {file}: {trace.request_count:,} requests in {format_seconds(trace.duration_s)}",
        f"name: {spec_name(model.rsplit('/', 1)[-1])}",
        f"model: {yaml_text(model)}{note}",
        "",
        "serving:",
        f"  availability: 99.9 %{COMMENT}assumed",
        f"  zones: 1{COMMENT}assumed",
        f"  quantisation: [fp8, bf16]{COMMENT}assumed",
        "  classes:",
        "    chat:",
        "      traffic:",
        f"        rate: {trace.mean_rate_per_s:.6g} /s",
        f"        peak: {min(trace.peak_ratio, 1000.0):.3g}x{COMMENT}busiest minute over the mean",
        f"        profile: flat{COMMENT}assumed: a log shows its own hours only",
        f"        input: {_lengths(trace.input.mean_tokens, trace.input.p95_tokens)}",
        f"        output: {_lengths(trace.output.mean_tokens, trace.output.p95_tokens)}",
        ASSUMED_SLO,
    ]
    return written(text)


def _record(line: str, place: Place) -> dict[str, Any]:
    try:
        return flat_record(line)
    except ValueError as error:
        raise InferenceSourceError(str(error), place=place) from error


def _arrival(record: dict[str, Any], place: Place) -> Arrival:
    arrival, sent, answered = (
        _value(record, spellings, place) for spellings in (ARRIVAL_NAMES, INPUT_NAMES, OUTPUT_NAMES)
    )
    return Arrival(read_seconds(arrival, place), read_tokens(sent, place), read_tokens(answered, place))


def _value(record: dict[str, Any], spellings: tuple[str, ...], place: Place) -> str:
    for name in spellings:
        if record.get(name) is not None:
            return str(record[name])
    hint = f"spellings: {', '.join(spellings)}"
    raise InferenceSourceError(f"the request has no `{spellings[0]}`", place=place, hint=hint)


def _lengths(mean_tokens: float, p95_tokens: float) -> str:
    mean = max(1.0, mean_tokens)
    return f"{{mean: {mean:.0f} tok, p95: {max(p95_tokens, mean * 0.5, 1.0):.0f} tok}}"
