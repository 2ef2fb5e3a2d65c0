"""One span per request by OpenTelemetry's conventions for generative AI, through its SDK; off by default.

Environment, as the SDK documents it: OTEL_TRACES_EXPORTER (`otlp` or `console`; unset or `none`: no spans),
OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_BSP_*. The SDK sends from a
thread of its own, from a bounded queue: where nobody takes the spans they are dropped, and no request waits.
Source  https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from twofold.live import watched
from twofold.live.gateway.gateway_config import GatewayReplica
from twofold.live.gateway.telemetry import FINISHED, LEFT, Outcome
from twofold.live.otel import exporter_of, of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

EXPORTER = "OTEL_TRACES_EXPORTER"
NANOSECONDS = 1e9
EXPORTERS: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {
        "otlp": lambda: of("exporter.otlp.proto.http.trace_exporter", "OTLPSpanExporter")(),
        "console": lambda: of("sdk.trace.export", "ConsoleSpanExporter")(out=sys.stdout),
    }
)


class Spans:
    """Writes spans. Mutable: the SDK's queue behind it."""

    def __init__(
        self, provider: "TracerProvider", replicas: Mapping[str, GatewayReplica], model: str
    ) -> None:
        self._provider, self._replicas, self._model = provider, replicas, model
        self._tracer = provider.get_tracer("twofold.gateway")

    def saw(self, outcome: Outcome) -> None:
        """One request ended."""
        from opentelemetry.trace import SpanKind, Status, StatusCode

        at_ns = int(outcome.at_s * NANOSECONDS)
        span = self._tracer.start_span(
            f"{operation_of(outcome)} {self._model}",
            kind=SpanKind.CLIENT,
            start_time=at_ns,
            attributes=self.attributes(outcome),
        )
        if outcome.ttft_s is not None:
            span.add_event("gen_ai.first_token", timestamp=at_ns + int(outcome.ttft_s * NANOSECONDS))
        if outcome.outcome not in (FINISHED, LEFT):
            span.set_status(Status(StatusCode.ERROR, outcome.reason))
        span.end(at_ns + int(outcome.e2e_s * NANOSECONDS))

    def attributes(self, outcome: Outcome) -> dict[str, Any]:
        """What is known of it; no text of a prompt or an answer."""
        known: dict[str, Any] = {
            "gen_ai.operation.name": operation_of(outcome),
            "gen_ai.provider.name": "twofold",
            "gen_ai.request.model": self._model,
            "gen_ai.usage.output_tokens": outcome.output_tokens,
            "http.response.status_code": outcome.status,
            "twofold.request_id": outcome.request_id,
            "twofold.tenant": outcome.tenant,
            "twofold.class": outcome.class_name,
            "twofold.attempts": outcome.attempts,
        }
        if outcome.input_tokens is not None:
            known["gen_ai.usage.input_tokens"] = outcome.input_tokens
        if outcome.ttft_s is not None:
            known["gen_ai.response.time_to_first_chunk"] = outcome.ttft_s
        if outcome.outcome != FINISHED:
            known["error.type"] = outcome.reason
        if replica := self._replicas.get(outcome.replica_id):
            known |= {"server.address": replica.host, "server.port": replica.port}
            known["twofold.replica"] = outcome.replica_id
        return known

    def stop(self) -> None:
        """Send what waits, as far as somebody takes it in the time that OTEL_BSP_* gives."""
        self._provider.shutdown()


def operation_of(outcome: Outcome) -> str:
    """As the conventions name what was asked for."""
    return "text_completion" if outcome.path == "/v1/completions" else "chat"


def spans_from(
    environment: Mapping[str, str], replicas: Mapping[str, GatewayReplica], model: str
) -> Spans | None:
    """As the environment says; None: it asks for none. Raises MissingExtraError and ValueRefusedError."""
    exporter = exporter_of(environment, EXPORTER, "spans", EXPORTERS)
    if exporter is None:
        return None
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create(watched.resource_of(watched.SERVING, model, environment))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Spans(provider, replicas, model)
