"""The gateway's process: `python -m twofold.live.gateway.gateway CONFIG.json`. One process drives one gate.

SIGTERM: no new connections, what is in flight may finish within the grace, then exit 0. A port that is taken,
a missing extra or a broken configuration is one error on stderr and exit 2.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.core import errors
from twofold.core.errors import TwofoldError
from twofold.live import metrics_text, processes, watched
from twofold.live.chained_file import ChainedFile
from twofold.live.gateway.gate_log import GateLog
from twofold.live.gateway.gateway_config import GatewayConfig, as_asked, read_gateway_config
from twofold.live.gateway.gateway_driver import GateDriver
from twofold.live.gateway.request_log import RequestLog
from twofold.live.gateway.samples import SampleLog
from twofold.live.gateway.spans import spans_from
from twofold.live.line_file import LineFile
from twofold.live.otel_metrics import metrics_from
from twofold.live.seals import key_of
from twofold.policy.gate.gate import Gate

if TYPE_CHECKING:
    import uvicorn

CLIENT_KEEP_ALIVE_S = 75
READ_TRIES = 5
ENDING = (signal.SIGTERM, signal.SIGINT)


def run_gateway(config: GatewayConfig) -> None:
    """Serve until SIGTERM or SIGINT. Raises MissingExtraError and PortError before anything is served."""
    try:
        import aiohttp  # noqa: F401
        import httptools  # noqa: F401
        import uvicorn  # noqa: F401
        import uvloop
    except ImportError as error:
        raise errors.MissingExtraError(
            f"the gateway needs `{error.name}`", hint="install it with `pip install 'twofold[live]'`"
        ) from error
    processes.need_free_port(config.port, config.host)
    if config.admin is not None:
        processes.need_free_port(config.admin.port)
    uvloop.run(serve(config))


async def serve(config: GatewayConfig) -> None:
    """Serve until a signal ends the server."""
    async with gateway_server(config) as (server, driver), admin_server(config, driver):
        settle_memory()
        # uvicorn hands a signal on to who took it before, once it has shut down in peace. That is uvicorn
        # itself: nothing is raised into what still ends, by a second signal neither.
        for number in ENDING:
            signal.signal(number, server.handle_exit)
        await server.serve()


def settle_memory() -> None:
    """Let the garbage collector pass over what is loaded by now, and look at the rest less often.

    HOT: a request makes hundreds of objects and leaves no cycles; walking all modules' objects again and
    again took 4 % of its time: bench/gateway.py
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@asynccontextmanager
async def admin_server(config: GatewayConfig, driver: GateDriver) -> AsyncIterator[None]:
    """The controller's server beside it, where the configuration names one; closed at the end."""
    if config.admin is None:
        yield
        return
    import uvicorn

    from twofold.live.gateway.admin_app import AdminApp

    class Beside(uvicorn.Server):  # type: ignore[misc]  # it is not typed
        """Signals are the first server's. Who waits for what the gate wants done is answered at the end."""

        capture_signals = staticmethod(nullcontext)

        async def shutdown(self, sockets: Any = None) -> None:
            driver.answer_waiters()
            await super().shutdown(sockets)

    told = uvicorn.Config(
        AdminApp(driver, config.admin.key),
        host="127.0.0.1",
        port=config.admin.port,
        loop="uvloop",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    server = Beside(told)
    serving = asyncio.create_task(server.serve())
    try:
        yield
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def gateway_server(config: GatewayConfig) -> "AsyncIterator[tuple[uvicorn.Server, GateDriver]]":
    """One gate, its log and its connections, and the server that is still to be run; closed at the end."""
    import uvicorn

    from twofold.live.gateway.gateway_app import GatewayApp
    from twofold.live.gateway.upstream import Upstream

    config, why = as_asked(config)
    if why:
        processes.say(f"serves without the hosted API: {why}")
    limits, replicas = config.limits, {replica.replica_id: replica for replica in config.replicas}
    try:
        log = GateLog(Path(config.log), limits.log_limit_bytes, limits.log_file_count)
    except OSError as error:
        raise errors.FileError(f"cannot write the log `{config.log}`: {error.strerror}") from error
    gate = Gate(config.gate, config.beliefs)
    driver = GateDriver(gate, log, replicas, limits.probe_timeout_s, config.overflow)
    driver.unasked, driver.gate_digest = why, config.gate_digest
    driver.longest_tokens = min((n for n in (config.context_tokens, config.cache_tokens) if n), default=0)
    upstream = Upstream(limits.connect_timeout_s)
    app = GatewayApp(driver, upstream, config)
    driver.start()
    try:
        with (
            request_log(config, driver),
            samples(config, driver) as app.samples,
            traces(config, driver),
            metrics(config, driver),
        ):
            try:
                yield uvicorn.Server(server_config(app, config)), driver
            finally:
                driver.settle()  # what ended last is still to go into these logs
    finally:
        await upstream.close()
        driver.stop()


@contextmanager
def request_log(config: GatewayConfig, driver: GateDriver) -> Iterator[None]:
    """The log of requests, where the configuration names one; whole at the end."""
    if not config.requests_log:
        yield
        return
    limits, path = config.limits, Path(config.requests_log)
    try:
        key = key_of(Path(config.requests_key), make=True) if config.requests_key else None
        file = ChainedFile(path, limits.log_limit_bytes, limits.log_file_count, key)
    except OSError as error:
        raise errors.FileError(f"cannot write the log `{path}`: {error.strerror}") from error
    log = RequestLog(file, driver.replicas, config.model_name, config.overflow)
    driver.telemetry.sinks.append(log.saw)
    driver.telemetry.logs["requests"] = file
    try:
        yield
    finally:
        driver.telemetry.sinks.remove(log.saw)
        log.stop()


@contextmanager
def samples(config: GatewayConfig, driver: GateDriver) -> Iterator[SampleLog | None]:
    """Where the text of some requests is kept; None: of none."""
    if not config.samples_log or not config.samples_fraction:
        yield None
        return
    limits, path = config.limits, Path(config.samples_log)
    try:
        file = LineFile(path, limits.log_limit_bytes, limits.log_file_count)
    except OSError as error:
        raise errors.FileError(f"cannot write the log `{path}`: {error.strerror}") from error
    log = SampleLog(file, driver.replicas, config.model_name, config.samples_fraction, config.overflow)
    driver.telemetry.sinks.append(log.saw)
    driver.telemetry.logs["samples"] = file
    try:
        yield log
    finally:
        driver.telemetry.sinks.remove(log.saw)
        log.stop()


@contextmanager
def traces(config: GatewayConfig, driver: GateDriver) -> Iterator[None]:
    """Spans, where the environment asks for them; sent at the end."""
    spans = spans_from(os.environ, driver.replicas, config.model_name)
    if spans is None:
        yield
        return
    driver.telemetry.sinks.append(spans.saw)
    try:
        yield
    finally:
        driver.telemetry.sinks.remove(spans.saw)
        spans.stop()


@contextmanager
def metrics(config: GatewayConfig, driver: GateDriver) -> Iterator[None]:
    """Its series by OpenTelemetry, where the environment asks for them; sent at the end."""
    driver.meters.resource = watched.resource_of(watched.SERVING, config.model_name)

    def read() -> list[metrics_text.Family]:
        """In the SDK's thread: what the loop changes meanwhile is read again."""
        for _ in range(READ_TRIES):
            with suppress(RuntimeError):
                return list(driver.families())
        return []

    provider = metrics_from(os.environ, driver.meters.resource, read)
    try:
        yield
    finally:
        if provider is not None:
            provider.shutdown()


def server_config(app: Any, config: GatewayConfig) -> "uvicorn.Config":
    """How uvicorn serves an application of ours."""
    import uvicorn

    from twofold.live.gateway.http_bounds import BoundedHttp, allow_connections

    return uvicorn.Config(
        app,
        host=config.host,
        port=config.port,
        loop="uvloop",
        http=BoundedHttp,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_level="error",  # what is wrong with requests is counted: strangers fill no file
        access_log=False,
        server_header=False,
        ssl_certfile=config.certificate or None,
        ssl_keyfile=config.private_key or None,
        limit_concurrency=allow_connections(config.limits.connection_limit_count),
        timeout_keep_alive=CLIENT_KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(config.limits.grace_s)),
    )


def main() -> None:
    """The command line of the process."""
    for number in ENDING:  # until it serves
        signal.signal(number, lambda _number, _frame: sys.exit(0))
    try:
        if len(sys.argv) != 2:
            raise errors.UsageError("the gateway's process takes the path of its configuration")
        run_gateway(read_gateway_config(Path(sys.argv[1])))
    except TwofoldError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_code) from error


if __name__ == "__main__":
    main()
