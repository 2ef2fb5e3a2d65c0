"""One training question: parts that add up, the best of what is valid, laws of hardware, coded refusals."""

from dataclasses import replace

import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from twofold.answer.question import Variation, given
from twofold.answer.training_estimate import TrainingEstimate, TrainingQuestion, estimate_training
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.core.errors import InfeasibleError, InputError
from twofold.perf.constants import Constants, load_constants
from twofold.training.job import TrainingJob


def ask(
    on: str = "8x8xH100-SXM",
    model: str = "llama-3.1-8b",
    stated: dict[str, int] | None = None,
    scale: dict[str, float] | None = None,
    batch: int = 64,
    ranked: int = 0,
    tokens: float | None = None,
) -> TrainingEstimate:
    catalog, constants = load_catalog(), load_constants()
    job = TrainingJob(catalog.model(model), "pretrain", 8192, batch)
    machines = given(on, catalog, constants, Variation(scale=scale or {}))
    return estimate_training(TrainingQuestion(job, machines, stated or {}, tokens, ranked=ranked), constants)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b", "deepseek-v2-lite"])
def test_parts_add_up_to_their_totals(model: str) -> None:  # INV-1
    answer = ask(model=model, tokens=1e12)
    assert sum(part.value.value for part in answer.step_parts) == pytest.approx(answer.step_s.value)
    assert sum(part.share_fraction for part in answer.step_parts) == pytest.approx(1)
    for parts in (answer.memory_parts, answer.memory_by_format):
        assert sum(part.value.value for part in parts) == pytest.approx(answer.memory_bytes.value)
        assert sum(part.share_fraction for part in parts) == pytest.approx(1)
    communication = {"TP", "CP", "EP", "PP", "DP"}
    exposed = sum(part.share_fraction for part in answer.step_parts if part.name in communication)
    assert exposed == pytest.approx(answer.communication_exposed_fraction)


def test_the_answer_is_the_fastest_of_the_ranked_layouts() -> None:
    answer = ask(ranked=10_000)
    assert answer.step_s.value == min(row.step_s.value for row in answer.layouts)
    assert all(row.memory_bytes.high <= answer.memory_capacity_bytes for row in answer.layouts)
    rejected = {count.reason: count.count for count in answer.rejected}
    assert answer.valid_layouts == rejected.get("memory", 0) + rejected.get("slower", 0) + 1
    assert len(answer.layouts) == rejected.get("slower", 0) + 1


def test_a_stated_layout_is_kept_and_is_never_faster_than_the_best() -> None:
    stated = {"tp": 4, "pp": 2, "dp": 8, "micro_batch": 1, "recompute": 2, "zero_stage": 1}
    answer = ask(stated=stated)
    kept = answer.layout
    assert (kept.tp, kept.pp, kept.dp, kept.micro_batch, kept.recompute, kept.zero_stage) == (
        4,
        2,
        8,
        1,
        "full",
        1,
    )
    assert answer.step_s.value >= ask().step_s.value


@settings(max_examples=12)
@examples(
    resource=st.sampled_from(["compute", "memory_bandwidth", "memory_capacity", "link", "fabric", "host"]),
    factor=st.floats(1.0, 4.0),
)
def test_better_hardware_never_slows_a_step(resource: str, factor: float) -> None:  # INV-2
    assert ask(scale={resource: factor}).step_s.value <= ask().step_s.value * (1 + 1e-9)


def test_bounds_are_gains_of_20_percent_and_never_more() -> None:
    for bound in ask(tokens=1e12).bounds:
        assert 0 <= bound.gain_fraction <= 1 - 1 / 1.2 + 1e-6 or bound.resource == "memory capacity"


def test_twice_the_batch_takes_about_twice_the_time() -> None:
    stated = {"tp": 4, "pp": 1, "cp": 1, "micro_batch": 1, "zero_stage": 1, "recompute": 1}
    small, large = (ask(stated=stated, batch=batch).step_s.value for batch in (256, 512))
    assert large == pytest.approx(2 * small, rel=0.05)


def test_stated_sizes_that_cannot_be_are_refused() -> None:
    for stated in (
        {"tp": 3},
        {"dp": 7},
        {"tp": 8, "cp": 1, "pp": 4, "dp": 16},
        {"micro_batch": 0},
        {"ep": 2},
    ):
        with pytest.raises(InputError):
            ask(stated=stated)


def test_a_refusal_tells_needs_tried_and_what_would_fit() -> None:
    with pytest.raises(InfeasibleError) as refused:
        ask("1x1xL40S", "llama-3.1-70b")
    labels = [label for label, _ in refused.value.lines]
    assert labels[0] == "needs"
    assert {"tried", "closest", "would fit"} <= set(labels)
    assert "L40S" in refused.value.message


def test_a_job_that_nothing_divides_is_refused_with_the_rules_it_broke() -> None:
    with pytest.raises(InfeasibleError) as refused:
        ask("5x3xL40S", batch=1)
    assert "no layout divides" in refused.value.message
    assert [label for label, _ in refused.value.lines] == ["needs", "tried", "would fit"]


def test_lora_and_fp8_answer_too(catalog: Catalog, constants: Constants) -> None:
    machines = given("1x8xH100-SXM", catalog, constants)
    full = TrainingJob(catalog.model("llama-3.1-8b"), "finetune", 4096, 64)
    adapters = replace(full, kind="lora", lora_rank=16)
    answers = [estimate_training(TrainingQuestion(job, machines), constants) for job in (full, adapters)]
    optimiser = [
        sum(part.value.value for part in answer.memory_parts if part.name == "optimiser")
        for answer in answers
    ]
    assert optimiser[1] < optimiser[0] / 20
    narrow = TrainingQuestion(replace(full, precision="fp8"), machines)
    assert estimate_training(narrow, constants).step_s.value < answers[0].step_s.value
