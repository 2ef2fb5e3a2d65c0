"""Do the gateway's two logs account for every request, and say what its clients say?"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.soak.clients import BROKEN, COMPLETED, POISON, TOLD, TOO_LONG, Asked, Books
from twofold.live.gateway.replays import GateRun, entry_from_line, read_gate_log
from twofold.policy.gate.events import RequestArrived
from twofold.policy.gate.gate import Gate

UNFLUSHED_S = 1.0  # before a kill of the gateway, in which lines of requests wait to be written
SAID = {COMPLETED: {"finished"}, TOLD: {"refused", "failed"}, TOO_LONG: {"refused"}, POISON: {"refused"}}


@dataclass(frozen=True, slots=True)
class GateAccount:
    """What one gateway's life comes to by the log of its gate."""

    arrived: int
    finished: int
    refused: int
    gave_up: int
    left: int
    open: int  # when it ended


def differences(state: Path, books: Books, killed_s: Iterable[float]) -> Iterator[str]:
    """Where logs and clients differ, in words. `killed_s`: when a gateway may have died."""
    accounts = [account_of(run) for run in read_gate_log(state / "gateway" / "events.jsonl").runs]
    yield from _by_id(state / "gateway" / "requests.jsonl", books.asked, tuple(killed_s))
    broken = books.count(BROKEN)
    total = {name: sum(getattr(each, name) for each in accounts) for name in GateAccount.__slots__}
    if total["arrived"] != sum(total[name] for name in GateAccount.__slots__[1:]):
        yield f"the gate's log loses requests: {total}"
    ended_unlogged = total["open"]  # its last byte may leave in the turn in which the kill comes
    pairs = {
        "completed": (books.count(COMPLETED), total["finished"], broken),
        "arrived": (
            sum(each.outcome in (COMPLETED, TOLD, POISON) for each in books.asked),
            total["arrived"],
            broken,
        ),
    }
    for name, (clients, log, unsure) in pairs.items():
        if not clients - ended_unlogged <= log <= clients + unsure:
            yield f"{name}: clients count {clients} ({unsure} connections broke), the gate's log {log}"


def account_of(run: GateRun) -> GateAccount:
    """By replaying it: a gate that answers otherwise than its log says raises ValueError."""
    gate, arrived = Gate(run.settings, run.beliefs), 0
    for line in run.entries:
        entry = entry_from_line(line)
        arrived += isinstance(entry.event, RequestArrived)
        if tuple(gate.handle(entry.event, entry.now_s)) != entry.effects:
            raise ValueError(f"its log does not replay: {line[:200]}")
    counts, view = gate.view.counts, gate.view
    told = counts.finished, counts.refused, counts.gave_up, counts.left
    return GateAccount(arrived, *told, len(view.requests) + len(view.held))


def _by_id(path: Path, asked: Iterable[Asked], killed_s: tuple[float, ...]) -> Iterator[str]:
    """Each request that was told something has one line that says the same, but for those a kill took."""
    files = [file for file in (path, *path.parent.glob(f"{path.name}.*")) if file.exists()]
    lines = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    told = {line["request_id"]: line for line in lines if "request_id" in line}
    twice = [name for name, count in Counter(line.get("request_id") for line in lines).items() if count > 1]
    if twice:
        yield f"{len(twice)} requests have more than one line, {twice[0]} for one"
    known = set()
    for each in asked:
        known.add(each.request_id)
        line = told.get(each.request_id)
        if each.outcome not in SAID:
            continue
        if line is None:
            if not any(each.began_s <= at_s <= each.ended_s + UNFLUSHED_S for at_s in killed_s):
                yield f"{each.request_id} ({each.outcome}) has no line"
        elif line["outcome"] not in SAID[each.outcome]:
            yield f"{each.request_id}: the client says {each.outcome}, the log {line['outcome']}"
    if strangers := told.keys() - known:
        yield f"{len(strangers)} lines are of nobody's request"
