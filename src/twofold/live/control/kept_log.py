"""The controller keeps in its store which lines the log of requests has, so that one that goes is missed."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

from twofold.core.errors import FileError
from twofold.live.chain_check import Checked
from twofold.live.control.store import FILE, Store
from twofold.live.gateway.request_log import key_beside, requests_log
from twofold.live.kept_heads import KeptHeads
from twofold.live.seals import key_of

KEPT = "heads of the log of requests"
KEEP_EVERY_S = 5.0


async def keep_heads(store: Store, state: Path, note: Callable[[str, str], object]) -> None:
    """Keep which lines there are, for ever, and note once what is wrong."""
    log, said = requests_log(state), ""
    while True:
        try:
            trouble = keep_head(store, log)
        except (sqlite3.Error, OSError):  # it is kept at the next look
            trouble = said
        if trouble and trouble != said:
            note("gateway", trouble)
        said = trouble
        await asyncio.sleep(KEEP_EVERY_S)


def keep_head(store: Store, log: Path) -> str:
    """Keep which lines a log has now; returns what is wrong with it, "" where nothing is."""
    try:
        kept = KeptHeads.of(store.kept(KEPT))
        if not kept.know(log):
            return ""  # nothing was begun, nor the key made
        now, trouble = kept.looked(log, key_of(key_beside(log), make=False))
    except FileError as error:
        return error.message
    except ValueError:
        return "what is kept of the log of requests was changed"
    if now != kept:
        store.keep(KEPT, now.text)
    return trouble


def check_log(log: Path, *, is_copy: bool) -> Checked:
    """Read all of a log, by the key and the store of the state that it lies in.

    Of a copy without its key the chain alone. Raises FileError where there is none, where a service's key is
    gone, and for a store that cannot be read.
    """
    kept = _kept_in(log.absolute().parent.parent)
    if not kept.know(log):
        raise FileError(f"`{log}` is not there", hint="bring the service up, or name its `requests.jsonl`")
    key = key_beside(log)
    return kept.check(log, None if is_copy and not key.exists() else key_of(key, make=False))


def _kept_in(state: Path) -> KeptHeads:
    if not (state / FILE).exists():
        return KeptHeads()
    try:
        store = Store(state)
        try:
            return KeptHeads.of(store.kept(KEPT))
        finally:
            store.close()
    except (sqlite3.Error, OSError, ValueError) as error:
        hint = "have its disk take lines again, or copy the log and its key elsewhere, and verify them there"
        raise FileError(f"`{state / FILE}` cannot be read: {error}", hint=hint) from error
