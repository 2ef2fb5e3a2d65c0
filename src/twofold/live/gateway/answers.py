"""What of an engine's answer a client may see: its text and usage, not what the engine calls things."""

import json
import re
from dataclasses import dataclass
from typing import Any

from twofold.live.gateway.openai_requests import Problem
from twofold.live.sse import count_of

CLIENTS_FAULT = (400, 413, 422)  # statuses by which an engine refuses a request rather than fails
PATHS = re.compile(r"(?<![\w.])/(?:[\w.@+-]+/)+[\w.@+-]*")  # of the engine's machine
MODEL_FIELD = re.compile(rb'("model"\s*:\s*)"(?:[^"\\]|\\.)*"')
MESSAGE_LIMIT = 500  # characters of an engine's words that are passed on


@dataclass(frozen=True, slots=True)
class Used:
    """Tokens that the engine counted; None: it did not say."""

    output_tokens: int
    input_tokens: int | None


NOT_SAID = Used(0, None)


class Public:
    """Calls the model by our name in one answer's events, or in its body. Mutable: how the engine calls it.

    In generated text quotes are escaped, so that nothing a model writes is mistaken for the field.
    """

    def __init__(self, name: bytes) -> None:
        self._name = name  # a JSON string with its quotes
        self._theirs = self._ours = b""

    def of(self, events: bytes) -> bytes:
        """Whole events, or a whole body. HOT: per event; an engine writes the field the same each time."""
        if self._theirs and self._theirs in events:
            return events.replace(self._theirs, self._ours)
        found = MODEL_FIELD.search(events)
        if found is None:
            return events
        self._theirs, self._ours = found[0], found[1] + self._name
        return MODEL_FIELD.sub(lambda each: each[1] + self._name, events)


def error_of(status: int, body: bytes, engines_name: str, public_name: str) -> Problem:
    """An engine's refusal in the protocol's form, in its own words but without its paths."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        data = None
    said = _message_of(data) or "The engine refused the request"
    said = PATHS.sub("…", said.replace(engines_name, public_name))
    words = " ".join(said.split())[:MESSAGE_LIMIT]
    return Problem(413 if status == 413 else 400, words, code="refused_by_engine")


def _message_of(data: Any) -> str:
    """Its words, wherever an engine puts them: `error.message`, `error`, `message`, `detail`."""
    if isinstance(data, dict):
        error = data.get("error")
        for each in (error.get("message") if isinstance(error, dict) else error, data.get("message")):
            if isinstance(each, str):
                return each
        detail = data.get("detail")
        if isinstance(detail, str):
            return detail
        if isinstance(detail, list):  # of a validator: places and words
            parts = [each.get("msg") for each in detail if isinstance(each, dict)]
            return "; ".join(each for each in parts if isinstance(each, str))
    return ""


def used_by(body: bytes) -> Used | None:
    """The tokens that a whole answer reports, 0 where it reports none; None of what is no answer."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not isinstance(data.get("choices"), list):
        return None
    usage = data.get("usage")
    told = usage if isinstance(usage, dict) else {}
    return Used(count_of(told.get("completion_tokens")) or 0, count_of(told.get("prompt_tokens")))
