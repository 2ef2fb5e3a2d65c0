"""Spans by OpenTelemetry's conventions, read back from its SDK's own exporter in memory."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs the extra [otel]: `make extras`")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.live.outcomes import outcome_of
from twofold.core.errors import ValueRefusedError
from twofold.live.gateway.gateway_config import GatewayReplica
from twofold.live.gateway.spans import Spans, spans_from
from twofold.live.gateway.telemetry import FAILED

REPLICAS = {"r0": GatewayReplica("r0", "127.0.0.1", 9001, "/folder/sha256-1", 4)}


def kept() -> tuple[Spans, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Spans(provider, REPLICAS, "small"), exporter


def test_a_span_says_what_the_conventions_name_and_when_the_first_token_came() -> None:
    spans, exporter = kept()
    spans.saw(outcome_of())
    [span] = exporter.get_finished_spans()
    assert (span.name, span.kind, span.status.status_code) == (
        "chat small",
        SpanKind.CLIENT,
        StatusCode.UNSET,
    )
    assert (span.start_time, span.end_time) == (1_000_000_000_000, 1_001_500_000_000)
    assert dict(span.attributes or {}) | {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "small",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "server.address": "127.0.0.1",
        "server.port": 9001,
    } == dict(span.attributes or {})
    [first] = span.events
    assert (first.name, first.timestamp) == ("gen_ai.first_token", 1_000_250_000_000)


def test_the_names_are_those_of_the_conventions() -> None:
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, server_attributes

    own = Spans(TracerProvider(shutdown_on_exit=False), REPLICAS, "small").attributes(outcome_of())
    known = [*vars(gen_ai_attributes).values(), *vars(server_attributes).values()]
    named = {name for name in own if name.startswith(("gen_ai.", "server."))}
    assert len(named) == 8 and not [name for name in named if name not in known]


def test_a_failure_is_an_error_with_its_reason_and_unknown_figures_are_left_out() -> None:
    spans, exporter = kept()
    failed = {"outcome": FAILED, "reason": "timeout", "status": 502, "replica_id": ""}
    spans.saw(outcome_of(**failed, input_tokens=None, output_tokens=0, ttft_s=None))
    [span] = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR and not span.events
    attributes = dict(span.attributes or {})
    assert attributes["error.type"] == "timeout" and attributes["http.response.status_code"] == 502
    assert not {"gen_ai.usage.input_tokens", "server.address"} & attributes.keys()


def test_spans_are_off_unless_the_environment_asks_and_what_it_cannot_have_is_refused() -> None:
    assert spans_from({}, {}, "m") is None and spans_from({"OTEL_TRACES_EXPORTER": "none"}, {}, "m") is None
    with pytest.raises(ValueRefusedError, match="zipkin"):
        spans_from({"OTEL_TRACES_EXPORTER": "zipkin"}, {}, "m")


def test_the_gateway_writes_a_span_for_a_request_that_passed(
    tmp_path: Path, stub_engines: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
    from tests.live.test_gateway import STREAM, configured, gateway

    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")

    async def scenario() -> None:
        async with stub_engines(1) as [engine], gateway(configured(tmp_path, [engine])) as served:
            assert (await served.ask(STREAM))[0] == 200

    asyncio.run(scenario())
    said = capsys.readouterr().out
    assert '"gen_ai.usage.output_tokens": 4' in said and '"service.namespace": "twofold"' in said


def test_spans_that_nobody_takes_hold_no_request_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http", reason="needs the extra [otel]: `make extras`"
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    spans = spans_from({"OTEL_TRACES_EXPORTER": "otlp"}, REPLICAS, "small")
    assert spans is not None
    began_s = time.perf_counter()
    for _ in range(100):
        spans.saw(outcome_of())
    assert time.perf_counter() - began_s < 1.0
    spans.stop()
