"""A decision about a long prompt in a large fleet, with everything on, takes at most 0.2 ms of CPU."""

import pytest

from bench import policy, routing
from twofold.policy.gate.settings import Routing


@pytest.mark.parametrize("rule", Routing)
def test_of_256_replicas_and_100k_tokens_by_every_rule(rule: Routing) -> None:
    """CPU time of this process, its median: other work on the machine stretches that the least."""
    blocks = {len(each.prefix_blocks) for each in policy.long_arrivals()}
    assert blocks == {policy.PROMPT_TOKENS // policy.BLOCK_TOKENS}
    found = policy.decided(rule)
    assert found.sent_count == policy.DECISIONS  # each went somewhere, none was refused cheaply
    assert found.us_p50 <= policy.DECISION_LIMIT_US


def test_the_bench_of_routing_runs_every_rule(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(routing, "FLEETS", {3: 8})
    monkeypatch.setattr(routing, "REQUESTS", 8)
    routing.main()
    written = capsys.readouterr().out
    assert all(f"\n{rule.value}" in written for rule in Routing) and "prefix: placed" in written
