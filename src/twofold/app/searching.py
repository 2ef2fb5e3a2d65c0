"""The searches alone: every layout of a training step on given machines, every fleet for services."""

from dataclasses import replace
from datetime import date

from twofold.answer import TrainingEstimate
from twofold.app.estimating import estimate_train
from twofold.app.planning import ready
from twofold.app.sources import SpecSource
from twofold.contracts.spec import Precision
from twofold.core import EmptyError
from twofold.perf import DEFAULT_FRAMEWORK
from twofold.report import ShownData, ShownPlan, shown_plan


def search_layouts(
    model: str,
    on: str,
    *,
    batch: str,
    sequence: str = "8192 tok",
    precision: Precision = "bf16",
    framework: str = DEFAULT_FRAMEWORK,
    count: int = 20,
) -> ShownData[TrainingEstimate]:
    """The fastest `count` of all valid layouts of one training step, ranked; `data.layouts` holds them.

    Raises InputError for words that cannot be read, InfeasibleError when no layout fits.
    """
    return estimate_train(
        model,
        on,
        batch=batch,
        sequence=sequence,
        precision=precision,
        framework=framework,
        layouts=count,
    )


def search_fleets(spec: SpecSource, today: date | None = None) -> ShownPlan:
    """The cheapest fleet that meets every class of each service of a spec, and why the others lost.

    Its training is left out. Raises InfeasibleError, with what binds, when nothing meets a service's goals.
    """
    own = ready(spec, today)
    if not own.spec.services:
        raise EmptyError("the spec has no service", hint="write `serving:`")
    return shown_plan(replace(own, spec=own.spec.model_copy(update={"training": ()})).planned().plan)
