"""Codes of a search as people say them: what a candidate fell to, and which goal it missed."""

from types import MappingProxyType

from twofold.contracts import metric_text

REASONS = MappingProxyType({"memory": "exceed memory", "slower": "slower", "dearer": "dearer"})


def reason_text(reason: str) -> str:
    """What happened to the candidates that a reason counts; rules of how numbers divide are one reason.

    >>> reason_text("memory"), reason_text("slo ttft_s_p95"), reason_text("heads")
    ('exceed memory', 'miss TTFT p95', 'do not divide')
    """
    if reason.startswith("slo "):
        return f"miss {metric_text(reason.removeprefix('slo '))}"
    return REASONS.get(reason, "do not divide")
