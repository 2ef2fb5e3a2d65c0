from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate.admission import (
    Ladder,
    expires_s,
    is_shed,
    room_or_refusal,
    shortened_tokens,
    smaller_model,
)
from twofold.policy.gate.breaker import Circuit
from twofold.policy.gate.events import (
    Hold,
    RefusalReason,
    Refuse,
    ReplicaAdded,
    RequestArrived,
    ResponseEnded,
    ResponseStarted,
    Send,
)
from twofold.policy.gate.fleet_view import FleetView, Request
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.pace import Pace
from twofold.policy.gate.settings import (
    AdmissionSettings,
    Beliefs,
    ClassKind,
    ClassSettings,
    DegradationSettings,
    GateSettings,
    QueueSettings,
)
from twofold.policy.machine import Woke

SETTINGS = GateSettings(open_s=2.0, probe_every_s=0.5, retry_after_s_max=60.0)
NEW = Request(9, RequestArrived(10, 10))


@pytest.fixture
def view() -> FleetView:
    return FleetView(SETTINGS, Beliefs(input_token_s=0.01, output_token_s=0.1))


def fill(view: FleetView, name: str, tokens: list[int]) -> None:
    view.add_replica(ReplicaAdded(name, len(tokens)))
    for number, output_tokens in enumerate(tokens):
        view.place(Request(100 + number, RequestArrived(0, output_tokens)), view.replicas[name], 0.0)


def test_room_on_any_healthy_replica_is_enough(view: FleetView) -> None:
    fill(view, "a", [10])
    view.add_replica(ReplicaAdded("b", 1))
    assert room_or_refusal(view, NEW, 0.0) is None


def test_a_full_fleet_asks_to_wait_for_the_shortest_mean_work(view: FleetView) -> None:
    fill(view, "a", [10, 30])
    fill(view, "b", [50])
    refusal = room_or_refusal(view, NEW, 0.0)
    assert refusal is not None and refusal.retry_after_s == pytest.approx(2.0)
    assert (refusal.request_id, refusal.reason, refusal.status) == (9, RefusalReason.FULL, 429)


def test_room_behind_an_open_circuit_is_none(view: FleetView) -> None:
    fill(view, "a", [10])
    view.add_replica(ReplicaAdded("b", 1))
    view.replicas["b"].circuit = Circuit(until_s=5.0)
    refusal = room_or_refusal(view, NEW, 0.0)
    assert refusal is not None and refusal.reason is RefusalReason.FULL


def test_without_a_healthy_replica_the_first_trial_is_awaited(view: FleetView) -> None:
    for name, until_s in (("a", 7.0), ("b", 4.0), ("leaving", 2.0)):
        view.add_replica(ReplicaAdded(name, 1))
        view.replicas[name].circuit = Circuit(until_s=until_s)
    view.replicas["leaving"].draining = True
    refusal = room_or_refusal(view, NEW, 1.0)
    assert refusal is not None and (refusal.reason, refusal.status) == (RefusalReason.NO_REPLICA, 503)
    assert refusal.retry_after_s == pytest.approx(3.0 + SETTINGS.probe_every_s)


def test_without_any_replica_it_is_503(view: FleetView) -> None:
    refusal = room_or_refusal(view, NEW, 1.0)
    assert refusal is not None and (refusal.status, refusal.retry_after_s) == (503, SETTINGS.open_s)


@given(st.floats(0.0, 1e9), st.floats(0.0, 1e9), st.integers(0, 10**15))
def test_the_wait_is_never_negative_nor_longer_than_the_longest(
    until_s: float, now_s: float, tokens: int
) -> None:
    for healthy in (True, False):
        view = FleetView(SETTINGS, Beliefs(0.01, 0.1))
        fill(view, "a", [tokens])
        if not healthy:
            view.replicas["a"].circuit = Circuit(until_s=until_s)
        refusal = room_or_refusal(view, NEW, now_s)
        assert refusal is not None and 0 <= refusal.retry_after_s <= SETTINGS.retry_after_s_max


# --- by what is feasible ---

SLO_S = 2.0
PLACES_PER_S = 16 / 1.1  # of the service: 16 places, each held for about 1.1 s
FEASIBLE = GateSettings(
    classes=(ClassSettings("", ttft_slo_s=SLO_S),), admission=AdmissionSettings(), queue=QueueSettings()
)


def figures(served: list[Any], after_s: float, until_s: float) -> tuple[float, float]:
    """The 95th percentile of times to the first token, and answers in time per second."""
    ttft_s = sorted(each.ttft_s for each in served if after_s <= each.arrived_s < until_s)
    in_time = sum(each <= SLO_S for each in ttft_s)
    return ttft_s[int(0.95 * len(ttft_s))], in_time / (until_s - after_s)


@pytest.mark.parametrize("belief_factor", [1.0, 0.7, 1.3])
def test_at_three_times_the_load_who_is_taken_is_in_time_and_no_place_is_wasted(
    service: Callable[..., Any], poisson: Callable[..., Any], belief_factor: float
) -> None:
    beliefs = Beliefs(0.0001 * belief_factor, 0.01 * belief_factor)
    p95_s, good_per_s = {}, {}
    for load in (0.9, 3.0):
        world = service(Gate(FEASIBLE, beliefs)).run(poisson(load * PLACES_PER_S, 60.0), 62.0)
        p95_s[load], good_per_s[load] = figures(world.served, 15.0, 58.0)
    assert p95_s[3.0] <= SLO_S
    assert good_per_s[3.0] >= 0.9 * good_per_s[0.9]


def test_without_admission_three_times_the_load_serves_all_too_late(
    service: Callable[..., Any], poisson: Callable[..., Any]
) -> None:
    settings = replace(FEASIBLE, admission=None, classes=(ClassSettings(""),))
    world = service(Gate(settings, Beliefs(0.0001, 0.01))).run(poisson(3 * PLACES_PER_S, 60.0), 62.0)
    p95_s, good_per_s = figures(world.served, 20.0, 58.0)
    assert p95_s > 5 * SLO_S and good_per_s < 0.1 * PLACES_PER_S


def test_who_would_miss_a_deadline_of_its_own_is_refused_at_once(
    service: Callable[..., Any], poisson: Callable[..., Any]
) -> None:
    world = service(Gate(FEASIBLE, Beliefs(0.0001, 0.01)))
    world.run(poisson(0.5 * PLACES_PER_S, 30.0), 20.0)
    late = world.gate.handle(RequestArrived(100, 400, deadline_s=20.2), 20.0)
    early = world.gate.handle(RequestArrived(100, 400, deadline_s=40.0), 20.0)
    assert isinstance(late[0], Refuse) and late[0].reason is RefusalReason.SLO and late[0].status == 429
    assert isinstance(early[0], Send)


def test_an_idle_fleet_tries_what_beliefs_call_hopeless() -> None:
    gate = Gate(FEASIBLE, Beliefs(input_token_s=1.0, output_token_s=1.0))
    gate.handle(ReplicaAdded("a", 4), 0.0)
    first, second = (gate.handle(RequestArrived(100, 10), 1.0)[0] for _ in range(2))
    assert isinstance(first, Send) and isinstance(second, Refuse)
    gate.handle(ResponseStarted(1), 1.1)
    assert isinstance(gate.handle(RequestArrived(3, 10), 1.2)[0], Send)


def test_who_waited_for_nothing_makes_those_after_it_doubt_their_turn_more() -> None:
    gate = Gate(FEASIBLE, Beliefs(0.001, 0.01))
    gate.handle(ReplicaAdded("a", 1), 0.0)
    gate.handle(RequestArrived(100, 10), 0.0)
    gate.handle(ResponseStarted(1), 0.1)
    gate.handle(ResponseEnded(1, 10), 0.2)
    pace = gate._path.pace
    assert pace is not None and isinstance(gate.handle(RequestArrived(100, 10), 1.0)[0], Send)
    before_s = pace.late_s("", 1.0)
    assert gate.handle(RequestArrived(100, 10), 1.0) == [Hold(3)]
    [refusal] = [e for e in gate.handle(Woke(), 3.0) if isinstance(e, Refuse)]
    assert refusal.reason is RefusalReason.EXPIRED and pace.late_s("", 1.0) > before_s


def test_a_request_is_held_no_longer_than_it_can_still_be_in_time() -> None:
    view = FleetView(FEASIBLE, Beliefs(0.001, 0.01))
    request = Request(1, RequestArrived(500, 100), 10.0, kind=FEASIBLE.classes[0])
    pace = Pace(0.95, ("",))
    assert expires_s(view, pace, request, 10.0) == pytest.approx(10.0 + SLO_S - 0.5)
    assert expires_s(view, pace, request, 10.4) == pytest.approx(10.0 + SLO_S - 0.5), "tiers took a part"
    request.deadline_s = 11.6
    assert expires_s(view, pace, request, 10.0) == pytest.approx(11.6 - 0.5 - 1.0)
    request.deadline_s = 3.0
    assert expires_s(view, pace, request, 10.0) == 10.0
    assert expires_s(view, None, Request(2, RequestArrived(500, 100)), 10.0) == 40.0


CHAT = ClassSettings("chat", output_fraction_min=0.5, smaller_model="small")
PLAIN = ClassSettings("plain")
BULK = ClassSettings("bulk", ClassKind.BULK)


@pytest.fixture
def ladder() -> Ladder:
    return Ladder(DegradationSettings(raise_after_s=5.0, lower_after_s=30.0))


def press(ladder: Ladder, pressed: bool = True) -> None:
    for _ in range(200):
        ladder.arrived(pressed)


def levels(ladder: Ladder, held: int, in_flight: int, from_s: int, until_s: int) -> list[int]:
    """The level after each second, with requests that press all the while."""
    seen = []
    for now_s in range(from_s, until_s):
        press(ladder, held > 0)
        ladder.tick(held, in_flight, 10, float(now_s))
        seen.append(ladder.level)
    return seen


def test_it_climbs_one_level_for_each_time_of_pressure_and_no_further_than_it_may(ladder: Ladder) -> None:
    seen = levels(ladder, held=5, in_flight=10, from_s=0, until_s=40)
    assert seen[:19] == [0] * 5 + [1] * 6 + [2] * 6 + [3] * 2 and seen[-1] == 3


def test_it_comes_down_one_level_for_each_time_of_calm(ladder: Ladder) -> None:
    levels(ladder, held=5, in_flight=10, from_s=0, until_s=40)
    seen = levels(ladder, held=0, in_flight=3, from_s=40, until_s=140)
    assert [seen.count(level) for level in (3, 2, 1)] == [30, 31, 31] and seen[-1] == 0


def test_a_fleet_that_is_just_full_neither_climbs_nor_comes_down(ladder: Ladder) -> None:
    levels(ladder, held=5, in_flight=10, from_s=0, until_s=7)
    assert set(levels(ladder, held=0, in_flight=9, from_s=7, until_s=300)) == {1}


def test_pressure_that_flickers_changes_nothing(ladder: Ladder) -> None:
    for now_s in range(0, 200, 4):
        press(ladder)
        assert not ladder.tick(5, 10, 10, float(now_s))
        press(ladder, pressed=False)
        assert not ladder.tick(0, 10, 10, now_s + 2.0)


def test_a_leap_of_the_clock_is_one_step_at_most(ladder: Ladder) -> None:
    press(ladder)
    assert not ladder.tick(5, 10, 10, 0.0)
    assert ladder.tick(5, 10, 10, 1e9) and ladder.level == 1
    press(ladder)
    assert not ladder.tick(5, 10, 10, 1e9)


def test_after_a_step_only_what_came_since_is_pressure(ladder: Ladder) -> None:
    assert levels(ladder, held=5, in_flight=10, from_s=0, until_s=6)[-1] == 1
    assert not any(ladder.tick(5, 10, 10, float(now_s)) for now_s in range(6, 100))
    assert levels(ladder, held=5, in_flight=10, from_s=100, until_s=107)[-1] == 2


def test_what_a_level_does_each_class_must_permit() -> None:
    assert [is_shed(level, BULK) for level in range(4)] == [False, True, True, True]
    assert not any(is_shed(level, CHAT) for level in range(4))
    assert [shortened_tokens(level, CHAT, 101) for level in range(4)] == [101, 101, 50, 50]
    assert shortened_tokens(3, CHAT, 1) == 1 and shortened_tokens(3, CHAT, 0) == 0
    assert [shortened_tokens(level, PLAIN, 101) for level in range(4)] == [101] * 4
    assert [smaller_model(level, CHAT) for level in range(4)] == ["", "", "", "small"]
    assert smaller_model(3, PLAIN) == ""
