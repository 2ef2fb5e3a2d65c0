"""An alias of the registry and the service that follows it move as one by `registry promote` and `rollback`,
whoever is killed in between; an `up` that is killed is gone on with by the next one.

Two files cannot be written at once. So what is about to move stands in the store first; then the alias moves;
then the service is told, and the store forgets in the same breath what was about to move. Whoever finds it
there later, while nobody moves anything, asks what the alias means by now: the registry is right, and what it
says is done or, where the alias never moved, forgotten.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from twofold.core.data import DataError, from_data, to_json
from twofold.core.errors import TwofoldError
from twofold.live import processes
from twofold.live.control import trials
from twofold.live.control.engines import EngineSettings
from twofold.live.control.gate_orders import short
from twofold.live.control.store import Store

MOVING = "moving"
LOCK = "controller/moving.lock"


@dataclass(frozen=True, slots=True)
class Intent:
    """What an alias is about to mean, and what the service does as soon as it does."""

    alias: str
    version: str  # as the store names it
    engine: EngineSettings  # that runs it
    is_tried: bool  # the gate is to try it; else every replica is to run it
    questions: str = ""  # the file that it is judged by on the side
    means: str | None = None  # what the alias is to mean, where that is not the version; "" nothing


@contextmanager
def alone(state: Path, *, wait: bool = True) -> Iterator[Store]:
    """The store, while nobody else moves anything; what ends a process lets go of it.

    Raises BlockingIOError where somebody does, and is not waited for.
    """
    processes.make_private(state / "controller")
    lock = os.open(state / LOCK, os.O_RDONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        store = Store(state)
        try:
            yield store
        finally:
            store.close()
    finally:
        os.close(lock)


@contextmanager
def both(store: Store, intent: Intent, meant: Callable[[str], str]) -> Iterator[None]:
    """The alias moves in the block, inside of `alone`, then the service; what refuses that leaves both.

    A registry that fails may have moved it all the same: it is asked, now or by whoever looks next.
    """
    store.keep(MOVING, to_json(intent))
    try:
        yield
    except TwofoldError:
        with suppress(TwofoldError):
            settle(store, meant)
        raise
    _follow(store, intent)


def left_over(store: Store) -> Intent | None:
    """What somebody was about to move who was killed; read inside of `alone`, else it may be under way.

    One that another build wrote and this one cannot read is forgotten, and said so.
    """
    text = store.kept(MOVING)
    try:
        return from_data(Intent, json.loads(text)) if text else None
    except (DataError, ValueError) as error:
        with store.whole():
            store.note("controller", f"what was about to move cannot be read, and is forgotten: {error}")
            store.keep(MOVING, "")
        return None


def settle(store: Store, meant: Callable[[str], str]) -> None:
    """Do or forget what was left over, if anything was, inside of `alone`; `meant` says the digest of what an
    alias means by now."""
    intent = left_over(store)
    if intent is None:
        return
    wanted = intent.version if intent.means is None else intent.means
    if meant(intent.alias).replace(":", "-") != wanted:  # somebody was killed before it moved
        store.keep(MOVING, "")
        return
    with store.whole():
        means = f"`{intent.alias}` means {short(wanted) or 'nothing'}"
        store.note("controller", f"{means}, of which nobody told the service: it follows now")
        _follow(store, intent)


def _follow(store: Store, intent: Intent) -> None:
    with store.whole():
        if intent.is_tried:
            trials.offer(store, intent.version, intent.engine, intent.questions)
        else:
            trials.bring_back(store, intent.version, intent.engine)
        store.keep(MOVING, "")
