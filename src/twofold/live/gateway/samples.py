"""The text of some requests and their answers, redacted, where a spec opts in (`samples: 5 %`).

Which requests is drawn when they are sent to a replica; one with `cache-control: no-store` never is. No
tenant is in a line, and no picture, sound or file. Beside the text stands what the gate decided, so that a
line is also the path that led to its answer.
"""

import json
import random
from collections.abc import Mapping
from typing import Any

from twofold.live.gateway.gateway_config import GatewayReplica
from twofold.live.gateway.kept_answers import WholeAnswer
from twofold.live.gateway.openai_requests import GenerationRequest
from twofold.live.gateway.redaction import redacted, redacted_all
from twofold.live.gateway.request_log import RequestLog, line_of
from twofold.live.gateway.telemetry import FINISHED, Outcome
from twofold.live.line_file import LineFile

TEXT_MOST = 1 << 18  # characters of a prompt: what is longer is not kept
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


class SampleLog(RequestLog):
    """The writer. Mutable as the log of requests is."""

    def __init__(
        self,
        file: LineFile,
        replicas: Mapping[str, GatewayReplica],
        model: str,
        fraction: float,
        hosted: GatewayReplica | None = None,
    ) -> None:
        super().__init__(file, replicas, model, hosted)
        self._fraction = fraction

    def wants(self) -> bool:
        """Whether a request is one of those; no client can aim at it."""
        return random.random() < self._fraction

    def saw(self, outcome: Outcome) -> None:
        """One request ended: nothing, unless it was drawn.

        Why      Its line is made at once: to redact a long text takes milliseconds, and many of them at a
                 flush would stop everything else.
        """
        if outcome.asked is not None and (outcome.outcome != FINISHED or outcome.answer is not None):
            line = self.line(outcome, self._there(outcome))
            if line is not None:
                self.file.append(line)
                self._waits()

    def line(self, outcome: Outcome, replica: GatewayReplica | None) -> str | None:
        """Nothing of what cannot be told as text."""
        asked = asked_of(outcome.asked) if outcome.asked is not None else None
        if asked is None:
            return None
        text, end = answer_of(outcome.answer) if outcome.answer is not None else ("", "")
        facts = json.loads(line_of(outcome, replica, self._model))
        del facts["tenant"], facts["usd"], facts["cache"]
        return _ENCODE({**facts, **redacted_all(asked), "answer": redacted(text), "end": end})


def asked_of(request: GenerationRequest) -> dict[str, Any] | None:
    """A prompt as one text, or messages of texts; None for what is not text, is several, or is very long."""
    said = request.fields.get("prompt")
    if isinstance(said, str):
        return {"prompt": said} if len(said) <= TEXT_MOST else None
    messages = request.fields.get("messages")
    if not isinstance(messages, list):
        return None
    plain = [{"role": each["role"], "content": _text_of(each.get("content"))} for each in messages]
    if (
        any(each["content"] is None for each in plain)
        or sum(len(each["content"]) for each in plain) > TEXT_MOST
    ):
        return None
    return {"messages": plain}


def _text_of(content: Any) -> str | None:
    if content is None or isinstance(content, str):
        return content or ""
    parts = [each.get("text") if each.get("type") == "text" else None for each in content]
    return None if any(not isinstance(part, str) for part in parts) else "".join(map(str, parts))


def answer_of(answer: WholeAnswer) -> tuple[str, str]:
    """The text of the first choice, and why it ended; nothing of what is no such answer."""
    texts, end = [], ""
    for piece in _pieces(answer):
        try:
            choice = piece["choices"][0]
            if choice.get("index", 0):
                continue
            said = choice.get("delta") or choice.get("message") or choice
            texts.append(said.get("content") or said.get("text") or "")
            end = choice.get("finish_reason") or end
        except (KeyError, IndexError, TypeError, AttributeError):
            continue
    return "".join(each for each in texts if isinstance(each, str)), end if isinstance(end, str) else ""


def _pieces(answer: WholeAnswer) -> list[Any]:
    """The objects of an answer: HOT: per sample; its events one by one took three times as long."""
    data = [answer.data]
    if answer.streamed:
        events = (line[5:].strip() for line in answer.data.splitlines() if line.startswith(b"data:"))
        data = [each for each in events if each != b"[DONE]"]
    try:
        found: list[Any] = json.loads(b"[" + b",".join(data) + b"]")
        return found
    except (ValueError, RecursionError):
        return []
