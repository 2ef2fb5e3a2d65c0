"""What is done to a service under load, one function per fault, and what each must find besides."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random

from tests.live.test_controller import Served
from tests.soak.clients import CHAT, COMPLETED, PATH, POISON, TOLD, TOO_LONG, Client
from twofold.live.processes import running

KILL, STOP = signal.SIGKILL, signal.SIGSTOP
ENGINES = ("replica-0", "replica-1")
ROLES = (*ENGINES, "gateway", "controller", "watchdog")
BOUNDED_PROMPTS = 12
TEMPLATE_TOKENS = 16  # that the gateway may count beyond a text's own


@dataclass
class Struck:
    """What was hit, and what did not hold. Mutable while the fault goes on."""

    before: dict[str, int]  # processes by role that another must take the place of
    wrong: list[str]


Fault = Callable[[Served, Client, Random], Awaitable[Struck]]


def hit(served: Served, roles: Mapping[str, signal.Signals]) -> Struck:
    """Signals to these roles, at once."""
    return Struck({role: served.hit(role, number) for role, number in roles.items()}, [])


def one(roles: tuple[str, ...], number: signal.Signals) -> Fault:
    """Hit one of these."""

    async def fault(served: Served, _client: Client, chance: Random) -> Struck:
        return hit(served, {chance.choice(roles): number})

    return fault


async def two(served: Served, _client: Client, chance: Random) -> Struck:
    """Hit any two, each in either way. Who keeps the others alive is at most one of them."""
    roles = chance.sample(ROLES, 2)
    while set(roles) == {"controller", "watchdog"}:  # each starts the other again: nobody else does
        roles = chance.sample(ROLES, 2)
    return hit(served, {role: chance.choice((KILL, STOP)) for role in roles})


async def bounds(served: Served, client: Client, chance: Random) -> Struck:
    """Prompts a little below and above what context and cache hold, and far above: none kills an engine."""
    config = served.settings
    cache = config.engine.kv_capacity_tokens - 32
    limit = min(cache, config.context_tokens or cache)
    before = {child.role: child.process_id for child in running(served.state, "replica")}
    wrong: list[str] = []

    async def ask() -> None:
        tokens, path = chance.randint(1, 8), chance.choice((PATH, CHAT))
        over = chance.choice((chance.randint(-40, 40), limit * chance.randint(1, 40)))
        prompt = "x" * (limit - tokens + over)
        said = {"prompt": prompt} if path == PATH else {"messages": [{"role": "user", "content": prompt}]}
        body = {**said, "max_tokens": tokens, "stream": chance.random() < 0.5}
        asked = await client.once(body, path)
        may = (
            {COMPLETED, TOLD}
            if over <= -TEMPLATE_TOKENS
            else {TOO_LONG}
            if over > 0
            else {COMPLETED, TOO_LONG}
        )
        if asked.outcome not in may:
            wrong.append(f"{over:+d} tokens beyond {limit}: {asked.outcome} {asked.status} {asked.code}")

    await asyncio.gather(*(ask() for _ in range(BOUNDED_PROMPTS)))
    after = {child.role: child.process_id for child in running(served.state, "replica")}
    if before != after:
        wrong.append("an engine died of a prompt around its bounds")
    return Struck({}, wrong)


async def poison(served: Served, client: Client, chance: Random) -> Struck:
    """A prompt that each engine dies of: one at a time, and after two it is refused as such."""
    body = {"prompt": f"POISON {chance.getrandbits(64):016x}", "max_tokens": 4, "stream": True}
    wrong, dead = list[str](), dict[str, int]()
    for wanted in (TOLD, TOLD, POISON):
        before = {child.role: child.process_id for child in running(served.state, "replica")}
        asked = await client.once(body)
        if asked.outcome != wanted:
            wrong.append(f"the poisonous prompt: {asked.outcome} {asked.status} {asked.code}, not {wanted}")
        there = {child.role: child.process_id for child in running(served.state, "replica")}
        dead = {role: number for role, number in before.items() if there.get(role) != number}
        if len(dead) > 1:
            wrong.append("one poisonous request took both engines")
        while wanted is TOLD and not await asyncio.to_thread(_are_back, served, dead):
            await asyncio.sleep(0.1)
    return Struck(dead, wrong)


def _are_back(served: Served, dead: dict[str, int]) -> bool:
    return all(served.back(*each) for each in dead.items()) and served.healthy() == len(ENGINES)


FAULTS: Mapping[str, Fault] = {
    "engine killed": one(ENGINES, KILL),
    "engine stopped": one(ENGINES, STOP),
    "gateway killed": one(("gateway",), KILL),
    "gateway stopped": one(("gateway",), STOP),
    "controller killed": one(("controller",), KILL),
    "controller stopped": one(("controller",), STOP),
    "two at once": two,
    "prompts around the bounds": bounds,
    "a prompt that engines die of": poison,
}
