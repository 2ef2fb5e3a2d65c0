"""A URL that people give as an endpoint that a load can be sent to: its paths, its model, whether it answers.

Whatever is wrong with it (nobody listens, a certificate, a key, a path, a model) is said before any load.
"""

import asyncio
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from twofold.core.errors import ValueRefusedError
from twofold.core.extras import require_extra
from twofold.live.loads.loader import REQUEST_TIMEOUT_S, Endpoint, Prompt, session_of
from twofold.live.server_urls import server_url, trust
from twofold.live.sse import SseTally

COMPLETIONS, CHAT, MODELS = "/completions", "/chat/completions", "/models"
PROBE_TIMEOUT_S = 60.0
PROBE_TOKENS = 2
SAID_CHARACTERS = 160  # of an error's body
NO_SUCH_PATH = (404, 405, 501)
UNKNOWN_FIELD = (400, 422)
USAGE = ("stream_options", {"include_usage": True})


@dataclass(frozen=True, slots=True)
class Reached:
    """An endpoint that answered, and how many tokens it counted in the prompt; None: it counts none."""

    endpoint: Endpoint
    prompt_tokens: int | None


def reach(
    url: str,
    prompt: Prompt,
    *,
    model: str = "",
    api: str = "auto",
    key: str = "",
    key_variable: str = "",
    trusted: Path | None = None,
    ignores_end: bool = False,
) -> Reached:
    """Ask `url` for two tokens: the endpoint that answered, its model the first that it lists unless told.

    `api` auto takes completions, and chat where there are none. Usage is asked for, unless that is refused.
    `ignores_end` asks for answers of full length, which some engines know. Raises ValueRefusedError, which
    says what is wrong and what to write.
    """
    require_extra("live")
    base, told = parts_of(url)
    if trusted is not None:
        trust(str(trusted))
    headers = (("authorization", f"Bearer {key}"),) if key else ()
    also = (USAGE, ("ignore_eos", True)) if ignores_end else (USAGE,)
    bare = Endpoint(base, headers=headers, trusted=trusted, also=also, timeout_s=PROBE_TIMEOUT_S)
    apis = [told] if told else ["completions", "chat"] if api == "auto" else [api]
    return asyncio.run(_reach(bare, prompt, model, apis, key_variable))


def parts_of(url: str) -> tuple[str, str]:
    """The URL that paths go behind, and the API where its end names one."""
    base, told = url.rstrip("/"), ""
    for end, api in ((CHAT, "chat"), (COMPLETIONS, "completions")):
        if not told and base.endswith(end):
            base, told = base.removesuffix(end), api
    found = server_url(base).base
    return (found if told and not base.endswith("/v1") else f"{found}/v1"), told


async def _reach(bare: Endpoint, prompt: Prompt, model: str, apis: list[str], variable: str) -> Reached:
    base = bare.url
    async with session_of(bare) as session:
        said: dict[str, str] = {}
        try:
            model = model or await first_model(session, base, variable)
            for api in apis:
                path = CHAT if api == "chat" else COMPLETIONS
                asked = replace(bare, url=base + path, model=model, is_chat=api == "chat")
                # What a server does not know is left out in turn, the last first.
                for count in range(len(asked.also), -1, -1):
                    tried = replace(asked, also=asked.also[:count])
                    status, text, tally = await _ask(session, tried, prompt)
                    if status == 200:
                        return _reached(tried, tally, bare.also, text)
                    if status not in UNKNOWN_FIELD:
                        break
                check_key(status, base, variable)
                said[path] = f"{status} {text}"
                if status not in (*NO_SUCH_PATH, *UNKNOWN_FIELD):
                    break
        except connection_errors() as error:
            raise unreachable(base, error) from error
    answers = "; ".join(f"`{path}` {what}" for path, what in said.items())
    hint = "check the path before `/v1`, and the model's name: `--model NAME`"
    raise ValueRefusedError(f"{base} answers no prompt: {answers}", hint=hint)


def _reached(tried: Endpoint, tally: SseTally, wanted: tuple[tuple[str, Any], ...], text: str) -> Reached:
    if not tally.started or tally.failed:
        what = f"{tried.url} answers without a stream of text" + (f": {text}" if text else "")
        raise ValueRefusedError(what, hint="a load reads answers as they come: the server must stream them")
    if len(wanted) > 1 and len(tried.also) < len(wanted):
        what = f"{tried.url} refuses `ignore_eos`"
        raise ValueRefusedError(what, hint="leave `--ignore-eos` out")
    return Reached(replace(tried, timeout_s=REQUEST_TIMEOUT_S), tally.prompt_tokens)


async def first_model(session: Any, base: str, variable: str) -> str:
    """The first model that a server lists. Raises ValueRefusedError where it lists none."""
    async with session.get(base + MODELS) as response:
        check_key(response.status, base, variable)
        try:
            data = await response.json(content_type=None) if response.status == 200 else {}
            return str(data["data"][0]["id"])
        except (ValueError, KeyError, IndexError, TypeError):
            what = f"{base}{MODELS} lists no model"
            raise ValueRefusedError(what, hint="say which one to ask: `--model NAME`") from None


async def _ask(session: Any, endpoint: Endpoint, prompt: Prompt) -> tuple[int, str, SseTally]:
    """The status of one short answer, what an answer that is none says, and the stream's tally."""
    tally, data = SseTally(), b""
    async with session.post(endpoint.url, json=endpoint.body(prompt, PROBE_TOKENS)) as response:
        async for chunk in response.content.iter_any():
            data = (data + chunk)[:4096]
            if response.status == 200:
                tally.feed(chunk)
        text = "" if tally.started else " ".join(data.decode("utf-8", "replace").split())[:SAID_CHARACTERS]
        return response.status, text, tally


def check_key(status: int, base: str, variable: str) -> None:
    """Raises ValueRefusedError for a status that asks for a key, or for another one."""
    if status not in (401, 403):
        return
    if variable:
        what = f"{base} refuses the key of `{variable}` ({status})"
        hint = f"put a valid key into `{variable}`"
    else:
        what = f"{base} asks for a key ({status})"
        hint = "put it in an environment variable, and write `--key-env VARIABLE`"
    raise ValueRefusedError(what, hint=hint)


def connection_errors() -> tuple[type[Exception], ...]:
    """What a client raises where a server cannot be asked."""
    import aiohttp

    return aiohttp.ClientError, OSError, ValueError


def unreachable(base: str, error: Exception) -> ValueRefusedError:
    """Such an error in words, with what to do about it."""
    import aiohttp

    if isinstance(error, ValueRefusedError):
        return error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        what = f"{base} shows a certificate that this machine does not trust"
        why = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        return ValueRefusedError(f"{what}: {why[:SAID_CHARACTERS]}", hint="name its issuer: `--ca FILE.pem`")
    if isinstance(error, aiohttp.ClientSSLError):
        hint = "is it served by TLS? `http://` asks without"
        return ValueRefusedError(f"{base} speaks no TLS that we know", hint=hint)
    if isinstance(error, TimeoutError):
        what = f"{base} answered nothing within {PROBE_TIMEOUT_S:g} s"
        return ValueRefusedError(what, hint="is the model loaded, and is anybody else using it?")
    inner = getattr(error, "os_error", error)
    code = getattr(inner, "errno", None) or 0
    reason = os.strerror(code) if code > 0 else getattr(inner, "strerror", "") or type(error).__name__
    hint = "is it running, and is this its host and port? `curl` the URL from here"
    return ValueRefusedError(f"{base} cannot be reached: {str(reason)[:SAID_CHARACTERS]}", hint=hint)
