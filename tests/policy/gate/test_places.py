from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate.events import ReplicaAdded
from twofold.policy.gate.fleet_view import FleetView
from twofold.policy.gate.places import LEAST_FRACTION, learn
from twofold.policy.gate.settings import Beliefs, GateSettings

SLO_S = 0.1


def one_replica(limit: int = 40) -> FleetView:
    view = FleetView(GateSettings(), Beliefs(1e-4, 0.05))
    view.add_replica(ReplicaAdded("a", limit))
    view.count_places()
    return view


@given(st.lists(st.floats(0.01, 0.5), max_size=300), st.integers(1, 100))
def test_places_stay_between_a_part_and_all_of_those_announced(times_s: list[float], limit: int) -> None:
    view = one_replica(limit)
    replica = view.replicas["a"]
    for tpot_s in times_s:
        learn(view, replica, tpot_s, SLO_S, 0.95)
        assert max(1, round(LEAST_FRACTION * limit)) <= replica.in_flight_limit <= limit
        assert view.place_count == replica.in_flight_limit


def test_places_settle_where_as_many_answers_are_in_time_as_was_promised() -> None:
    """A token takes 4 ms for each of those that share the steps: 25 of 40 places keep 100 ms."""
    view = one_replica(40)
    replica = view.replicas["a"]
    late = 0
    for number in range(4000):
        tpot_s = 0.004 * replica.in_flight_limit
        learn(view, replica, tpot_s, SLO_S, 0.95)
        late += number >= 2000 and tpot_s > SLO_S
    assert 23 <= replica.in_flight_limit <= 27
    assert late / 2000 < 0.08


def test_places_come_back_when_answers_are_in_time_again() -> None:
    view = one_replica(40)
    replica = view.replicas["a"]
    for _ in range(20):
        learn(view, replica, 0.2, SLO_S, 0.95)
    assert replica.in_flight_limit < 40
    for _ in range(600):
        learn(view, replica, 0.05, SLO_S, 0.95)
    assert replica.in_flight_limit == view.place_count == 40


def test_a_replica_that_announces_other_places_begins_anew() -> None:
    view = one_replica(40)
    replica = view.replicas["a"]
    for _ in range(20):
        learn(view, replica, 0.2, SLO_S, 0.95)
    lowered = replica.in_flight_limit
    view.add_replica(ReplicaAdded("a", 40))
    assert replica.in_flight_limit == lowered
    view.add_replica(ReplicaAdded("a", 20))
    assert replica.in_flight_limit == 20
