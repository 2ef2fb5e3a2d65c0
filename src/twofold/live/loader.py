"""The load generator: closed and open loops against an OpenAI endpoint, streamed, in this one process.

Closed: so many clients, each asks again when it is answered. Open: requests come as a Poisson stream whether
earlier ones are answered or not, and their latencies count from when they were due, so that a stalled server
is not spared the requests that its stall delayed (no coordinated omission).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from twofold.contracts.results import loop
from twofold.core import errors
from twofold.core.errors import FileError, ValueRefusedError
from twofold.live.corpus import source_texts
from twofold.live.loads import Answer, Load, Outcome, load_point, poisson_arrivals_s, shuffled
from twofold.live.sse import SseTally

if TYPE_CHECKING:
    import aiohttp

PATH = "/v1/completions"  # no chat template: the prompt has the tokens that it was made to have
REQUEST_TIMEOUT_S = 120.0
REFUSED_STATUS = (429, 503)
BACK_OFF_MAX_S = 1.0  # of a closed loop's client that was refused or failed
WARM_UP_CLIENTS = 2  # of an open loop
READ_BUFFER_BYTES = 1 << 16
PROMPT_COUNT = 64
TEXT_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt and the tokens that it has; an answer that reports its own count is believed more."""

    text: str
    input_tokens: int


def closed_loop(
    url: str,
    prompts: Sequence[Prompt],
    concurrency: int,
    *,
    max_tokens: int,
    seed: int,
    duration_s: float | None = None,
    request_count: int | None = None,
    warmup_count: int = 0,
    model: str = "default",
) -> loop.LoadPoint:
    """What `concurrency` clients get who ask again as soon as they are answered.

    They begin no request after `duration_s`, or after `request_count` of them; what is in flight then is
    waited for, counts in the latencies, and counts in the rates as far as it lies before that moment. Warm-up
    requests go before all others and count nowhere. Raises ValueRefusedError unless exactly one of the two
    ends is given, and MissingExtraError.
    """
    if concurrency < 1 or (duration_s is None) == (request_count is None):
        raise ValueRefusedError("a closed loop has at least one client and one end: a duration or a count")
    if request_count is not None and request_count < concurrency:
        raise ValueRefusedError(f"{request_count} requests are fewer than {concurrency} clients ask at once")

    async def run(load: Load, clients: "Clients") -> None:
        await clients.loop(concurrency, None, warmup_count)
        load.begin(time.monotonic(), None if duration_s is None else time.monotonic() + duration_s)
        await clients.loop(concurrency, load.ends_s, request_count)

    load = _run(url, prompts, max_tokens, seed, model, run)
    return load_point(f"closed-{concurrency}", load, concurrency=concurrency)


def open_loop(
    url: str,
    prompts: Sequence[Prompt],
    rate_per_s: float,
    *,
    duration_s: float,
    max_tokens: int,
    seed: int,
    warmup_count: int = 0,
    model: str = "default",
) -> loop.LoadPoint:
    """What requests get that come at `rate_per_s` (Poisson, from the seed), whatever became of earlier ones.

    Arrivals end after `duration_s`; what is in flight then is waited for. Latencies count from when a request
    was due, also when this process was late to send it. Raises as `poisson_arrivals_s`, and
    MissingExtraError.
    """
    arrivals_s = poisson_arrivals_s(rate_per_s, duration_s, seed)

    async def run(load: Load, clients: "Clients") -> None:
        await clients.loop(WARM_UP_CLIENTS, None, warmup_count)
        began_s = time.monotonic()
        load.begin(began_s, began_s + duration_s)
        async with asyncio.TaskGroup() as requests:
            for arrival_s in arrivals_s:
                await asyncio.sleep(max(0.0, began_s + arrival_s - time.monotonic()))
                requests.create_task(clients.ask(began_s + arrival_s))

    load = _run(url, prompts, max_tokens, seed, model, run)
    return load_point(f"open-{rate_per_s:g}", load, rate_per_s=rate_per_s)


class Clients:
    """Those who ask, over one pool of connections. Mutable; lives in one event loop."""

    def __init__(
        self,
        url: str,
        session: "aiohttp.ClientSession",
        prompts: Iterator[Prompt],
        load: Load,
        **asked: object,
    ) -> None:
        self._url, self._session, self._prompts = url.rstrip("/") + PATH, session, prompts
        self._load, self._request = load, asked

    async def loop(self, concurrency: int, until_s: float | None, request_count: int | None) -> None:
        """Clients that ask again when answered, until a time or a number of requests is reached."""
        left = request_count

        def more() -> bool:
            nonlocal left
            if left is not None:
                left -= 1
                return left >= 0
            return until_s is not None and time.monotonic() < until_s

        async def client() -> None:
            while more():
                answer = await self.ask(time.monotonic())
                if answer.outcome is not Outcome.FINISHED:
                    await asyncio.sleep(min(answer.retry_after_s or BACK_OFF_MAX_S, BACK_OFF_MAX_S))
            self._load.end(time.monotonic())

        async with asyncio.TaskGroup() as clients:
            for _ in range(concurrency):
                clients.create_task(client())

    async def ask(self, due_s: float) -> Answer:
        """Send the next prompt and read its answer; whatever goes wrong is the answer's outcome."""
        import aiohttp

        prompt = next(self._prompts)
        answer = Answer(due_s, prompt.input_tokens)
        self._load.answers.append(answer)
        self._load.hold(prompt.input_tokens)
        try:
            await self._read(answer, prompt)
        except (aiohttp.ClientError, OSError, ValueError):  # a timeout is an OSError too
            answer.outcome = Outcome.FAILED
        finally:
            self._load.hold(-prompt.input_tokens - answer.events)
        answer.ended_s = time.monotonic()
        return answer

    async def _read(self, answer: Answer, prompt: Prompt) -> None:
        tally = SseTally()
        async with self._session.post(self._url, json={"prompt": prompt.text, **self._request}) as response:
            if response.status != 200:
                answer.outcome = Outcome.REFUSED if response.status in REFUSED_STATUS else Outcome.FAILED
                after = response.headers.get("retry-after", "")
                answer.retry_after_s = float(after) if after.isdigit() else 0.0
                await response.read()
                return
            async for chunk in response.content.iter_any():
                tally.feed(chunk)
                if new_events := tally.content_events - answer.events:
                    now_s = time.monotonic()
                    answer.first_s = answer.first_s or now_s
                    answer.last_s, answer.events = now_s, tally.content_events
                    answer.inside_events += new_events * self._load.is_inside(now_s)
                    self._load.hold(new_events)
        answer.output_tokens = tally.output_tokens
        answer.input_tokens = tally.prompt_tokens or prompt.input_tokens
        # An answer without any text, or one that broke off with an error, tells nothing about speed.
        answer.outcome = Outcome.FINISHED if tally.started and not tally.failed else Outcome.FAILED


def _run(
    url: str,
    prompts: Sequence[Prompt],
    max_tokens: int,
    seed: int,
    model: str,
    run: Callable[[Load, Clients], Awaitable[None]],
) -> Load:
    """One load in an event loop of its own."""
    if not prompts:
        raise ValueRefusedError("a load needs at least one prompt")
    try:
        import aiohttp
        import uvloop
    except ImportError as error:
        raise errors.MissingExtraError(
            f"the load generator needs `{error.name}`", hint="install it with `pip install 'twofold[live]'`"
        ) from error

    async def main() -> Load:
        load = Load()
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER_BYTES,
        ) as session:
            asked = {"model": model, "max_tokens": max_tokens, "stream": True}
            asking = Clients(url, session, shuffled(prompts, seed), load, **asked)
            await run(load, asking)
        return load

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def prompts_of(artefact: Path, input_tokens: int, seed: int, count: int = PROMPT_COUNT) -> tuple[Prompt, ...]:
    """`count` different prompts of about `input_tokens` by the artefact's own tokenizer.

    Slices of the standard library's sources from random places, so that no two share a prefix. Raises
    FileError when the artefact has no tokenizer.
    """
    from tokenizers import Tokenizer

    path = artefact / "tokenizer.json"
    if not path.is_file():
        raise FileError(f"`{artefact}` has no tokenizer.json", hint="train it again")
    tokenizer = Tokenizer.from_file(str(path))
    tokens = tokenizer.encode("\n".join(source_texts(TEXT_BYTES))).ids
    starts = np.random.default_rng(seed).integers(0, len(tokens) - input_tokens, count)
    texts = [tokenizer.decode(tokens[start : start + input_tokens]) for start in map(int, starts)]
    return tuple(Prompt(text, len(tokenizer.encode(text).ids)) for text in texts)
