"""What a run's hours buy: a loss with its letter, what a target needs, and the last day."""

from datetime import date
from typing import Any

import pytest

from twofold.answer.delivery import delivery, loss_warnings
from twofold.catalog.catalog import load_catalog
from twofold.contracts.results.training import Delivery
from twofold.contracts.spec.parts import ModelReference
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core.estimate import Estimate, Source
from twofold.core.quantity import DAY_S
from twofold.perf.constants import load_constants

TEN_DAYS = Estimate(10 * DAY_S, 9 * DAY_S, 12.5 * DAY_S, "s")


def run_of(model: str = "llama-3.1-8b", **more: Any) -> TrainingRun:
    written = {"model": ModelReference(name=model), "tokens": "160 Gtok", **more}
    return TrainingRun.model_validate(written)


def delivered(run: TrainingRun, ends_s: Estimate = TEN_DAYS) -> Delivery:
    return delivery(run, load_catalog().model(run.model.name or ""), ends_s, load_constants())


def test_the_range_holds_the_middle_and_both_laws() -> None:
    loss = delivered(run_of()).loss
    assert loss and loss.low < loss.high and loss.value in (loss.low, loss.high)
    assert loss.unit == "nats/token"


def test_a_dense_model_of_a_size_that_was_fitted_is_fitted_and_others_are_assumed() -> None:
    letters = {
        (model, tokens): delivered(run_of(model, tokens=tokens)).loss
        for model in ("llama-3.1-8b", "llama-3.1-70b", "deepseek-v3")
        for tokens in ("160 Gtok", "15 Ttok")
    }
    fitted = [key for key, loss in letters.items() if loss and loss.source is Source.FITTED]
    assert fitted == [("llama-3.1-8b", "160 Gtok")]
    assert all(loss and loss.source in (Source.FITTED, Source.ASSUMED) for loss in letters.values())


def test_a_mixture_counts_by_the_parameters_that_a_token_meets() -> None:
    sparse, dense = (
        load_catalog().model("deepseek-v3"),
        load_catalog().model("llama-3.1-70b"),
    )
    assert sparse.parameters > dense.parameters > sparse.parameters_active
    sparse_loss, dense_loss = (delivered(run_of(each.name)).loss for each in (sparse, dense))
    assert sparse_loss and dense_loss and sparse_loss.value > dense_loss.value


def test_tokens_that_reach_a_target_reach_it() -> None:
    run = run_of(loss_target="2.1", tokens="20 Gtok")
    found = delivered(run)
    assert found.loss_target_met is False and found.target_tokens
    assert found.target_tokens.value > run.token_count
    enough = delivered(run.model_copy(update={"tokens": 1.0001 * found.target_tokens.value}))
    assert enough.loss_target_met is True
    assert not list(loss_warnings(enough, run))
    (said,) = loss_warnings(found, run)
    assert "20 Gtok end at a loss of" in said and "over the target of 2.1, reached at" in said


def test_a_target_below_what_the_model_can_reach_asks_for_a_larger_model() -> None:
    run = run_of(loss_target="1.5")
    found = delivered(run)
    assert found.loss_target_met is False and found.target_tokens is None
    (said,) = loss_warnings(found, run)
    assert "no number of tokens brings this model to 1.5" in said


def test_only_pretraining_has_a_loss() -> None:
    found = delivered(run_of(kind="finetune"))
    assert (found.loss, found.loss_target_met, found.target_tokens) == (None, None, None)
    assert delivery(run_of(), None, TEN_DAYS, load_constants()).loss is None


@pytest.mark.parametrize(
    ("seconds", "last"),
    [(1.0, date(2027, 1, 11)), (DAY_S, date(2027, 1, 11)), (DAY_S + 1, date(2027, 1, 12)), (1e15, date.max)],
)
def test_the_last_day_is_counted_from_the_first_as_a_window_is(seconds: float, last: date) -> None:
    ends = Estimate(seconds, seconds, seconds, "s")
    assert delivered(run_of(start="2027-01-11"), ends).ends_on == last
    if last != date.max:
        days = TrainingRun.model_validate(
            {
                "model": ModelReference(name="llama-3.1-8b"),
                "tokens": "1 Gtok",
                "window": {"start": "2027-01-11", "end": last},
            }
        )
        assert days.time_limit_s is not None and days.time_limit_s - DAY_S < seconds <= days.time_limit_s


def test_without_a_first_day_there_is_no_last_one() -> None:
    found = delivered(run_of())
    assert (found.ends_on, found.ends_by) == (None, None)
