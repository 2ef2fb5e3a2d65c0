"""A gate before engines that take their time, on a clock of its own: what overload and a noisy tenant do.

The same loads are run over HTTP by tests/live/test_overload.py, where a busy machine adds its own.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random

import pytest

from twofold.policy.gate import events
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import (
    AdmissionSettings,
    Beliefs,
    ClassSettings,
    GateSettings,
    LimitSettings,
    QueueSettings,
    Rate,
)
from twofold.policy.machine import Woke

REPLICAS, PLACES, GAP_S, TOKENS_MOST = 2, 16, 0.3, 9
CAPACITY_PER_S = REPLICAS * PLACES / (GAP_S * (1 + TOKENS_MOST) / 2)
TTFT_S, E2E_S = GAP_S + 0.8, TOKENS_MOST * GAP_S + 0.8
SETTINGS = GateSettings(
    classes=(ClassSettings("default", ttft_slo_s=TTFT_S, e2e_slo_s=E2E_S, wait_s_max=E2E_S),),
    admission=AdmissionSettings(),
    queue=QueueSettings(),
)
LIMITED = replace(  # with what a spec says of a class and of a tenant: less than everything
    SETTINGS,
    limits=LimitSettings(
        tenant=Rate(0.5 * CAPACITY_PER_S, burst_s=1.0),
        tenants=(("a", Rate()),),
        classes=(("default", Rate(0.95 * CAPACITY_PER_S, burst_s=1.0)),),
    ),
)
LASTS_S, WARM_S = 150.0, 10.0


class World:
    """The engines and the clients. Mutable."""

    def __init__(self, rates: Mapping[str, float], seed: int, settings: GateSettings = SETTINGS) -> None:
        self.gate = Gate(settings, Beliefs(1e-6, GAP_S, GAP_S))
        self.due: list[tuple[float, int, events.Event]] = []
        self.asked: dict[int, tuple[str, float, int]] = {}  # by id: tenant, when, tokens
        self.took: dict[str, list[tuple[float, float]]] = {tenant: [] for tenant in rates}
        self.refused = dict.fromkeys(rates, 0)
        self._number = 0
        for number in range(REPLICAS):
            self.gate.handle(events.ReplicaAdded(f"r{number}", PLACES), 0.0)
        for tenant, per_s in rates.items():
            chance, at_s = Random(f"{seed} {tenant}"), 0.0
            while (at_s := at_s + chance.expovariate(per_s)) < LASTS_S:
                self.put(at_s, events.RequestArrived(3, chance.randint(1, TOKENS_MOST), tenant))

    def put(self, at_s: float, event: events.Event) -> None:
        self._number += 1
        heapq.heappush(self.due, (at_s, self._number, event))

    def run(self) -> None:
        while self.due:
            at_s, _, event = heapq.heappop(self.due)
            wake_s = self.gate.wake_at_s()
            if wake_s is not None and wake_s < at_s:
                self.put(at_s, event)
                self.follow(Woke(), wake_s)
            else:
                self.follow(event, at_s)

    def follow(self, event: events.Event | Woke, at_s: float) -> None:
        effects = self.gate.handle(event, at_s)
        if isinstance(event, events.RequestArrived):
            self.asked[self.gate.view.counts.arrived] = event.tenant, at_s, event.output_limit_tokens
        for effect in effects:
            match effect:
                case events.Send():
                    tenant, asked_s, tokens = self.asked[effect.request_id]
                    if asked_s > WARM_S:
                        self.took[tenant].append((at_s + GAP_S - asked_s, at_s + tokens * GAP_S - asked_s))
                    self.put(at_s + GAP_S, events.ResponseStarted(effect.request_id))
                    self.put(at_s + tokens * GAP_S, events.ResponseEnded(effect.request_id, tokens))
                case events.Refuse():
                    tenant, asked_s, _ = self.asked[effect.request_id]
                    self.refused[tenant] += asked_s > WARM_S
                case events.Probe():
                    self.put(at_s + 1e-3, events.ProbeAnswered(effect.replica_id, effect.number))
                case _:
                    pass

    def p95s(self, tenant: str) -> tuple[float, float]:
        """Of its times to the first token, and to the last."""
        firsts, lasts = zip(*self.took[tenant], strict=True)
        return p95(firsts), p95(lasts)

    def goodput_per_s(self) -> float:
        good = [ttft_s <= TTFT_S and e2e_s <= E2E_S for each in self.took.values() for ttft_s, e2e_s in each]
        return sum(good) / (LASTS_S - WARM_S)


def ran(rates: Mapping[str, float], seed: int, settings: GateSettings = SETTINGS) -> World:
    world = World(rates, seed, settings)
    world.run()
    return world


def p95(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[int(0.95 * len(ordered))]


@pytest.mark.parametrize("seed", range(3))
def test_under_three_times_the_load_the_accepted_are_in_time_and_goodput_stays(seed: int) -> None:
    knee = max(ran({"a": ratio * CAPACITY_PER_S}, seed).goodput_per_s() for ratio in (0.9, 1.0, 1.1))
    world = ran({"a": 3 * CAPACITY_PER_S}, seed)
    assert world.goodput_per_s() >= 0.9 * knee
    ttft_s, e2e_s = world.p95s("a")
    assert ttft_s <= TTFT_S and e2e_s <= E2E_S


@pytest.mark.parametrize("seed", range(3))
def test_a_noisy_tenant_hardly_moves_anothers_p95(seed: int) -> None:
    quiet = 0.2 * CAPACITY_PER_S
    alone = ran({"quiet": quiet}, seed)
    both = ran({"quiet": quiet, "noisy": 3 * CAPACITY_PER_S}, seed)
    (ttft_s, e2e_s), (alone_ttft_s, alone_e2e_s) = both.p95s("quiet"), alone.p95s("quiet")
    assert e2e_s < 1.1 * alone_e2e_s  # 2 to 3 % at 32 places, 0.3 % at 256
    # Nobody waits when it is alone. Beside the other it waits for a place at times: never beyond its goal.
    assert alone_ttft_s == pytest.approx(GAP_S) and ttft_s < TTFT_S
    assert both.refused["quiet"] < 0.03 * len(both.took["quiet"]) and both.refused["noisy"] > 1000


@pytest.mark.parametrize("seed", range(3))
def test_with_limits_the_accepted_keep_their_p95_whatever_is_asked(seed: int) -> None:
    """A little is left free: what comes finds a place sooner than at the knee, where nothing is refused."""
    knee, world = (ran({"a": ratio * CAPACITY_PER_S}, seed, LIMITED) for ratio in (1.0, 3.0))
    assert world.goodput_per_s() >= 0.9 * ran({"a": CAPACITY_PER_S}, seed).goodput_per_s()
    for over_s, knee_s in zip(world.p95s("a"), knee.p95s("a"), strict=True):
        assert over_s <= 1.02 * knee_s


@pytest.mark.parametrize("seed", range(3))
def test_with_limits_a_noisy_tenant_moves_neither_p95_of_another(seed: int) -> None:
    quiet = 0.2 * CAPACITY_PER_S
    alone = ran({"quiet": quiet}, seed, LIMITED)
    both = ran({"quiet": quiet, "noisy": 3 * CAPACITY_PER_S}, seed, LIMITED)
    assert not both.refused["quiet"] and both.refused["noisy"] > 1000
    for beside_s, alone_s in zip(both.p95s("quiet"), alone.p95s("quiet"), strict=True):
        assert beside_s < 1.1 * alone_s
