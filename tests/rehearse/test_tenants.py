"""Tenants are told apart, those of the warm-up left out, and counts of several runs add up."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.rehearse.tenants import TenantTally
from twofold.twin.serving.fleet_types import RequestRecord

FINISHED = "finished"


def ended(
    tenant: str,
    e2e_s: float = 1.0,
    *,
    arrival_s: float = 10.0,
    outcome: str = FINISHED,
    input_tokens: int = 10,
) -> RequestRecord:
    first_s = e2e_s / 10 if outcome == FINISHED else None
    return RequestRecord(arrival_s, "chat", tenant, "", input_tokens, 5, outcome, 1, "r0", first_s, e2e_s)


def tally_of(requests: Iterable[RequestRecord], warm_up_s: float = 0.0) -> TenantTally:
    tally = TenantTally(warm_up_s)
    for request in requests:
        tally.record(request)
    return tally


def test_what_arrived_in_the_warm_up_is_left_out() -> None:
    early, late = ended("a", arrival_s=4.9), ended("a", arrival_s=5.0)
    (figures,) = tally_of([early, late], warm_up_s=5.0).figures()
    assert figures.arrived_count == 1


def test_a_tenant_of_whom_nothing_finished_has_counts_and_no_percentile() -> None:
    a, b = tally_of([ended("b"), ended("a", outcome="refused: rate")]).figures()
    assert (a.name, a.arrived_count, a.finished_count) == ("a", 1, 0)
    assert a.ttft_p95_s is None and a.e2e_p95_s is None
    assert (b.name, b.finished_count, b.e2e_p95_s) == ("b", 1, 1.0)


def test_the_95th_of_a_hundred_is_the_smallest_that_95_do_not_exceed() -> None:
    (figures,) = tally_of(ended("a", float(number)) for number in range(1, 101)).figures()
    assert (figures.e2e_p95_s, figures.ttft_p95_s) == (95.0, 9.5)
    (one,) = tally_of([ended("a", 3.0)]).figures()
    assert one.e2e_p95_s == 3.0


def test_who_was_served_less_than_the_others_has_less_than_its_share() -> None:
    requests = [ended("a") for _ in range(30)] + [ended("b") for _ in range(10)]
    requests += [ended("b", outcome="left") for _ in range(20)]
    a, b = tally_of(requests).figures()
    assert (a.served_tokens, b.served_tokens) == (450, 150)
    assert a.fair_fraction == pytest.approx(1.5) and b.fair_fraction == pytest.approx(0.5)
    (alone,) = tally_of([ended("c", outcome="left")]).figures()
    assert alone.served_tokens == 0 and alone.fair_fraction is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2000)), min_size=1))
def test_where_all_are_answered_each_has_its_share_however_long_its_requests_are(
    asked: list[tuple[str, int]],
) -> None:
    for figures in tally_of(ended(name, input_tokens=tokens) for name, tokens in asked).figures():
        assert figures.fair_fraction == pytest.approx(1.0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2000), st.booleans()), min_size=1))
def test_who_was_answered_all_has_no_less_than_its_share(asked: list[tuple[str, int, bool]]) -> None:
    requests = [
        ended(name, input_tokens=tokens, outcome=FINISHED if answered or name == "a" else "left")
        for name, tokens, answered in asked
    ]
    for figures in tally_of(requests).figures():
        if figures.name == "a":
            assert figures.fair_fraction is not None and figures.fair_fraction >= 1.0 - 1e-9


def test_who_was_answered_nothing_asked_for_requests_as_long_as_those_of_others() -> None:
    requests = [ended("a", input_tokens=95) for _ in range(10)] + [
        ended("b", outcome="left") for _ in range(10)
    ]
    a, b = tally_of(requests).figures()
    assert a.fair_fraction == pytest.approx(2.0) and b.fair_fraction == 0.0


REQUESTS = st.lists(
    st.builds(
        ended,
        st.sampled_from(["a", "b", ""]),
        st.floats(0.01, 100.0),
        arrival_s=st.floats(0.0, 20.0),
        outcome=st.sampled_from([FINISHED, "left"]),
    )
)


@given(first=REQUESTS, second=REQUESTS)
def test_counts_of_two_runs_add_up_to_those_of_both(
    first: list[RequestRecord], second: list[RequestRecord]
) -> None:
    added = tally_of(first, 5.0)
    added.add(tally_of(second, 5.0))
    both = tally_of([*first, *second], 5.0)
    assert added.figures() == both.figures()
    for figures in both.figures():
        own = [each for each in first + second if each.tenant == figures.name and each.arrival_s >= 5.0]
        assert figures.arrived_count == len(own)
        assert figures.finished_count == sum(each.outcome == FINISHED for each in own)
