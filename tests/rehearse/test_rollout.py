"""What requests got while a release was tried stands apart from what came before and after."""

import pytest

from twofold.rehearse.tenants import RolloutTally
from twofold.twin.serving.fleet_types import RequestRecord


def ended(arrival_s: float, ttft_s: float | None, e2e_s: float, outcome: str = "finished") -> RequestRecord:
    return RequestRecord(arrival_s, "chat", "", "", 10, 11, outcome, 1, "r0", ttft_s, e2e_s)


def test_only_answers_to_what_came_from_the_offer_to_the_decision_count() -> None:
    tally = RolloutTally(from_s=10.0)
    for request in (
        ended(9.9, 99.0, 99.0),
        ended(10.0, 0.1, 1.1),
        ended(20.0, 0.2, 2.2),
        ended(30.0, 88.0, 99.0),
        ended(15.0, None, 50.0, "left"),
    ):
        tally.record(request)
    assert tally.p95_s(until_s=25.0) == pytest.approx({"chat.ttft": 0.2, "chat.tpot": 0.2, "chat.e2e": 2.2})
    assert tally.p95_s()["chat.ttft"] == 88.0
    assert tally.p95_s(until_s=5.0) == {}


def test_an_answer_of_one_token_has_no_gap_between_tokens() -> None:
    tally = RolloutTally(from_s=0.0)
    tally.record(RequestRecord(1.0, "chat", "", "", 10, 1, "finished", 1, "r0", 0.3, 0.3))
    assert tally.p95_s() == {"chat.ttft": 0.3, "chat.e2e": 0.3}
