"""Benches that have a goal say whether it is met."""

import pytest


def test_logs_are_to_cost_2_percent_at_most() -> None:
    pytest.importorskip("uvloop", reason="needs the extra [live]: `make extras`")
    from bench.gateway_logs import Compared, verdict

    assert verdict(Compared(1.02, 1.0, 1.04)).endswith("1.040; at most 1.02: met")
    assert verdict(Compared(1.0201, 1.0, 1.04)).endswith(": missed")


def test_what_logs_add_is_held_against_an_answer_with_plain_lines() -> None:
    from bench.gateway_logs import Turn, added_ratios

    assert added_ratios([Turn(9.0, 0.3)], [Turn(10.0, 0.1)]) == [1.02]


def test_a_push_is_to_run_at_70_percent_of_hashing() -> None:
    from bench.registry import beside_hashing

    assert beside_hashing(0.7) == " 70% of hashing, goal 70% met"
    assert beside_hashing(0.69) == " 69% of hashing, goal 70% missed"
