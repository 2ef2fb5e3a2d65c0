"""Outcomes of requests, as telemetry would have made them."""

from typing import Any

from twofold.live.gateway.telemetry import FINISHED, Outcome


def outcome_of(**told: Any) -> Outcome:
    """One that was answered, but for what is told of it."""
    made = Outcome("id", "", "t", "chat", 5.0, 7)
    answered = {"outcome": FINISHED, "status": 200, "output_tokens": 3, "replica_id": "r0", "attempts": 1}
    unknown = told.keys() - Outcome.__annotations__.keys() - vars(made).keys()
    assert not unknown, unknown
    for name, value in ({"at_s": 1000.0, "ttft_s": 0.25, "e2e_s": 1.5} | answered | told).items():
        setattr(made, name, value)
    return made
