"""The shared store: everybody gets his share, nothing is lost, many small files are seen."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.twin.storage import SharedStore


def drain(store: SharedStore) -> dict[str, float]:
    """When each running transfer ends if nothing else comes."""
    ended = {}
    while store.next_at_s() < inf:
        at_s = store.next_at_s()
        for key in store.advance(at_s):
            ended[key] = at_s
    return ended


def test_two_equal_writes_take_twice_as_long_as_one() -> None:
    alone, both = SharedStore(10.0), SharedStore(10.0)
    alone.start("a", 100.0, 0.0)
    both.start("a", 100.0, 0.0)
    both.start("b", 100.0, 0.0)
    assert drain(alone) == {"a": 10.0}
    assert drain(both) == {"a": 20.0, "b": 20.0}


def test_what_a_limited_transfer_leaves_the_others_share() -> None:
    store = SharedStore(10.0)
    store.start("slow", 10.0, 0.0, rate_max_per_s=1.0)
    store.start("a", 45.0, 0.0)
    store.start("b", 45.0, 0.0)
    assert drain(store) == pytest.approx({"a": 10.0, "b": 10.0, "slow": 10.0})


def test_a_brownout_stretches_what_is_left() -> None:
    store = SharedStore(10.0)
    store.start("a", 100.0, 0.0)
    store.set_rate(5.0, 5.0)
    assert drain(store) == pytest.approx({"a": 15.0})


def test_a_cancelled_transfer_gives_its_share_back() -> None:
    store = SharedStore(10.0)
    store.start("a", 100.0, 0.0)
    store.start("b", 100.0, 0.0)
    store.cancel("b", 10.0)
    assert drain(store) == pytest.approx({"a": 15.0})


@given(
    st.lists(
        st.tuples(st.floats(0.0, 50.0), st.floats(0.0, 1e3), st.sampled_from([0.5, 3.0, inf])), max_size=8
    )
)
def test_nothing_is_served_faster_than_the_store_or_its_limit(work: list[tuple[float, float, float]]) -> None:
    store, ended = SharedStore(7.0), {}
    for number, (start_s, amount, limit) in enumerate(sorted(work)):
        while store.next_at_s() <= start_s:
            at_s = store.next_at_s()
            ended |= dict.fromkeys(store.advance(at_s), at_s)
        store.start(str(number), amount, start_s, limit)
    ended |= drain(store)
    assert len(ended) == len(work)
    for number, (start_s, amount, limit) in enumerate(sorted(work)):
        assert ended[str(number)] >= start_s + amount / min(7.0, limit) - 1e-6
    if work:
        total = sum(amount for _, amount, _ in work)
        assert max(ended.values()) >= min(start for start, _, _ in work) + total / 7.0 - 1e-6
