"""One serving question: the layout that is chosen, refusals, and the laws of loads and hardware."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from twofold.answer.question import Variation, given
from twofold.answer.quick_serve import (
    Chosen,
    ServingQuestion,
    at_layout,
    candidate_layouts,
    choose,
    make_replica,
)
from twofold.catalog.catalog import load_catalog
from twofold.core.errors import InfeasibleError, InputError
from twofold.perf.constants import load_constants


def question(on: str = "4xH200", model: str = "llama-3.1-70b", **scale: float) -> ServingQuestion:
    catalog, constants = load_catalog(), load_constants()
    machines = given(on, catalog, constants, Variation(scale=scale))
    return ServingQuestion(catalog.model(model), machines, 1155, 211, concurrency=32)


def answer(asked: ServingQuestion) -> Chosen:
    return choose(asked, load_constants())


def e2e_s(asked: ServingQuestion) -> float:
    return float(np.max(answer(asked).served.e2e.mean_s))


@pytest.mark.parametrize("model", ["llama-3.1-70b", "mixtral-8x7b", "deepseek-v3"])
def test_the_choice_answers_soonest_of_all_that_fit(model: str) -> None:
    asked = question("8xH200", model)
    asked = replace(asked, weights_format="fp8")
    base = make_replica(asked, load_constants())
    times = []
    for row in candidate_layouts(asked, 8):
        served = at_layout(base, asked, row).served
        if np.isfinite(served.e2e.mean_s) and float(np.max(served.kv_fraction)) < 1:
            times.append(float(np.max(served.e2e.mean_s)))
    assert e2e_s(asked) == pytest.approx(min(times))


def test_layouts_divide_the_model_and_stay_on_the_machines() -> None:
    for on, model in (
        ("8xH200", "llama-3.1-70b"),
        ("12xInferentia2", "llama-3.1-8b"),
        ("8xH200", "deepseek-v3"),
    ):
        asked = question(on, model)
        rows = candidate_layouts(asked, asked.machines.accelerator_count)
        assert len(rows)
        tp, pp, ep, dp = rows.T
        assert np.all(tp * pp * dp <= asked.machines.accelerator_count)
        assert np.all(asked.model.heads % tp == 0)
        assert np.all(asked.model.layers % pp == 0)
        assert np.all((asked.model.experts or 1) % ep == 0)


def test_stated_sizes_are_kept() -> None:
    chosen = answer(replace(question(), stated={"tp": 2, "pp": 2})).replica
    assert (chosen.tp, chosen.pp, chosen.dp) == (2, 2, 1)
    with pytest.raises(InputError):
        answer(replace(question(), stated={"tp": 3}))


@settings(max_examples=12)
@examples(
    resource=st.sampled_from(["compute", "memory_bandwidth", "memory_capacity", "link", "host"]),
    factor=st.floats(1.0, 4.0),
)
def test_better_hardware_never_answers_later(resource: str, factor: float) -> None:  # INV-2
    assert e2e_s(question(**{resource: factor})) <= e2e_s(question()) * (1 + 1e-9)


@settings(max_examples=12)
@examples(clients=st.integers(1, 400), more=st.integers(1, 200))
def test_more_clients_wait_longer_and_get_more_through(clients: int, more: int) -> None:
    few, many = (answer(replace(question(), concurrency=n)).served for n in (clients, clients + more))
    assert float(np.max(many.e2e.mean_s)) >= float(np.max(few.e2e.mean_s)) * (1 - 1e-6)
    assert float(np.max(many.output_tokens_per_s)) >= float(np.max(few.output_tokens_per_s)) * 0.99


@settings(max_examples=8)
@examples(rate=st.floats(0.1, 4.0), more=st.floats(1.0, 2.0))
def test_a_higher_rate_waits_longer(rate: float, more: float) -> None:
    asked = replace(question(), concurrency=None, rate_per_s=rate)
    slow, fast = (answer(replace(asked, rate_per_s=rate * f)).served.e2e.p95_s for f in (1.0, more))
    assert float(np.max(fast)) >= float(np.max(slow)) * (1 - 1e-6)


def test_refusals_say_what_is_needed_and_what_would_do() -> None:
    with pytest.raises(InfeasibleError) as small:
        answer(question("1xL40S"))
    assert [label for label, _ in small.value.lines] == ["needs", "has", "would fit"]
    assert "4 × L40S" in small.value.lines[2][1]
    with pytest.raises(InfeasibleError) as busy:
        answer(replace(question(), concurrency=None, rate_per_s=1000.0))
    assert "copies" in busy.value.lines[2][1]


def test_the_copies_named_by_a_refusal_carry_the_rate() -> None:
    asked = replace(question(), concurrency=None, rate_per_s=1000.0)
    with pytest.raises(InfeasibleError) as refused:
        answer(asked)
    copies = int(refused.value.lines[2][1].split(" ")[0].replace(",", ""))
    answer(replace(asked, rate_per_s=1000.0 / copies))  # one copy's share is served


def test_narrow_weights_are_named_where_they_would_fit() -> None:
    with pytest.raises(InfeasibleError) as refused:
        answer(question("1xH200"))
    assert "fp8 weights on these" in refused.value.lines[2][1]
    answer(replace(question("1xH200"), weights_format="fp8"))


def test_a_load_must_be_one_and_fit_the_context() -> None:
    for asked in (
        replace(question(), concurrency=None),
        replace(question(), rate_per_s=1.0),
        replace(question(), input_tokens=200_000.0),
        replace(question(), weights_format="fp7"),
    ):
        with pytest.raises(InputError):
            answer(asked)
