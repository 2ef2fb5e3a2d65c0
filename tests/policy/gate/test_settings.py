import math

import pytest

from twofold.policy.gate.settings import Beliefs, GateSettings, PoolRules, home_pool, pools_for


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempt_limit": 0},
        {"failure_limit": 0},
        {"failure_window_s": 0.0},
        {"open_s": 0.0},
        {"open_s": 2.0, "open_s_max": 1.0},
        {"probe_every_s": 0.0},
        {"retry_after_s_max": 0.0},
    ],
)
def test_settings_that_could_not_work_are_our_mistake(wrong: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        GateSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_beliefs_are_finite_seconds(wrong: float) -> None:
    with pytest.raises(AssertionError):
        Beliefs(wrong, 0.0)
    with pytest.raises(AssertionError):
        Beliefs(0.0, wrong)


RULES = PoolRules(bulk_classes=("batch",), borrow_fraction=0.25)


def test_each_class_begins_at_home_and_only_bulk_leaves_a_reserve() -> None:
    assert pools_for(RULES, "chat") == (("latency", 1.0), ("bulk", 1.0))
    assert pools_for(RULES, "batch") == (("bulk", 1.0), ("latency", 0.25))


def test_without_rules_there_is_one_pool() -> None:
    assert home_pool(None, "chat") == "" and home_pool(RULES, "batch") == "bulk"


@pytest.mark.parametrize("wrong", [{"bulk_pool": "latency"}, {"borrow_fraction": 1.5}])
def test_pools_that_are_one_are_our_mistake(wrong: dict[str, object]) -> None:
    with pytest.raises(AssertionError):
        PoolRules(**wrong)  # type: ignore[arg-type]
