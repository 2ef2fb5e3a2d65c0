"""The load generator: closed and open loops against an OpenAI endpoint, streamed, in this one process.

Closed: so many clients, each asks again when it is answered. Open: requests come when a schedule says so,
whether earlier ones are answered or not, and their latencies count from when they were due, so that a stalled
server is not spared the requests that its stall delayed (no coordinated omission).
"""

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twofold.contracts.results import loop
from twofold.core import errors
from twofold.core.errors import FileError, ValueRefusedError
from twofold.live.loads.loads import Answer, Load, Outcome, load_point, poisson_arrivals_s, shuffled
from twofold.live.server_urls import trust
from twofold.live.sse import SseTally
from twofold.live.training.corpus import source_texts

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
    output_tokens: int | None = None  # to ask for, where it is not what the whole load asks for


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a load goes, and what its requests say besides their prompt."""

    url: str  # of the completions themselves
    model: str = ""
    is_chat: bool = False  # prompts are one message of a user
    headers: tuple[tuple[str, str], ...] = ()
    trusted: Path | None = None  # certificates, besides those that this machine trusts
    certificate: str = ""  # path of the server's own, whatever name it is asked by; "": it is not known
    also: tuple[tuple[str, Any], ...] = ()  # fields of every request
    timeout_s: float = REQUEST_TIMEOUT_S
    units: int | None = None  # of an answer, where it comes in one piece; None: it is a stream of tokens

    def body(self, prompt: Prompt, max_tokens: int) -> dict[str, Any]:
        """The request that asks for an answer to a prompt, streamed."""
        tokens = max_tokens if prompt.output_tokens is None else prompt.output_tokens
        asked: dict[str, Any] = {"model": self.model, "max_tokens": tokens, "stream": True, **dict(self.also)}
        if self.is_chat:
            return {"messages": [{"role": "user", "content": prompt.text}], **asked}
        return {"prompt": prompt.text, **asked}


def bare_endpoint(url: str, model: str = "") -> Endpoint:
    """The completions of a service of ours at `url`."""
    return Endpoint(url.rstrip("/") + PATH, model)


def closed_loop(
    endpoint: Endpoint,
    prompts: Sequence[Prompt],
    concurrency: int,
    *,
    max_tokens: int,
    seed: int,
    duration_s: float | None = None,
    request_count: int | None = None,
    warmup_count: int = 0,
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
    load = hold_closed(
        endpoint,
        _pool(prompts, seed),
        concurrency,
        max_tokens=max_tokens,
        duration_s=duration_s,
        request_count=request_count,
        warmup_count=warmup_count,
    )
    return load_point(f"closed-{concurrency}", load, concurrency=concurrency)


def open_loop(
    endpoint: Endpoint,
    prompts: Sequence[Prompt],
    rate_per_s: float,
    *,
    duration_s: float,
    max_tokens: int,
    seed: int,
    warmup_count: int = 0,
) -> loop.LoadPoint:
    """What requests get that come at `rate_per_s` (Poisson, from the seed), whatever became of earlier ones.

    Arrivals end after `duration_s`; what is in flight then is waited for. Latencies count from when a request
    was due, also when this process was late to send it. Raises as `poisson_arrivals_s`, and
    MissingExtraError.
    """
    arrivals_s = poisson_arrivals_s(rate_per_s, duration_s, seed)

    load = hold_open(
        endpoint,
        _pool(prompts, seed),
        arrivals_s,
        duration_s=duration_s,
        max_tokens=max_tokens,
        warmup_count=warmup_count,
    )
    return load_point(f"open-{rate_per_s:g}", load, rate_per_s=rate_per_s)


def hold_closed(
    endpoint: Endpoint,
    prompts: Iterator[Prompt],
    concurrency: int,
    *,
    max_tokens: int,
    duration_s: float | None = None,
    request_count: int | None = None,
    warmup_count: int = 0,
) -> Load:
    """A closed loop against an endpoint, as it went."""

    async def run(load: Load, clients: Clients) -> None:
        await clients.loop(concurrency, None, warmup_count)
        load.begin(time.monotonic(), None if duration_s is None else time.monotonic() + duration_s)
        await clients.loop(concurrency, load.ends_s, request_count)

    return _run(endpoint, prompts, max_tokens, run)


def hold_open(
    endpoint: Endpoint,
    prompts: Iterator[Prompt],
    arrivals_s: Iterable[float],
    *,
    duration_s: float,
    max_tokens: int,
    warmup_count: int = 0,
) -> Load:
    """Requests that are due at `arrivals_s` from the load's begin, ascending; each takes the next prompt, and
    is asked for when the one before it has been sent.

    One that is due while this process is busy is sent at once when it is free again, and counts from when it
    was due all the same; `Answer.lag_s` says how late it was.
    """

    async def run(load: Load, clients: Clients) -> None:
        await clients.loop(WARM_UP_CLIENTS, None, warmup_count)
        began_s = time.monotonic()
        load.begin(began_s, began_s + duration_s)
        async with asyncio.TaskGroup() as requests:
            for arrival_s in arrivals_s:
                # Also when it is late already: answers are read between requests.
                await asyncio.sleep(max(0.0, began_s + arrival_s - time.monotonic()))
                requests.create_task(clients.ask(began_s + arrival_s))

    return _run(endpoint, prompts, max_tokens, run)


class Clients:
    """Those who ask, over one pool of connections. Mutable; lives in one event loop."""

    def __init__(
        self,
        endpoint: Endpoint,
        session: "aiohttp.ClientSession",
        prompts: Iterator[Prompt],
        load: Load,
        max_tokens: int,
    ) -> None:
        self._endpoint, self._session, self._prompts = endpoint, session, prompts
        self._load, self._max_tokens = load, max_tokens

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
        answer = Answer(due_s, prompt.input_tokens, lag_s=max(0.0, time.monotonic() - due_s))
        self._load.answers.append(answer)
        self._load.hold(prompt.input_tokens)
        try:
            await (
                self._read(answer, prompt) if self._endpoint.units is None else self._whole(answer, prompt)
            )
        except TimeoutError:
            answer.outcome, answer.reason = Outcome.FAILED, "timed out"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            answer.outcome = Outcome.FAILED
            broke = answer.events or isinstance(error, aiohttp.ClientPayloadError | ValueError)
            answer.reason = "broke off" if broke else "no connection"
        finally:
            self._load.hold(-prompt.input_tokens - answer.events)
        answer.ended_s = time.monotonic()
        return answer

    async def _whole(self, answer: Answer, prompt: Prompt) -> None:
        body, units = self._endpoint.body(prompt, self._max_tokens), self._endpoint.units or 1
        async with self._session.post(self._endpoint.url, json=body) as response:
            await response.read()
            if response.status // 100 != 2:
                _turned_away(answer, response)
                return
        answer.first_s = answer.last_s = time.monotonic()
        answer.events, answer.output_tokens = 1, units
        answer.inside_events = int(self._load.is_inside(answer.last_s))
        self._load.hold(1)
        answer.outcome = Outcome.FINISHED

    async def _read(self, answer: Answer, prompt: Prompt) -> None:
        tally = SseTally()
        body = self._endpoint.body(prompt, self._max_tokens)
        async with self._session.post(self._endpoint.url, json=body) as response:
            if response.status != 200:
                _turned_away(answer, response)
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
        if tally.started and not tally.failed:
            answer.outcome = Outcome.FINISHED
        else:
            answer.outcome = Outcome.FAILED
            answer.reason = "error in the stream" if tally.failed else "no text"


def _turned_away(answer: Answer, response: "aiohttp.ClientResponse") -> None:
    answer.outcome = Outcome.REFUSED if response.status in REFUSED_STATUS else Outcome.FAILED
    answer.reason = str(response.status)
    after = response.headers.get("retry-after", "")
    answer.retry_after_s = float(after) if after.isdigit() else 0.0


def _pool(prompts: Sequence[Prompt], seed: int) -> Iterator[Prompt]:
    if not prompts:
        raise ValueRefusedError("a load needs at least one prompt")
    return shuffled(prompts, seed)


def _run(
    endpoint: Endpoint,
    prompts: Iterator[Prompt],
    max_tokens: int,
    run: Callable[[Load, Clients], Awaitable[None]],
) -> Load:
    """One load in an event loop of its own."""
    try:
        import aiohttp  # noqa: F401 (so that the extra is named before anything is sent)
        import uvloop
    except ImportError as error:
        raise errors.MissingExtraError(
            f"the load generator needs `{error.name}`", hint="install it with `pip install 'twofold[live]'`"
        ) from error

    async def main() -> Load:
        load = Load()
        async with session_of(endpoint) as session:
            cpu_s, wall_s = time.process_time(), time.monotonic()
            await run(load, Clients(endpoint, session, prompts, load, max_tokens))
            load.cpu_s, load.wall_s = time.process_time() - cpu_s, time.monotonic() - wall_s
        return load

    _allow_connections()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def _allow_connections() -> None:
    """As many open files as this user may have: a connection that this process may not open is no failure of
    the service."""
    softly, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if softly != most:
        with suppress(OSError, ValueError):  # where even that is refused, the usual number must do
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def session_of(endpoint: Endpoint) -> "aiohttp.ClientSession":
    """One pool of connections to an endpoint, as many as are asked for at once."""
    import aiohttp

    trusted = True if endpoint.trusted is None else trust(str(endpoint.trusted))
    if endpoint.certificate:
        trusted = trust(endpoint.certificate, own=True)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=trusted),
        timeout=aiohttp.ClientTimeout(total=endpoint.timeout_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=dict(endpoint.headers),
        read_bufsize=READ_BUFFER_BYTES,
    )


def prompts_of(artefact: Path, input_tokens: int, seed: int, count: int = PROMPT_COUNT) -> tuple[Prompt, ...]:
    """`count` different prompts of about `input_tokens` by the artefact's own tokenizer.

    Slices of the standard library's sources from random places, so that no two share a prefix. Raises
    FileError when the artefact has no tokenizer, ValueRefusedError when that knows too little of such text.
    """
    from tokenizers import Tokenizer

    path = artefact / "tokenizer.json"
    if not path.is_file():
        raise FileError(f"`{artefact}` has no tokenizer.json", hint="train it again")
    tokenizer = Tokenizer.from_file(str(path))
    tokens = tokenizer.encode("\n".join(source_texts(TEXT_BYTES))).ids
    if len(tokens) <= input_tokens:
        what = f"`{path}` makes {len(tokens):,} tokens of {TEXT_BYTES / 1e3:,.0f} kB of text"
        hint = "register the tokenizer that the model was trained with"
        raise ValueRefusedError(f"{what}: too few for prompts of {input_tokens:,}", hint=hint)
    starts = np.random.default_rng(seed).integers(0, len(tokens) - input_tokens, count)
    texts = [tokenizer.decode(tokens[start : start + input_tokens]) for start in map(int, starts)]
    return tuple(Prompt(text, len(tokenizer.encode(text).ids)) for text in texts)
