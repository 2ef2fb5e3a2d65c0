from typing import Any

import pytest

from twofold.answer.paths import children, leaves, resolve, unit_of
from twofold.core.errors import InputError

STEP = {"value": 8.6, "low": 7.9, "high": 9.5, "unit": "s", "source": "f"}
PLAN: dict[str, Any] = {
    "name": "assistant",
    "training": [{"name": "pretrain", "step_s": STEP, "step_parts": [{"name": "compute", "value": STEP}]}],
    "serving": [],
    "cross": [{"half": "training", "name": "pretrain", "fleet": "serving", "feasible": False}],
    "derivations": [{"path": "x", "formula": "", "inputs": []}],
}


def test_entries_of_arrays_are_addressed_by_their_name() -> None:
    assert resolve(PLAN, "training.pretrain.step_s") == STEP
    assert resolve(PLAN, "training.pretrain.step_parts.compute.value") == STEP
    assert resolve(PLAN, "cross.training.pretrain.serving.feasible") is False


def test_every_leaf_is_found_again_by_its_path() -> None:
    found = dict(leaves(PLAN))
    assert found["serving"] == []
    assert all(resolve(PLAN, path) == leaf for path, leaf in found.items())


def test_an_estimate_is_one_leaf_and_derivations_are_none() -> None:
    assert children(STEP) == ()
    assert "derivations" not in dict(children(PLAN))


def test_entries_of_the_same_name_keep_apart() -> None:
    node = [{"what": "a", "why": "1"}, {"what": "a", "why": "2"}]
    assert [key for key, _ in children(node)] == ["a", "a#1"]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("training.pretrain.step", "did you mean `training.pretrain.step_s`?"),
        ("trainin.pretrain", "did you mean `training`?"),
        ("training.pretrian.step_s", "did you mean `training.pretrain`?"),
        ("name.of", "`name` is a single value"),
    ],
)
def test_a_wrong_path_says_what_there_is(path: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve(PLAN, path)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("machine.price.usd_per_accelerator_h", "USD/h"),
        ("run.accelerator_h", "accelerator-h"),
        ("classes.chat.usd_per_1k_tokens", "USD"),
        ("portfolio.ranking.0.usd_per_h_per_tb_s", "USD/h"),
        ("power.ramp_limit_w_per_s", "W/s"),
        ("classes.chat.peak_per_s", "1/s"),
    ],
)
def test_prices_are_money_whatever_they_are_paid_for(path: str, unit: str) -> None:
    assert unit_of(path) == unit
