"""A service under load that faults are done to one after the other: what is measured, and what must hold."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random

import psutil

from tests.live.test_controller import Served
from tests.soak.accounts import differences
from tests.soak.clients import COMPLETED, Books, Client, some_request
from tests.soak.faults import FAULTS
from twofold.live.control.supervisor import bring_down, bring_up
from twofold.live.processes import running

CLIENTS = 4
BACK_S = 120.0  # in which a service must be back, on a machine that others use too
AGREE_S = 2.0  # that `/health` and a completion may contradict each other
SAMPLE_S = 0.25
PROBE_S = 5.0  # that a completion beside `/health` may take
LOOK_S = 0.05


@dataclass
class Round:
    """One fault: when the service answered again, and when all was there again. Mutable while it goes on."""

    fault: str
    seed: str
    began_s: float
    answers_s: float | None = None
    capacity_s: float | None = None
    wrong: list[str] = field(default_factory=list)


@dataclass
class Trial:
    """All that one service went through. Mutable while it does."""

    rounds: list[Round] = field(default_factory=list)
    books: Books = field(default_factory=Books)
    disagreed_s: float = 0.0  # the longest that health and completions contradicted each other
    wrong: list[str] = field(default_factory=list)


async def run_trial(served: Served, faults: Sequence[str], seed: str) -> Trial:
    """Each of these faults once under load; the service is up before and down after."""
    told = Trial()
    bring_up(served.settings, served.state)
    try:
        async with load(served, told, seed) as client:
            for name in faults:
                told.rounds.append(await run_round(served, client, told, name, f"{seed}:{name}"))
    finally:
        await asyncio.to_thread(bring_down, served.state)
    told.wrong += orphans(served)
    killed_s = [each.began_s for each in told.rounds if each.fault.startswith(("gateway", "two"))]
    with suppress(FileNotFoundError):
        told.wrong += await asyncio.to_thread(list, differences(served.state, told.books, killed_s))
    told.wrong += [f"{name} was never answered" for name in told.books.unanswered]
    told.wrong += [f"{e.request_id}: {e.status} {e.code}" for e in told.books.asked if e.outcome == "wrong"]
    if told.disagreed_s > AGREE_S:
        told.wrong.append(f"/health and completions contradicted each other for {told.disagreed_s:.1f} s")
    return told


@asynccontextmanager
async def load(served: Served, told: Trial, seed: str) -> AsyncIterator[Client]:
    """Clients that ask all the time, one that compares, and one for faults to ask with."""
    ends, clients = asyncio.Event(), [Client(served.url, told.books, f"c{n}") for n in range(CLIENTS + 2)]

    async def asks(client: Client, chance: Random) -> None:
        while not ends.is_set():
            await client.until_answered(some_request(chance))

    tasks = [asyncio.create_task(asks(each, Random(f"{seed} {n}"))) for n, each in enumerate(clients[2:])]
    tasks.append(asyncio.create_task(compares(clients[0], told, ends)))
    try:
        yield clients[1]
    finally:
        ends.set()
        await asyncio.gather(*tasks)
        for client in clients:
            await client.close()


async def compares(client: Client, told: Trial, ends: asyncio.Event) -> None:
    """Does `/health` say what a completion finds that begins at the same time? None waits for another."""
    samples: list[tuple[float, bool]] = []

    async def sample() -> None:
        began_s = time.monotonic()
        before = await client.is_well(PROBE_S)
        asked = await client.once({"prompt": f"health {began_s}", "max_tokens": 1, "stream": False})
        agrees = (asked.outcome == COMPLETED) in (before, await client.is_well(PROBE_S))
        samples.append((began_s, agrees))

    tasks: list[asyncio.Task[None]] = []
    while not ends.is_set():
        tasks.append(asyncio.create_task(sample()))
        await asyncio.sleep(SAMPLE_S)
    await asyncio.gather(*tasks)
    told.disagreed_s = longest_s(sorted(samples))


def longest_s(samples: Sequence[tuple[float, bool]]) -> float:
    """The longest run of samples that do not agree, from the first one's beginning to the last one's.

    >>> longest_s([(0.0, True), (1.0, False), (2.0, False), (4.0, False), (5.0, True), (6.0, False)])
    3.0
    """
    longest, since_s = 0.0, None
    for began_s, agrees in samples:
        since_s = None if agrees else began_s if since_s is None else since_s
        longest = max(longest, 0.0 if since_s is None else began_s - since_s)
    return longest


async def run_round(served: Served, client: Client, told: Trial, name: str, seed: str) -> Round:
    """One fault, under way while requests are; then until all is back."""
    chance, answered = Random(seed), told.books.count(COMPLETED)
    wanted = answered + chance.randint(3, 20)  # so that it strikes at another moment of theirs each time
    while told.books.count(COMPLETED) < wanted:
        await asyncio.sleep(LOOK_S)
    made = Round(name, seed, time.monotonic())
    struck = await FAULTS[name](served, client, chance)
    made.wrong += struck.wrong
    while time.monotonic() - made.began_s < BACK_S:
        first_s = told.books.first_completed_after(made.began_s)
        made.answers_s = first_s and first_s - made.began_s
        if made.answers_s and await asyncio.to_thread(is_back, served, struck.before):
            made.capacity_s = time.monotonic() - made.began_s
            return made
        await asyncio.sleep(LOOK_S)
    made.wrong.append(f"{name} ({seed}) is not back after {BACK_S:.0f} s: {served.happened()[-5:]}")
    return made


def is_back(served: Served, before: dict[str, int]) -> bool:
    """Whether others took the places of those that were hit, and every replica is sent requests."""
    there = {child.role for child in running(served.state)}
    all_there = there >= {"controller", "watchdog", "gateway"}
    return (
        all_there
        and all(served.back(*each) for each in before.items())
        and served.healthy() == served.settings.replica_count
    )


def orphans(served: Served) -> list[str]:
    """Processes that `down` left, by their marks, and by the paths on their command lines."""
    left = [f"{child.role} {child.process_id}" for child in running(served.state)]
    folder = str(served.state.parent)
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(folder in word for word in process.cmdline()):
                left.append(f"{process.pid} {process.name()}")
    return [f"an orphan after `down`: {each}" for each in left]
