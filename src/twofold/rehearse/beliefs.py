"""How far a rehearsal puts the gate's beliefs off: as a scenario says, else as far as the plan may be."""

from collections.abc import Iterator, Sequence

from twofold.contracts.results import ClassPlan
from twofold.contracts.scenario import Scenario
from twofold.core import Estimate
from twofold.rehearse.run import PoolTask

ANSWER = "decode"  # the part of a request's time that beliefs are of, with a range of its own fit
LEAST_FRACTION = 0.3  # too high and too low, however narrow the plan's own range


def belief_factors(scenario: Scenario, tasks: Sequence[PoolTask]) -> tuple[float, ...]:
    """Times the world's own times: perfect ones, then what is put off; perfect ones alone for an error of 0.

    Formula  1 − error and 1 + error where the scenario says it; else ±30 %, or, where that is wider,
             low / value and high / value of what the plan predicts a request to take, in any class
    Why      a plan's range is what its fit was off by on rows left out: beliefs of that fit are as far off.
    """
    error = scenario.beliefs.error_fraction
    if error is None:
        ratios = [1.0, *(ratio for task in tasks for each in task.classes for ratio in _ratios(each))]
        return 1.0, min(1.0 - LEAST_FRACTION, *ratios), max(1.0 + LEAST_FRACTION, *ratios)
    return (1.0, 1.0 - error, 1.0 + error) if error else (1.0,)


def _ratios(planned: ClassPlan) -> Iterator[float]:
    answers: list[Estimate] = [part.value for part in planned.latency_budget if part.name == ANSWER]
    for each in answers or planned.percentiles.values():
        if 0.0 < each.low <= each.value <= each.high:
            yield each.low / each.value
            yield each.high / each.value
