"""The bytes of answers that the gate lets be given again, and which requests have one answer only.

Such are requests at temperature 0, and those with a seed: their clients ask for the same answer each time.
Engines that batch may round otherwise from run to run; what is given again is an answer that came once.
"""

import hashlib
import json
from dataclasses import dataclass, field

from twofold.live.gateway.answers import Used
from twofold.live.gateway.openai_requests import GenerationRequest

ANSWER_BYTES_MAX = 1 << 20  # of one that is kept
NOT_KEPT = (b"no-cache", b"no-store")  # of `cache-control`


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """An answer as a client got it, from its first byte to its last."""

    streamed: bool
    data: bytes
    used: Used


@dataclass(slots=True)
class Copy:
    """What goes to a client, as long as it may be kept. Mutable; bounded by `ANSWER_BYTES_MAX`."""

    parts: list[bytes] = field(default_factory=list)
    size: int = 0

    def add(self, data: bytes) -> None:
        """A further part."""
        self.size += len(data)
        if self.size <= ANSWER_BYTES_MAX:
            self.parts.append(data)
        else:
            self.parts.clear()

    def whole(self, used: Used, *, streamed: bool) -> WholeAnswer | None:
        """All of it; None of what is too large."""
        if self.size > ANSWER_BYTES_MAX:
            return None
        return WholeAnswer(streamed, b"".join(self.parts), used)


def answer_key(request: GenerationRequest) -> str:
    """SHA-256 of all that is asked, the order of keys apart; "" where answers may differ.

    A request is the same only with the same model, prompt, limits, sampling, form and whatever else it says.
    """
    fields = request.fields
    is_fixed = type(fields.get("seed")) is int or fields.get("temperature") == 0
    if not is_fixed:
        return ""
    text = json.dumps([request.path, request.model, fields], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
