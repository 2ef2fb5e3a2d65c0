from hypothesis import given
from hypothesis import strategies as st

from twofold.policy import Beliefs, Circuit, FleetView, GateSettings, Replica, Request
from twofold.policy.routing import least_work

BELIEFS = Beliefs(input_token_s=0.001, output_token_s=0.01)
REPLICAS = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.tuples(
        st.integers(0, 3),  # in flight, of a limit of 3
        st.integers(0, 3),  # work, few values: ties
        st.sampled_from([None, 0.0, 9.0]),  # circuit
        st.booleans(),  # draining
    ),
)


def view_of(replicas: dict[str, tuple[int, int, float | None, bool]]) -> FleetView:
    view = FleetView(GateSettings(), BELIEFS)
    for name, (in_flight, tokens, until_s, draining) in replicas.items():
        view.replicas[name] = Replica(
            name, 3, Circuit(until_s), draining, in_flight, unread_input_tokens=tokens
        )
    return view


@given(REPLICAS)
def test_the_least_work_among_the_healthy_with_room_wins_and_ties_go_to_the_smaller_id(
    replicas: dict[str, tuple[int, int, float | None, bool]],
) -> None:
    fit = [
        (tokens, name)
        for name, (in_flight, tokens, until_s, draining) in replicas.items()
        if in_flight < 3 and until_s is None and not draining
    ]
    chosen = least_work(view_of(replicas), Request(1, 5, 5), 1.0)
    assert (chosen.replica_id if chosen else None) == (min(fit)[1] if fit else None)


@given(REPLICAS, st.sampled_from("abcdefgh"))
def test_a_repeat_goes_elsewhere_unless_nowhere_else_is_healthy(
    replicas: dict[str, tuple[int, int, float | None, bool]], failed_at: str
) -> None:
    view = view_of(replicas)
    chosen = least_work(view, Request(1, 5, 5, replica_id=failed_at, attempt=1), 1.0)
    others = {name: row for name, row in replicas.items() if name != failed_at}
    if any(until_s is None and not draining for _, _, until_s, draining in others.values()):
        assert chosen == least_work(view_of(others), Request(1, 5, 5), 1.0)
    else:
        same = view.replicas.get(failed_at)
        assert chosen is (same if same and same.healthy and same.has_room else None)


def test_an_answer_that_has_begun_weighs_less_than_one_that_has_not() -> None:
    view = FleetView(GateSettings(), BELIEFS)
    for name, started in (("a", False), ("b", True)):
        view.add_replica(name, 4)
        request = Request(len(view.requests) + 1, 1000, 10)
        view.place(request, view.replicas[name])
        if started:
            view.start(request)
    chosen = least_work(view, Request(9, 1, 1), 1.0)
    assert chosen is view.replicas["b"]


def test_long_answers_weigh_by_the_believed_speed() -> None:
    def chosen(beliefs: Beliefs) -> str | None:
        view = FleetView(GateSettings(), beliefs)
        view.add_replica("reads", 4)
        view.add_replica("writes", 4)
        view.place(Request(1, 1000, 10), view.replicas["reads"])
        view.place(Request(2, 10, 100), view.replicas["writes"])
        replica = least_work(view, Request(3, 1, 1), 0.0)
        return replica.replica_id if replica else None

    assert chosen(Beliefs(input_token_s=0.0, output_token_s=1.0)) == "reads"
    assert chosen(Beliefs(input_token_s=1.0, output_token_s=0.0)) == "writes"
