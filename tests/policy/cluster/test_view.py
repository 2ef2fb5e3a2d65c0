from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.cluster.view import RECENT_IDS_MAX, Due, RecentIds, Timers

STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(Due), st.sampled_from([None, 1.0, 2.0, 3.0])),
    max_size=60,
)


@given(STEPS, st.floats(0.0, 4.0))
def test_each_key_falls_due_once_at_the_time_set_last(
    steps: list[tuple[str, Due, float | None]], now_s: float
) -> None:
    timers, expected = Timers(), {}
    for name, due, at_s in steps:
        expected.pop((due, name), None)
        if at_s is None:
            timers.cancel(due, name)
        else:
            timers.set(due, name, at_s)
            expected[due, name] = at_s
    assert timers.next_at_s() == min(expected.values(), default=None)
    popped = []
    while (key := timers.pop_due(now_s)) is not None:
        popped.append(key)
    # Sorting is stable: equal times come in the order they were set.
    assert popped == sorted(
        (key for key in expected if expected[key] <= now_s), key=lambda key: expected[key]
    )
    assert len(timers._at_s) == len(expected) - len(popped)


def test_a_timer_that_is_put_off_again_and_again_takes_no_more_memory() -> None:
    timers = Timers()
    for step in range(10_000):
        timers.set(Due.LOOK, "", float(step))
    assert len(timers._at_s) == 1 and len(timers._heap) < 200 and timers.next_at_s() == 9999.0


def test_old_ids_are_forgotten_the_oldest_first() -> None:
    ids = RecentIds()
    for index in range(RECENT_IDS_MAX + 5):
        ids.add(str(index))
        ids.add("again")
    assert len(ids._ids) == RECENT_IDS_MAX and "again" in ids
    assert "0" not in ids and str(RECENT_IDS_MAX) in ids
