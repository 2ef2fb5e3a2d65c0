from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate.breaker import Circuit
from twofold.policy.gate.events import ReplicaAdded, RequestArrived
from twofold.policy.gate.fleet_view import Attempt, FleetView, Replica, Request
from twofold.policy.gate.routing import TIERS_MAX, Router
from twofold.policy.gate.settings import Beliefs, GateSettings, PoolRules, Routing, RoutingSettings

BELIEFS = Beliefs(input_token_s=0.001, output_token_s=0.01)
RULES = st.sampled_from(Routing)
REPLICAS = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.tuples(
        st.integers(0, 3),  # in flight, of a limit of 3
        st.integers(0, 3),  # work, few values: ties
        st.sampled_from([None, 0.0, 9.0]),  # circuit
        st.booleans(),  # draining
    ),
)
Rows = dict[str, tuple[int, int, float | None, bool]]


def view_of(replicas: Rows) -> FleetView:
    view = FleetView(GateSettings(), BELIEFS)
    for name, (in_flight, tokens, until_s, draining) in replicas.items():
        view.replicas[name] = Replica(
            ReplicaAdded(name, 3), Circuit(until_s), draining, in_flight, unread_input_tokens=tokens
        )
    return view


def router(rule: Routing = Routing.LEAST_WORK, settings: RoutingSettings | None = None) -> Router:
    return Router(rule, settings or RoutingSettings())


def fleet(count: int, limit: int = 8) -> FleetView:
    view = FleetView(GateSettings(), BELIEFS)
    for number in range(count):
        view.add_replica(ReplicaAdded(f"r{number:02}", limit))
    return view


def send(view: FleetView, routed: Router, request: Request) -> str:
    replica = routed.route(view, request, 0.0)
    assert replica is not None
    view.place(request, replica, 0.0)
    routed.placed(request, replica)
    return replica.replica_id


def failed(replica_id: str) -> Request:
    """A request whose only attempt so far failed there."""
    request = Request(1, RequestArrived(5, 5))
    request.attempt, request.sent_count = Attempt(1, Replica(ReplicaAdded(replica_id, 3))), 1
    return request


@given(REPLICAS)
def test_the_least_work_among_the_healthy_with_room_wins_and_ties_go_to_the_smaller_id(
    replicas: Rows,
) -> None:
    fit = [
        (tokens, name)
        for name, (in_flight, tokens, until_s, draining) in replicas.items()
        if in_flight < 3 and until_s is None and not draining
    ]
    chosen = router().route(view_of(replicas), Request(1, RequestArrived(5, 5)), 1.0)
    assert (chosen.replica_id if chosen else None) == (min(fit)[1] if fit else None)


@given(RULES, REPLICAS, st.integers(1, 10**6), st.sampled_from(["", "s"]))
def test_every_rule_finds_a_healthy_replica_with_room_if_there_is_one(
    rule: Routing, replicas: Rows, request_id: int, session: str
) -> None:
    request = Request(request_id, RequestArrived(5, 5, session_id=session, prefix_blocks=(1, 2)))
    chosen = router(rule).route(view_of(replicas), request, 1.0)
    fit = {
        n
        for n, (busy, _, until_s, leaving) in replicas.items()
        if busy < 3 and until_s is None and not leaving
    }
    assert (chosen.replica_id in fit) if chosen else not fit


@given(RULES, REPLICAS, st.sampled_from("abcdefgh"))
def test_a_repeat_goes_elsewhere_unless_nowhere_else_is_healthy(
    rule: Routing, replicas: Rows, failed_at: str
) -> None:
    view = view_of(replicas)
    chosen = router(rule).route(view, failed(failed_at), 1.0)
    others = {name: row for name, row in replicas.items() if name != failed_at}
    if any(until_s is None and not draining for _, _, until_s, draining in others.values()):
        assert chosen == router().route(view_of(others), Request(1, RequestArrived(5, 5)), 1.0)
    else:
        same = view.replicas.get(failed_at)
        assert chosen is (same if same and same.healthy and same.has_room else None)


def test_an_answer_that_has_begun_weighs_less_than_one_that_has_not() -> None:
    view = FleetView(GateSettings(), BELIEFS)
    for name, started in (("a", False), ("b", True)):
        view.add_replica(ReplicaAdded(name, 4))
        request = Request(len(view.requests) + 1, RequestArrived(1000, 10))
        view.place(request, view.replicas[name], 0.0)
        if started:
            view.start(request)
    assert router().route(view, Request(3, RequestArrived(1000, 10)), 0.0) is view.replicas["b"]


def test_of_repeats_the_least_doubted_replica_comes_first() -> None:
    view = view_of({"a": (0, 0, None, False), "b": (1, 2, None, False), "c": (1, 3, None, False)})
    view.replicas["a"].doubted_count = 2
    chosen = router().route(view, failed("c"), 0.0)
    assert chosen is view.replicas["b"]


def test_round_robin_takes_each_in_turn_and_skips_the_full() -> None:
    view, routed = fleet(4, limit=3), router(Routing.ROUND_ROBIN)
    chosen = [send(view, routed, Request(number, RequestArrived(1, 1))) for number in range(12)]
    assert chosen == ["r00", "r01", "r02", "r03"] * 3
    assert routed.route(view, Request(99, RequestArrived(1, 1)), 0.0) is None


def test_random_spreads_evenly_and_two_choices_spread_more_evenly() -> None:
    counts = {}
    for rule in (Routing.RANDOM, Routing.POWER_OF_TWO):
        view, routed = fleet(10, limit=10_000), router(rule)
        counts[rule] = Counter(
            send(view, routed, Request(number, RequestArrived(1, 1))) for number in range(2000)
        )
    spread = {rule: max(each.values()) - min(each.values()) for rule, each in counts.items()}
    assert len(counts[Routing.RANDOM]) == 10 and 10 < spread[Routing.RANDOM] < 100  # 200 ± 14 each
    assert spread[Routing.POWER_OF_TWO] <= 6


def test_a_prompt_goes_to_who_has_read_its_beginning() -> None:
    view, routed = fleet(3), router(Routing.PREFIX, RoutingSettings(prefix_block_tokens=100))
    first = Request(1, RequestArrived(400, 1, prefix_blocks=(1, 2, 3, 4)))
    assert send(view, routed, first) == "r00"
    view.start(first)
    again = Request(2, RequestArrived(450, 1, prefix_blocks=(1, 2, 3, 9)))
    assert send(view, routed, again) == "r00" and again.hit_tokens == 300
    assert view.replicas["r00"].unread_input_tokens == 150
    other = Request(3, RequestArrived(400, 1, prefix_blocks=(7, 2, 3, 4)))
    assert send(view, routed, other) == "r01" and other.hit_tokens == 0


def test_a_cached_prompt_does_not_go_where_the_queue_is_longer_than_the_prompt() -> None:
    view, routed = fleet(2), router(Routing.PREFIX, RoutingSettings(prefix_block_tokens=100))
    send(view, routed, Request(1, RequestArrived(200, 1, prefix_blocks=(1, 2))))  # r00
    view.place(Request(2, RequestArrived(1000, 1)), view.replicas["r00"], 0.0)
    assert send(view, routed, Request(3, RequestArrived(200, 1, prefix_blocks=(1, 2)))) == "r01"


def test_a_prompt_that_is_cached_whole_still_costs_its_last_token() -> None:
    view, routed = fleet(1), router(Routing.PREFIX, RoutingSettings(prefix_block_tokens=100))
    send(view, routed, Request(1, RequestArrived(200, 1, prefix_blocks=(1, 2))))
    again = Request(2, RequestArrived(200, 1, prefix_blocks=(1, 2)))
    send(view, routed, again)
    assert again.hit_tokens == 199


def test_what_a_replica_had_cached_is_forgotten_with_it() -> None:
    view, routed = fleet(2), router(Routing.PREFIX, RoutingSettings(prefix_block_tokens=100))
    first = Request(1, RequestArrived(200, 1, prefix_blocks=(1, 2)))
    send(view, routed, first)
    view.release(first)
    routed.fleet_changed("r00")
    again = Request(2, RequestArrived(200, 1, prefix_blocks=(1, 2)))
    send(view, routed, again)
    assert again.hit_tokens == 0


def test_a_session_stays_spills_when_its_home_is_overloaded_and_comes_back() -> None:
    view, routed = fleet(4, limit=100), router(Routing.SESSION)
    home = send(view, routed, Request(1, RequestArrived(1, 1, session_id="s")))
    crowd = [Request(number, RequestArrived(1, 1)) for number in range(2, 12)]
    for request in crowd:
        view.place(request, view.replicas[home], 0.0)
    assert send(view, routed, Request(20, RequestArrived(1, 1, session_id="s"))) != home
    for request in crowd:
        view.release(request)
    assert send(view, routed, Request(21, RequestArrived(1, 1, session_id="s"))) == home
    view.replicas[home].circuit = Circuit(until_s=9.0)
    routed.fleet_changed()
    moved = send(view, routed, Request(22, RequestArrived(1, 1, session_id="s")))
    view.replicas[home].circuit = Circuit()
    routed.fleet_changed()
    assert moved != home and send(view, routed, Request(23, RequestArrived(1, 1, session_id="s"))) == moved


def test_sessions_remembered_are_bounded_and_the_longest_unseen_goes_first() -> None:
    routed = router(Routing.SESSION, RoutingSettings(session_limit_count=3))
    view = fleet(2, limit=100)
    for number, session in enumerate("abcad"):
        send(view, routed, Request(number, RequestArrived(1, 1, session_id=session)))
    assert list(routed.homes) == ["c", "a", "d"]


def test_a_model_is_asked_where_it_is_resident_and_nowhere_that_holds_another() -> None:
    view = FleetView(GateSettings(), BELIEFS)
    for name, model in (("any", ""), ("big", "large"), ("small", "little")):
        view.add_replica(ReplicaAdded(name, 2, model=model))
    routed = router()
    assert [send(view, routed, Request(n, RequestArrived(1, 1, model="large"))) for n in range(4)] == [
        "big"
    ] * 2 + ["any"] * 2
    assert routed.route(view, Request(9, RequestArrived(1, 1, model="large")), 0.0) is None
    assert send(view, routed, Request(10, RequestArrived(1, 1))) == "small"


def test_the_own_zone_comes_first_until_it_is_under_pressure() -> None:
    view = FleetView(GateSettings(), BELIEFS)
    for name, zone in (("a1", "a"), ("b1", "b"), ("b2", "b")):
        view.add_replica(ReplicaAdded(name, 10, zone=zone))
    routed = router()
    chosen = [send(view, routed, Request(number, RequestArrived(1, 1, zone="a"))) for number in range(14)]
    assert chosen[:8] == ["a1"] * 8 and set(chosen[8:]) == {"b1", "b2"}
    assert send(view, routed, Request(99, RequestArrived(1, 1, zone="nowhere"))) in ("b1", "b2")


def test_latency_overflows_into_bulk_and_bulk_borrows_below_its_mark_only() -> None:
    view = FleetView(GateSettings(), BELIEFS)
    for name in ("bulk", "latency"):
        view.add_replica(ReplicaAdded(name, 4, pool=name))
    rules = PoolRules(bulk_classes=("batch",), borrow_fraction=0.5)
    routed = router(settings=RoutingSettings(pools=rules))
    batch = [
        send(view, routed, Request(number, RequestArrived(1, 1, class_name="batch"))) for number in range(7)
    ]
    assert batch == ["bulk"] * 4 + ["latency"] * 3
    assert routed.route(view, Request(50, RequestArrived(1, 1, class_name="batch")), 0.0) is None
    assert send(view, routed, Request(51, RequestArrived(1, 1, class_name="chat"))) == "latency"
    assert routed.route(view, Request(52, RequestArrived(1, 1, class_name="chat")), 0.0) is None


def test_a_release_under_trial_is_found_by_those_who_try_it_and_by_no_other() -> None:
    view = FleetView(GateSettings(), BELIEFS)
    for name, version in (("old", "1"), ("new", "2")):
        view.add_replica(ReplicaAdded(name, 5, version=version))
    routed = Router(Routing.LEAST_WORK, RoutingSettings(), {"2"})
    assert {send(view, routed, Request(number, RequestArrived(1, 1))) for number in range(5)} == {"old"}
    assert routed.route(view, Request(9, RequestArrived(1, 1)), 0.0) is None
    trying = Request(10, RequestArrived(1, 1))
    trying.version = "2"
    assert send(view, routed, trying) == "new"


@given(st.lists(st.text(max_size=3), min_size=1, max_size=400))
def test_names_that_clients_make_up_do_not_fill_memory(names: list[str]) -> None:
    view, routed = fleet(2, limit=10**6), router()
    for number, name in enumerate(names):
        routed.route(view, Request(number, RequestArrived(1, 1, model=f"m{name}", zone=name)), 0.0)
    assert len(routed._tiers) <= TIERS_MAX


def test_the_same_seed_draws_the_same_replicas_and_another_seed_others() -> None:
    def drawn(seed: int) -> list[str]:
        view, routed = fleet(8, 100), router(Routing.RANDOM, RoutingSettings(seed=seed))
        return [send(view, routed, Request(number, RequestArrived(1, 1))) for number in range(50)]

    assert drawn(1) == drawn(1) != drawn(2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"zone_spill_fraction": 0.0},
        {"session_spill_ratio": 0.9},
        {"session_limit_count": 0},
        {"prefix_block_tokens": 0},
        {"prefix_blocks_per_replica_count": 0},
    ],
)
def test_limits_that_could_not_work_are_our_mistake(wrong: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        replace(RoutingSettings(), **wrong)  # type: ignore[arg-type]
