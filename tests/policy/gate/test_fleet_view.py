import pytest

from twofold.policy.gate.breaker import Circuit
from twofold.policy.gate.events import ReplicaAdded, RequestArrived
from twofold.policy.gate.fleet_view import FleetView, Replica, Request
from twofold.policy.gate.settings import Beliefs, GateSettings


@pytest.fixture
def view() -> FleetView:
    view = FleetView(GateSettings(), Beliefs(input_token_s=0.001, output_token_s=0.01))
    view.add_replica(ReplicaAdded("a", 2))
    return view


def test_work_is_what_is_unread_and_what_may_be_written(view: FleetView) -> None:
    replica, request = (
        view.replicas["a"],
        Request(1, RequestArrived(input_tokens=100, output_limit_tokens=20)),
    )
    view.place(request, replica, 0.0)
    assert replica.work_s(view.beliefs) == pytest.approx(0.1 + 0.2)
    view.start(request)
    assert replica.work_s(view.beliefs) == pytest.approx(0.2)
    view.release(request)
    assert replica.work_s(view.beliefs) == 0 and replica.in_flight_count == 0 and not view.requests


def test_a_request_released_before_its_first_byte_leaves_nothing(view: FleetView) -> None:
    request = Request(1, RequestArrived(100, 20))
    view.place(request, view.replicas["a"], 0.0)
    view.release(request)
    assert view.replicas["a"] == Replica(ReplicaAdded("a", 2))


def test_a_million_requests_leave_exactly_no_work(view: FleetView) -> None:
    replica = view.replicas["a"]
    for number in range(1, 1001):
        request = Request(number, RequestArrived(number * 7 % 1000, number * 3 % 100))
        view.place(request, replica, 0.0)
        view.release(request)
    assert replica.work_s(view.beliefs) == 0.0


def test_a_removed_replica_stays_until_its_last_request_is_over(view: FleetView) -> None:
    replica, request = view.replicas["a"], Request(1, RequestArrived(1, 1))
    view.place(request, replica, 0.0)
    view.remove_replica(replica)
    assert not replica.healthy and view.replicas == {"a": replica}
    view.release(request)
    assert view.replicas == {}


def test_an_idle_replica_is_forgotten_when_removed(view: FleetView) -> None:
    view.remove_replica(view.replicas["a"])
    assert view.replicas == {}


def test_a_replica_that_returns_while_it_drains_starts_a_new_era(view: FleetView) -> None:
    replica, request = view.replicas["a"], Request(1, RequestArrived(1, 1))
    view.place(request, replica, 0.0)
    replica.circuit = Circuit(until_s=9.0, era=4, opened_count=4)
    view.remove_replica(replica)
    view.add_replica(ReplicaAdded("a", 5))
    assert replica.healthy and replica.circuit == Circuit(era=5)
    assert (replica.in_flight_count, replica.in_flight_limit) == (1, 5)


def test_adding_twice_changes_the_limit_and_nothing_else(view: FleetView) -> None:
    replica = view.replicas["a"]
    replica.circuit = Circuit(until_s=9.0, era=4, opened_count=4)
    view.add_replica(ReplicaAdded("a", 5))
    assert view.replicas["a"] is replica
    assert replica == Replica(ReplicaAdded("a", 5), circuit=Circuit(until_s=9.0, era=4, opened_count=4))
