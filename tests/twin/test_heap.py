"""The order of events is that of time, then of pushing; what was cancelled does not happen."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from twofold.twin.heap import DEAD_MIN_COUNT, Heap


def drained(heap: Heap) -> list[tuple[float, int, object]]:
    out = []
    while (due := heap.pop_until(inf)) is not None:
        assert heap.pop_until(due[0] - 1.0) is None  # nothing that was earlier is left
        out.append((due[0], due[2], due[3]))
    return out


@given(times=st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), max_size=30))
def test_events_come_in_order_of_time_and_ties_in_order_of_pushing(times: list[float]) -> None:
    heap = Heap()
    for number, at_s in enumerate(times):
        heap.push(at_s, 0, number)
    assert [(at_s, n) for at_s, _, n in drained(heap)] == sorted(zip(times, range(len(times)), strict=True))


@given(times=st.lists(st.floats(0, 10), min_size=1, max_size=30), data=st.data())
def test_what_is_cancelled_does_not_happen_and_all_else_does(times: list[float], data: st.DataObject) -> None:
    heap = Heap()
    numbers = [heap.push(at_s, 1, index) for index, at_s in enumerate(times)]
    gone = data.draw(st.sets(st.sampled_from(range(len(times)))))
    for index in gone:
        heap.cancel(numbers[index])
    assert {index for _, _, index in drained(heap)} == set(range(len(times))) - gone


def test_subjects_are_never_compared() -> None:
    heap = Heap()
    heap.push(1.0, 0, object())
    heap.push(1.0, 0, object())
    assert len(drained(heap)) == 2


def test_cancelled_entries_do_not_pile_up() -> None:
    heap = Heap()
    heap.push(1.0, 0, "kept")
    for _ in range(5 * DEAD_MIN_COUNT):
        heap.cancel(heap.push(2.0, 0, None))
    assert len(heap._due) <= 2 * DEAD_MIN_COUNT + 2  # the one place that shows it
    assert drained(heap) == [(1.0, 0, "kept")]
