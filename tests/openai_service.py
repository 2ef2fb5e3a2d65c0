"""A service as others run it: models, completions, chat, a key, TLS, usage; on a thread of its own."""

import asyncio
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

IN_ONE_PIECE = ("/embeddings", "/predict")


@dataclass(slots=True)
class Service:
    """One stand-in. Change its fields to change what it does with the requests that come next."""

    apis: tuple[str, ...] = ("completions", "chat/completions")
    models: tuple[str, ...] = ("first", "second")
    key: str = ""
    unknown_fields: tuple[str, ...] = ()  # refused with 400, as servers do that know their own alone
    characters_per_token: float | None = 2.0  # by which usage counts prompts; None: it tells no usage
    slots: int = 1000  # requests answered at once; the others wait
    gap_s: float = 0.0  # before each token
    statuses: tuple[int, ...] = ()  # of the requests that come next, in turn; then 200
    streams: bool = True
    prefix: str = ""  # of its paths, before `/v1`
    asked: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    url: str = ""
    _free: asyncio.Semaphore | None = None

    async def list_models(self, request: Any) -> Any:
        from aiohttp import web

        if not self._may(request):
            return web.json_response({"error": {"message": "no key"}}, status=401)
        return web.json_response({"data": [{"id": name} for name in self.models]})

    async def answer(self, request: Any) -> Any:
        from aiohttp import web

        if not self._may(request):
            return web.json_response({"error": {"message": "no key"}}, status=401)
        asked = await request.json()
        if stray := [name for name in self.unknown_fields if name in asked]:
            return web.json_response({"error": {"message": f"unknown field {stray[0]}"}}, status=400)
        self.asked.append(asked)
        self.paths.append(request.path)
        if self.statuses:
            status, *rest = self.statuses
            self.statuses = tuple(rest)
            if status != 200:
                return web.json_response({"error": {"message": "not now"}}, status=status)
        in_one_piece = request.path.endswith(IN_ONE_PIECE)
        if not self.streams or not asked.get("stream", in_one_piece):
            return web.json_response(self._whole(asked))
        if in_one_piece:
            self._free = self._free or asyncio.Semaphore(self.slots)
            async with self._free:
                await asyncio.sleep(self.gap_s)
            return web.json_response({"data": [{"embedding": [0.5]} for _ in asked.get("input", [1])]})
        self._free = self._free or asyncio.Semaphore(self.slots)
        async with self._free:
            return await self._stream(request, asked)

    def _whole(self, asked: dict[str, Any]) -> dict[str, Any]:
        is_chat = "messages" in asked
        said = {"message": {"role": "assistant", "content": "whole"}} if is_chat else {"text": "whole"}
        choice = {"index": 0, "finish_reason": "length", **said}
        usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
        return {**self._head(is_chat, ""), "choices": [choice], "usage": usage}

    def _head(self, is_chat: bool, part: str) -> dict[str, Any]:
        kind = f"chat.completion{part}" if is_chat else "text_completion"
        return {"id": "1", "object": kind, "created": 1, "model": self.models[0]}

    async def _stream(self, request: Any, asked: dict[str, Any]) -> Any:
        from aiohttp import web

        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        is_chat = "messages" in asked
        limit = asked["max_completion_tokens"] if "max_completion_tokens" in asked else asked["max_tokens"]
        head = self._head(is_chat, ".chunk")
        for number in range(limit):
            await asyncio.sleep(self.gap_s)
            said: Any = {"delta": {"content": f"t{number}"}} if is_chat else {"text": f"t{number}"}
            choice = {"index": 0, "finish_reason": "length" if number == limit - 1 else None, **said}
            await response.write(b"data: " + json.dumps({**head, "choices": [choice]}).encode() + b"\n\n")
        if self.characters_per_token and "stream_options" in asked:
            prompt = asked["messages"][0]["content"] if is_chat else asked["prompt"]
            counted = round(len(prompt) / self.characters_per_token)
            usage = {"prompt_tokens": counted, "completion_tokens": limit, "total_tokens": counted + limit}
            last = {**head, "choices": [], "usage": usage}
            await response.write(b"data: " + json.dumps(last).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    def _may(self, request: Any) -> bool:
        return not self.key or request.headers.get("authorization") == f"Bearer {self.key}"


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files in PEM form: an authority of our own, and what it signed for this machine, with its key."""

    authority: Path
    chain: Path
    key: Path


def made_certificate(folder: Path) -> Certificate:
    """By openssl, for `localhost` and 127.0.0.1."""
    made = Certificate(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-x509"]
    authority = [
        "-subj",
        "/CN=authority of tests",
        "-keyout",
        f"{made.authority}.key",
        "-out",
        made.authority,
    ]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"]
    signed = ["-CA", made.authority, "-CAkey", f"{made.authority}.key", "-subj", "/CN=server of tests"]
    for words in ([*new, *authority], [*new, *signed, *names, "-keyout", made.key, "-out", made.chain]):
        subprocess.run(words, check=True, capture_output=True)
    return made


def server_tls(certificate: Certificate) -> ssl.SSLContext:
    """What a server shows it by."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.chain, certificate.key)
    return context


@contextmanager
def served(service: Service, certificate: ssl.SSLContext | None = None) -> Iterator[Service]:
    """The service on a free port of loopback, its `url` without a path."""
    from aiohttp import web

    loop, started, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def run() -> None:
        app = web.Application()
        app.router.add_get(f"{service.prefix}/v1/models", service.list_models)
        for api in service.apis:
            app.router.add_post(f"{service.prefix}/v1/{api}", service.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificate)
        await site.start()
        port = runner.addresses[0][1]
        service.url = f"{'https' if certificate else 'http'}://127.0.0.1:{port}"
        started.set()
        await ended.wait()
        for _ in range(5):  # who has just come is let in: a server that closes then would lose the socket
            await asyncio.sleep(0)
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    try:
        assert started.wait(10)
        yield service
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)
        loop.close()
