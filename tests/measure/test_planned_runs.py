"""A run is planned from others alone; formats that nobody stated and compiling widen its range."""

import math
from math import log
from pathlib import Path

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.catalog.model_config import read_model_config
from twofold.contracts.results import loop, trained
from twofold.core.errors import InputError
from twofold.core.estimate import Estimate
from twofold.measure.blind import PREDICT
from twofold.measure.planned_runs import planned_step_s
from twofold.measure.trained_rows import Ran, row_of
from twofold.measure.truth import Row
from twofold.perf.constants import load_constants
from twofold.perf.known import load_known

MODEL = read_model_config(Path(__file__).parents[2] / "examples" / "laptop" / "config.json")
SLOWER = 1.4  # than the constants as they ship say
CPU, GPU = "CPU-4-core-AVX2", "H100-SXM"


def row(step_s: float, ranks: int = 2, precision: str = "fp32", gpu: str = CPU, batch: int = 8) -> Row:
    """A run of the laptop's model in `batch` sequences of 128 tokens a step."""
    own = trained.RunSettings(ranks, precision, "eager", batch // ranks, "none")
    parts = loop.StepParts(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    steps = 128 * batch, step_s, step_s, step_s, parts, 2.0, 1.0
    told = loop.TrainingMeasured(ranks, MODEL.parameters, 10, *steps, 10**9, 0, 0, 0.0, None, 10 * step_s)
    run = trained.TrainedRun(
        f"{ranks}-{precision}", own, told, None, "", trained.Conditions(*[None, "", *[None] * 5])
    )
    return row_of(run, Ran(MODEL, gpu, 128, 3))


def true_s(**asked: object) -> float:
    """What it takes where the constants are right but for one factor of the whole."""
    (answer,) = PREDICT["training"](
        [row(1.0, **asked)],  # type: ignore[arg-type]
        load_catalog(),
        load_constants(),
        load_known(),
    )
    return SLOWER * float(answer["pred_step_time_s"])


def planned(wanted: Row, *others: Row, compute: str = "eager") -> Estimate:
    return planned_step_s(others, wanted, compute, load_catalog(), load_constants())


def width(step: Estimate) -> float:
    return log(step.high / step.low)


def runs(gpu: str = CPU) -> tuple[Row, ...]:
    asked = [{"ranks": ranks, "batch": batch, "gpu": gpu} for ranks, batch in ((2, 8), (2, 16), (1, 8))]
    return tuple(row(true_s(**each), **each) for each in asked)  # type: ignore[arg-type]


def test_a_run_is_planned_from_the_others_and_not_from_itself() -> None:
    others, took_s = runs(), true_s(ranks=1, batch=4)
    found = planned(row(took_s, 1, batch=4), *others)
    assert found.value == pytest.approx(took_s, rel=0.05) and found.low < took_s < found.high
    assert planned(row(100 * took_s, 1, batch=4), *others) == found
    slower = [each | {"step_time_s": str(1.2 * float(each["step_time_s"]))} for each in others]
    assert planned(row(took_s, 1, batch=4), *slower).value > 1.1 * found.value  # what others took does


def test_compiled_code_takes_at_most_what_eager_code_does_and_its_range_says_what_is_not_known() -> None:
    others, wanted = runs(), row(1.0)
    eager, compiled = planned(wanted, *others), planned(wanted, *others, compute="compiled")
    assert compiled.low < compiled.value < eager.value
    assert compiled.high == pytest.approx(eager.high) and width(compiled) > width(eager)


def test_a_format_that_the_device_does_not_state_is_planned_less_surely() -> None:
    ours, full, half = runs(), row(1.0), row(1.0, precision="bf16")
    told, unsure = planned(full, *ours), planned(half, *ours)
    known, apart = (math.log(each.high / each.value) for each in (told, unsure))
    assert apart == pytest.approx(math.hypot(known, math.log(2.0)), rel=0.05)  # by other units, or none
    assert unsure.value / unsure.low == pytest.approx(unsure.high / unsure.value, rel=0.01)
    stated = runs(GPU)
    full, half = row(1.0, gpu=GPU), row(1.0, precision="bf16", gpu=GPU)
    assert width(planned(half, *stated)) == pytest.approx(width(planned(full, *stated)), abs=0.05)
    assert planned(half, *stated).value < planned(full, *stated).value


def test_runs_of_two_machines_calibrate_nothing_together() -> None:
    with pytest.raises(InputError, match="of several machines"):
        planned(row(1.0), row(1.0), row(1.0, gpu=GPU))
    with pytest.raises(InputError):
        planned({**row(1.0), "precision": "fp12"}, *runs())
