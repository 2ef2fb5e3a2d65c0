from typing import Any

import pytest

from twofold.core.errors import InputError
from twofold.planner.explained import explain

STEP = {"value": 8.6, "low": 7.9, "high": 9.5, "unit": "s", "source": "f"}


def leaf(label: str, text: str, reference: str) -> dict[str, str]:
    return {"label": label, "text": text, "path": "", "source": "v", "reference": reference}


def step(label: str, text: str, path: str) -> dict[str, str]:
    return {"label": label, "text": text, "path": path, "source": "f", "reference": ""}


PLAN: dict[str, Any] = {
    "training": [{"name": "pretrain", "step_s": STEP, "tried": 12}],
    "derivations": [
        {
            "path": "training.pretrain.step_s",
            "formula": "compute + bubble",
            "inputs": [
                step("compute", "6.36 s", "training.pretrain.step_s.compute"),
                leaf("stages", "4", "spec"),
            ],
        },
        {
            "path": "training.pretrain.step_s.compute",
            "formula": "FLOPs / (peak × efficiency)",
            "inputs": [leaf("peak", "989 TFLOP/s", "accelerators.csv H100")],
        },
    ],
}


def test_a_tree_goes_down_to_leaves_with_their_reference() -> None:
    assert explain(PLAN, "training.pretrain.step_s") == (
        "training.pretrain.step_s = 8.6 s [7.9–9.5] f",
        "│  = compute + bubble",
        "├─ compute 6.36 s = FLOPs / (peak × efficiency)",
        "│  └─ peak 989 TFLOP/s (v accelerators.csv H100)",
        "└─ stages 4 (v spec)",
    )


def test_a_step_of_a_derivation_can_be_explained_itself() -> None:
    assert explain(PLAN, "training.pretrain.step_s.compute")[0] == "training.pretrain.step_s.compute = 6.36 s"


def test_a_part_without_derivation_lists_what_it_holds() -> None:
    assert explain(PLAN, "training.pretrain") == (
        "training.pretrain",
        "training.pretrain.name = pretrain",
        "training.pretrain.step_s = 8.6 s [7.9–9.5] f",
        "training.pretrain.tried = 12",
    )
    assert explain(PLAN, "training.pretrain.tried") == ("training.pretrain.tried = 12",)


def test_an_unknown_path_is_an_input_error() -> None:
    with pytest.raises(InputError, match="is not a path"):
        explain(PLAN, "training.pretrain.mfu")


def test_a_listing_shows_plain_numbers_with_the_unit_of_their_name() -> None:
    run = {
        "name": "pretrain",
        "parameters": 8_030_261_248,
        "share_fraction": 0.8956,
        "memory_capacity_bytes": 79.6 * 2**30,
        "release_after_s": 5400.0,
        "sequence_parallel": False,
        "input_tokens": 900.0,
    }
    plan = {"training": [run], "derivations": []}
    lines = dict(
        line.removeprefix("training.pretrain.").split(" = ") for line in explain(plan, "training")[1:]
    )
    assert lines == {
        "name": "pretrain",
        "parameters": "8,030,261,248",
        "share_fraction": "90 %",
        "memory_capacity_bytes": "80 GiB",
        "release_after_s": "90 min",
        "sequence_parallel": "False",
        "input_tokens": "900 tok",
    }


def test_a_probability_is_told_as_reports_tell_it() -> None:
    goals = [
        {"metric": "ttft_p95", "holds_probability": 0.9987},
        {"metric": "tpot_p50", "holds_probability": 0.0013},
        {"metric": "e2e_p50", "holds_probability": 0.796},
    ]
    ladder = [{"name": "chat", "confidence": 0.95, "probability": 0.949}]
    sure = {"asked_fraction": 0.8, "joint_probability": 0.9987}
    plan = {"serving": goals, "confidence": sure, "ladder": ladder, "derivations": []}
    told = dict(line.split(" = ") for line in explain(plan, "")[1:])
    assert {path: text for path, text in told.items() if path.endswith("probability")} == {
        "serving.ttft_p95.holds_probability": ">99 %",
        "serving.tpot_p50.holds_probability": "<1 %",
        "serving.e2e_p50.holds_probability": "79.6 %",  # short of what is asked, not 80 %
        "confidence.joint_probability": ">99 %",
        "ladder.chat.probability": "94.9 %",
    }
    assert explain(plan, "confidence.joint_probability") == ("confidence.joint_probability = >99 %",)


def test_a_listing_is_no_wider_than_a_screen() -> None:
    told = ["memory", "a rack of its own", "x" * 120, "one word after another " * 9]
    plan = {"training": [{"name": "pretrain", "warnings": told}], "derivations": []}
    lines = explain(plan, "training.pretrain")
    assert max(map(len, lines)) <= 100 and "".join(lines).count("word") == 9
    only = explain(plan, "training.pretrain.warnings.3")
    assert len(only) > 1 and max(map(len, only)) <= 100
