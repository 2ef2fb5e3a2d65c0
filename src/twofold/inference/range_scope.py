"""What decides how sure a predicted latency or throughput is."""

from twofold.perf import Known


def range_scope(
    model: str, kind: str, accelerator: str, family: str, engine: str, era: str, load: str, known: Known
) -> dict[str, str]:
    """The scope in which the ranges of serving are read, but for the metric: what the fits saw of it, and
    what it is.

    `kind` is that of `model_kind`; `load` is static, closed, open, saturated or disaggregated; names are
    the catalogue's. Rows that leave something open say `basis=assumed`; here all is stated.
    """
    return {
        "known": known.of("inference", model, accelerator, f"{engine} {era}".strip()),
        "model": kind,
        "load": load,
        "basis": "stated",
        "engine": engine,
        "family": family,
        "accelerator": accelerator,
    }
