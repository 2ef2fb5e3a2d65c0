"""The one table of figures by which rehearsals are compared, swept and shown.

A figure that is added to a result is added here once: from here it reaches `--compare`, `--sweep`, their
tables and the line of a fleet's use. Its name ends with its unit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from twofold.contracts.goals import METRICS, QUANTILES
from twofold.contracts.results import simulated
from twofold.contracts.results.simulated import ClassFigures

Value = float | Mapping[str, float] | None


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a class, a tenant, all fleets or a cluster; or, with `{}` in its name, one by key."""

    name: str
    value: Callable[[Any], Value]  # None: nothing was measured
    heading: str = ""  # of its column in a sweep; "": its name in words
    compared: Literal["always", "differs", ""] = ""  # shown by `--compare`: in any case, beyond chance
    sweep_rank: int = 0  # of the columns of a sweep, the lowest first; 0: where a key asks for it
    of_fleet: Callable[[simulated.FleetFigures], float] | None = None  # what `text` shows of one fleet
    text: str = ""  # on the line of a fleet's use, with `{}` for its value
    of_tokens: bool = False  # of measured rows there is none


def _quantile(metric: str, part: str) -> Callable[[ClassFigures], Value]:
    def value(each: ClassFigures) -> Value:
        found = getattr(each, f"{metric}_s")
        return None if found is None else float(getattr(found, part))

    return value


def _unanswered(each: ClassFigures | simulated.TenantFigures) -> float:
    return 1.0 - each.finished_count / max(1, each.arrived_count)


SWEEP_RANKS = {"e2e_p95": 1, "ttft_p95": 2, "tpot_p95": 3, "e2e_p99": 4}
OF_CLASS = (
    *(
        Figure(
            f"{metric}_{part}_s",
            _quantile(metric, part),
            compared="always" if part == "p95" else "",
            sweep_rank=SWEEP_RANKS.get(f"{metric}_{part}", 0),
        )
        for metric in METRICS
        for part in QUANTILES
    ),
    Figure("rate_per_s", attrgetter("rate_per_s")),
    Figure("goodput_fraction", attrgetter("goodput_fraction"), compared="always", sweep_rank=5),
    Figure("goodput_per_s", attrgetter("goodput_per_s")),
    Figure("unanswered_fraction", _unanswered, compared="differs"),
)
OF_TENANT = (
    Figure("ttft_p95_s", attrgetter("ttft_p95_s"), compared="always"),
    Figure("e2e_p95_s", attrgetter("e2e_p95_s"), compared="always"),
    Figure("fair_fraction", attrgetter("fair_fraction")),
    Figure("unanswered_fraction", _unanswered, compared="differs"),
)

Fleets = Sequence[simulated.FleetFigures]


def _sum(name: str) -> Callable[[Fleets], Value]:
    """None where a fleet has none."""

    def value(fleets: Fleets) -> Value:
        found = [getattr(fleet, name) for fleet in fleets]
        return None if None in found else float(sum(found))

    return value


def _most(name: str) -> Callable[[Fleets], Value]:
    """Of the fleets that have one."""
    return lambda fleets: max(
        (found for fleet in fleets if (found := getattr(fleet, name)) is not None), default=None
    )


def _mean(name: str, weight: str) -> Callable[[Fleets], Value]:
    """By what each fleet has of the weight: accelerator-hours, or input tokens."""

    def value(fleets: Fleets) -> Value:
        whole = sum(getattr(fleet, weight) for fleet in fleets) or 1.0
        return float(sum(getattr(fleet, name) * getattr(fleet, weight) for fleet in fleets) / whole)

    return value


def _output_tokens_per_s(fleets: Fleets) -> float:
    duration_s = max(fleet.duration_s for fleet in fleets) or 1.0
    return sum(fleet.output_tokens for fleet in fleets) / duration_s


OF_FLEETS = (
    Figure(
        "output_tokens_per_s", _output_tokens_per_s, heading="output tok/s", compared="differs", sweep_rank=1
    ),
    Figure(
        "used_fraction",
        _mean("utilisation_fraction", "accelerator_h"),
        heading="computing",
        sweep_rank=2,
        of_fleet=attrgetter("utilisation_fraction"),
        text="computing {} of the time",
    ),
    Figure(
        "kv_fraction",
        _mean("kv_utilisation_fraction", "accelerator_h"),
        heading="KV cache",
        sweep_rank=3,
        of_fleet=attrgetter("kv_utilisation_fraction"),
        text="KV cache {}",
        of_tokens=True,
    ),
    Figure("computed_s", _sum("computed_s")),
    Figure("saved_s", _sum("saved_s")),
    Figure("kv_waste_fraction", _mean("kv_waste_fraction", "accelerator_h"), heading="cache empty"),
    Figure(
        "prefix_hit_fraction",
        _mean("prefix_hit_fraction", "input_tokens"),
        heading="cache hits",
        compared="differs",
        sweep_rank=4,
        of_fleet=attrgetter("prefix_hit_fraction"),
        text="prefix hits {}",
        of_tokens=True,
    ),
    Figure("retries", _sum("retry_count"), compared="always"),
    Figure(  # sends to replicas over requests that arrived: tries that the gate refused count none
        "sends_ratio",
        lambda fleets: (
            sum(each.effects.get("Send", 0) for each in fleets)
            / max(1, sum(each.arrived_count for each in fleets))
        ),
    ),
    Figure("starts", _sum("started_count")),
    Figure("start_s", _most("start_s_mean"), compared="differs"),
    Figure("accelerator_h", lambda fleets: sum(fleet.accelerator_h for fleet in fleets) or 1.0),
    Figure("energy_j", _sum("energy_j")),
    Figure("power_ramp_w_per_s", _most("power_ramp_w_per_s")),
    Figure(
        "missent", lambda fleets: sum(each.after_fault.missent_count for each in fleets if each.after_fault)
    ),
    Figure("token_gap_p99_s", _most("token_gap_p99_s")),
    Figure("token_gap_max_s", _most("token_gap_max_s")),
    Figure("cost_usd", _sum("cost_usd"), heading="cost", compared="always", sweep_rank=5),
)


def _work_fraction(training: simulated.TrainingFigures) -> float:
    paid_h = sum(training.accelerator_h.values())
    return training.accelerator_h["busy"] / paid_h if paid_h else 0.0


def _of_step(name: str) -> Callable[[simulated.TrainingFigures], Value]:
    """None where no run has a step."""
    return lambda training: getattr(training.step, name) if training.step else None


def _of_part(part: str) -> Callable[[simulated.TrainingFigures], Value]:
    return lambda training: training.step.parts_s[part] if training.step else None


STEP_PART_HEADINGS = {"compute": "compute", "communication": "network", "input": "input", "sync": "sync"}
OF_TRAINING = (
    Figure("goodput_fraction", attrgetter("goodput_fraction"), compared="always"),
    Figure("utilisation_fraction", attrgetter("utilisation_fraction")),
    Figure("fragmentation_fraction", attrgetter("fragmentation_fraction")),
    Figure("checkpoint_s_mean", attrgetter("checkpoint_s_mean")),
    Figure("recovery_s_mean", attrgetter("recovery_s_mean")),
    Figure("serving_shortfall_h", attrgetter("serving_shortfall_h")),
    Figure("slowdown_factor", attrgetter("slowdown_factor"), heading="times as long"),
    Figure("serving_slowdown_factor", attrgetter("serving_slowdown_factor")),
    Figure("checkpoint_metadata_s", attrgetter("checkpoint_metadata_s"), heading="to create them"),
    Figure("checkpoint_data_s", attrgetter("checkpoint_data_s"), heading="to write bytes"),
    Figure("checkpoint_files_count", attrgetter("checkpoint_files_count"), heading="files in all"),
    Figure("largest_free_count_mean", attrgetter("largest_free_count_mean")),
    Figure("{}_h", attrgetter("accelerator_h")),
    Figure("work_fraction", _work_fraction, heading="work of all paid"),
    Figure("queue_{}_p95_s", attrgetter("queue_s_p95")),
    Figure("preempted", attrgetter("preempted_count")),
    Figure("restarts", attrgetter("restart_count")),
    Figure("completed", lambda training: training.outcomes.get("completed", 0)),
    Figure("step_p99_s", _of_step("step_s_p99")),
    Figure("step_inflation_fraction", _of_step("inflation_fraction"), heading="over undisturbed"),
    *(
        Figure(f"step_{part}_s", _of_part(part), heading=heading)
        for part, heading in STEP_PART_HEADINGS.items()
    ),
    Figure("run_accelerators", _of_step("accelerator_count"), heading="accelerators"),
)


def flat_figures(simulation: simulated.Simulation) -> dict[str, float]:
    """Every figure of a run that another run can be held against; absent where nothing was measured.

    Names are `CLASS.figure` for a class, plain for the whole fleet, `training.figure` for a cluster.
    """
    flat: dict[str, float] = {}
    for each in simulation.classes:
        flat |= _flat(OF_CLASS, each, f"{each.name}.")
    for tenant in simulation.tenants:
        flat |= _flat(OF_TENANT, tenant, f"tenant {tenant.name or 'others'}.")
    if simulation.fleets:
        flat |= _flat(OF_FLEETS, simulation.fleets, "")
    if simulation.training:
        flat |= _flat(OF_TRAINING, simulation.training, "training.")
    return flat


def _flat(figures: Sequence[Figure], source: Any, prefix: str) -> Iterator[tuple[str, float]]:
    for figure in figures:
        value = figure.value(source)
        by_key = value if isinstance(value, Mapping) else {figure.name: value}
        for key, found in by_key.items():
            if found is not None:
                yield f"{prefix}{figure.name.format(key)}", float(found)


def figure_of(name: str) -> Figure | None:
    """The row of a flat figure; None of one that is by key."""
    prefix, _, last = name.rpartition(".")
    of_prefix = {"": OF_FLEETS, "training": OF_TRAINING}
    rows = of_prefix.get(prefix, OF_TENANT if prefix.startswith("tenant ") else OF_CLASS)
    return next((figure for figure in rows if figure.name == last), None)
