"""The searches alone: every layout of a training step on given machines, every fleet for services."""

from datetime import date
from typing import Literal

from twofold.answer import TrainingEstimate
from twofold.app.estimating import estimate_train
from twofold.app.local_tables import local_tables
from twofold.app.planning import plan_options
from twofold.app.sources import SpecSource, load
from twofold.core import EmptyError
from twofold.perf import DEFAULT_FRAMEWORK
from twofold.planner import build_plan
from twofold.report import ShownData, ShownPlan, shown_plan


def search_layouts(
    model: str,
    on: str,
    *,
    batch: str,
    sequence: str = "8192 tok",
    precision: Literal["bf16", "fp16", "fp8", "fp32"] = "bf16",
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
    loaded = load(spec)
    if not loaded.spec.services:
        raise EmptyError("the spec has no service", hint="write `serving:`")
    serving = loaded.spec.model_copy(update={"training": ()})
    tables = local_tables(loaded.device, loaded.calibration, today)
    options = plan_options(tables, today)
    built = build_plan(serving, loaded.catalog, tables.constants, spec_digest=loaded.digest, options=options)
    return shown_plan(built)
