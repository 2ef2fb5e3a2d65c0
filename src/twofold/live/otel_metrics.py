"""The series of a run or a service through OpenTelemetry's SDK; off by default, as its documents say.

OTEL_METRICS_EXPORTER (`otlp` or `console`; unset or `none`: none), OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_METRIC_EXPORT_INTERVAL. Names, units and labels are those of the page for Prometheus: a counter is a
counter, what a histogram counted and summed are two. The SDK sends from a thread of its own.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from twofold.live.metrics_text import Family
from twofold.live.otel import exporter_of, of

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader

EXPORTER = "OTEL_METRICS_EXPORTER"
EXPORTERS: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {
        "otlp": lambda: of("exporter.otlp.proto.http.metric_exporter", "OTLPMetricExporter")(),
        "console": lambda: of("sdk.metrics.export", "ConsoleMetricExporter")(),
    }
)
Read = Callable[[], Iterable[Family]]


def metrics_to(reader: "MetricReader", resource: Mapping[str, str], read: Read) -> "MeterProvider":
    """A provider whose reader gets what `read` says when it asks. Series are those of its first answer."""
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource

    provider = MeterProvider([reader], resource=Resource.create(dict(resource)), shutdown_on_exit=False)
    meter = provider.get_meter("twofold")

    def observed(name: str, suffix: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def told(_: CallbackOptions) -> Iterable[Observation]:
            for family in read():
                for end, labels, value in family.samples if family.name == name else ():
                    if end == suffix:
                        yield Observation(value, dict(labels))

        return told

    for family in read():
        if family.kind == "histogram":
            for suffix in ("_count", "_sum"):
                each = [observed(family.name, suffix)]
                meter.create_observable_counter(family.name + suffix, each, "", family.meaning)
        elif family.kind == "counter":
            meter.create_observable_counter(family.name, [observed(family.name, "")], "", family.meaning)
        elif family.name != "target_info":  # the resource itself
            meter.create_observable_gauge(family.name, [observed(family.name, "")], "", family.meaning)
    return provider


def metrics_from(
    environment: Mapping[str, str], resource: Mapping[str, str], read: Read
) -> "MeterProvider | None":
    """As the environment says; None: it asks for none. Raises MissingExtraError and ValueRefusedError."""
    exporter = exporter_of(environment, EXPORTER, "metrics", EXPORTERS)
    if exporter is None:
        return None
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return metrics_to(PeriodicExportingMetricReader(exporter), resource, read)
