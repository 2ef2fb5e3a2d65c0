"""A model server whose answers come in one piece: embeddings by OpenAI's API, or any JSON that a URL takes.

What is sent is a template, or several by turns: each `{text}` in it becomes a text that was not sent before,
so that no cache of the server's helps. A finished request counts so many units, images or texts or rows.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from twofold.core.errors import FileError, ValueRefusedError, unread
from twofold.core.extras import require_extra
from twofold.live.loads import endpoint as openai
from twofold.live.loads.loader import REQUEST_TIMEOUT_S, Endpoint, Prompt, session_of

TEXT = "{text}"
EMBEDDINGS = "/embeddings"
BODIES_MOST_BYTES = 64 << 20
UNITS_MOST = 100_000  # of one request


@dataclass(frozen=True, slots=True)
class PlainEndpoint(Endpoint):
    """Where bodies go, and how many units an answer is of."""

    bodies: tuple[Any, ...] = ()  # as JSON has them, with `{text}` in their texts
    unit: str = "requests"
    units: int | None = 1  # of each request

    @property
    def text_count(self) -> int:
        """Texts that the fullest body takes."""
        return max((_texts_in(body) for body in self.bodies), default=0)

    def body(self, prompt: Prompt, max_tokens: int) -> dict[str, Any]:  # noqa: ARG002 (answers have no length)
        """One of the bodies, its texts filled with pieces of the prompt's."""
        body = self.bodies[crc32(prompt.text.encode()) % len(self.bodies)]
        count = _texts_in(body)
        size = len(prompt.text) // count if count else 0
        pieces = iter([prompt.text[n * size : (n + 1) * size] for n in range(count)])
        filled: dict[str, Any] = _filled(body, pieces)
        return filled


def read_bodies(path: Path) -> tuple[Any, ...]:
    """The bodies of a file: one JSON value, or one a line. Raises FileError."""
    try:
        with path.open("rb") as opened:
            data = opened.read(BODIES_MOST_BYTES + 1)
    except OSError as error:
        raise unread(path, error) from error
    if len(data) > BODIES_MOST_BYTES:
        raise FileError(f"`{path}` is larger than {BODIES_MOST_BYTES >> 20} MiB", hint="send fewer bodies")
    try:
        return (json.loads(data),)
    except (ValueError, RecursionError) as first:
        lines = [line for line in data.splitlines() if line.strip()]
        if len(lines) < 2:
            raise FileError(f"`{path}` is no JSON: {first}", hint="a JSON value, or one a line") from first
    bodies = []
    for number, line in enumerate(lines, 1):
        try:
            bodies.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            hint = "a JSON value, or one a line"
            raise FileError(f"`{path}` line {number} is no JSON: {error}", hint=hint) from error
    return tuple(bodies)


def reach_plain(
    url: str,
    prompt: Prompt,
    *,
    bodies: Sequence[Any] = (),
    unit: str = "",
    units: int = 1,
    model: str = "",
    key: str = "",
    key_variable: str = "",
    trusted: Path | None = None,
) -> PlainEndpoint:
    """Ask `url` once for what a load will ask; without `bodies` it is asked for embeddings of `units` texts.

    Raises ValueRefusedError, which says what is wrong and what to write.
    """
    require_extra("live")
    if not 1 <= units <= UNITS_MOST:
        raise ValueRefusedError(f"a request of {units} {unit or 'units'} is none")
    parts_of_url = url.removesuffix(EMBEDDINGS) if not bodies else url
    base, told = openai.parts_of(parts_of_url)
    headers = (("authorization", f"Bearer {key}"),) if key else ()
    made = PlainEndpoint(
        url if bodies else base + EMBEDDINGS,
        model,
        headers=headers,
        trusted=trusted,
        timeout_s=REQUEST_TIMEOUT_S,
        bodies=tuple(bodies),
        unit=unit or ("requests" if bodies else "texts"),
        units=units,
    )
    if told and not bodies:
        what = f"`{url[:80]}` is where prompts are answered, not where texts are embedded"
        raise ValueRefusedError(what, hint="leave `--api embeddings` out, or name the server alone")
    return asyncio.run(_reached(made, base, prompt, key_variable))


async def _reached(made: PlainEndpoint, base: str, prompt: Prompt, variable: str) -> PlainEndpoint:
    async with session_of(made) as session:
        try:
            if not made.bodies:
                model = made.model or await openai.first_model(session, base, variable)
                body = {"model": model, "input": [TEXT] * (made.units or 1)}
                made = replace(made, model=model, bodies=(body,))
            async with session.post(made.url, json=made.body(prompt, 0)) as response:
                said = " ".join((await response.text(errors="replace")).split())[: openai.SAID_CHARACTERS]
                openai.check_key(response.status, made.url, variable)
                if response.status // 100 != 2:
                    what = f"{made.url} does not take what was sent: {response.status} {said}"
                    raise ValueRefusedError(
                        what, hint="`curl` the URL with the same body: what does it want?"
                    )
        except openai.connection_errors() as error:
            raise openai.unreachable(made.url, error) from error
    return made


def _texts_in(value: Any) -> int:
    if isinstance(value, str):
        return value.count(TEXT)
    if isinstance(value, dict):
        return sum(map(_texts_in, value.values()))
    return sum(map(_texts_in, value)) if isinstance(value, list) else 0


def _filled(value: Any, pieces: Any) -> Any:
    if isinstance(value, str):
        while TEXT in value:
            value = value.replace(TEXT, next(pieces).replace(TEXT, ""), 1)
        return value
    if isinstance(value, dict):
        return {name: _filled(each, pieces) for name, each in value.items()}
    return [_filled(each, pieces) for each in value] if isinstance(value, list) else value
