"""What is told of runs and services alike to those who watch: who they are, and what memory is left.

`resource_of` has OpenTelemetry's names, which spans and metrics carry; on a page for Prometheus they are the
labels of `target_info`, as OpenTelemetry's collector writes and reads them.
"""

import os
from collections.abc import Iterator, Mapping

from twofold.live.metrics_text import Family

SERVICE = "OTEL_SERVICE_NAME"
NAMESPACE = "twofold"
TRAINING, SERVING = "training", "serving"


def resource_of(part: str, name: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Who the run or the service `name` is. `part` is TRAINING or SERVING."""
    return {
        "service.namespace": NAMESPACE,
        "service.name": environment.get(SERVICE) or name,
        "twofold.part": part,
    }


def info_family(resource: Mapping[str, str]) -> Family:
    """The same as a series that others are joined with."""
    labels = {name.replace(".", "_"): value for name, value in resource.items()}
    return gauge("target_info", "Whose series these are", labels=labels, value=1.0)


def gauge(name: str, meaning: str, value: float, labels: Mapping[str, str] | None = None) -> Family:
    """A family of one sample."""
    return Family(name, "gauge", meaning, (("", labels or {}, value),))


def memory_families() -> Iterator[Family]:
    """The machine's memory, and what of it may still be taken. Nothing without psutil."""
    try:
        import psutil
    except ImportError:
        return
    memory = psutil.virtual_memory()
    yield gauge("twofold_memory_limit_bytes", "Memory of the machine", float(memory.total))
    yield gauge("twofold_memory_available_bytes", "Of it, what may be taken", float(memory.available))
