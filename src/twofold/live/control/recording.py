"""Tells the registry how trials ended, by a program of its own, each until it says that it took it; asks it
by another what an alias means, where somebody was killed who moved that.

What is to be told stands in the store, written with what the gate decided: a controller that is killed in
between tells it again, and the registry takes the same twice for once.
"""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from twofold.live.control import moving
from twofold.live.control.gate_orders import TO_RECORD, short
from twofold.live.control.service import ServiceSettings
from twofold.live.control.store import Store
from twofold.live.processes import python_module

RECORDER = "twofold.live.registry.decided"
TELLER = "twofold.live.registry.meant"
LOOK_S = 0.5  # between looks for what is to be told
AGAIN_S = 30.0  # after which a registry that could not take it is told again
LIMIT_S = 60.0  # of a program: while it is asked what an alias means, nobody else moves anything
REFUSED = 2  # what it ends with where telling it again would change nothing


async def record_trials(store: Store, told: Callable[[], ServiceSettings | None]) -> None:
    """For ever: how trials ended, told to the registry that the settings of now name."""
    while True:
        await asyncio.sleep(LOOK_S)
        with suppress(sqlite3.Error, OSError):
            settings = told()
            if settings is None or await record_next(store, settings):
                continue
            if store.kept(TO_RECORD):
                await asyncio.sleep(AGAIN_S)


async def record_next(store: Store, settings: ServiceSettings) -> bool:
    """Tell the registry of the oldest trial that it has not heard of. Whether there may be more to do now."""
    kept = json.loads(store.kept(TO_RECORD) or "[]")
    if not kept or not settings.registry:
        return False
    command = python_module(RECORDER, settings.registry, settings.registered, *kept[0])
    code, _, words = await _asked(command)
    if code:
        store.note("controller", f"the registry did not take how {short(kept[0][0])} ended: {words}")
    if code not in (0, REFUSED):
        return False
    left = json.loads(store.kept(TO_RECORD) or "[]")
    store.keep(TO_RECORD, json.dumps([each for each in left if each != kept[0]]))
    return True


async def settle_moves(store: Store, state: Path, told: Callable[[], ServiceSettings | None]) -> None:
    """For ever: what somebody left half moved who was killed is moved, or was never begun."""
    while True:
        await asyncio.sleep(LOOK_S)
        with suppress(sqlite3.Error, OSError):
            settings = told()
            if settings is not None and store.kept(moving.MOVING):
                await asyncio.sleep(0.0 if await settle_left(state, settings) else AGAIN_S)


async def settle_left(state: Path, settings: ServiceSettings) -> bool:
    """Ask the registry what the alias means that somebody was about to move, and let the service follow;
    False where the registry did not say."""
    with moving.alone(state, wait=False) as store:
        intent = moving.left_over(store)
        if intent is None:
            return True
        command = python_module(TELLER, settings.registry, settings.registered, intent.alias)
        code, digest, words = await _asked(command)
        if code:
            store.note("controller", f"the registry does not say what `{intent.alias}` means: {words}")
            return False
        moving.settle(store, lambda _: digest)
        return True


async def _asked(command: Sequence[str]) -> tuple[int, str, str]:
    """How a program ended, what it said, and the last line of what it complained of."""
    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            said, complained = await program.communicate()
    except TimeoutError:
        said, complained = b"", f"it took more than {LIMIT_S:.0f} s".encode()
    finally:
        if program.returncode is None:
            program.kill()
            await program.communicate()
    lines = complained.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
    return program.returncode or 0, said.decode("utf-8", "replace"), lines[-1]
