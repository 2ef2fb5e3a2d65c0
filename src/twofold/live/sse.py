"""Server-sent events as engines stream them: whole events out of arbitrary chunks, and what they amount to.

Both the gateway and the load generator read streams through this. Most chunks are counted without being
parsed: only events before the first content, and chunks with one of a few tell-tale words, are read as JSON.
"""

import json
import re
from typing import Any

HELD_LIMIT_BYTES = 1 << 20
DONE = b"data: [DONE]\n\n"  # by which a stream says that it is whole


class SseTally:
    """What one stream has said so far. Mutable: `feed` it every chunk, in order.

    An answer has `started` with its first generated text. What precedes it, such as an event that names the
    role only, is held back: until text comes the answer may still be asked of another replica.
    `output_tokens` counts the events with content, one token each, until the stream's usage says better.
    """

    __slots__ = (
        *("_held", "_tail", "content_events", "done", "failed", "finished", "prompt_tokens", "started"),
        "usage_tokens",
    )

    def __init__(self) -> None:
        self.started = False
        self.failed = False  # the engine reported an error in the stream; what follows is dropped
        self.finished = False  # it said why it ended: with a reason, or with its last word
        self.done = False  # its last word came
        self.content_events = 0
        self.usage_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self._held = b""  # whole events before the first content
        self._tail = b""  # the beginning of an event

    @property
    def output_tokens(self) -> int:
        """Tokens of the answer so far."""
        return self.content_events if self.usage_tokens is None else self.usage_tokens

    @property
    def is_whole(self) -> bool:
        """Whether all of it came, should no more come; its last word may lack the empty line."""
        return self.finished or self._tail.strip() == DONE.strip()

    def feed(self, chunk: bytes) -> bytes:
        """The whole events that may be passed on now. Raises ValueError when an event never ends."""
        data = self._tail + chunk if self._tail else chunk
        cut = _whole_until(data)
        self._tail = data[cut:]
        if len(self._tail) + len(self._held) > HELD_LIMIT_BYTES:
            raise ValueError(f"an event longer than {HELD_LIMIT_BYTES} bytes")
        whole = data[:cut] if self._tail else data
        if not whole or self.failed:
            return b""
        if self.started and not _tells(whole):
            self.content_events += whole.count(b"\n\n") + whole.count(b"\r\n\r\n")
            return whole
        return self._read(whole)

    def rest(self) -> bytes:
        """What was held back, once the stream has ended: an answer without any text is an answer too."""
        if self._tail.strip() == DONE.strip():  # without the empty line that ends it
            self.done = self.finished = True
            self._held += DONE
        rest, self._held, self._tail = self._held, b"", b""
        return b"" if self.failed else rest

    def closing(self) -> bytes:
        """The last word, where the stream did not say it."""
        return b"" if self.done else DONE

    def _read(self, whole: bytes) -> bytes:
        passed = []
        for event in _events(whole):
            # HOT: per event of an answer's first and last chunk; reading them all as JSON was a third of the
            # gateway's time when an answer came in one piece: bench/gateway.py
            if self.started and not _tells(event):
                self.content_events += 1
            else:
                self._judge(event)
            if self.failed:
                break
            passed.append(event)
        known, self._held = self._held + b"".join(passed), b""
        if self.started:
            return known
        self._held = known
        return b""

    def _judge(self, event: bytes) -> None:
        data = _payload(event)
        if not isinstance(data, dict):
            if event.strip() == DONE.strip():
                self.done = self.finished = True
            return
        if data.get("error"):
            self.failed = True
            return
        usage = data.get("usage")
        if isinstance(usage, dict):
            self.usage_tokens = count_of(usage.get("completion_tokens"))
            self.prompt_tokens = count_of(usage.get("prompt_tokens"))
        self.finished = self.finished or has_ended(data)
        if has_content(data) or (self.started and is_step(data)):
            self.started = True
            self.content_events += 1


def has_content(data: dict[str, Any]) -> bool:
    """Whether an event of a chat or a completion holds something generated, be it text or a tool call."""
    choices = data.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            delta = choice.get("delta")
            said = delta.items() if isinstance(delta, dict) else ()
            if choice.get("text") or any(value for name, value in said if name != "role"):
                return True
    return False


def has_ended(data: dict[str, Any]) -> bool:
    """Whether an event says why an answer ended."""
    choices = data.get("choices")
    return isinstance(choices, list) and any(
        isinstance(choice, dict) and bool(choice.get("finish_reason")) for choice in choices
    )


def is_step(data: dict[str, Any]) -> bool:
    """Whether an event in the midst of an answer stands for a token, be it one that made no text yet."""
    choices = data.get("choices")
    return isinstance(choices, list) and any(
        isinstance(choice, dict)
        and ("text" in choice or "delta" in choice)
        and not choice.get("finish_reason")
        for choice in choices
    )


def _tells(data: bytes) -> bool:
    """Whether whole events may hold more than one token's text each: an end, a usage, an error, a comment.

    These words stand unescaped only outside of generated text: the JSON of an event escapes its quotes.
    HOT: per chunk, and per event of the first and last one; one regular expression of all words was slower.
    """
    return (
        b'"finish_reason":"' in data
        or b'"finish_reason": "' in data
        or b'"usage":' in data
        or b'"error":' in data
        or b"[DONE]" in data
        or b"\n:" in data
        or data.startswith(b":")
    )


def _whole_until(data: bytes) -> int:
    """Where the last whole event of `data` ends; 0 when there is none."""
    plain, with_returns = data.rfind(b"\n\n"), data.rfind(b"\r\n\r\n")
    return max(plain + 2 if plain >= 0 else 0, with_returns + 4 if with_returns >= 0 else 0)


def _events(whole: bytes) -> list[bytes]:
    """The events of a run of whole ones, with their ends."""
    if b"\r" not in whole:
        return [event + b"\n\n" for event in whole.split(b"\n\n")[:-1]]
    return [match.group() for match in re.finditer(rb".*?(?:\r\n\r\n|\n\n)", whole, re.DOTALL)]


def _payload(event: bytes) -> Any:
    """The JSON of an event; None for comments, [DONE] and what is no JSON."""
    for line in event.splitlines():
        if line.startswith(b"data:"):
            try:
                return json.loads(line[5:])
            except (ValueError, RecursionError):
                return None
    return None


def count_of(value: Any) -> int | None:
    """A count that an engine reports, if it is one that could be."""
    return value if type(value) is int and 0 <= value < 1 << 31 else None
