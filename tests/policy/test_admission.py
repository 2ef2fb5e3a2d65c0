import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy import Beliefs, Circuit, FleetView, GateSettings, RefusalReason, Request
from twofold.policy.admission import room_or_refusal

SETTINGS = GateSettings(open_s=2.0, probe_every_s=0.5, retry_after_s_max=60.0)
NEW = Request(9, 10, 10)


@pytest.fixture
def view() -> FleetView:
    return FleetView(SETTINGS, Beliefs(input_token_s=0.01, output_token_s=0.1))


def fill(view: FleetView, name: str, tokens: list[int]) -> None:
    view.add_replica(name, len(tokens))
    for number, output_tokens in enumerate(tokens):
        view.place(Request(100 + number, 0, output_tokens), view.replicas[name])


def test_room_on_any_healthy_replica_is_enough(view: FleetView) -> None:
    fill(view, "a", [10])
    view.add_replica("b", 1)
    assert room_or_refusal(view, NEW, 0.0) is None


def test_a_full_fleet_asks_to_wait_for_the_shortest_mean_work(view: FleetView) -> None:
    fill(view, "a", [10, 30])
    fill(view, "b", [50])
    refusal = room_or_refusal(view, NEW, 0.0)
    assert refusal is not None and refusal.retry_after_s == pytest.approx(2.0)
    assert (refusal.request_id, refusal.reason, refusal.status) == (9, RefusalReason.FULL, 429)


def test_room_behind_an_open_circuit_is_none(view: FleetView) -> None:
    fill(view, "a", [10])
    view.add_replica("b", 1)
    view.replicas["b"].circuit = Circuit(until_s=5.0)
    refusal = room_or_refusal(view, NEW, 0.0)
    assert refusal is not None and refusal.reason is RefusalReason.FULL


def test_without_a_healthy_replica_the_first_trial_is_awaited(view: FleetView) -> None:
    for name, until_s in (("a", 7.0), ("b", 4.0), ("leaving", 2.0)):
        view.add_replica(name, 1)
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
