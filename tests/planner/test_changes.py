import copy
from typing import Any

from twofold.planner.explained import diff

STEP = {"value": 8.0, "low": 7.0, "high": 9.0, "unit": "s", "source": "f"}
PLAN: dict[str, Any] = {
    "schema": "twofold/plan/1",
    "digests": {"spec": "aa", "catalog": "bb"},
    "training": [{"name": "pretrain", "step_s": STEP, "tried": 10, "cost_usd": None}],
    "derivations": [{"path": "training.pretrain.step_s", "formula": "a + b", "inputs": []}],
    "defaults": [["training.sequence", "8192 tok"]],
}


def changed(**values: Any) -> dict[str, Any]:
    plan = copy.deepcopy(PLAN)
    plan["training"][0] |= values
    return plan


def test_equal_plans_do_not_differ() -> None:
    assert diff(PLAN, copy.deepcopy(PLAN)) == ()


def test_a_change_says_where_and_by_how_much() -> None:
    (change,) = diff(PLAN, changed(tried=15))
    assert (change.path, change.old, change.new) == ("training.pretrain.tried", 10, 15)
    assert change.relative_change_fraction == 0.5


def test_a_wider_range_is_a_change_of_nothing_in_the_middle() -> None:
    (change,) = diff(PLAN, changed(step_s=STEP | {"high": 9.5}))
    assert change.path == "training.pretrain.step_s"
    assert change.relative_change_fraction == 0.0


def test_what_one_plan_lacks_is_a_change() -> None:
    lacking = copy.deepcopy(PLAN)
    lacking["training"] = []
    paths = {change.path for change in diff(PLAN, lacking)}
    assert {"training.pretrain.step_s", "training"} <= paths
    assert {change.path for change in diff(lacking, PLAN)} == paths


def test_what_neither_plan_has_differs_in_nothing() -> None:
    """One has no price of a way, the other no such way: rows of two dashes came before all changes."""
    longer = copy.deepcopy(PLAN)
    longer["training"][0]["front"] = [{"what": "2 × 8", "cost_usd": None}]
    assert {change.path for change in diff(PLAN, longer)} == {"training.pretrain.front.2 × 8.what"}


def test_digests_count_and_what_follows_from_the_rest_only_when_asked() -> None:
    other = copy.deepcopy(PLAN)
    other["digests"]["catalog"] = "cc"
    other["defaults"] = []
    other["derivations"][0]["formula"] = "a − b"
    assert [change.path for change in diff(PLAN, other)] == ["digests.catalog"]
    asked = {change.path for change in diff(PLAN, other, also=("defaults", "derivations"))}
    assert {"defaults.training.sequence", "derivations.training.pretrain.step_s"} <= asked


def test_a_price_that_appears_has_no_relative_change() -> None:
    (change,) = diff(PLAN, changed(cost_usd=STEP | {"unit": "USD"}))
    assert change.old is None and change.relative_change_fraction is None


def test_rounding_of_sums_in_another_order_is_no_change() -> None:
    old = {"a_usd": 0.1 + 0.2, "step_s": {"value": 1.0, "low": 0.5, "high": 2.0, "unit": "s", "source": "f"}}
    new = {**old, "a_usd": 0.3}
    assert diff(old, new) == ()
    assert [change.path for change in diff(old, {**old, "a_usd": 0.31})] == ["a_usd"]
