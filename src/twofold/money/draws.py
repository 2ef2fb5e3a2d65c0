"""The first year under draws of all that is not known: how wide it is, what moves and what narrows it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from twofold.answer import uncertainty
from twofold.answer.context import Context
from twofold.answer.serving_choice import ServingChoice
from twofold.answer.serving_pools import fleet_need
from twofold.answer.training_choice import TrainingChoice
from twofold.answer.training_plan import hours_ratios
from twofold.contracts.results import ledger
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.estimate import Estimate

Samples = NDArray[np.float64]
Z_80 = 1.2816
TRAINING_MODEL, SERVING_MODEL = "training model", "serving model"
OUTSIDE = ("price", "traffic", TRAINING_MODEL, SERVING_MODEL)  # factors of a cost that no model changes
SHUFFLES = 25
NARROW = 1e-6  # a spread of logarithms that is none
# What a user can measure, where it goes, and which inputs are then known.
MEASUREMENTS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "steps of your run": (
            "twofold calibrate",
            ("compute", "memory_bandwidth", "link", "fabric", "overlap", "storage", TRAINING_MODEL),
        ),
        "answers of your service": (
            "twofold calibrate",
            ("compute", "memory_bandwidth", "link", "host", "memory_use", SERVING_MODEL),
        ),
        "your accelerator": ("twofold measure device", ("compute", "memory_bandwidth", "host")),
        "a trace of your requests": ("traffic: {trace: FILE}", ("traffic",)),
        "a quote": ("prices.csv beside the spec", ("price",)),
        "failures of your fleet": ("reliability.csv beside the spec", ("failure_rate",)),
    }
)


@dataclass(frozen=True, slots=True)
class Distribution:
    """A figure over its draws."""

    mean: float
    low: float  # 10th percentile
    median: float
    high: float  # 90th percentile
    over_limit_fraction: float | None  # of the draws; None: there is no limit

    @property
    def width(self) -> float:
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class Part:
    """A run or service that has a price, with what it was chosen from where a model knows it."""

    plan: TrainingPlan | ServicePlan
    choice: TrainingChoice | ServingChoice | None
    cost_usd: Estimate  # of one run, or of a year
    run_count: float  # in a year; 1 for a service
    outside: tuple[str, ...]  # factors of its cost that its model does not change
    error: str  # the factor of its model's own error


def priced_parts(
    plan: Plan,
    runs: Mapping[str, TrainingChoice],
    services: Mapping[str, ServingChoice],
    context: Context,
) -> tuple[Part, ...]:
    """The plan's parts that have a price."""
    return (
        *(
            Part(run, runs.get(run.name), run.cost_usd, entry.runs_per_year, ("price",), TRAINING_MODEL)
            for run, entry in zip(plan.training, context.spec.training, strict=True)
            if run.cost_usd
        ),
        *(
            Part(each, services.get(each.name), cost, 1.0, ("price", "traffic"), SERVING_MODEL)
            for each in plan.serving
            if (cost := each.cost_usd_per_year)
        ),
    )


def residuals(priced: Sequence[Part], context: Context) -> dict[str, float]:
    """Spread of logarithms that no named factor explains, by model: how far rows that no fit saw lay.

    Formula  σ² = (ln(high/low) / 2.563)² − the same of the samples, at least 0; the widest of each half
    Why      Ranges were stretched to what measurements showed that no fit saw. That part is nobody's factor,
             and goes when the model is held against rows of one's own.
    """
    sigmas = {TRAINING_MODEL: 0.0, SERVING_MODEL: 0.0}
    for part, ratio in zip(priced, modelled(priced, context, context.draws), strict=True):
        cost = part.cost_usd
        if part.choice and cost.low > 0:
            for name in part.outside:
                ratio = ratio * np.ravel(context.draws[name])
            whole = np.log(cost.high / cost.low) / (2 * Z_80)
            low, high = np.percentile(ratio, (10.0, 90.0))
            drawn = np.log(high / low) / (2 * Z_80)
            rest = float(np.sqrt(max(0.0, whole**2 - drawn**2)))
            sigmas[part.error] = max(sigmas[part.error], rest)
    return sigmas


def modelled(priced: Sequence[Part], context: Context, draws: uncertainty.Draws) -> list[Samples]:
    """Each part's cost over its middle, under the draws of what its model knows."""
    found = []
    for part in priced:
        if isinstance(part.choice, TrainingChoice):
            found.append(hours_ratios(part.choice, draws))
        elif part.choice:
            found.append(fleet_need(part.choice, replace(context, draws=draws)))
        else:
            found.append(np.ones(draws["price"].shape[0]))
    return found


def first_year_samples(
    priced: Sequence[Part], ratios: Sequence[Samples], factors: Mapping[str, Samples]
) -> Samples:
    """USD of the first year: each part's cost, times what its model says, times the factors outside it.

    Shapes   ratios of the parts repeat as often as the factors are longer.
    """
    count = len(factors["price"])
    total = np.zeros(count)
    for part, ratio in zip(priced, ratios, strict=True):
        outside = np.ones(count)
        for name in (*part.outside, part.error):
            outside = outside * factors[name]
        total += part.cost_usd.value * part.run_count * np.resize(ratio, count) * outside
    return total


def swings(
    priced: Sequence[Part], left: Mapping[str, float], context: Context
) -> tuple[ledger.SwingRow, ...]:
    """The ten inputs that move the first year most, each alone at both ends of its 80 % range."""
    ends = {name: uncertainty.factor_ends(context.constants, name) for name in uncertainty.FACTORS}
    for name, sigma in left.items():
        if sigma > NARROW:
            ends[name] = (float(np.exp(-Z_80 * sigma)), float(np.exp(Z_80 * sigma)))
    # All in one pass of draws; as many rows in the middle again: a median over the rows is then that of it.
    rows = [(name, value) for name, pair in ends.items() for value in pair]
    count = 2 * len(rows)
    draws = {name: np.ones((count, 1)) for name in uncertainty.FACTORS}
    factors = {name: np.ones(count) for name in OUTSIDE}
    for index, (name, value) in enumerate(rows):
        if name in factors:
            factors[name][index] = value
        else:
            draws[name][index, 0] = value
    usd = first_year_samples(priced, modelled(priced, context, draws), factors)
    values = {row: float(usd[index]) for index, row in enumerate(rows)}
    return tornado(lambda name, value: values[name, value], ends)


def tornado(
    figure: Callable[[str, float], float], ranges: Mapping[str, tuple[float, float]], most: int = 10
) -> tuple[ledger.SwingRow, ...]:
    """The inputs that move a figure most, longest bar first.

    Formula  bar = figure(input at its low end), figure(at its high end), the others at 1 or their middle
    Why      One at a time: what each unknown alone is worth knowing.
    Units    those of the figure, which takes the input that differs from its middle, and its value.
    """
    bars = [
        ledger.SwingRow(name, low, high, figure(name, low), figure(name, high))
        for name, (low, high) in ranges.items()
    ]
    bars.sort(key=lambda bar: (-abs(bar.at_high_usd - bar.at_low_usd), bar.name))
    return tuple(replace(bar, name=bar.name.replace("_", " ")) for bar in bars[:most])


def drawn_first_year(
    priced: Sequence[Part], left: Mapping[str, float], context: Context, held: frozenset[str] = frozenset()
) -> Samples:
    """The first year over the common draws, some inputs held at their middle.

    What stands outside the models (price, traffic, their own error) is drawn `SHUFFLES` times as often, in
    other orders: the models are asked no more, and chance likeness between two inputs averages out.
    """
    draws = {name: np.ones_like(values) if name in held else values for name, values in context.draws.items()}
    count = context.draws["price"].shape[0]
    factors = {}
    for stream, name in enumerate(OUTSIDE):
        if name in left:
            sigma = 0.0 if name in held else left[name]
            low, high = float(np.exp(-Z_80 * sigma)), float(np.exp(Z_80 * sigma))
            values = (
                uncertainty.draws_between(1.0, low, high, count, 100 + stream)
                if sigma > NARROW
                else np.ones(count)
            )
        else:
            values = np.ravel(draws[name])
        order = np.random.default_rng([len(OUTSIDE), stream])
        factors[name] = np.concatenate([order.permutation(values) for _ in range(SHUFFLES)])
    return first_year_samples(priced, modelled(priced, context, draws), factors)


def measuring(
    priced: Sequence[Part], left: Mapping[str, float], context: Context
) -> tuple[ledger.MeasuringRow, ...]:
    """Which measurement narrows the first year most; those that pin nothing of this plan are left out."""
    errors = {part.error for part in priced}
    asked = {
        name: what
        for name, what in MEASUREMENTS.items()
        # Each of these pins an input of one half of the plan.
        if TRAINING_MODEL in errors or name != "steps of your run"
        if SERVING_MODEL in errors or name not in ("answers of your service", "a trace of your requests")
    }
    return value_of_measuring(lambda held: drawn_first_year(priced, left, context, held), asked)


def distribution(samples: Samples, limit: float | None = None) -> Distribution:
    """Mean, median, deciles, and the share of draws above a limit."""
    low, middle, high = np.percentile(samples, (10.0, 50.0, 90.0))
    over = None if limit is None else float(np.mean(samples > limit))
    return Distribution(float(np.mean(samples)), float(low), float(middle), float(high), over)


def value_of_measuring(
    figure: Callable[[frozenset[str]], Samples], measurements: Mapping[str, tuple[str, tuple[str, ...]]]
) -> tuple[ledger.MeasuringRow, ...]:
    """Which measurement narrows a figure most, the best first.

    `figure` gives the samples with the named inputs held at their middle and the others as drawn.

    Formula  narrowing = width of the 80 % range with all inputs drawn − width with the measured ones held
    Why      Knowing an input exactly takes its part of the spread away. Widths do not add: two measurements
             together take away more than either, less than both.
    Units    those of the figure.
    Limits   What the draws cannot resolve counts as nothing: no measurement widens a range.
    """
    before = distribution(figure(frozenset())).width
    rows = [
        ledger.MeasuringRow(
            name, command, pins, before, min(before, distribution(figure(frozenset(pins))).width)
        )
        for name, (command, pins) in measurements.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-(row.before_usd - row.after_usd), row.name)))
