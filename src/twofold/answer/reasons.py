"""Codes of a search as people say them: what a candidate fell to, and which goal it missed."""

from types import MappingProxyType

METRICS = MappingProxyType({"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"})
REASONS = MappingProxyType({"memory": "exceed memory", "slower": "slower", "dearer": "dearer"})


def metric_text(metric: str) -> str:
    """A goal as people say it; the one of batches has no percentile.

    >>> metric_text("ttft_p95"), metric_text("e2e_s_p95"), metric_text("finish_within")
    ('TTFT p95', 'E2E p95', 'done')
    """
    name, _, percentile = metric.replace("_s_", "_").partition("_p")
    return f"{METRICS.get(name, name)} p{percentile}" if percentile else "done"


def reason_text(reason: str) -> str:
    """What happened to the candidates that a reason counts; rules of how numbers divide are one reason.

    >>> reason_text("memory"), reason_text("slo ttft_s_p95"), reason_text("heads")
    ('exceed memory', 'miss TTFT p95', 'do not divide')
    """
    if reason.startswith("slo "):
        return f"miss {metric_text(reason.removeprefix('slo '))}"
    return REASONS.get(reason, "do not divide")
