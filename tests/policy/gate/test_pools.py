import pytest

from twofold.policy.gate.pools import PoolRules, home_pool, pools_for

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
