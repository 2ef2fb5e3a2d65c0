"""A log of requests as the gateway writes one, by its own writer."""

from pathlib import Path

from twofold.live.chained_file import ChainedFile
from twofold.live.gateway.request_log import line_of
from twofold.live.gateway.telemetry import NO_CLASS, Outcome
from twofold.live.line_file import note_line


def ended(at_s: float, outcome: str, input_tokens: int | None, output_tokens: int, asked: str) -> str:
    """Its line, as the gateway writes it."""
    request = Outcome(f"r{at_s:g}", "/v1/chat/completions", "acme", asked, 0.0, input_tokens)
    request.at_s, request.outcome, request.output_tokens = 1.75e9 + at_s, outcome, output_tokens
    return line_of(request, None, "sha256:5f")


def gateways_log(path: Path) -> Path:
    """As the gateway leaves it: lines when requests end, numbered, chained, and what it says of itself."""
    log = ChainedFile(path, 1 << 20, 4, b"key")
    for line in (
        ended(2.0, "refused", None, 0, NO_CLASS),
        ended(1.5, "finished", 100, 10, "chat"),
        ended(3.0, "refused", 300, 0, "chat"),
        note_line("lost", lines=3),
        ended(0.25, "failed", 400, 7, "chat"),
        ended(0.5, "left", 200, 20, "batch"),
        ended(4.0, "left", 500, 0, "chat"),
    ):
        log.append(line)
    log.stop()
    return path
