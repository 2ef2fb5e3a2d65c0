"""Has answers of what was released watched, by `twofold registry watch` as a program of its own.

Only where samples are kept and the registry is known. It is run as idle work, one at a time, when a window of
new answers may be there, and no more often than each quarter of an hour; what is missing is said once.
"""

import asyncio
import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from twofold.live import processes
from twofold.live.control.gate_orders import short
from twofold.live.control.service import ServiceSettings
from twofold.live.control.store import Store
from twofold.live.gateway.request_log import samples_log

LOOK_S = 30.0  # between looks whether there is something to watch
WATCH_EVERY_S = 900.0
LIMIT_S = 600.0  # of one run
GREW_BYTES = 20_000  # of samples, some sixty short answers, before they are scored again
ALERT, TOLD = 3, "told of answers"  # what the verb exits with; what was said last, and of which version


async def watch_answers(store: Store, state: Path, settings: Callable[[], ServiceSettings | None]) -> None:
    """For ever."""
    seen = ("", 0)
    while True:
        await asyncio.sleep(LOOK_S)
        with suppress(sqlite3.Error, OSError):
            told = settings()
            now = (store.kept("version"), samples_bytes(state))
            if told is None or not may_watch(told, seen, now):
                continue
            seen = now
            await watch_once(store, state, told, now[0])
            await asyncio.sleep(WATCH_EVERY_S)


def samples_bytes(state: Path) -> int:
    """How much is kept now."""
    log = samples_log(state)
    return log.stat().st_size if log.is_file() else 0


def may_watch(settings: ServiceSettings, seen: tuple[str, int], now: tuple[str, int]) -> bool:
    """Whether samples are kept of a registered model, and a version is new or its samples are more: each a
    version and bytes. A log that is shorter was rotated."""
    if not (settings.registry and settings.registered and settings.samples_fraction and now[0]):
        return False
    return now[1] > 0 and (now[0] != seen[0] or abs(now[1] - seen[1]) >= GREW_BYTES)


async def watch_once(store: Store, state: Path, settings: ServiceSettings, version: str) -> None:
    """Ask once; an alert of a version is noted once, and so is why there is no answer."""
    reference = version.replace("-", ":", 1)
    words = ("registry", "watch", reference, "--on", str(samples_log(state)))
    command = [*processes.python_module("twofold", *words, "--registry", settings.registry), "--json"]
    nice = shutil.which("nice")
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    program = await asyncio.create_subprocess_exec(
        *((nice, "-n", "19") if nice else ()),
        *command,
        stdin=nothing,
        stdout=pipe,
        stderr=pipe,
        start_new_session=True,
        env=os.environ | {processes.ROLE: "drift"},
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            out, error = await program.communicate()
    except TimeoutError:
        out, error = b"", f"it took more than {LIMIT_S:.0f} s".encode()
    finally:
        if program.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)  # with the worker that it has started
            await program.communicate()
    words_said, reason = (_alert(out), "alert") if program.returncode == ALERT else ("", "")
    if program.returncode not in (0, ALERT):
        reason = first = (error.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"])[0]
        words_said = f"answers are not watched: {first}"
    said = json.dumps([version, reason])  # not the figures: they are others with each new answer
    if words_said and store.kept(TOLD) != said:
        store.keep(TOLD, said)
        store.note("gateway", f"release {short(version)}: {words_said}")


def _alert(out: bytes) -> str:
    """What the newest window with an alert came to."""
    windows: list[dict[str, Any]] = [each for each in json.loads(out)["windows"] if each["alert"]]
    rise = windows[-1]["mean_nats"] - windows[-1]["reference_nats"]
    told = f"answers of window {windows[-1]['number']} are worse by {rise:.3f} nats per token than after it"
    return f"ALARM: {told} was released: `registry watch`, `registry rollback`"
