"""What a gate is told of a request besides its size: by headers, and hashes of its prompt's beginning.

x-twofold-class     one of the service's classes; without it the first one
x-twofold-session   any text; requests of one session stay at one replica where sessions are routed
x-twofold-deadline  seconds from now until the last token is of use
x-twofold-zone      where the client is; replicas there are asked first
cache-control       with `no-cache` or `no-store` no kept answer is given, and this one is not kept
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from twofold.live.gateway.engine_fields import EngineFields, refused_field
from twofold.live.gateway.kept_answers import NOT_KEPT, answer_key
from twofold.live.gateway.openai_requests import Caller, GenerationRequest, Problem
from twofold.policy.gate.events import RequestArrived
from twofold.policy.gate.settings import GateSettings, Routing

CLASS, SESSION = b"x-twofold-class", b"x-twofold-session"
DEADLINE, ZONE = b"x-twofold-deadline", b"x-twofold-zone"
CACHE = b"cache-control"
HEADERS = frozenset((CLASS, SESSION, DEADLINE, ZONE))
VALUE_LIMIT = 128  # bytes
BLOCKS_MAX = 4096  # of one prompt that are hashed: beyond them nothing is remembered of it
DEADLINE_S_MAX = 86_400.0


class RequestFacts:
    """Turns requests into arrivals, by what a gate is set to. Nothing is kept of any request."""

    def __init__(
        self,
        gate: GateSettings,
        bytes_per_token: float,
        hosted: EngineFields | None = None,  # that of the hosted API; None: there is none
    ) -> None:
        self._hosted = hosted
        self._classes = frozenset(each.name for each in gate.classes)
        self._keeps = gate.answer_cache is not None
        self._block_tokens = gate.routes.prefix_block_tokens if gate.routing is Routing.PREFIX else 0
        self._bytes_per_token = bytes_per_token

    def arrival(
        self,
        request: GenerationRequest,
        caller: Caller,
        headers: Iterable[tuple[bytes, bytes]],
        now_s: float,
    ) -> RequestArrived | Problem:
        """The event of a request that arrives, or why a header of it is refused."""
        said: dict[bytes, bytes] = {}
        for name, value in headers:
            if name in HEADERS:  # HOT: per header of a request; mostly none is
                said.setdefault(name, value.strip())
        if said and (problem := self._refused(said)):
            return problem
        within_s = _seconds(said[DEADLINE]) if DEADLINE in said else None
        prompt = request.fields.get("messages") or request.fields["prompt"]
        return RequestArrived(
            request.input_tokens,
            request.output_limit_tokens,
            caller.tenant,
            said.get(CLASS, b"").decode("latin-1"),
            said.get(SESSION, b"").decode("latin-1"),
            self._blocks(prompt) if self._block_tokens else (),
            "",
            said.get(ZONE, b"").decode("latin-1"),
            None if within_s is None else now_s + within_s,
            caller.retry_count,
            request.prompt_digest,
            answer_key(request) if self._keeps and _may_keep(headers) else "",
            self._hosted is not None
            and refused_field(request.path, request.fields, self._hosted) is not None,
        )

    def may_keep(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether the client lets anything of its request be kept."""
        return _may_keep(headers)

    def _refused(self, said: Mapping[bytes, bytes]) -> Problem | None:
        for name, value in said.items():
            if len(value) > VALUE_LIMIT:
                text = name.decode()
                return Problem(400, f"`{text}` is at most {VALUE_LIMIT} bytes of text", text)
        if CLASS in said and said[CLASS].decode("latin-1") not in self._classes:
            known = ", ".join(sorted(self._classes)) or "none"
            what = f"`x-twofold-class` is no class of this service; it has: {known}"
            return Problem(400, what, CLASS.decode())
        if DEADLINE in said and _seconds(said[DEADLINE]) is None:
            what = f"`x-twofold-deadline` is seconds from now, above 0 and at most {DEADLINE_S_MAX:.0f}"
            return Problem(400, what, DEADLINE.decode())
        return None

    def _blocks(self, prompt: Any) -> tuple[int, ...]:
        """Hashes of a prompt's leading whole blocks, each of all that stands before it as well.

        Limits   a block of text has as many characters as its tokens have bytes; a hash is this process's:
                 it says nothing to another, and cannot be aimed at.
        """
        if isinstance(prompt, list) and all(type(item) is int for item in prompt):
            return _chained([tuple(prompt)], self._block_tokens)
        texts = (prompt,) if isinstance(prompt, str) else _texts(prompt)
        return _chained(texts, max(1, round(self._block_tokens * self._bytes_per_token)))


def _chained(pieces: Iterable[Any], size: int) -> tuple[int, ...]:
    # HOT: per request with prefix routing; joining 400 kB first took 10 times as long
    found: list[int] = []
    before, rest = 0, None
    for piece in pieces:
        start = 0
        if rest:
            start = size - len(rest)
            rest += piece[:start]
            if len(rest) < size:
                continue
            found.append(before := hash((before, rest)))
        last = len(piece) - size
        while start <= last and len(found) < BLOCKS_MAX:
            found.append(before := hash((before, piece[start : start + size])))
            start += size
        if len(found) >= BLOCKS_MAX:
            break
        rest = piece[start:]
    return tuple(found[:BLOCKS_MAX])


def _texts(value: Any) -> Iterator[str]:
    """All texts of a prompt or a conversation in their order, each role and each end marked."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
            yield "\x1e"
    elif isinstance(value, dict):
        role = value.get("role")
        if isinstance(role, str):
            yield f"{role}\x1f"
        yield from _texts(value.get("content"))
        yield from _texts(value.get("text"))


def _may_keep(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    said = (value.lower() for name, value in headers if name == CACHE)
    return not any(word in value for value in said for word in NOT_KEPT)


def _seconds(text: bytes) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 < value <= DEADLINE_S_MAX else None
