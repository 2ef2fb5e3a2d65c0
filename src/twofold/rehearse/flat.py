"""A rehearsal as flat figures by name, so that runs can be compared, paired and swept alike."""

from collections.abc import Sequence
from math import isclose, sqrt
from statistics import fmean, stdev

from twofold.contracts.results import ClassFigures, Comparison, Difference, Simulation, TrainingFigures

# Student's t at 97.5 %, by degrees of freedom; what is beyond is taken at the last.
STUDENT_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160)
METRICS = ("ttft", "tpot", "e2e")
QUANTILES = ("p50", "p95", "p99")
ROUNDING = 1e-9  # of a figure: what sums in another order differ by
Flat = dict[str, float]


def flat_figures(simulation: Simulation) -> Flat:
    """Every figure of a run that another run can be held against; absent where nothing was measured.

    Names are `CLASS.figure` for a class, plain for the whole fleet, `training.figure` for a cluster; each
    ends with its unit.
    """
    flat: Flat = {}
    for each in simulation.classes:
        flat |= {f"{each.name}.{name}": value for name, value in _of_class(each).items()}
    for tenant in simulation.tenants:
        name = f"tenant {tenant.name or 'others'}"
        found = {
            "ttft_p95_s": tenant.ttft_p95_s,
            "e2e_p95_s": tenant.e2e_p95_s,
            "fair_fraction": tenant.fair_fraction,
        }
        flat |= {f"{name}.{metric}": value for metric, value in found.items() if value is not None}
        flat[f"{name}.unanswered_fraction"] = 1.0 - tenant.finished_count / max(1, tenant.arrived_count)
    flat |= _of_fleets(simulation)
    if simulation.training:
        flat |= {f"training.{name}": value for name, value in _of_training(simulation.training).items()}
    return flat


def _of_class(each: ClassFigures) -> Flat:
    found: Flat = {}
    for metric in METRICS:
        figures = getattr(each, f"{metric}_s")
        if figures is not None:
            found |= {f"{metric}_{part}_s": getattr(figures, part) for part in QUANTILES}
    found["rate_per_s"] = each.rate_per_s
    found["goodput_fraction"] = each.goodput_fraction
    found["goodput_per_s"] = each.goodput_per_s
    found["unanswered_fraction"] = 1.0 - each.finished_count / max(1, each.arrived_count)
    return found


def _of_fleets(simulation: Simulation) -> Flat:
    fleets = simulation.fleets
    if not fleets:
        return {}
    hours = sum(fleet.accelerator_h for fleet in fleets) or 1.0
    spans_s = max(fleet.duration_s for fleet in fleets) or 1.0

    def by_hours(name: str) -> float:
        return float(sum(getattr(fleet, name) * fleet.accelerator_h for fleet in fleets) / hours)

    inputs = sum(fleet.input_tokens for fleet in fleets)
    sent_count = sum(fleet.effects.get("Send", 0) for fleet in fleets)
    found = {
        "output_tokens_per_s": sum(fleet.output_tokens for fleet in fleets) / spans_s,
        "used_fraction": by_hours("utilisation_fraction"),
        "kv_fraction": by_hours("kv_utilisation_fraction"),
        "computed_s": sum(fleet.computed_s for fleet in fleets),
        "saved_s": sum(fleet.saved_s for fleet in fleets),
        "kv_waste_fraction": by_hours("kv_waste_fraction"),
        "prefix_hit_fraction": sum(f.prefix_hit_fraction * f.input_tokens for f in fleets) / max(1, inputs),
        "retries": float(sum(fleet.retry_count for fleet in fleets)),
        # Sends to replicas over requests that arrived: tries that the gate refused count none.
        "sends_ratio": sent_count / max(1, sum(fleet.arrived_count for fleet in fleets)),
        "starts": float(sum(fleet.started_count for fleet in fleets)),
        "start_s": max(fleet.start_s_mean for fleet in fleets),
        "accelerator_h": hours,
        "energy_j": sum(fleet.energy_j for fleet in fleets),
        "power_ramp_w_per_s": max(fleet.power_ramp_w_per_s for fleet in fleets),
        "missent": float(sum(one.after_fault.missent_count for one in fleets if one.after_fault)),
    }
    for name in ("token_gap_p99_s", "token_gap_max_s"):
        gaps_s = [gap_s for fleet in fleets if (gap_s := getattr(fleet, name)) is not None]
        if gaps_s:
            found[name] = max(gaps_s)
    if all(fleet.cost_usd is not None for fleet in fleets):
        found["cost_usd"] = sum(fleet.cost_usd or 0.0 for fleet in fleets)
    return found


def _of_training(figures: TrainingFigures) -> Flat:
    found = {
        name: float(getattr(figures, name))
        for name in (
            *("goodput_fraction", "utilisation_fraction", "fragmentation_fraction"),
            *("checkpoint_s_mean", "recovery_s_mean", "serving_shortfall_h"),
            *("slowdown_factor", "serving_slowdown_factor", "checkpoint_metadata_s", "checkpoint_data_s"),
            *("checkpoint_files_count", "largest_free_count_mean"),
        )
    }
    found |= {f"{use}_h": hours for use, hours in figures.accelerator_h.items()}
    paid_h = sum(figures.accelerator_h.values())
    found["work_fraction"] = figures.accelerator_h["busy"] / paid_h if paid_h else 0.0
    found |= {f"queue_{size}_p95_s": seconds for size, seconds in figures.queue_s_p95.items()}
    found |= {"preempted": float(figures.preempted_count), "restarts": float(figures.restart_count)}
    found["completed"] = float(figures.outcomes.get("completed", 0))
    if figures.step:
        step = figures.step
        found |= {"step_p99_s": step.step_s_p99, "step_inflation_fraction": step.inflation_fraction}
        found |= {f"step_{part}_s": seconds for part, seconds in step.parts_s.items()}
        found["run_accelerators"] = float(step.accelerator_count)
    return found


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and its 95 % confidence interval; of one value, the value alone.

    Formula  mean ± t(n−1, 97.5 %)·s/√n
    """
    middle = fmean(values)
    if len(values) < 2:
        return middle, middle, middle
    half = STUDENT_T[min(len(values) - 1, len(STUDENT_T)) - 1] * stdev(values) / sqrt(len(values))
    return middle, middle - half, middle + half


def compared(first: Sequence[Simulation], second: Sequence[Simulation]) -> Comparison:
    """Figures of two scenarios over the same seeds, with intervals of the paired differences B − A.

    Why      Both see the same requests and the same chance, so that what they share cancels.
    """
    a, b = [flat_figures(each) for each in first], [flat_figures(each) for each in second]
    differences = []
    for name in a[0]:
        known = [(x[name], y[name]) for x, y in zip(a, b, strict=True) if name in x and name in y]
        if len(known) < min(2, len(a)):
            continue
        gaps = mean_interval([0.0 if isclose(x, y, rel_tol=ROUNDING) else y - x for x, y in known])
        differences.append(Difference(name, fmean(x for x, _ in known), fmean(y for _, y in known), *gaps))
    seeds = tuple(each.seed for each in first)
    return Comparison(first[0].scenario, second[0].scenario, seeds, tuple(differences))
