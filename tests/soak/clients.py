"""Clients of a service under faults: each keeps its own books of what it asked and what it was told."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp

PATH, CHAT = "/v1/completions", "/v1/chat/completions"
COMPLETED = "completed"
TOLD = "told to retry"  # a status or an event with an error by which one may ask again
BROKEN = "broken"  # the connection: nobody told anything, and one may ask again
TOO_LONG, POISON = "too long", "poison"  # said, and right, of what is asked on purpose
WRONG = "wrong"  # whatever else
RETRY_STATUSES = (429, 502, 503)
RETRY_EVENTS = ("replica_failed", "shutting_down")
PATIENCE_S = 60.0  # of a client with one request, repeats and all
PAUSE_S = 0.2  # before a repeat


@dataclass(frozen=True, slots=True)
class Asked:
    """One HTTP request, as its client saw it end."""

    request_id: str
    outcome: str
    status: int
    code: str  # of an error
    began_s: float
    ended_s: float


@dataclass
class Books:
    """All that clients asked. Mutable."""

    asked: list[Asked] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)  # requests that no repeat brought to an end

    def count(self, outcome: str) -> int:
        return sum(each.outcome == outcome for each in self.asked)

    def first_completed_after(self, at_s: float) -> float | None:
        """When the first request that was asked later than this was answered."""
        ends = [each.ended_s for each in self.asked if each.outcome == COMPLETED and each.began_s >= at_s]
        return min(ends, default=None)


class Client:
    """Asks one service, by one pool of connections. Mutable: it writes books."""

    def __init__(self, url: str, books: Books, name: str) -> None:
        self.url, self.books, self._name, self._number = url, books, name, 0
        self._session = aiohttp.ClientSession(trust_env=False)

    async def close(self) -> None:
        await self._session.close()

    async def once(self, body: dict[str, Any], path: str = PATH, timeout_s: float = PATIENCE_S) -> Asked:
        """One HTTP request, whatever becomes of it."""
        self._number += 1
        request_id, began_s = f"{self._name}-{self._number}", time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                headers = {"x-request-id": request_id}
                async with self._session.post(self.url + path, json=body, headers=headers) as answer:
                    data = await answer.read()
                    outcome, code = judged(answer.status, data, body)
                    status = answer.status
        except (aiohttp.ClientError, OSError):
            outcome, code, status = BROKEN, "", 0
        except TimeoutError:
            outcome, code, status = WRONG, f"nothing within {timeout_s:g} s", 0
        asked = Asked(request_id, outcome, status, code, began_s, time.monotonic())
        self.books.asked.append(asked)
        return asked

    async def is_well(self, timeout_s: float) -> bool:
        """What `/health` says; a gateway that says nothing is not well."""
        try:
            async with asyncio.timeout(timeout_s), self._session.get(self.url + "/health") as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def until_answered(self, body: dict[str, Any]) -> None:
        """As a client should: ask again while it may, and give up after a while."""
        until_s = time.monotonic() + PATIENCE_S
        while (asked := await self.once(body)).outcome in (TOLD, BROKEN):
            if time.monotonic() > until_s:
                break
            await asyncio.sleep(PAUSE_S)
        if asked.outcome != COMPLETED:
            self.books.unanswered.append(f"{asked.request_id} ({asked.outcome} {asked.status} {asked.code})")


def judged(status: int, data: bytes, asked: dict[str, Any]) -> tuple[str, str]:
    """What an answer says: its outcome, and the code of an error."""
    if status == 200:
        return _judged_stream(data, asked) if asked.get("stream") else _judged_whole(data, asked)
    try:
        code = str(json.loads(data)["error"]["code"])
    except (ValueError, TypeError, KeyError):
        return WRONG, f"status {status} without an error of the protocol"
    if status in RETRY_STATUSES:
        return TOLD, code
    if (status, code) == (400, "context_length_exceeded"):
        return TOO_LONG, code
    return (POISON if (status, code) == (422, "poison") else WRONG), code


def _judged_whole(data: bytes, asked: dict[str, Any]) -> tuple[str, str]:
    try:
        answer = json.loads(data)
        return (COMPLETED, "") if answer["usage"]["completion_tokens"] <= asked["max_tokens"] else (WRONG, "")
    except (ValueError, TypeError, KeyError):
        return WRONG, "no answer of the protocol"


def _judged_stream(data: bytes, asked: dict[str, Any]) -> tuple[str, str]:
    """Every token once and in its order, then the end; or an error by which one may ask again."""
    *events, _ = data.split(b"\n\n")
    said = [each.removeprefix(b"data: ") for each in events]
    try:
        parts = [json.loads(each) for each in said if each != b"[DONE]"]
    except ValueError:
        return WRONG, "events that are no JSON"
    if parts and "error" in parts[-1]:
        code = parts[-1]["error"]["code"]
        return (TOLD if code in RETRY_EVENTS else WRONG), code
    if not said or said[-1] != b"[DONE]":
        return BROKEN, "cut off"
    numbered = [text.split()[0] for each in parts for text in [text_of(each)] if text.startswith("t")]
    wanted = [f"t{number}" for number in range(asked["max_tokens"])]
    whole = numbered == wanted if numbered else any(map(text_of, parts))  # a real model says what it likes
    return (COMPLETED, "") if whole else (WRONG, "tokens are missing or twice there")


def text_of(event: dict[str, Any]) -> str:
    """What one event generated."""
    choices = event.get("choices") or [{}]
    return str(choices[0].get("text") or (choices[0].get("delta") or {}).get("content") or "")


def some_request(chance: Random) -> dict[str, Any]:
    """One that any service answers, unlike all others."""
    prompt = f"{chance.getrandbits(64):016x} " + "w" * chance.randint(0, 60)
    return {"prompt": prompt, "max_tokens": chance.randint(1, 12), "stream": chance.random() < 0.7}
