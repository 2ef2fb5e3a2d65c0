"""A gateway before engines that take their time, offered less and more than they can do.

An engine that sleeps needs little of the processor, so that what is measured is the gate's doing. Arrivals
are Poisson and wait for nobody: a service that is slow is asked as much. Answers are of several lengths: of
one length they would free their places all at once, for ever. What arrives at the beginning, before the
places are taken, is not counted.

The gate has the limits that a spec gives it: a class may ask for a little less than the engines can do, and
a tenant for half. Without them every place is taken under overload, and whoever comes waits for the next that
is free: within what is promised, but longer than at the knee.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from tests.live.conftest import running_engines
from tests.live.test_gateway import PATH, configured, gateway
from twofold.policy.gate import settings as gates

REPLICAS, PLACES = 2, 16  # of each
TOKENS_LEAST, TOKENS, TOKENS_MOST, GAP_S = 1, 5, 9, 0.3  # of an answer, and of each token
WARM_S = 3.0
ANSWER_S = TOKENS * GAP_S
CAPACITY_PER_S = REPLICAS * PLACES / ANSWER_S
TTFT_S, E2E_S = GAP_S + 0.8, TOKENS_MOST * GAP_S + 0.8  # what is promised: so much of waiting at the most
CLASS_SHARE, TENANT_SHARE = 0.95, 0.5  # of what the engines can do, that each may ask for
ALL = "a"  # the tenant that is the only one, where one is
GATE = gates.GateSettings(
    classes=(gates.ClassSettings("default", ttft_slo_s=TTFT_S, e2e_slo_s=E2E_S, wait_s_max=E2E_S),),
    limits=gates.LimitSettings(
        tenant=gates.Rate(TENANT_SHARE * CAPACITY_PER_S, burst_s=1.0),
        tenants=((ALL, gates.Rate()),),
        classes=(("default", gates.Rate(CLASS_SHARE * CAPACITY_PER_S, burst_s=1.0)),),
    ),
    admission=gates.AdmissionSettings(),
    queue=gates.QueueSettings(),
)
ACCEPTED_MOST, BESIDE_MOST, GOODPUT_LEAST = 0.05, 0.1, 0.9  # goals: changes of a p95, and a share
BELIEFS = gates.Beliefs(1e-6, GAP_S, GAP_S)


@dataclass(frozen=True, slots=True)
class Answered:
    """One request."""

    tenant: str
    since_s: float  # the load began
    status: int
    ttft_s: float  # infinite: there was no token
    e2e_s: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What one load came to, of one tenant or of all."""

    offered_per_s: float
    accepted_count: int
    refused_count: int
    goodput_per_s: float  # answers within what is promised
    ttft_s_p95: float
    e2e_s_p95: float


@dataclass(frozen=True, slots=True)
class Overload:
    """What all loads came to: by their ratio to what the engines can do, and a quiet tenant's."""

    by_ratio: Mapping[float, Figures]  # with 1.0, the knee
    alone: Figures
    beside: Figures  # the same tenant's requests, beside the noisy one
    noisy: Figures

    def verdicts(self) -> list[str]:
        """Each goal with what it came to, and whether it held."""
        knee, over = self.by_ratio[1.0], self.by_ratio[max(self.by_ratio)]
        lines = []
        for name, before, after, most in (
            (f"{max(self.by_ratio):g} times the load, of the accepted", knee, over, ACCEPTED_MOST),
            ("a quiet tenant beside a noisy one", self.alone, self.beside, BESIDE_MOST),
        ):
            for figure in ("ttft_s_p95", "e2e_s_p95"):
                change = getattr(after, figure) / getattr(before, figure) - 1
                said = f"{name}: {figure[:-6].upper()} p95 {change:+.1%}, the goal: below {most:+.0%}"
                lines.append(f"{said}: {'held' if change < most else 'missed'}")
        share = over.goodput_per_s / knee.goodput_per_s
        said = f"goodput {share:.0%} of the knee's, the goal: at least {GOODPUT_LEAST:.0%}"
        return [*lines, f"{said}: {'held' if share >= GOODPUT_LEAST else 'missed'}"]


async def offered(
    url: str, client: Any, rates: Mapping[str, float], duration_s: float, seed: int
) -> list[Answered]:
    """What becomes of so many requests per second of each tenant."""
    arrivals = list[tuple[float, str, int]]()
    for tenant, per_s in rates.items():
        chance, at_s = Random(f"{seed} {tenant}"), 0.0  # the same whoever asks beside it
        while (at_s := at_s + chance.expovariate(per_s)) < WARM_S + duration_s:
            arrivals.append((at_s, tenant, chance.randint(TOKENS_LEAST, TOKENS_MOST)))
    began_s, tasks = time.monotonic(), []
    for at_s, tenant, tokens in sorted(arrivals):
        await asyncio.sleep(max(0.0, began_s + at_s - time.monotonic()))
        tasks.append(asyncio.create_task(_one(url, client, tenant, tokens, (began_s, at_s))))
    return [each for each in await asyncio.gather(*tasks) if each.since_s >= WARM_S]


async def _one(url: str, client: Any, tenant: str, tokens: int, due: tuple[float, float]) -> Answered:
    body = {"prompt": "once upon", "max_tokens": tokens, "stream": True}
    ttft_s, due_s = float("inf"), sum(due)
    async with client.post(url + PATH, json=body, headers={"x-tenant": tenant}) as answer:
        async for _ in answer.content.iter_any():
            ttft_s = min(ttft_s, time.monotonic() - due_s)
    return Answered(tenant, due[1], answer.status, ttft_s, time.monotonic() - due_s)


def figures_of(answered: Sequence[Answered], duration_s: float, tenant: str = "") -> Figures:
    """Of one tenant; "": of all."""
    own = [each for each in answered if tenant in ("", each.tenant)]
    accepted = [each for each in own if each.status == 200]
    good = sum(each.ttft_s <= TTFT_S and each.e2e_s <= E2E_S for each in accepted)
    return Figures(
        len(own) / duration_s,
        len(accepted),
        len(own) - len(accepted),
        good / duration_s,
        p95(each.ttft_s for each in accepted),
        p95(each.e2e_s for each in accepted),
    )


def p95(values: Any) -> float:
    """The smallest value that 95 % are no larger than."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))] if ordered else float("inf")


@asynccontextmanager
async def paced_service(folder: Path) -> AsyncIterator[tuple[str, Any]]:
    """The gateway before its paced engines, and a client."""
    async with running_engines(REPLICAS) as engines:
        for engine in engines:
            engine.tokens, engine.gap_s = TOKENS_MOST, GAP_S
        config = configured(folder, engines, limit=PLACES, gate=GATE)
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            gateway(replace(config, beliefs=BELIEFS)) as served,
            aiohttp.ClientSession(connector=connector) as client,
        ):
            yield served.url, client


async def overloaded(folder: Path, duration_s: float, ratios: Sequence[float]) -> dict[float, Figures]:
    """Of each load, as a ratio of what the engines can do."""
    found = {}
    async with paced_service(folder) as (url, client):
        for number, ratio in enumerate(ratios):
            answered = await offered(url, client, {ALL: ratio * CAPACITY_PER_S}, duration_s, number)
            found[ratio] = figures_of(answered, duration_s)
    return found


async def beside_a_noisy_one(folder: Path, duration_s: float) -> tuple[Figures, Figures, Figures]:
    """A tenant with a fifth of the load alone, beside one who asks for three times all, and that one."""
    quiet = 0.2 * CAPACITY_PER_S
    async with paced_service(folder) as (url, client):
        alone = await offered(url, client, {"quiet": quiet}, duration_s, 7)
        both = await offered(url, client, {"quiet": quiet, "noisy": 3 * CAPACITY_PER_S}, duration_s, 7)
    return (
        figures_of(alone, duration_s),
        figures_of(both, duration_s, "quiet"),
        figures_of(both, duration_s, "noisy"),
    )
